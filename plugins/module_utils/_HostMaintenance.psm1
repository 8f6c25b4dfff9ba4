# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Carries out one order on a Windows host: look, ready, approve, put_back or release. As _engine.py and _times.py.
# A call may be cut off at any point and made again: the record says what was done. Each step is noted before and after it is
# taken, and each note fails if this run has lost its claim.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceRecord
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceWorker
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceSteps
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsDocument
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsApproval

Set-StrictMode -Version 2.0

# After a POST that was not confirmed, the document is read for so many seconds before the next POST.
$script:UnconfirmedFor = 30.0
# An event counts as gone after several reads over some seconds; longer if it was never seen Started.
$script:GoneReads = 3
$script:GoneSeconds = 2.0
$script:GoneSecondsScheduled = 5.0
# A call that is nearly done may take so many seconds more, unless it is a short call.
$script:NearlySeconds = 5.0
$script:ShortCall = 2.0
# A result that is older than this, in seconds, is not reported any more.
$script:HeardWithin = 30.0
# A worker needs time to start and to verify: a wait ends so many seconds earlier.
$script:Reserve = 5.0
# A clock that was corrected by less, in seconds, makes no verification invalid.
$script:ClockCorrection = 5.0
# The limit of options in seconds; records take larger numbers for a time.
$script:Longest = 1000000
$script:OtherWork = 'waits until another run has finished its work on this host, for another event'
# A volatile registry key, which Windows deletes when it starts: its value identifies a boot.
$script:BootKey = 'SOFTWARE\graceful.azure.boot'

# ---- the boot

function Get-BootId {
    # Empty if none was written since Windows started.
    try {
        $key = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($script:BootKey)
        if ($null -eq $key) { return '' }
        try { return [string]$key.GetValue('id', '') } finally { $key.Close() }
    }
    catch { return '' }
}

function Get-NotedBootId {
    # The same, written if there is none. Called before something is noted in the record.
    $id = Get-BootId
    if ($id) { return $id }
    try {
        $key = [Microsoft.Win32.Registry]::LocalMachine.CreateSubKey($script:BootKey, $true, [Microsoft.Win32.RegistryOptions]::Volatile)
        try {
            $id = [System.Guid]::NewGuid().ToString()
            $key.SetValue('id', $id)
            return $id
        }
        finally { $key.Close() }
    }
    catch { return '' }
}

# ---- when events were seen Started, and since when they are missing

function New-Times {
    param($EventIds, $Record)
    $times = @{
        Ids = @($EventIds); First = (New-GracefulMap); Now = (Get-GracefulMonotonic)
        Started = (New-GracefulMap); MissingSince = (New-GracefulMap)
    }
    if ($null -eq $Record) { return $times }
    # What earlier calls have noted.
    foreach ($id in @($Record['events'].PSBase.Keys)) {
        if ($times.Ids -cnotcontains $id) { continue }
        $entry = $Record['events'][$id]
        if ($entry['started']) { $times.Started[$id] = $entry['started'] }
        if ($entry['gone']) {
            # If the clock was set back since, it is counted from now.
            $times.MissingSince[$id] = [Math]::Min($entry['gone'], (Get-GracefulNow))
            $times.First[$id] = @{ Since = $times.Now - [Math]::Max(0.0, (Get-GracefulNow) - $entry['gone']); Reads = $entry['gone_reads'] }
        }
    }
    return $times
}

function Add-Observation {
    param($Times, $Events)
    $Times.Now = Get-GracefulMonotonic
    $present = Get-GracefulById $Events
    foreach ($id in $Times.Ids) {
        if ($present.Contains($id)) {
            $Times.First.Remove($id)
            $Times.MissingSince.Remove($id)
            if ($present[$id]['event_status'] -ceq 'Started' -and -not $Times.Started.Contains($id)) { $Times.Started[$id] = Get-GracefulNow }
        }
        else {
            if (-not $Times.First.Contains($id)) { $Times.First[$id] = @{ Since = $Times.Now; Reads = 0 } }
            $Times.First[$id].Reads += 1
            if (-not $Times.MissingSince.Contains($id)) { $Times.MissingSince[$id] = Get-GracefulNow }
        }
    }
}

function Test-Gone {
    param($Times, [string]$Id)
    if (-not $Times.First.Contains($Id)) { return $false }
    $needed = $script:GoneSecondsScheduled
    if ($Times.Started.Contains($Id)) { $needed = $script:GoneSeconds }
    return $Times.First[$Id].Reads -ge $script:GoneReads -and $Times.Now - $Times.First[$Id].Since -ge $needed
}

