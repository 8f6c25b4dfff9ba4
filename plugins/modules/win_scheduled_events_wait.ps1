#!powershell

# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

#Requires -Version 5.1
#AnsibleRequires -CSharpUtil Ansible.Basic
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._ScheduledEvents
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsWait

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$options = (Get-GracefulServiceOption) + (Get-GracefulFilterOption) + @{
    until = @{ type = 'str'; choices = @('appeared', 'started', 'gone', 'changed'); default = 'appeared' }
    timeout = @{ type = 'float'; default = 900 }
    poll_interval = @{ type = 'float'; default = 1 }
    on_timeout = @{ type = 'str'; choices = @('fail', 'ok'); default = 'fail' }
    seen = @{ type = 'dict' }
}
$module = [Ansible.Basic.AnsibleModule]::Create($args, @{ options = $options; supports_check_mode = $true })
Exit-GracefulModule $module { Wait-GracefulEvent $module (New-GracefulService $module.Params) $module.Params }
