# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Shared by the modules for events: their options, and the events with the fields for this VM (_argspec.py and _viewpoint.py).
# Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsDocument

Set-StrictMode -Version 2.0

$script:KnownSources = @('Platform', 'User')

function Get-GracefulFilterOption {
    return @{
        event_ids = @{ type = 'list'; elements = 'str'; aliases = @('event_id') }
        event_types = @{ type = 'list'; elements = 'str' }
        event_statuses = @{ type = 'list'; elements = 'str' }
        event_sources = @{ type = 'list'; elements = 'str' }
        only_mine = @{ type = 'bool'; default = $false }
    }
}

function Get-GracefulFilter {
    param($Params)
    $filters = @{ only_mine = $Params['only_mine'] }
    foreach ($name in @('event_ids', 'event_types', 'event_statuses', 'event_sources')) {
        $filters[$name] = @($Params[$name] | Where-Object { $null -ne $_ })
        if (@($filters[$name] | Where-Object { -not $_.Trim() }).Count) {
            throw (New-GracefulError "$name has an empty entry, which no event matches. Leave it out to mean all events." 'wrong_option')
        }
    }
    foreach ($status in $filters['event_statuses']) {
        if (@('scheduled', 'started') -notcontains $status) {
            throw (New-GracefulError "event_statuses has $(Format-GracefulQuoted $status). Valid values are Scheduled and Started." 'wrong_option')
        }
    }
    return $filters
}

function New-GracefulViewpoint {
    # Reads the events for this VM. Its Azure name is requested once, and only if it is not given.
    param($Module, $Service, $Params, $KnownName = $null)
    $given = $Params['vm_name']
    if ($null -ne $given -and -not $given.Trim()) {
        throw (New-GracefulError "vm_name is empty; leave it out to ask the service, or give the VM's Azure name." 'wrong_option')
    }
    $name = $KnownName
    if ($given) { $name = Get-GracefulPlainName $given.Trim() }
    foreach ($option in @(@('event_types', (Get-GracefulKnownType)), @('event_sources', $script:KnownSources))) {
        foreach ($one in @($Params[$option[0]] | Where-Object { $null -ne $_ -and $option[1] -notcontains $_ })) {
            # A warning only: Azure may add new types and sources.
            $Module.Warn("$($option[0]) has $(Format-GracefulQuoted $one), which is not known. Known are $($option[1] -join ', ').")
        }
    }
    return @{ Module = $Module; Service = $Service; VmName = $name; Warned = @{} }
}

function Get-ViewpointName {
    param($View)
    if ($null -eq $View.VmName) { $View.VmName = Get-GracefulVmName $View.Service }
    return $View.VmName
}

function Get-GracefulRequiredName {
    # This VM's name, for an option that needs it.
    param($View, [string]$Option)
    $name = Get-ViewpointName $View
    if ($null -eq $name) {
        throw (New-GracefulError ("$Option needs this VM's Azure name, which the service does not return (a classic VM?). Set vm_name."
            ) 'wrong_option')
    }
    return $name
}

function Read-GracefulViewpoint {
    # Returns @{Events; Incarnation; ClockOffset}.
    param($View)
    $reading = Read-GracefulEvents $View.Service
    $texts = @()
    if ($null -eq (Get-ViewpointName $View)) {
        $texts += "The service does not return this VM's Azure name (a classic VM?): vm_name and affects_me are null. Set vm_name to the " +
        "VM's Azure name."
    }
    foreach ($text in ($texts + @($reading['Document']['Oddities']))) {
        if ($View.Warned.ContainsKey($text)) { continue }
        $View.Warned[$text] = $true
        $View.Module.Warn($text)
    }
    $events = Get-GracefulSeenBy $reading['Document'] $View.VmName $reading['ServiceTime']
    return @{ Events = $events; Incarnation = $reading['Document']['Incarnation']; ClockOffset = $reading['ClockOffset'] }
}

Export-ModuleMember -Function @(
    'Get-GracefulFilterOption', 'Get-GracefulFilter', 'New-GracefulViewpoint', 'Get-GracefulRequiredName', 'Read-GracefulViewpoint'
)
