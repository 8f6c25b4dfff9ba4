# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Approves events and checks the result, as _approver.py. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsClient
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsDocument

Set-StrictMode -Version 2.0

# After a POST that was not confirmed, the document is read for so many seconds before the next POST.
$script:UnconfirmedFor = 30.0
$script:ReadEvery = 1.0

function Invoke-GracefulApproval {
    # Reads the document, posts the approval, and reads the result. BeforePost is called with the ids right before each POST; an error
    # that it raises stops it. With NoRepost there is one POST at most, and what it leaves open is returned as unconfirmed; if
    # there was no connection, so that nothing was sent, that is an error. Terms = @{Leader; Resources; EventType}.
    param(
        $Service, [string[]]$EventIds, [System.Collections.IDictionary]$Terms, [switch]$MissingOk, [switch]$CheckMode,
        [switch]$NoRepost, [scriptblock]$BeforePost
    )
    $wanted = New-GracefulMap
    foreach ($id in $EventIds) { $wanted[(Get-GracefulSameId $id)] = $id.Trim() }
    $approval = @{ missing_ok = [bool]$MissingOk; terms = $Terms; statuses = @{} }
    foreach ($name in @('approved', 'already_started', 'missing', 'not_leader', 'unexpected', 'unconfirmed', 'refusals', 'warnings')) {
        $approval[$name] = @()
    }
    $document = (Read-GracefulEvents $Service)['Document']
    $pending = @(Split-Wanted $approval $document @($wanted.PSBase.Values))
    Assert-NotMissing $approval 'nothing was posted'
    if ($CheckMode) {
        $approval['approved'] = $pending
        return $approval
    }
    $posts = 0
    while ($pending.Count) {
        if ($BeforePost) { & $BeforePost $pending | Out-Null }
        $posts++
        try { Send-GracefulApproval $Service $pending $document }
        catch {
            $failure = Resolve-GracefulError $_
            if ($failure.Kind -eq 'refused') {
                Resolve-Refusal $Service $approval $pending $failure
                break
            }
            if (-not $failure.Passing) { throw }
            if ($NoRepost) {
                # There was no connection, so nothing was sent.
                if ($failure.Kind -eq 'no_connection') { throw }
                $approval['unconfirmed'] = $pending
                $approval['warnings'] += $failure.Message
                break
            }
            $watched = Watch-Unconfirmed $Service $approval $pending $failure
            $document = $watched.Document
            $pending = @($watched.Still)
            if ($pending.Count -and $posts -gt $Service.Limits['retries']) {
                throw (New-GracefulError ("$($failure.Message) The approval of $(Format-GracefulList $pending) was posted " +
                        "$(Format-GracefulCount $posts 'time') and not confirmed, and after $($script:UnconfirmedFor) s the " +
                        'document still shows Scheduled. It is probably not approved. Azure acts at NotBefore anyway; run the task again ' +
                        'to approve sooner.') 'step' (Get-GracefulApprovalList $approval))
            }
            continue
        }
        $approval['approved'] += $pending
        Confirm-Approval $Service $approval
        break
    }
    return $approval
}

function Get-GracefulApprovalList {
    # What the module returns.
    param($Approval)
    $lists = New-GracefulMap
    foreach ($name in @('approved', 'already_started', 'missing', 'not_leader', 'unexpected')) { $lists[$name] = @($Approval[$name]) }
    $lists['changed'] = [bool]@($Approval['approved']).Count
    return , $lists
}

function Split-Wanted {
    # Puts each id into the list of its outcome, and returns those that may be posted.
    param($Approval, $Document, $Wanted, [string]$Refused = 'was not approved')
    foreach ($id in @($Wanted)) {
        $entries = @($Document['Events'] | Where-Object { (Get-GracefulSameId $_['event_id']) -ceq (Get-GracefulSameId $id) })
        $spelled = $id
        if ($entries.Count) { $spelled = $entries[0]['event_id'] }
        $why = ''
        foreach ($one in $entries) { if (-not $why) { $why = Get-Unexpected $Approval['terms'] $one } }
        if (-not $entries.Count) { $Approval['missing'] += $spelled }
        elseif (@($entries | Where-Object { $_['event_status'] -ceq 'Started' }).Count) { $Approval['already_started'] += $spelled }
        elseif ($null -ne $Approval['terms']['Leader'] -and -not (Test-Leader $Approval['terms']['Leader'] $entries[0])) {
            $Approval['not_leader'] += $spelled
        }
        elseif ($why) {
            $Approval['unexpected'] += $spelled
            $Approval['refusals'] += "$(Format-GracefulText $spelled) ${Refused}: $why."
        }
        else { $spelled }
    }
}

function Test-Leader {
    param([string]$Name, $Of)
    return $null -ne $Of['leader'] -and (Get-GracefulSameName $Of['leader']) -ceq (Get-GracefulSameName $Name)
}