function Test-AllGone {
    param($Times)
    foreach ($id in $Times.Ids) { if (-not (Test-Gone $Times $id)) { return $false } }
    return $true
}

function Test-NearlyGone {
    # Whether all of them are missing, but not long enough to count as gone.
    param($Times)
    foreach ($id in $Times.Ids) { if (-not $Times.First.Contains($id)) { return $false } }
    return -not (Test-AllGone $Times)
}

# ---- the engine: $Engine = @{Order; Keeper; Service; VmName; Begin; Before; Reading; Events; Error; Warnings; Ids}

function Invoke-GracefulOrder {
    # Carries out the order as far as possible, and returns a report and an observation. Order: all options of the module.
    param($Order, $Service, $VmName, $Keeper)
    $engine = @{
        Order = $Order; Service = $Service; VmName = $VmName; Keeper = $Keeper; Begin = (Get-GracefulMonotonic)
        Reading = $null; Events = @(); Error = $null; Warnings = (New-Object System.Collections.ArrayList)
        Ids = @(Get-EventId $Order['events'])
        # What the record is compared with at the end.
        Before = ''
    }
    # What is wrong with the record, the order or the observation says.
    try { $engine.Before = Get-ComparedState (Read-GracefulRecord $Keeper) } catch { $null = Resolve-GracefulError $_ }
    try {
        switch ($Order['order']) {
            'look' { $report = Invoke-Look $engine }
            'ready' { $report = Invoke-Ready $engine }
            'approve' { $report = Invoke-Approve $engine }
            'put_back' { $report = Invoke-PutBackOrder $engine }
            'release' { $report = Invoke-Release $engine }
        }
    }
    catch {
        $known = Resolve-GracefulError $_
        if ($known.Kind -eq 'lost_claim') {
            $report = New-GracefulMap @{ message = $known.Message } $known.Fields
        }
        else {
            $report = New-GracefulMap @{ state = 'failed'; message = $known.Message } $known.Fields
            # The call is not made again at once if it cannot even begin.
            if (@('ready', 'put_back') -ccontains $Order['order']) { $null = Wait-Document $engine { Test-Changed $engine } }
        }
    }
    $observation = Get-Observation $engine
    foreach ($warning in @($Keeper.Warnings)) { $null = $engine.Warnings.Add($warning) }
    $observation['warnings'] = $engine.Warnings.ToArray()
    # While this call has only looked, another one's work may have gone on.
    $changed = $Order['order'] -cne 'look' -and (Get-ComparedState $observation['record']) -cne $engine.Before
    return , (New-GracefulMap @{ report = $report; observation = $observation; changed = $changed })
}

function Get-EventId {
    # The ids of the events, each once.
    param($Events)
    return @(@($Events) | ForEach-Object { Get-GracefulSameId $_['event_id'] } | Select-Object -Unique)
}

function Get-CallLeft {
    param($Engine)
    return [Math]::Max(0.0, $Engine.Order['wait'] - ((Get-GracefulMonotonic) - $Engine.Begin))
}

# ---- looking

function Get-Observation {
    param($Engine)
    if ($null -eq $Engine.Reading -and $null -eq $Engine.Error) { $null = Read-Document $Engine }
    $record = $null
    $recordError = $null
    try { $record = Read-GracefulRecord $Engine.Keeper } catch { $recordError = (Resolve-GracefulError $_).Message }
    $seen = New-GracefulMap ([ordered]@{
            time = Get-GracefulNow
            boot_id = Get-BootId
            error = $Engine.Error
            events = $null
            document = Get-GracefulFingerprint $Engine.Events
            document_incarnation = $null
            clock_offset = $null
            vm_name = $Engine.VmName
            api_version = $Engine.Service.ApiVersion
            endpoint = $Engine.Service.Endpoint
            record = $record
            record_error = $recordError
        })
    if ($null -ne $Engine.Reading) {
        $seen['events'] = @($Engine.Events)
        $seen['document_incarnation'] = $Engine.Reading['Document']['Incarnation']
        $seen['clock_offset'] = $Engine.Reading['ClockOffset']
    }
    return , $seen
}

function Read-Document {
    # Reads the document, and returns whether that was possible. An error is never taken for an empty document.
    param($Engine)
    try {
        $reading = Read-GracefulEvents $Engine.Service
        if ($null -eq $Engine.VmName) { $Engine.VmName = Get-GracefulVmName $Engine.Service }
    }
    catch {
        $Engine.Error = (Resolve-GracefulError $_).Message
        return $false
    }
    foreach ($oddity in @($reading['Document']['Oddities'])) { if (-not $Engine.Warnings.Contains($oddity)) { $null = $Engine.Warnings.Add($oddity) } }
    $Engine.Reading = $reading
    $Engine.Error = $null
    $Engine.Events = Get-GracefulSeenBy $reading['Document'] $Engine.VmName $reading['ServiceTime']
    return $true
}

