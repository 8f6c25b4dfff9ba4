# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Takes drain steps and checkpoints, and undoes them, as _steps.py, _patience.py and _health_checks.py. Each is
# noted before and after, under the claim.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceRecord
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceWorker
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Peer

Set-StrictMode -Version 2.0

$script:PhaseNames = @{ drain = 'Drain step'; checkpoint = 'Checkpoint' }
# Seconds until a failed step is tried again.
$script:Pauses = @(10.0, 20.0, 40.0, 60.0)
# With less time the controller is not asked for a step again that it has begun.
$script:ShortestRequest = 1.0
# The same for the time of the order, which is never less, however late it is: what can be saved is not kept waiting.
$script:LeastTime = 5.0
$script:LeftOut = 'it was out of service before the event, and stays out of service'
# If the machine is deleted, checkpoints are saved even after a failed drain.
$script:TakenAway = @('preempt', 'terminate')
# Steps that the controller takes, and whether it has to look first.
$script:ByController = @{ 'drain/tasks' = $false; 'drain/haproxy' = $true; 'checkpoint/tasks' = $false }
$script:HealthPause = 2.0
$script:HealthDefaults = @{ port = $null; url = $null; argv = $null; timeout = 120; headers = $null; username = $null; password = $null }

# ---- what failed, and what comes next

function New-Failed {
    # A step has failed, and that is noted.
    param($Result)
    return New-GracefulError $Result['message'] 'failed_step' @{ result = $Result }
}

function New-Next {
    # The controller has to take the next step.
    param($Step, [string]$Message = '')
    if (-not $Message) { $Message = "the controller takes the step $(Format-GracefulQuoted $Step['name'])" }
    $result = New-GracefulMap @{ state = 'next'; message = $Message; next = $Step }
    return New-GracefulError $Step['name'] 'next_step' @{ result = $result }
}

function Get-ResultOf {
    # The result of a step that failed or that the controller takes. Everything else is thrown on.
    param([System.Management.Automation.ErrorRecord]$Thrown, [string[]]$Kinds)
    $known = Resolve-GracefulError $Thrown
    if ($Kinds -notcontains $known.Kind) { throw $Thrown }
    return , $known.Fields['result']
}

function Get-Failure {
    param([string]$Phase, $Item, [string]$Message, [bool]$Late, [int]$Attempts)
    $how = 'failed'
    if ($Late) { $how = 'was not done in time' }
    $word = 'Step'
    if ($script:PhaseNames.Contains($Phase)) { $word = $script:PhaseNames[$Phase] }
    $said = "$word $(Format-GracefulQuoted $Item['name']) ($($Item['kind'])) ${how}: $(Format-GracefulText $Message)"
    return , (New-GracefulMap @{
            state = 'failed'; message = $said; step = $Item['name']; attempts = $Attempts; next_try = (Get-Pause $Attempts); late = $Late
        })
}

function Get-Pause {
    param([int]$Attempts)
    return $script:Pauses[[Math]::Min([Math]::Max($Attempts, 1), $script:Pauses.Count) - 1]
}

function Get-GracefulRetryLater {
    # The last step that has failed since then and is not tried again yet; next_try is in seconds. Null if there is none.
    param($Record, [double]$Since = 0.0)
    $last = $null
    $now = Get-GracefulNow
    foreach ($step in @($Record['steps'])) {
        # If the clock was set back, a failure may be in the future; it is not waited for.
        if ($step['status'] -cne 'failed' -or $step['at'] -lt $Since -or $step['at'] -gt $now) { continue }
        $end = $step['at'] + (Get-Pause $step['attempts'])
        if ($null -eq $last -or $end -gt $last['at'] + (Get-Pause $last['attempts'])) { $last = $step }
    }
    if ($null -eq $last) { return $null }
    $left = $last['at'] + (Get-Pause $last['attempts']) - $now
    if ($left -le 0) { return $null }
    $result = Get-Failure $last['phase'] $last $last['message'] $false $last['attempts']
    $result['next_try'] = $left
    $result['tried'] = $false
    return , $result
}

function Get-GracefulUndoingSince {
    # Since when steps are undone: failures before that do not delay it.
    param($Record)
    $marks = @(@($Record['timeline']) | Where-Object { $_['what'] -ceq 'restoring' } | ForEach-Object { [double]$_['at'] })
    if ($marks.Count -eq 0) { return (Get-GracefulNow) + 1 }
    return ($marks | Measure-Object -Minimum).Minimum
}

# ---- kinds

function Test-ByController {
    param([string]$Phase, [string]$Kind)
    return $script:ByController.Contains("$Phase/$Kind")
}

