# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Polls until the condition of a wait holds, as _waiter.py. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsDocument
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._ScheduledEvents

Set-StrictMode -Version 2.0

# Only the first response of a VM takes long; later, a stalled read must not hide a 30-second notice.
$script:SettledReadTimeout = 10.0
$script:LongestWait = 2592000
# The types of what seen may have.
$script:Numbers = @([int], [long], [double], [single], [decimal], [bool])
$script:SeenTypes = @{
    answered = @([bool]); event_ids = @([System.Collections.IList]); fingerprint = @([string]); started = @([bool])
    times = @([System.Collections.IDictionary]); vm_name = @([string]); api_version = @([string]); polls = @([int], [long], [bool])
    elapsed = $script:Numbers; slice = $script:Numbers; continues = @([bool])
}
$script:MayBeNull = @('vm_name', 'api_version', 'slice')

function New-Seen {
    # What a wait has to remember from one call to the next; an earlier call has returned it.
    param($Option)
    $seen = New-GracefulMap ([ordered]@{
            answered = $false; event_ids = @(); fingerprint = ''; started = $false; times = (New-GracefulMap); vm_name = $null
            api_version = $null; polls = 0; elapsed = 0.0; slice = $null
        })
    if ($null -eq $Option) { return , $seen }
    foreach ($key in @($Option.PSBase.Keys)) {
        $value = $Option[$key]
        $right = @($script:SeenTypes.Keys) -ccontains $key -and (
            @($script:SeenTypes[$key] | Where-Object { $value -is $_ }).Count -or ($null -eq $value -and $script:MayBeNull -contains $key))
        if (-not $right) {
            throw (New-GracefulError "seen.$(Format-GracefulText $key 80) is not what an earlier wait returned; leave seen out." 'wrong_option')
        }
        if ($key -ne 'continues') { $seen[$key] = $value }
    }
    if (@($seen['event_ids'] | Where-Object { $_ -isnot [string] }).Count) {
        throw (New-GracefulError 'seen.event_ids is not a list of event ids; leave seen out.' 'wrong_option')
    }
    $seen['event_ids'] = @($seen['event_ids'])
    foreach ($entry in @($seen['times'].PSBase.Values)) {
        $good = $entry -is [System.Collections.IDictionary] -and $entry.PSBase.Count -eq 2
        foreach ($name in @('started_at', 'gone_at')) {
            $good = $good -and $entry.Contains($name) -and ($null -eq $entry[$name] -or $entry[$name] -is [string])
        }
        if (-not $good) { throw (New-GracefulError 'seen.times does not hold the times of events; leave seen out.' 'wrong_option') }
    }
    $seen['times'] = New-GracefulMap $seen['times']
    return , $seen
}

function Add-Observation {
    # Asked: ids that are waited for until they are gone; one that was never there counts as gone.
    param($Seen, $Events, $Found, $Asked)
    $now = Format-GracefulTime (Get-GracefulNow)
    $present = Get-GracefulById $Events
    $times = New-GracefulMap
    $known = @(foreach ($one in $Found) { $one['event_id'] }) + @($Asked)
    foreach ($id in $known) { $times[(Get-GracefulSameId $id)] = New-GracefulMap @{ started_at = $null; gone_at = $null } }
    foreach ($id in @($Seen['times'].PSBase.Keys)) {
        $times[$id] = New-GracefulMap @{ started_at = $Seen['times'][$id]['started_at']; gone_at = $Seen['times'][$id]['gone_at'] }
    }
    foreach ($id in @($times.PSBase.Keys)) {
        $entry = $times[$id]
        if ($present.Contains($id) -and $present[$id]['event_status'] -ceq 'Started' -and -not $entry['started_at']) { $entry['started_at'] = $now }
        if ($present.Contains($id)) { $entry['gone_at'] = $null }
        elseif (-not $entry['gone_at']) { $entry['gone_at'] = $now }
    }
    $Seen['times'] = $times
    if (-not $Seen['answered']) {
        $Seen['answered'] = $true
        $Seen['event_ids'] = @(foreach ($one in $Found) { Get-GracefulSameId $one['event_id'] })
        $Seen['fingerprint'] = Get-GracefulFingerprint $Found
    }
    foreach ($one in $Events) {
        if ($one['event_status'] -ceq 'Started' -and $Seen['event_ids'] -ccontains (Get-GracefulSameId $one['event_id'])) { $Seen['started'] = $true }
    }
}

function Get-Progress {
    # What the controller has to know before the host goes down: the call ends when it changes.
    param($Seen, [string]$Until)
    $times = New-GracefulMap
    foreach ($id in @($Seen['times'].PSBase.Keys)) {
        $entry = $Seen['times'][$id]
        if ($entry['started_at'] -or $entry['gone_at']) { $times[$id] = @($entry['started_at'], $entry['gone_at']) }
    }
    $first = $Seen['answered'] -and @('gone', 'changed') -contains $Until
    return ConvertTo-GracefulJson @($first, $Seen['started'], $times) -Sorted
}

function Get-WaitOutcome {
    param([string]$Until, $Seen, $Events, $Found)
    switch ($Until) {
        'appeared' { if (@($Found).Count) { return 'appeared' } }
        'started' { foreach ($one in $Found) { if ($one['event_status'] -ceq 'Started') { return 'started' } } }
        'changed' { if ((Get-GracefulFingerprint $Found) -cne $Seen['fingerprint']) { return 'changed' } }
        'gone' {
            if (-not @($Seen['event_ids']).Count) { return 'none' }
            foreach ($one in $Events) { if ($Seen['event_ids'] -ccontains (Get-GracefulSameId $one['event_id'])) { return $null } }
            if ($Seen['started']) { return 'completed' }
            return 'cancelled'
        }
    }
    return $null
}

