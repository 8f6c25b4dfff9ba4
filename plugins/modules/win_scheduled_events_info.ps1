#!powershell

# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

#Requires -Version 5.1
#AnsibleRequires -CSharpUtil Ansible.Basic
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._ScheduledEvents

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$options = (Get-GracefulServiceOption) + (Get-GracefulFilterOption)
$module = [Ansible.Basic.AnsibleModule]::Create($args, @{ options = $options; supports_check_mode = $true })
Exit-GracefulModule $module {
    $service = New-GracefulService $module.Params
    $view = New-GracefulViewpoint $module $service $module.Params
    $filters = Get-GracefulFilter $module.Params
    if ($filters['only_mine']) { $null = Get-GracefulRequiredName $view 'only_mine' }
    $look = Read-GracefulViewpoint $view
    New-GracefulMap ([ordered]@{
            events = (Select-GracefulEvent $look['Events'] $filters)
            document_incarnation = $look['Incarnation']
            vm_name = $view.VmName
            api_version = $service.ApiVersion
            endpoint = $service.Endpoint
            clock_offset = $look['ClockOffset']
        })
}