function Get-Kind {
    # The kind as its file describes it; null if there is no such kind on Windows.
    param([string]$Phase, [string]$Kind)
    if ($Phase -ceq 'drain' -and $Kind -ceq 'haproxy') { return @{ CarriesTraffic = $true; Merged = { Join-Servers $args[1] $args[2] } } }
    if (Test-ByController $Phase $Kind) { return @{} }
    if ($Kind -cnotmatch '^[a-z_]+$' -or -not $script:PhaseNames.Contains($Phase)) { return $null }
    $command = "Get-GracefulDrain_$Kind"
    if ($Phase -ceq 'checkpoint') { $command = "Get-GracefulCheckpoint_$Kind" }
    if ($null -eq (Get-Command -Name $command -CommandType Function -ErrorAction SilentlyContinue)) { return $null }
    return & $command
}

function Join-Servers {
    # A load balancer may have been added since then. For the others, what was seen first counts.
    param($Before, $Now)
    $servers = New-GracefulMap
    foreach ($side in @($Now, $Before)) {
        foreach ($server in @($side['servers'])) {
            if ($server -is [System.Collections.IDictionary]) { $servers["$($server['host']) $($server['socket'])"] = $server }
        }
    }
    $merged = New-GracefulMap $Now
    $merged['servers'] = @($servers.PSBase.Values)
    return , $merged
}

function Get-KindOf {
    # The kind of a step that is noted.
    param($Step)
    $kind = Get-Kind $Step['phase'] $Step['kind']
    if ($null -eq $kind) {
        $message = "the record has a step of kind $(Format-GracefulQuoted $Step['kind']), which this version does not know"
        throw (New-Failed (Get-Failure $Step['phase'] $Step $message $false 1))
    }
    return $kind
}

function Test-Begun {
    param($Noted)
    if ($null -eq $Noted) { return $false }
    return -not $Noted['data'].Contains('begun') -or [bool]$Noted['data']['begun']
}

function Get-Before {
    # The state before the drain: as an earlier attempt has seen it, if there was one.
    param($Kind, $Step, $Noted, $Now)
    if (-not (Test-Begun $Noted)) { return , (ConvertTo-GracefulData $Now) }
    if ($Kind.Contains('Merged')) { return , (ConvertTo-GracefulData (& $Kind['Merged'] $Step['options'] $Noted['before'] $Now)) }
    return , $Noted['before']
}

function Get-Key {
    param($Step)
    return , (New-GracefulMap @{ phase = $Step['phase']; name = $Step['name']; kind = $Step['kind'] })
}

function Get-Noted {
    # What the record says of a step that is not undone.
    param($Steps, [string]$Phase, [string]$Name)
    $noted = Find-GracefulStep $Steps.Record $Phase $Name
    if ($null -ne $noted -and $noted['status'] -ceq 'undone') { return $null }
    return , $noted
}

# ---- waiting

function Wait-GracefulProof {
    # Checks until it holds, and has held for as long as asked. Look returns @{Holds; Message}.
    param([scriptblock]$Look, [double]$Seconds, [scriptblock]$Progress = $null, [double]$Pause = 0.5, [double]$Lasting = 0.0)
    $end = (Get-GracefulMonotonic) + $Seconds
    $since = $null
    while ($true) {
        $begin = Get-GracefulMonotonic
        $proof = & $Look
        $now = Get-GracefulMonotonic
        if (-not $proof['Holds']) { $since = $null }
        elseif ($null -eq $since) { $since = $begin }
        if ($null -ne $since -and $now - $since -ge $Lasting) { return [string]$proof['Message'] }
        if ($null -ne $Progress) { & $Progress ([string]$proof['Message']) }
        if ($now -ge $end) {
            if ($null -eq $since) { throw (New-GracefulError "After $(Format-GracefulNumber $Seconds) s still: $($proof['Message'])." 'late') }
            throw (New-GracefulError (
                    "$($proof['Message']), but only for $([Math]::Round($now - $since)) s of the $(Format-GracefulNumber $Lasting) s that it " +
                    'has to last, and the time is over.') 'late')
        }
        Wait-Graceful ([Math]::Min($Pause, [Math]::Max(0.0, $end - (Get-GracefulMonotonic))))
    }
}

# ---- health