function Get-WaitResult {
    param([string]$Outcome, $Found, $Seen, [bool]$Continues)
    $result = New-GracefulMap
    $result['outcome'] = $Outcome
    $result['events'] = @($Found)
    $result['polls'] = $Seen['polls']
    $result['elapsed'] = [Math]::Round([double]$Seen['elapsed'], 3)
    $result['times'] = @(foreach ($id in @($Seen['times'].PSBase.Keys)) { , (New-GracefulMap $Seen['times'][$id] @{ event_id = $id }) })
    $result['seen'] = New-GracefulMap $Seen @{ elapsed = $result['elapsed']; continues = $Continues }
    return , $result
}

function Wait-GracefulEvent {
    # Reads until the condition holds or the time is over. During temporary errors it goes on.
    param($Module, $Service, $Params)
    foreach ($check in @(@('timeout', 0), @('poll_interval', 1))) {
        $name, $positive = $check
        $value = $Params[$name]
        if ($value -ge 0 -and $value -le $script:LongestWait -and ($value -gt 0 -or -not $positive)) { continue }
        $range = "give seconds from 0 (read once) to $script:LongestWait."
        if ($positive) { $range = 'give seconds greater than 0.' }
        throw (New-GracefulError "$name is $(Format-GracefulNumber $value 6); $range" 'wrong_option')
    }
    $seen = New-Seen $Params['seen']
    $filters = Get-GracefulFilter $Params
    $view = New-GracefulViewpoint $Module $Service $Params $seen['vm_name']
    $asked = $Service.Limits
    Use-GracefulApiVersion $Service $seen['api_version']
    $until = $Params['until']
    $timeout = [double]$Params['timeout']
    $leaving = @()
    if ($until -eq 'gone') { $leaving = $filters['event_ids'] }
    $least = 3.0
    if (-not $timeout) { $least = 30.0 }
    $sliceBegin = Get-GracefulMonotonic
    $begin = $sliceBegin - $seen['elapsed']
    $found = @()
    while ($true) {
        $pollBegin = Get-GracefulMonotonic
        $before = Get-Progress $seen $until
        $failure = $null
        $outcome = $null
        $seen['polls'] = $seen['polls'] + 1
        $budget = [Math]::Max($begin + $timeout - $pollBegin, $least)
        # Only the first response of a VM takes long; later, a stalled read must not hide a 30-second notice.
        $patience = $asked['read_timeout']
        if ($seen['answered']) { $patience = [Math]::Min($patience, $script:SettledReadTimeout) }
        $Service.Limits = @{
            connect_timeout = [Math]::Min($asked['connect_timeout'], $budget); read_timeout = [Math]::Min($patience, $budget); retries = 0
        }
        try {
            if ($filters['only_mine']) { $null = Get-GracefulRequiredName $view 'only_mine' }
            $look = Read-GracefulViewpoint $view
            $seen['vm_name'] = $view.VmName
            $seen['api_version'] = $Service.ApiVersion
            $events = $look['Events']
            $found = Select-GracefulEvent $events $filters
            Add-Observation $seen $events $found $leaving
            $outcome = Get-WaitOutcome $until $seen $events $found
        }
        catch {
            $failure = Resolve-GracefulError $_
            if (-not $failure.Passing) {
                $seen['elapsed'] = (Get-GracefulMonotonic) - $begin
                throw (New-GracefulError $failure.Message $failure.Kind (Get-WaitResult 'unreachable' $found $seen $false))
            }
        }
        $now = Get-GracefulMonotonic
        $seen['elapsed'] = $now - $begin
        $left = $timeout - $seen['elapsed']
        if ($null -eq $outcome -and $left -le 0) {
            $outcome = 'timed_out'
            if ($null -ne $failure) { $outcome = 'unreachable' }
        }
        $sliceOver = $null -ne $seen['slice'] -and ($now - $sliceBegin -ge $seen['slice'] -or (Get-Progress $seen $until) -cne $before)
        if ($null -ne $outcome -or $sliceOver) {
            $continues = $null -eq $outcome
            if ($continues) { $outcome = 'timed_out' }
            $result = Get-WaitResult $outcome $found $seen $continues
            if (@('timed_out', 'unreachable') -contains $outcome -and -not $continues -and $Params['on_timeout'] -eq 'fail') {
                throw (New-GracefulError (Get-TimeoutText $failure $until $timeout $found) 'step' $result)
            }
            return , $result
        }
        $pause = $Params['poll_interval'] - ($now - $pollBegin)
        if ($null -ne $failure -and $null -ne $failure.RetryAfter) { $pause = $failure.RetryAfter }
        Wait-Graceful ([Math]::Min([Math]::Max($pause, 0.0), $left))
    }
}

function Get-TimeoutText {
    # What did not happen in time, and what to do.
    param($Failure, [string]$Until, [double]$Timeout, $Found)
    $seconds = Format-GracefulNumber $Timeout 6
    if ($null -ne $Failure) { return "The metadata service could not be read within the timeout of $seconds s: $($Failure.Message)" }
    $left = Format-GracefulText (@($Found | ForEach-Object { "$($_['event_type']) $($_['event_id'])" }) -join ', ') 300
    $happened = @{
        appeared = 'no matching event had appeared'
        started = 'no matching event had started'
        gone = "these events had not left the document: $left"
        changed = 'nothing had changed'
    }
    return "After $seconds s $($happened[$Until]). Give a longer timeout, or set on_timeout=ok and look at outcome."
}

Export-ModuleMember -Function 'Wait-GracefulEvent'