function Wait-Document {
    # Reads until the condition holds, or the time of this call is over and the condition does not nearly hold. During errors it goes on.
    param($Engine, [scriptblock]$Over, [double]$Pause = 1.0, [double]$Reserve = 0.0, [scriptblock]$Nearly = { $false })
    $limits = $Engine.Service.Limits
    $Engine.Service.Limits = New-GracefulMap $limits @{ read_timeout = [Math]::Min(10.0, $limits['read_timeout']); retries = 0 }
    try {
        while ($true) {
            $read = Read-Document $Engine
            if ($read -and (& $Over)) { return $true }
            $left = (Get-CallLeft $Engine) - $Reserve
            $late = (Get-GracefulMonotonic) - $Engine.Begin - $Engine.Order['wait']
            if ($left -le 0 -and -not ($read -and $late -lt $script:NearlySeconds -and (& $Nearly))) { return $false }
            if ($left -le 0) { $left = $Pause }
            Wait-Graceful ([Math]::Min($Pause, $left))
        }
    }
    finally { $Engine.Service.Limits = $limits }
}

function Test-Changed {
    param($Engine)
    return [bool]$Engine.Order['known'] -and (Get-GracefulFingerprint $Engine.Events) -cne $Engine.Order['known']
}

function Invoke-Look {
    param($Engine)
    if ($Engine.Order['probe_record']) { Test-GracefulRecordWritable $Engine.Keeper }
    if ($Engine.Order['wait'] -gt 0) { $null = Wait-Document $Engine { Test-Changed $Engine } }
    return , (New-GracefulMap @{ state = 'looked'; message = '' })
}

# ---- getting ready

function Invoke-Ready {
    param($Engine)
    if (-not (Read-Document $Engine)) { throw (New-GracefulError $Engine.Error) }
    # The order of a run that was suspended may be out of date.
    $standing = Get-GracefulById $Engine.Events
    $notStarted = @($standing.PSBase.Keys | Where-Object { $standing[$_]['event_status'] -cne 'Started' })
    $events = @(@($Engine.Order['events']) | Where-Object { $notStarted -ccontains (Get-GracefulSameId $_['event_id']) })
    $held = Add-Claims $Engine $events $true
    $mine = @(Get-EventId $events | Where-Object { -not $held.Contains($_) })
    if ($mine.Count -eq 0) {
        Add-Orphan $Engine
        if ($held.PSBase.Count) { return , (New-GracefulMap @{ state = 'held_by_other_run'; message = (Get-HeldMessage $held); held = $held }) }
        return , (New-GracefulMap @{ state = 'gone'; message = 'There is nothing to get ready for: the events have started or are gone.'; held = $held })
    }
    $result = Get-UnreportedResult $Engine 'ready' $mine
    if ($null -eq $result) { $result = Wait-BeforeRetry $Engine 'ready' $mine }
    if ($null -eq $result) { $result = Invoke-Worker $Engine 'ready' $mine }
    return , (New-GracefulMap $result @{ held = $held })
}

function Add-Claims {
    param($Engine, $Events, [bool]$Standing = $false)
    $claimed = Add-GracefulClaim $Engine.Keeper $Events (Get-NotedBootId) $Standing
    foreach ($warning in @($claimed.Warnings)) { $null = $Engine.Warnings.Add($warning) }
    return , $claimed.Held
}

function Add-Orphan {
    # The controller took a step after its claim was lost: the next run has to undo it.
    param($Engine)
    $answer = $Engine.Order['controller_step']
    $events = @($Engine.Order['events'])
    if ($null -eq $answer -or $answer['mode'] -cne 'do' -or $answer['phase'] -cne 'drain' -or $events.Count -eq 0) { return }
    $step = New-GracefulMap
    foreach ($name in @('phase', 'name', 'kind')) { $step[$name] = $answer[$name] }
    Add-GracefulOrphan $Engine.Keeper $events[0] $step (Get-NotedBootId)
}