function Test-Health {
    # Waits until each item passes, for so many seconds at most, or raises an error with the first that does not. Options that are
    # secrets may be missing.
    param($Items, [scriptblock]$Progress, [double]$Seconds = [double]::PositiveInfinity)
    $until = (Get-GracefulMonotonic) + $Seconds
    foreach ($given in @($Items)) {
        $item = New-GracefulMap $script:HealthDefaults $given
        # Each is looked at once, also without any time.
        $most = [Math]::Min([double]$item['timeout'], [Math]::Max(0.1, $until - (Get-GracefulMonotonic)))
        $end = (Get-GracefulMonotonic) + $most
        if ($null -ne $item['port']) { $name = "port $($item['port'])" }
        elseif ($null -ne $item['url']) { $name = Format-GracefulText $item['url'] 200 }
        else { $name = Format-GracefulText (@($item['argv']) -join ' ') 200 }
        $look = {
            $left = $end - (Get-GracefulMonotonic)
            if ($null -ne $item['port']) { Test-GracefulPort -Port $item['port'] -Seconds ([Math]::Max(0.1, [Math]::Min(5.0, $left))) }
            elseif ($null -ne $item['url']) { Test-Url $item ([Math]::Max(0.1, [Math]::Min(5.0, $left))) }
            else { Test-Program $item['argv'] ([Math]::Max(0.1, [Math]::Min(3600.0, $left))) }
        }
        try { $null = Wait-GracefulProof $look $most $Progress $script:HealthPause }
        catch {
            $known = Resolve-GracefulError $_
            if ($known.Kind -ne 'late') { throw }
            throw (New-GracefulError "The health check of $name did not pass. $($known.Message)" 'late')
        }
    }
}

function Test-Url {
    # The body is not read.
    param($Item, [double]$Seconds)
    $answer = Invoke-GracefulRequest -Url $Item['url'] -Seconds $Seconds -Headers $Item['headers'] -User $Item['username'] -Secret $Item['password']
    return @{ Holds = $answer.Status -eq 200; Message = $answer.Message }
}

function Test-Program {
    param($Argv, [double]$Seconds)
    try { $ran = Invoke-GracefulProgram $Argv $Seconds }
    catch { return @{ Holds = $false; Message = (Resolve-GracefulError $_).Message.TrimEnd('.') } }
    return @{ Holds = $ran.Code -eq 0; Message = "it ended with $($ran.Code): $(Format-GracefulText $ran.Message 200)" }
}

# ---- the steps of one order: $Steps = @{Order; Keeper; Mine; Progress; Until; Answer; Record}

function Invoke-GracefulOrderedWork {
    # Carries out the work of an order: ready or put_back.
    param($Keeper, $Request, [scriptblock]$Progress)
    $order = $Request['order']
    $record = Read-GracefulRecord $Keeper
    if ($null -eq $record) { $record = New-GracefulMap @{ events = (New-GracefulMap); steps = @(); timeline = @() } }
    $steps = @{
        Order = $order; Keeper = $Keeper; Mine = @($Request['mine']); Progress = $Progress; Record = $record
        Until = (Get-GracefulMonotonic) + $order['seconds']; Answer = $order['controller_step']
    }
    if ($order['order'] -ceq 'ready') { return , (Invoke-GetReady $steps) }
    # No other work goes on from here, so an event that was claimed since cannot have become ready unseen.
    if (@(Get-GracefulOther $record $steps.Mine | Where-Object { @($Request['others']) -cnotcontains $_ }).Count) {
        return , (New-GracefulMap @{ state = 'waiting'; message = 'another run has claimed another event of this host' })
    }
    return , (Invoke-PutBack $steps)
}

function Get-GracefulOther {
    # The ids of the other events that the host was drained for.
    param($Record, $Claimed)
    if ($null -eq $Record) { return }
    foreach ($id in @($Record['events'].PSBase.Keys)) {
        if (@($Claimed) -cnotcontains $id -and -not $Record['events'][$id]['lapsed']) { $id }
    }
}

function Get-Entries {
    param($Steps)
    $found = @()
    foreach ($id in $Steps.Mine) { if ($Steps.Record['events'].Contains($id)) { $found += , $Steps.Record['events'][$id] } }
    return , $found
}

function Invoke-GetReady {
    param($Steps)
    $entries = Get-Entries $Steps
    foreach ($entry in $entries) { if ($entry['gave_up']) { return , (Invoke-GiveUp $Steps $entry['gave_up']) } }
    $ready = @($entries | Where-Object { $_['ready'] }).Count
    if (-not $ready -and (Get-GracefulUnfinished $Steps.Record).Count -eq 0) {
        Add-Mark $Steps 'draining' "$(Format-GracefulDuration $Steps.Order['seconds']) available"
    }
    $failure = $null
    try {
        $failure = Invoke-All $Steps 'drain' $Steps.Order['steps']
        $taken = @($entries | Where-Object { $script:TakenAway -contains $_['event']['event_type'] }).Count
        if ($null -eq $failure -or $taken) {
            $second = Invoke-All $Steps 'checkpoint' $Steps.Order['checkpoint']
            if ($null -ne $second) { $failure = $second }
        }
    }
    catch {
        $result = Get-ResultOf $_ 'next_step'
        Set-EventFields $Steps @{ ready = $null }
        return , $result
    }
    if ($null -ne $failure) {
        Set-EventFields $Steps @{ ready = $null }
        if ($Steps.Order['undo_on_failure']) { return , (Invoke-GiveUp $Steps $failure['message']) }
        return , $failure
    }
    return , (Set-Ready $Steps)
}

