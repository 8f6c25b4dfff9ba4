#!powershell

# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

#Requires -Version 5.1
#AnsibleRequires -CSharpUtil Ansible.Basic
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._ScheduledEvents
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsApproval

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$options = (Get-GracefulServiceOption) + @{
    event_ids = @{ type = 'list'; elements = 'str'; required = $true; aliases = @('event_id') }
    leader_only = @{ type = 'bool'; default = $false }
    missing = @{ type = 'str'; choices = @('fail', 'ok'); default = 'fail' }
    expected_resources = @{ type = 'list'; elements = 'str' }
    expected_type = @{ type = 'str' }
}
$module = [Ansible.Basic.AnsibleModule]::Create($args, @{ options = $options; supports_check_mode = $true })
Exit-GracefulModule $module {
    $params = $module.Params
    $service = New-GracefulService $params
    $ids = @($params['event_ids'])
    if (-not $ids.Count -or @($ids | Where-Object { -not $_.Trim() }).Count) {
        throw (New-GracefulError 'event_ids names no event, or an empty one. Give the ids that scheduled_events_info returns.' 'wrong_option')
    }
    $terms = @{ Leader = $null; Resources = $params['expected_resources']; EventType = $params['expected_type'] }
    if ($params['leader_only']) { $terms['Leader'] = Get-GracefulRequiredName (New-GracefulViewpoint $module $service $params) 'leader_only' }
    $approval = Invoke-GracefulApproval $service $ids $terms -MissingOk:($params['missing'] -eq 'ok') -CheckMode:$module.CheckMode
    foreach ($warning in (@($approval['warnings']) + @($approval['refusals']))) { $module.Warn($warning) }
    $before = New-GracefulMap
    $after = New-GracefulMap
    foreach ($id in $approval['approved']) {
        $before[$id] = 'Scheduled'
        $after[$id] = 'Started'
        if ($approval['statuses'].ContainsKey($id)) { $after[$id] = $approval['statuses'][$id] }
    }
    $result = New-GracefulMap (Get-GracefulApprovalList $approval) @{ diff = @{ before = $before; after = $after } }
    if (@($approval['refusals']).Count) { $result['msg'] = @($approval['refusals']) -join ' ' }
    $result
}