function Get-UnreportedResult {
    # The result of an earlier call's work that no call has returned yet. A worker needs seconds to start, so that a short call may
    # end before it: without this, no call would return its result.
    param($Engine, [string]$Name, $Mine)
    $state = Get-GracefulWorkerState $Engine.Keeper
    if ($null -ne $Engine.Order['controller_step'] -or $state['reported'] -or -not $state['ended']) { return $null }
    if ($state['result'] -isnot [System.Collections.IDictionary] -or -not (Test-Owner $state (Get-Owner $Engine $Name $Mine))) { return $null }
    if ([Math]::Abs((Get-GracefulNow) - $state['ended']) -gt $script:HeardWithin -or (Test-GracefulWorker $Engine.Keeper)) { return $null }
    return , (Get-ReportedResult $Engine $state)
}

function Wait-BeforeRetry {
    # After a failure, waits before the next attempt; what is verified is verified again at the end of a wait. Null: go on.
    param($Engine, [string]$Name, $Mine)
    $record = Read-GracefulRecord $Engine.Keeper
    if ($null -eq $record -or $null -ne $Engine.Order['controller_step']) { return $null }
    if (Test-GracefulWorker $Engine.Keeper) { return $null }
    $since = 0.0
    if ($Name -ceq 'put_back') { $since = Get-GracefulUndoingSince $record }
    $rest = Get-GracefulRetryLater $record $since
    $verified = $Name -ceq 'ready'
    foreach ($id in $Mine) {
        if ($record['events'].Contains($id) -and -not $record['events'][$id]['ready']) { $verified = $false }
    }
    $last = Get-GracefulWorkerState $Engine.Keeper
    $failed = $last['result'] -is [System.Collections.IDictionary] -and $last['result']['state'] -ceq 'failed' -and (Test-Owner $last (Get-Owner $Engine $Name $Mine))
    if ($null -ne $rest -or (($verified -or $failed) -and $Engine.Order['wait'] -gt 0)) {
        $seconds = $Engine.Order['wait']
        if ($null -ne $rest) { $seconds = $rest['next_try'] }
        $end = (Get-GracefulMonotonic) + $seconds
        $null = Wait-Document $Engine { (Test-Changed $Engine) -or (Get-GracefulMonotonic) -ge $end } 1.0 $script:Reserve
    }
    return , (Get-GracefulRetryLater $record $since)
}

function Get-Owner {
    param($Engine, [string]$Name, $Mine)
    $ids = [string[]]@($Mine)
    [Array]::Sort($ids, [System.StringComparer]::Ordinal)
    return , (New-GracefulMap @{ run_id = [string]$Engine.Keeper.Run['run_id']; order = $Name; events = $ids })
}

function Test-Owner {
    param($State, $Owner)
    foreach ($key in @('run_id', 'order')) { if ($State[$key] -cne $Owner[$key]) { return $false } }
    return (@($State['events']) -join "`n") -ceq (@($Owner['events']) -join "`n")
}

function Invoke-Worker {
    # Starts the work, and waits for it as long as this call may take. Others: the other events that the host was drained for.
    param($Engine, [string]$Name, $Mine, $Others = @())
    $owner = Get-Owner $Engine $Name $Mine
    $busy = Test-GracefulWorker $Engine.Keeper
    if ($busy -and -not (Test-Owner (Get-GracefulWorkerState $Engine.Keeper) $owner)) {
        if ((Test-AnotherAtWork $Engine) -and -not (Wait-GracefulWorker $Engine.Keeper ([Math]::Max((Get-CallLeft $Engine), 1.0)))) {
            return , (New-GracefulMap @{ state = 'working'; message = $script:OtherWork })
        }
        # A run that has lost its claim stops no work.
        Update-GracefulRecord $Engine.Keeper $Mine { }
        Stop-GracefulWorker $Engine.Keeper
        $busy = $false
    }
    if (-not $busy) {
        $noted = New-GracefulMap $owner @{ before = (Get-BeforeWork $Engine $owner) }
        $request = @{
            directory = $Engine.Keeper.Path; run = $Engine.Keeper.Run; owner = $noted; mine = @($Mine); others = @($Others); order = $Engine.Order
        }
        if (-not (Start-GracefulWorker $Engine.Keeper $noted $request)) { return , (New-GracefulMap @{ state = 'working'; message = $script:OtherWork }) }
    }
    return , (Wait-Result $Engine $owner)
}

function Get-BeforeWork {
    # What the record is compared with at the end of the work, which may end between two calls. Work that goes on from where earlier
    # work of the same order was, whose result no call has returned, goes on from there in this, too.
    param($Engine, $Owner)
    $earlier = Get-GracefulWorkerState $Engine.Keeper
    if ($earlier['before'] -is [string] -and -not $earlier['reported'] -and (Test-Owner $earlier $Owner)) { return $earlier['before'] }
    return $Engine.Before
}