function Invoke-All {
    # Takes the steps in order, up to the first that fails; null if none does.
    param($Steps, [string]$Phase, $Items)
    try { foreach ($item in @($Items)) { Invoke-Take $Steps $Phase $item } }
    catch { return , (Get-ResultOf $_ 'failed_step') }
    return $null
}

function Set-Ready {
    param($Steps)
    $message = "$(Format-GracefulCount @($Steps.Order['steps']).Count 'drain step') done, $(Format-GracefulCount @($Steps.Order['checkpoint']).Count 'checkpoint') saved, all verified"
    Set-GracefulReady $Steps.Keeper $Steps.Mine $message
    return , (New-GracefulMap @{ state = 'ready'; message = $message })
}

function Set-EventFields {
    param($Steps, $Fields)
    Update-GracefulRecord $Steps.Keeper $Steps.Mine {
        param($record, $own)
        foreach ($entry in @($own.PSBase.Values)) {
            foreach ($name in @($Fields.PSBase.Keys)) { $entry[$name] = $Fields[$name] }
        }
    }
}

function Invoke-GiveUp {
    # Undoes a failed drain at once, if the order says so. This run does not try it again.
    param($Steps, [string]$Message)
    # Noted first, so that a drain that is partly undone is not taken for one under way.
    Set-EventFields $Steps @{ gave_up = $Message }
    $then = 'What was done is undone.'
    try { Invoke-UndoAll $Steps $false ((Get-GracefulUnfinished $Steps.Record).Count -gt 0) }
    catch {
        $result = Get-ResultOf $_ @('next_step', 'failed_step')
        if ($result['state'] -ceq 'next') { return , (New-GracefulMap $result @{ message = $Message }) }
        $then = "Undoing it failed, too: $($result['message'])"
    }
    return , (New-GracefulMap @{ state = 'failed'; message = "$Message $then"; final = $true })
}

function Invoke-Take {
    param($Steps, [string]$Phase, $Item)
    $name = $Item['name']
    $noted = Get-Noted $Steps $Phase $name
    if ($null -ne $noted -and $noted['kind'] -cne $Item['kind']) {
        $message = "its kind is $($Item['kind']), but a step with the same name and the kind $(Format-GracefulText $noted['kind'] 40), from an earlier run, is not undone. Give the new step another name"
        throw (New-Failed (Get-Failure $Phase $Item $message $false 0))
    }
    $step = New-GracefulMap @{ phase = $Phase; name = $name; kind = $Item['kind']; timeout = $Item['timeout']; options = $Item['options'] }
    try {
        $kind = Get-Kind $Phase $Item['kind']
        if ($null -eq $kind) { throw (New-GracefulError "There is no kind $(Format-GracefulQuoted $Item['kind']) on Windows hosts.") }
        if (Test-ByController $Phase $Item['kind']) { Request-Controller $Steps $kind $step $noted }
        elseif ($Phase -ceq 'checkpoint') { Invoke-Save $Steps $kind $step $noted }
        else { Invoke-Drain $Steps $kind $step $noted }
    }
    catch { Stop-WithNotedFailure $Steps $step $_ }
}

function Stop-WithNotedFailure {
    # Notes the failure of a step, and ends the order. Other errors are thrown as they are.
    param($Steps, $Step, [System.Management.Automation.ErrorRecord]$Thrown)
    $known = Get-GracefulError $Thrown
    if ($null -ne $known -and @('lost_claim', 'failed_step', 'next_step') -contains $known.Kind) { throw $Thrown }
    $late = $false
    # An error of a cmdlet is a failure of the step, too.
    $message = Get-GracefulReason $Thrown
    if ($null -ne $known) {
        $late = $known.Kind -eq 'late'
        $message = $known.Message
    }
    $noted = Get-Noted $Steps $Step['phase'] $Step['name']
    $attempts = 1
    if ($null -ne $noted) { $attempts = $noted['attempts'] + 1 }
    $fresh = Get-Key $Step
    # A step that was never begun is not undone, but its next attempt waits like the others.
    if ($null -eq $noted) { $fresh = New-GracefulMap $Step @{ before = (New-GracefulMap); data = (New-GracefulMap @{ begun = $false }) } }
    Add-Note $Steps (New-GracefulMap $fresh @{ status = 'failed'; message = $message; attempts = $attempts }) 'failed' $message
    throw (New-Failed (Get-Failure $Step['phase'] $Step $message $late $attempts))
}

