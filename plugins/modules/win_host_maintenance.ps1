#!powershell

# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

#Requires -Version 5.1
#AnsibleRequires -CSharpUtil Ansible.Basic
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._HostMaintenance
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_command
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_connections
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_failover_cluster
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_health_probe
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_iis
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_services
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Checkpoint_command
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Checkpoint_paths

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$options = (Get-GracefulServiceOption) + @{
    order = @{ type = 'str'; choices = @('look', 'ready', 'approve', 'put_back', 'release'); default = 'look' }
    events = @{ type = 'list'; elements = 'dict'; default = @() }
    steps = @{ type = 'list'; elements = 'dict'; default = @() }
    checkpoint = @{ type = 'list'; elements = 'dict'; default = @() }
    health = @{ type = 'list'; elements = 'dict'; default = @() }
    health_mistake = @{ type = 'str'; default = '' }
    secrets = @{ type = 'dict'; default = @{}; no_log = $true }
    record_dir = @{ type = 'path'; default = '%ProgramData%\graceful\records' }
    checkpoint_dir = @{ type = 'path'; default = '%ProgramData%\graceful\checkpoints' }
    run_id = @{ type = 'str'; default = '' }
    run_name = @{ type = 'str'; default = '' }
    silent_for = @{ type = 'float'; default = 120 }
    force = @{ type = 'bool'; default = $false }
    seconds = @{ type = 'float'; default = 300 }
    wait = @{ type = 'float'; default = 0 }
    known = @{ type = 'str'; default = '' }
    undo_on_failure = @{ type = 'bool'; default = $false }
    controller_step = @{ type = 'dict' }
    looked = @{ type = 'dict'; default = @{} }
    max_age = @{ type = 'float'; default = 60 }
    fresh = @{ type = 'float'; default = 30 }
    lapsed = @{ type = 'list'; elements = 'str'; default = @() }
    probe_record = @{ type = 'bool'; default = $false }
    timeout = @{ type = 'float'; default = 0 }
}
$module = [Ansible.Basic.AnsibleModule]::Create($args, @{ options = $options; supports_check_mode = $true })
Exit-GracefulModule $module { Invoke-GracefulModule (ConvertTo-GracefulData $module.Params) $module.CheckMode }