function Test-AnotherAtWork {
    # Whether the worker is that of another run that has claimed an event of this host. It is not stopped: two runs that stop each other's workers would never
    # finish.
    param($Engine)
    $id = (Get-GracefulWorkerState $Engine.Keeper)['run_id']
    $record = Read-GracefulRecord $Engine.Keeper
    if ($null -eq $record -or $id -ceq $Engine.Keeper.Run['run_id']) { return $false }
    foreach ($entry in @($record['events'].Values)) {
        if ($entry['claim']['run_id'] -ceq $id -and -not (Test-GracefulStale $entry['claim'])) { return $true }
    }
    return $false
}

function Get-UnderWay {
    # The state of work that an earlier call has started and whose result no call has returned yet. Null: none.
    param($Engine, [string]$Name)
    $state = Get-GracefulWorkerState $Engine.Keeper
    # Those that it had claimed: another run may have held the others.
    $claimed = @($Engine.Ids | Where-Object { @($state['events']) -ccontains $_ })
    $owner = Get-Owner $Engine $Name $claimed
    if ($null -ne $Engine.Order['controller_step'] -or $state['reported'] -or -not (Test-Owner $state $owner)) { return $null }
    if (-not $state.Contains('result') -and -not (Test-GracefulWorker $Engine.Keeper)) { return $null }
    # Renews the claim, since the work may note nothing for a long time.
    try { Update-GracefulRecord $Engine.Keeper $claimed { } }
    catch {
        $known = Resolve-GracefulError $_
        if ($known.Kind -ne 'lost_claim') { throw }
        # Without a holder it was the work that closed the record, at its end. Otherwise it has ended before that, and what this run
        # still has is put back anew.
        if (@($known.Fields['held'].PSBase.Values | Where-Object { $_.PSBase.Count }).Count) { return $null }
        if ($state['result'] -is [System.Collections.IDictionary] -and $state['result']['state'] -ceq 'next') { return $null }
    }
    return , (Wait-Result $Engine $owner)
}

function Wait-Result {
    param($Engine, $Owner)
    $over = Wait-GracefulWorker $Engine.Keeper ([Math]::Max((Get-CallLeft $Engine), 2.0))
    $state = Get-GracefulWorkerState $Engine.Keeper
    # Another run has started its own work meanwhile: its result is not that of this run.
    if (-not (Test-Owner $state $Owner)) { return , (New-GracefulMap @{ state = 'working'; message = $script:OtherWork }) }
    if (-not $over) {
        $message = 'working'
        if ($state['progress']) { $message = [string]$state['progress'] }
        return , (New-GracefulMap @{ state = 'working'; message = $message })
    }
    # A worker that was killed leaves no result: the next call continues its work.
    if ($state['result'] -is [System.Collections.IDictionary]) { return , (Get-ReportedResult $Engine $state) }
    return , (New-GracefulMap @{ state = 'working'; message = 'the work was interrupted and is continued' })
}

function Get-ReportedResult {
    # The result of the work, which this call returns, and with it what the work has changed.
    param($Engine, $State)
    Set-GracefulReported $Engine.Keeper $State
    if ($State['before'] -is [string]) { $Engine.Before = $State['before'] }
    return , $State['result']
}

# ---- approving