function Invoke-Drain {
    param($Steps, $Kind, $Step, $Noted)
    $options = Get-Options $Steps $Step
    $tools = Get-Tools $Steps $Step $Noted
    $look = & $Kind['Look'] $options $tools
    if ($null -ne $Noted -and $Noted['status'] -ceq 'done' -and $look['Done']) { return }
    $before = Get-Before $Kind $Step $Noted $look['Before']
    Add-Doing $Steps $Step $Noted $before
    $done = & $Kind['Do'] $options $tools
    Assert-InTime $Steps $done['Message']
    $data = Get-Data $done
    Add-Note $Steps (New-GracefulMap $Step @{ status = 'done'; message = [string]$done['Message']; data = $data }) 'draining' $done['Message']
}

function Add-Doing {
    param($Steps, $Step, $Noted, $Before)
    if ($null -ne $Noted -and $Noted['status'] -ceq 'done' -and $Step['phase'] -ceq 'drain') {
        foreach ($saved in (Get-GracefulUnfinished $Steps.Record)) {
            if ($saved['phase'] -cne 'checkpoint' -or $saved['status'] -cne 'done') { continue }
            # It was in service again since then, and may have written something: that is saved, too.
            Add-Note $Steps (New-GracefulMap (Get-Key $saved) @{ status = 'doing' })
        }
    }
    Add-Note $Steps (New-GracefulMap $Step @{ status = 'doing'; message = ''; before = $Before; data = (New-GracefulMap) })
}

function Test-Saved {
    # Whether it was saved with the same options, and the copy is still there.
    param($Kind, $Step, $Noted, $Options, $Tools)
    if ($null -eq $Noted -or $Noted['status'] -cne 'done' -or -not (Test-SameOption $Noted $Step)) { return $false }
    if (-not $Kind.Contains('Saved')) { return $true }
    return [bool](& $Kind['Saved'] $Options $Tools @{ Before = $Noted['before']; Data = $Noted['data']; Lost = $false })
}

function Test-SameOption {
    param($Noted, $Step)
    return Test-SameData $Noted['options'] $Step['options']
}

function Test-SameData {
    # In any order of the keys, which in PowerShell 7 differs between processes.
    param($One, $Other)
    if ($One -isnot [System.Collections.IDictionary] -or $Other -isnot [System.Collections.IDictionary]) {
        return (ConvertTo-GracefulJson $One) -ceq (ConvertTo-GracefulJson $Other)
    }
    if ($One.PSBase.Count -ne $Other.PSBase.Count) { return $false }
    foreach ($key in $One.PSBase.Keys) {
        if (-not $Other.Contains($key) -or -not (Test-SameData $One[$key] $Other[$key])) { return $false }
    }
    return $true
}

function Get-Data {
    param($Done)
    if ($null -eq $Done['Data']) { return , (New-GracefulMap) }
    return , (ConvertTo-GracefulData $Done['Data'])
}

function Invoke-Save {
    param($Steps, $Kind, $Step, $Noted)
    if (Test-Answer $Steps $Step 'fetch') {
        # The controller has fetched the archive: now it is saved.
        $null = Get-Answer $Steps
        $said = ''
        if ($null -ne $Noted) { $said = $Noted['message'] }
        Add-Note $Steps (New-GracefulMap $Step @{ status = 'done'; message = $said }) 'checkpointed' $said
        return
    }
    $options = Get-Options $Steps $Step
    $tools = Get-Tools $Steps $Step $Noted
    if (Test-Saved $Kind $Step $Noted $options $tools) { return }
    # Until it is saved again, what was saved before is better than nothing.
    $data = New-GracefulMap
    if (Test-Begun $Noted) { $data = $Noted['data'] }
    Add-Note $Steps (New-GracefulMap $Step @{ status = 'doing'; message = ''; before = (New-GracefulMap); data = $data })
    $done = & $Kind['Do'] $options $tools
    Assert-InTime $Steps $done['Message']
    $data = Get-Data $done
    if ($data['fetched']) {
        Add-Note $Steps (New-GracefulMap $Step @{ status = 'doing'; message = [string]$done['Message']; data = $data })
        throw (New-Next (Get-ForController $Steps $Step 'fetch' @{ archive = $data['archive'] }))
    }
    Add-Note $Steps (New-GracefulMap $Step @{ status = 'done'; message = [string]$done['Message']; data = $data }) 'checkpointed' $done['Message']
}

# ---- steps that the controller takes