function Get-Unexpected {
    # Why the event is no longer the one that the hosts were prepared for: Azure may change its type, or name more VMs.
    param($Terms, $Of)
    if ($Of['event_status'] -cne 'Scheduled') {
        return "its status is $(Format-GracefulQuoted $Of['event_status']), which is not known; only Scheduled can be approved"
    }
    if ($null -ne $Terms['EventType'] -and $Of['event_type'].ToLowerInvariant() -cne ([string]$Terms['EventType']).Trim().ToLowerInvariant()) {
        return "its type is now $(Format-GracefulQuoted $Of['event_type']), expected: $(Format-GracefulQuoted $Terms['EventType'])"
    }
    if ($null -ne $Terms['Resources']) {
        $known = @($Terms['Resources'] | ForEach-Object { Get-GracefulSameName $_ })
        $more = @($Of['resources'] | Where-Object { $known -cnotcontains (Get-GracefulSameName $_) })
        if ($more.Count -or -not @($Of['resources']).Count) {
            $names = Format-QuotedList $more
            if (-not $names) { $names = 'no VM' }
            return "it now names $names, which was not expected"
        }
    }
    return ''
}

function Resolve-Refusal {
    # The service has refused the POST, so it is not sent again.
    param($Service, $Approval, $Posted, $Refusal)
    try { $document = (Read-GracefulEvents $Service)['Document'] }
    catch {
        $unread = Resolve-GracefulError $_
        throw (New-GracefulError (Get-UnknownText $Posted $Refusal $unread) 'not_taken' (Get-GracefulApprovalList $Approval))
    }
    $still = @(Split-Wanted $Approval $document $Posted)
    Assert-NotMissing $Approval 'its approval was refused'
    if ($still.Count) {
        throw (New-GracefulError ("$($Refusal.Message) Not approved: $(Format-GracefulList $still), still Scheduled. Azure acts at NotBefore " +
                'anyway; run the task again to approve sooner.') 'not_taken' (Get-GracefulApprovalList $Approval))
    }
}

function Get-UnknownText {
    param($Posted, $Failure, $Unread)
    return "$($Failure.Message) It is not known whether the service accepted the approval of $(Format-GracefulList $Posted): $($Unread.Message) Run the task " +
    'again; it reads the document before it posts.'
}

function Watch-Unconfirmed {
    # Reads until the document shows that the POST was taken, or has not shown it for long enough.
    param($Service, $Approval, $Posted, $Failure)
    $end = (Get-GracefulMonotonic) + $script:UnconfirmedFor
    $still = @($Posted)
    while ($true) {
        $last = (Get-GracefulMonotonic) -ge $end
        $document = $null
        try { $document = (Read-GracefulEvents $Service)['Document'] }
        catch {
            $unread = Resolve-GracefulError $_
            if ($last -or -not $unread.Passing) {
                throw (New-GracefulError (Get-UnknownText $still $Failure $unread) 'step' (Get-GracefulApprovalList $Approval))
            }
        }
        if ($null -ne $document) {
            $still = @(Split-Unconfirmed $Approval $document $still)
            if ($last -or -not $still.Count) { return @{ Document = $document; Still = $still } }
        }
        Wait-Graceful $script:ReadEvery
    }
}

function Split-Unconfirmed {
    param($Approval, $Document, $Posted)
    $before = @($Approval['already_started'])
    $still = @(Split-Wanted $Approval $Document $Posted 'was posted without an answer and is not posted again')
    # The POST was not refused, and the event has started: it counts as approved by this call.
    $confirmed = @($Approval['already_started'] | Select-Object -Skip $before.Count)
    $Approval['already_started'] = $before
    $Approval['approved'] += $confirmed
    foreach ($id in $confirmed) {
        $Approval['warnings'] += "The service did not confirm the approval of $(Format-GracefulText $id), but the event has started."
    }
    Assert-NotMissing $Approval 'its approval had not been confirmed'
    return $still
}

function Confirm-Approval {
    # Notes the status of the approved events. Whatever it is, they count as approved: Azure may need some time.
    param($Service, $Approval)
    try { $document = (Read-GracefulEvents $Service)['Document'] }
    catch {
        $Approval['warnings'] += "Approved, but the document could not be read afterwards: $((Resolve-GracefulError $_).Message)"
        return
    }
    $present = Get-GracefulById $document['Events']
    foreach ($id in $Approval['approved']) {
        $status = 'gone'
        $one = $present[(Get-GracefulSameId $id)]
        if ($null -ne $one) { $status = $one['event_status'] }
        if ($status -ceq 'Scheduled') { $status = 'Scheduled, approved' }
        $Approval['statuses'][$id] = $status
    }
}

function Assert-NotMissing {
    param($Approval, [string]$State)
    if ($Approval['missing'].Count -and -not $Approval['missing_ok']) {
        throw (New-GracefulError ("No such event: $(Format-GracefulList $Approval['missing']) ($State). It has completed, was cancelled, or never " +
                'existed; read the current ids with graceful.azure.scheduled_events_info, or set missing=ok to accept it.'
            ) 'step' (Get-GracefulApprovalList $Approval))
    }
}

function Format-QuotedList {
    param($Names, [int]$Show = 5)
    $shown = @(@($Names) | Select-Object -First $Show | ForEach-Object { Format-GracefulQuoted $_ }) -join ', '
    $more = @($Names).Count - $Show
    if ($more -gt 0) { return "$shown and $more more" }
    return $shown
}

Export-ModuleMember -Function 'Invoke-GracefulApproval', 'Get-GracefulApprovalList'