function Invoke-Approve {
    param($Engine)
    $announced = @($Engine.Order['events'])[0]
    $id = Get-GracefulSameId $announced['event_id']
    $claimed = Get-ClaimToApprove $Engine $id $announced
    $posted = $claimed.Posted
    if ($null -ne $posted -and $posted['status'] -ceq 'approved') {
        # It may take some time until the event starts: no other POST is sent.
        return , (New-GracefulMap @{ state = 'approved'; message = 'It is approved already.'; approval = $posted })
    }
    if ($null -ne $posted -and @('posting', 'unconfirmed') -ccontains $posted['status'] -and -not (Test-Settled $Engine $id $posted['at'])) {
        return , (New-GracefulMap @{ state = 'unconfirmed'; message = 'The approval was sent and is not confirmed yet.'; approval = $posted })
    }
    $resources = @($claimed.Event['resources'] | Where-Object { $null -ne $_ })
    if ($resources.Count -eq 0) {
        throw (New-GracefulError 'What the event may affect is not known: neither the order nor the claim has its resources.')
    }
    $terms = @{ Leader = $null; Resources = $resources; EventType = $claimed.Event['event_type'] }
    $before = {
        # Under the lock: this run still has the claim, and the host is still ready. Noted before it is posted.
        Update-GracefulRecord $Engine.Keeper @($id) {
            param($record, $own)
            Assert-Fresh $Engine $own[$id]
            $own[$id]['approval'] = New-Approval $Engine 'posting' ''
        }
    }
    try { $done = Invoke-GracefulApproval $Engine.Service @($announced['event_id']) $terms -MissingOk -NoRepost -BeforePost $before }
    catch {
        $known = Resolve-GracefulError $_
        if ($known.Kind -eq 'lost_claim') { throw }
        # If the service has refused it, another host does not need to try.
        $report = New-GracefulMap @{ state = 'failed'; message = $known.Message }
        $report['approval'] = Add-Approval $Engine $id 'failed' $known.Message
        $report['final'] = $known.Kind -eq 'not_taken'
        return , $report
    }
    $status = 'failed'
    $message = 'Not approved.'
    if (@($done['approved']).Count) { $status = 'approved'; $message = '' }
    elseif (@($done['unconfirmed']).Count) { $status = 'unconfirmed'; $message = 'The service did not confirm the request.' }
    elseif (@($done['already_started']).Count) { $status = 'started'; $message = 'The event has started already.' }
    elseif (@($done['missing']).Count) { $status = 'gone'; $message = 'The event is gone.' }
    elseif (@($done['unexpected']).Count) { $status = 'unexpected'; $message = @($done['refusals']) -join ' ' }
    $report = New-GracefulMap @{ state = $status }
    $report['message'] = ((@($message) + @($done['warnings'])) -join ' ').Trim()
    $report['approval'] = Add-Approval $Engine $id $status $message
    return , $report
}

function Add-Approval {
    # Fails if the claim was lost.
    param($Engine, [string]$Id, [string]$Status, [string]$Message)
    $approval = New-Approval $Engine $Status $Message
    $mark = ''
    if ($Status -ceq 'approved') { $mark = 'approved' }
    Set-GracefulEvent $Engine.Keeper $Id @{ approval = $approval } $mark
    return , $approval
}

function New-Approval {
    param($Engine, [string]$Status, [string]$Message)
    return , (New-GracefulMap @{ at = Get-GracefulNow; status = $Status; run_id = [string]$Engine.Keeper.Run['run_id']; message = $Message })
}

function Get-ClaimToApprove {
    # What this run has claimed and verified recently; anything else is not approved. Returns @{Event; Posted}.
    param($Engine, [string]$Id, $Announced)
    $claimed = @{ Event = $null; Posted = $null }
    Update-GracefulRecord $Engine.Keeper @($Id) {
        param($record, $own)
        Assert-Fresh $Engine $own[$Id]
        # An order that says less approves no more than what this run has claimed.
        $claimed.Event = New-GracefulMap $own[$Id]['event']
        foreach ($key in @($Announced.PSBase.Keys)) { if ($null -ne $Announced[$key]) { $claimed.Event[$key] = $Announced[$key] } }
        $claimed.Posted = $own[$Id]['approval']
        if ($null -ne $claimed.Posted -and @('posting', 'unconfirmed') -ccontains $claimed.Posted['status']) {
            # If the clock was set back since, it is counted from now.
            $claimed.Posted['at'] = [Math]::Min([double]$claimed.Posted['at'], (Get-GracefulNow))
        }
    }
    return $claimed
}

function Assert-Fresh {
    # It was verified a moment ago, and the host has not booted since: the monotonic clock begins with a boot.
    param($Engine, $Entry)
    $age = 0.0
    if ($Entry['ready']) { $age = (Get-GracefulNow) - $Entry['ready'] }
    $oldest = [Math]::Min([double]$Engine.Order['max_age'], (Get-GracefulMonotonic))
    if (-not $Entry['ready'] -or $age -lt (-$script:ClockCorrection) -or $age -gt $oldest) {
        throw (New-GracefulError (
                'The last check that this host is ready is too old. The host is checked again before anything is approved.'))
    }
}

function Test-Settled {
    # After a request whose response is not known: whether the document was read for long enough since then.
    param($Engine, [string]$Id, [double]$PostedAt)
    $wanted = $Id
    $left = Wait-Document $Engine {
        $present = Get-GracefulById $Engine.Events
        -not $present.Contains($wanted) -or $present[$wanted]['event_status'] -cne 'Scheduled'
    }
    return $left -or (Get-GracefulNow) - $PostedAt -gt $script:UnconfirmedFor
}

# ---- putting back