function Request-Controller {
    param($Steps, $Kind, $Step, $Noted)
    $done = $null -ne $Noted -and $Noted['status'] -ceq 'done'
    if ($done -and $Step['phase'] -ceq 'checkpoint' -and -not (Test-SameOption $Noted $Step)) { $done = $false }
    if ($done) {
        $age = (Get-GracefulNow) - $Noted['at']
        if ($age -ge 0 -and $age -lt $Steps.Order['fresh']) { return }
        # A later step that is pending would begin anew if this one was verified in between.
        if ((Test-Pending $Steps) -and -not (Test-Answer $Steps $Step 'do')) { return }
    }
    if (Test-Answer $Steps $Step 'verify') {
        $answer = $Steps.Answer
        $Steps.Answer = $null
        if ($answer['ok']) {
            Add-Note $Steps (New-GracefulMap $Step @{ status = 'done'; message = [string]$answer['message'] })
            return
        }
        $done = $false
    }
    if (Test-Answer $Steps $Step 'do') {
        if ((Test-Pending $Steps) -and $null -ne $Noted) { Request-Again $Steps $Step $Noted }
        $message = Get-Answer $Steps
        $mark = 'draining'
        if ($Step['phase'] -ceq 'checkpoint') { $mark = 'checkpointed' }
        Add-Note $Steps (New-GracefulMap $Step @{ status = 'done'; message = $message }) $mark $message
        return
    }
    if ($done) { throw (New-Next (Get-ForController $Steps $Step 'verify')) }
    $looked = New-GracefulMap $Steps.Order['looked'][$Step['name']]
    if ($script:ByController["$($Step['phase'])/$($Step['kind'])"] -and -not $looked.PSBase.Count -and -not (Test-Begun $Noted)) {
        throw (New-Next (Get-ForController $Steps $Step 'look'))
    }
    if ($looked['error']) { throw (New-GracefulError ([string]$looked['error'])) }
    $before = Get-Before $Kind $Step $Noted $looked
    Add-Doing $Steps $Step $Noted $before
    throw (New-Next (Get-ForController $Steps $Step 'do'))
}

function Test-Pending {
    # Whether the controller has begun one of the steps, and it takes longer than the other hosts can wait.
    param($Steps)
    $answer = $Steps.Answer
    if ($null -eq $answer -or -not $answer['pending'] -or $answer['phase'] -cne 'drain' -or $answer['mode'] -cne 'do') { return $false }
    if (@(@($Steps.Order['steps']) | Where-Object { $_['name'] -ceq $answer['name'] }).Count -eq 0) { return $false }
    $noted = Find-GracefulStep $Steps.Record 'drain' $answer['name']
    return $null -ne $noted -and $noted['status'] -ceq 'doing'
}

function Request-Again {
    # No attempt is counted. When the time of the step is over, its answer is a failure like any other.
    param($Steps, $Step, $Noted)
    $left = $Steps.Until - (Get-GracefulMonotonic)
    $ofStep = $left
    if ($Step['timeout']) { $ofStep = [double]$Step['timeout'] - [Math]::Max(0.0, (Get-GracefulNow) - $Noted['at']) }
    if ($left -le $script:LeastTime -or $ofStep -lt $script:ShortestRequest) { return }
    $message = 'it takes longer'
    if ($Steps.Answer['message']) { $message = $Steps.Answer['message'] }
    $asked = New-GracefulMap (Get-Key $Step) @{ mode = 'do'; seconds = [Math]::Min($left, $ofStep) }
    throw (New-Next $asked "$($Step['name']): $(Format-GracefulText $message)")
}

function Test-Answer {
    param($Steps, $Step, [string]$Mode)
    $answer = $Steps.Answer
    if ($null -eq $answer) { return $false }
    return $answer['phase'] -ceq $Step['phase'] -and $answer['name'] -ceq $Step['name'] -and $answer['mode'] -ceq $Mode
}

function Get-Answer {
    # The message of the controller about its step. Raises an error if the step was not taken.
    param($Steps)
    $answer = $Steps.Answer
    $Steps.Answer = $null
    $message = ''
    if ($answer['message']) { $message = Format-GracefulText $answer['message'] }
    if (-not $answer['ok']) {
        if ($answer['late']) { throw (New-GracefulError $message 'late') }
        if (-not $message) { $message = 'the controller gave no reason' }
        throw (New-GracefulError $message)
    }
    return $message
}

function Get-ForController {
    param($Steps, $Step, [string]$Mode, $More = @{})
    $asked = Get-Key $Step
    $asked['mode'] = $Mode
    $asked['seconds'] = Get-Left $Steps $Step
    return , (New-GracefulMap $asked $More)
}

# ---- putting back

function Invoke-PutBack {
    param($Steps)
    $lost = @((Get-Entries $Steps) | Where-Object { $_['event']['event_type'] -ne 'freeze' -and $_['started'] }).Count -gt 0
    $marked = @(@($Steps.Record['timeline']) | Where-Object { $_['what'] -ceq 'restoring' }).Count
    if (-not $marked) { Add-Mark $Steps 'restoring' }
    $check = @($Steps.Record['steps']).Count -gt 0
    try { Invoke-UndoAll $Steps $lost $check }
    catch { return , (Get-ResultOf $_ @('next_step', 'failed_step')) }
    Clear-Leftovers $Steps
    $closed = Close-GracefulEvent $Steps.Keeper $Steps.Mine $Steps.Mine 'restored' $Steps.Order['lapsed']
    $message = 'everything is undone'
    if ($check -and @($Steps.Order['health']).Count) { $message += ', and the health checks have passed' }
    return , (New-GracefulMap @{ state = 'put_back'; message = $message; closed = $closed })
}

function Invoke-UndoAll {
    # Restores checkpoints, undoes steps in reverse order, checks the health, and lets traffic return last.
    param($Steps, [bool]$Lost, [bool]$Check)
    # What another run has verified for its own event does not hold any more either.
    Set-GracefulNotReady $Steps.Keeper $Steps.Mine
    $left = Get-GracefulUnfinished $Steps.Record
    $drained = @($left | Where-Object { $_['phase'] -ceq 'drain' })
    [Array]::Reverse($drained)
    $carries = New-GracefulMap
    foreach ($step in $drained) { $carries[$step['name']] = [bool](Get-KindOf $step)['CarriesTraffic'] }
    foreach ($step in $left) { if ($step['phase'] -ceq 'checkpoint') { Invoke-Undo $Steps $step $Lost } }
    foreach ($step in $drained) { if (-not $carries[$step['name']]) { Invoke-Undo $Steps $step $Lost } }
    if ($Check) { Assert-Health $Steps }
    foreach ($step in $drained) { if ($carries[$step['name']]) { Invoke-Undo $Steps $step $Lost } }
}

function Clear-Leftovers {
    # Only after everything is noted as undone: a call that was interrupted needs it again.
    param($Steps)
    Update-GracefulRecord $Steps.Keeper $Steps.Mine { }
    foreach ($step in @($Steps.Record['steps'])) {
        # A failure here does not keep the host out of service.
        try {
            $kind = Get-KindOf $step
            if ($kind.Contains('CleanUp')) {
                $null = & $kind['CleanUp'] (Get-Options $Steps $step) (Get-Tools $Steps $step $step) @{ Before = $step['before']; Data = $step['data']; Lost = $false }
            }
        }
        catch { $null = $_ }
    }
}

function Invoke-Undo {
    param($Steps, $Step, [bool]$Lost)
    $kind = Get-KindOf $Step
    try {
        $byController = Test-ByController $Step['phase'] $Step['kind']
        $inService = -not $Step['before'].Contains('in_service') -or [bool]$Step['before']['in_service']
        if (-not (Test-Begun $Step)) { $message = 'it was never started' }
        elseif (-not $inService) { $message = $script:LeftOut }
        elseif ($byController -and $Step['phase'] -ceq 'checkpoint') { $message = 'nothing to undo' }
        elseif ($byController) {
            if (-not (Test-Answer $Steps $Step 'undo')) {
                # From now on no run takes it for done, and nothing is undone by a run that has lost its claim.
                Add-Note $Steps (New-GracefulMap (Get-Key $Step) @{ status = 'doing' })
                throw (New-Next (Get-ForController $Steps $Step 'undo' (New-GracefulMap @{ before = $Step['before']; options = $Step['options'] })))
            }
            $message = Get-Answer $Steps
        }
        else { $message = Invoke-UndoHere $Steps $kind $Step $Lost }
        Add-Note $Steps (New-GracefulMap (Get-Key $Step) @{ status = 'undone'; message = $message }) 'restoring' $message
    }
    catch { Stop-WithNotedFailure $Steps $Step $_ }
}

function Invoke-UndoHere {
    param($Steps, $Kind, $Step, [bool]$Lost)
    if ($Step['data']['fetched']) {
        if (-not (Test-Answer $Steps $Step 'send')) {
            # Sending a file does not create its directory.
            New-GracefulDirectory ([System.IO.Path]::GetDirectoryName([string]$Step['data']['archive']))
            throw (New-Next (Get-ForController $Steps $Step 'send' @{ archive = $Step['data']['archive'] }))
        }
        $null = Get-Answer $Steps
    }
    # Nothing is undone by a run that has lost its claim.
    Update-GracefulRecord $Steps.Keeper $Steps.Mine { }
    $noted = @{ Before = $Step['before']; Data = $Step['data']; Lost = $Lost }
    return [string](& $Kind['Undo'] (Get-Options $Steps $Step) (Get-Tools $Steps $Step $Step) $noted)
}