function Invoke-PutBackOrder {
    param($Engine)
    $underWay = Get-UnderWay $Engine 'put_back'
    if ($null -ne $underWay) { return , $underWay }
    $held = Add-Claims $Engine $Engine.Order['events']
    $mine = @($Engine.Ids | Where-Object { -not $held.Contains($_) })
    if ($mine.Count -eq 0) {
        return , (New-GracefulMap @{ state = 'held_by_other_run'; message = (Get-HeldMessage $held); held = $held })
    }
    $awaited = @($mine | Where-Object { @($Engine.Order['lapsed']) -cnotcontains $_ })
    $times = New-Times $awaited (Read-GracefulRecord $Engine.Keeper)
    $answered = $null -ne $Engine.Order['controller_step']
    if (-not $answered) {
        # A second call would take longer than the seconds that are missing. Where many hosts share the connections, or others are about
        # to join, the call is short and is not extended.
        $nearly = { $Engine.Order['wait'] -gt $script:ShortCall -and (Test-NearlyGone $times) -and -not (Test-AnotherStarted $Engine) }
        $over = Wait-Document $Engine { Test-EventsGone $Engine $times } 0.5 -Nearly $nearly
        Set-Times $Engine $mine $times
        if (-not $over) {
            return , (New-GracefulMap @{ state = 'waiting'; message = (Get-StandingMessage $Engine $mine); held = $held })
        }
    }
    $others = @(Get-GracefulOther (Read-GracefulRecord $Engine.Keeper) $mine)
    if (Test-AnyAnnounced $Engine $others) {
        # Another event needs the host drained: events that are gone or have lapsed are closed, and the steps are not undone.
        $null = Close-GracefulEvent $Engine.Keeper $mine $mine 'gone' $Engine.Order['lapsed']
        return , (New-GracefulMap @{ state = 'put_back'; message = 'Another event still needs the host drained.'; held = $held })
    }
    $result = Wait-BeforeRetry $Engine 'put_back' $mine
    if ($null -eq $result) { $result = Invoke-Worker $Engine 'put_back' $mine $others }
    return , (New-GracefulMap $result @{ held = $held })
}

function Test-EventsGone {
    # A host is not put back while any of its events has started.
    param($Engine, $Times)
    Add-Observation $Times $Engine.Events
    return (Test-AllGone $Times) -and -not (Test-AnotherStarted $Engine)
}

function Test-AnotherStarted {
    param($Engine)
    return @($Engine.Events | Where-Object { $_['affects_me'] -and $_['event_status'] -ceq 'Started' }).Count -gt 0
}

function Set-Times {
    # If the event was seen Started, or the host has booted since it was claimed, gone means completed.
    param($Engine, $Mine, $Times)
    $boot = Get-BootId
    $seen = $Times
    Update-GracefulRecord $Engine.Keeper $Mine {
        param($record, $own)
        foreach ($id in @($own.PSBase.Keys)) {
            $entry = $own[$id]
            $started = $seen.Started[$id]
            if ($null -eq $started -and $record['boot_id'] -cne $boot) { $started = Get-GracefulNow }
            if (-not $entry['started']) { $entry['started'] = $started }
            $entry['gone'] = $seen.MissingSince[$id]
            $entry['gone_reads'] = 0
            if ($seen.First.Contains($id)) { $entry['gone_reads'] = $seen.First[$id].Reads }
        }
    }
}

function Test-AnyAnnounced {
    param($Engine, $Ids)
    # If the document cannot be read, they count as announced.
    if ($null -eq $Engine.Reading -and -not (Read-Document $Engine)) { return @($Ids).Count -gt 0 }
    return @($Engine.Events | Where-Object { @($Ids) -ccontains (Get-GracefulSameId $_['event_id']) }).Count -gt 0
}

function Get-StandingMessage {
    param($Engine, $Mine)
    $ids = @($Mine)
    $said = @($Engine.Events | Where-Object { $ids -ccontains (Get-GracefulSameId $_['event_id']) } | ForEach-Object { "$($_['event_type']) $($_['event_status'])" })
    if ($Engine.Error) { return "waits until the metadata service can be read: $($Engine.Error.TrimEnd('.'))" }
    if ($said.Count) { return "waits until the event is over: $($said -join ', ')" }
    return 'waits some seconds until it is certain that the event is gone'
}

function Get-HeldMessage {
    param($Held)
    $names = [string[]]@($Held.PSBase.Values | Where-Object { $_.PSBase.Count } | ForEach-Object { [string]$_['run_name'] } | Select-Object -Unique)
    [Array]::Sort($names, [System.StringComparer]::Ordinal)
    $said = $names -join ', '
    if (-not $said) { $said = 'its name is not known' }
    return "Another run has claimed the event: $(Format-GracefulText $said 200). Run this again when that run has ended."
}

# ---- giving back