function Assert-Health {
    param($Steps)
    try {
        if ($Steps.Order['health_mistake']) { throw (New-GracefulError $Steps.Order['health_mistake']) }
        $items = @()
        $number = 0
        foreach ($item in @($Steps.Order['health'])) {
            $items += , (New-GracefulMap $item $Steps.Order['secrets']["health/$number"])
            $number++
        }
        Test-Health $items $Steps.Progress ($Steps.Until - (Get-GracefulMonotonic))
    }
    catch {
        $known = Resolve-GracefulError $_
        if ($known.Kind -eq 'lost_claim') { throw }
        $attempts = Add-GracefulUnhealthy $Steps.Keeper $Steps.Mine $known.Message
        throw (New-Failed (New-GracefulMap @{ state = 'failed'; message = "The host is not healthy: $($known.Message)"; attempts = $attempts; step = 'health' }))
    }
}

# ---- what all steps need

function Get-Secrets {
    param($Steps, $Step)
    return , (New-GracefulMap $Steps.Order['secrets']["$($Step['phase'])/$($Step['name'])"])
}

function Get-Options {
    param($Steps, $Step)
    $secrets = Get-Secrets $Steps $Step
    foreach ($key in @($Step['options'].PSBase.Keys)) {
        if (-not $secrets.Contains($key) -and (Test-GracefulMasked $Step['options'][$key])) {
            throw (New-GracefulError (
                    "the secret part of the URL in $key is never recorded. Put the step back into the inventory as it was, or undo it by " +
                    "hand and remove the host's record"))
        }
    }
    return , (New-GracefulMap $Step['options'] $secrets)
}

function Get-Left {
    param($Steps, $Step)
    $left = $Steps.Until - (Get-GracefulMonotonic)
    if ($Step['timeout']) { $left = [Math]::Min($left, [double]$Step['timeout']) }
    if ($left -le 0) { throw (New-GracefulError 'no time is left' 'late') }
    return $left
}

function Get-Tools {
    # What a kind gets to work with.
    param($Steps, $Step, $Noted)
    $seconds = Get-Left $Steps $Step
    $end = (Get-GracefulMonotonic) + $seconds
    $progress = $Steps.Progress
    $name = $Step['name']
    & $progress "$name ($($Step['kind']))"
    $tell = { param($Message) & $progress "${name}: $(Format-GracefulText $Message 200)" }.GetNewClosure()
    $left = { [Math]::Max(0.0, $end - (Get-GracefulMonotonic)) }.GetNewClosure()
    $until = {
        param([scriptblock]$Probe, $Seconds = $null, $Pause = 0.5, $Lasting = 0.0)
        $most = & $left
        if ($Seconds) { $most = [Math]::Max(0.1, [Math]::Min([double]$Seconds, $most)) }
        Wait-GracefulProof $Probe $most $tell $Pause $Lasting
    }.GetNewClosure()
    return @{
        Left = $left
        RequestTimeout = { param($Longest = 5.0) [Math]::Max(0.1, [Math]::Min([double]$Longest, (& $left))) }.GetNewClosure()
        Run = { param($Argv, $Seconds, $Environment = $null) Invoke-GracefulProgram $Argv $Seconds $Environment }
        Until = $until
        Begun = (Test-Begun $Noted)
        Directory = [string]$Steps.Order['checkpoint_dir']
        # A hash, so that no name of an item can lead to another directory.
        FileName = (Get-GracefulHash $name).Substring(0, 20) + '.zip'
    }
}

function Assert-InTime {
    param($Steps, [string]$Message)
    if ((Get-GracefulMonotonic) -gt $Steps.Until) { throw (New-GracefulError "it was done, but after the deadline: $Message" 'late') }
}

function Add-Mark {
    param($Steps, [string]$What, [string]$Detail = '')
    Update-GracefulRecord $Steps.Keeper $Steps.Mine {
        param($record)
        Add-GracefulMark $Steps.Keeper $record $What $Detail
    }
}

function Add-Note {
    param($Steps, $Step, [string]$Mark = '', [string]$Detail = '')
    $note = New-GracefulMap $Step
    if ($note.Contains('message')) { $note['message'] = Format-GracefulText ([string]$note['message']) }
    if (@('done', 'undone') -ccontains $note['status']) { $note['attempts'] = 0 }
    $said = ''
    if ($Detail) { $said = "$($note['name']): $Detail" }
    Add-GracefulStepNote $Steps.Keeper $Steps.Mine $note $Mark $said
    $record = Read-GracefulRecord $Steps.Keeper
    if ($null -ne $record) { $Steps.Record = $record }
}

# Wait-GracefulProof is exported for the blocks in Get-Tools: closures see exported functions only.
Export-ModuleMember -Function 'Invoke-GracefulOrderedWork', 'Get-GracefulRetryLater', 'Get-GracefulUndoingSince', 'Get-GracefulOther', 'Wait-GracefulProof'