function Invoke-Release {
    param($Engine)
    if ((Get-GracefulWorkerState $Engine.Keeper)['run_id'] -ceq $Engine.Keeper.Run['run_id']) { Stop-GracefulWorker $Engine.Keeper }
    $released = Clear-GracefulClaim $Engine.Keeper $Engine.Ids
    return , (New-GracefulMap @{ state = 'released'; message = "$(Format-GracefulCount @($released).Count 'claim') released" })
}

function Get-ComparedState {
    # Equal for records between which nothing was changed on the host. To renew a claim or to verify again is no change.
    param($Record)
    if ($null -eq $Record) { return '' }
    $events = New-GracefulMap
    foreach ($id in @($Record['events'].PSBase.Keys)) {
        $entry = $Record['events'][$id]
        $status = $null
        if ($null -ne $entry['approval']) { $status = $entry['approval']['status'] }
        $events[$id] = @($entry['claim']['run_id'], $status)
    }
    $steps = @()
    # From being begun to being done is one change, whichever call sees the end of it.
    foreach ($step in @($Record['steps'])) { $steps += , @($step['phase'], $step['name'], ($step['status'] -creplace '^doing$', 'done')) }
    # What was done again differs in its mark only.
    $marks = @(@($Record['timeline']) | Where-Object { @('draining', 'checkpointed') -ccontains $_['what'] } | ForEach-Object { $_['at'] })
    return Get-GracefulHash (ConvertTo-GracefulJson @($events, $steps, $marks) -Sorted)
}

function Assert-Event {
    param($Announced)
    $id = $Announced['event_id']
    if ($id -isnot [string] -or -not $id.Trim()) { throw (New-GracefulError 'events: each needs an event_id.' 'wrong_option') }
    $shown = Format-GracefulText $id 80
    if ($null -ne $Announced['event_type'] -and $Announced['event_type'] -isnot [string]) {
        throw (New-GracefulError "events: event_type of $shown has to be a string." 'wrong_option')
    }
    $names = $Announced['resources']
    if ($null -eq $names) { return }
    if ($names -isnot [System.Collections.IList] -or @($names | Where-Object { $_ -isnot [string] }).Count) {
        throw (New-GracefulError "events: resources of $shown has to be a list of strings." 'wrong_option')
    }
}

function Invoke-GracefulModule {
    # What the module does with its options, and what it returns.
    param($Params, [bool]$CheckMode)
    foreach ($name in @('seconds', 'wait', 'silent_for', 'max_age', 'timeout')) {
        $number = [double]$Params[$name]
        if (-not ($number -ge 0 -and $number -lt $script:Longest)) {
            $said = $number.ToString([System.Globalization.CultureInfo]::InvariantCulture)
            if ($said -notmatch '[.EN]') { $said += '.0' }
            throw (New-GracefulError "$name is $said; it has to be a number of seconds, from 0 to $($script:Longest)." 'wrong_option')
        }
        $Params[$name] = $number
    }
    foreach ($name in @('events', 'steps', 'checkpoint', 'health', 'lapsed')) { $Params[$name] = @($Params[$name] | Where-Object { $null -ne $_ }) }
    foreach ($name in @('secrets', 'looked')) { if ($null -eq $Params[$name]) { $Params[$name] = New-GracefulMap } }
    $given = $Params['order']
    if ($given -cne 'look' -and -not ($Params['events'].Count -and ([string]$Params['run_id']).Trim())) {
        throw (New-GracefulError "order=$given needs events and run_id." 'wrong_option')
    }
    foreach ($one in $Params['events']) { Assert-Event $one }
    $Params['checkpoint_dir'] = [System.Environment]::ExpandEnvironmentVariables([string]$Params['checkpoint_dir'])
    $run = New-GracefulMap
    foreach ($name in @('run_id', 'run_name', 'silent_for', 'force')) { $run[$name] = $Params[$name] }
    if (-not $run['run_name']) { $run['run_name'] = $run['run_id'] }
    $service = New-GracefulService $Params
    $keeper = New-GracefulKeeper ([string]$Params['record_dir']) $run
    $skipped = $CheckMode -and $given -cne 'look'
    if ($CheckMode) {
        $Params['order'] = 'look'
        $Params['probe_record'] = $false
        if ($skipped) { $Params['wait'] = 0.0 }
    }
    $answer = Invoke-GracefulOrder $Params $service $Params['vm_name'] $keeper
    if ($skipped) { $answer['report'] = New-GracefulMap @{ state = 'skipped'; message = 'Check mode: nothing was done.' } }
    return , $answer
}

Export-ModuleMember -Function 'Invoke-GracefulModule'
