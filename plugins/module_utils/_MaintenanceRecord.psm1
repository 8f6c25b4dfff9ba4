# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The record of a Windows host, as _record.py and _record_files.py. It is the same JSON, so that one run reads both.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0

$script:Version = 2
$script:LockWait = 10.0
$script:KeptInHistory = 100
$script:LargestRecord = 4 * 1024 * 1024
# Of the directory: file names in it have up to 60 characters, and older versions of .NET take 260 for a path.
$script:LongestPath = 190
# If the clock was set back by more than this, a claim is renewed by its age, so that it ends.
$script:ClockSlack = 60.0
# An event may stand for days, and a step may fail every minute.
$script:MostMarks = 400
$script:Source = 'graceful.azure'
$script:Administrators = 'S-1-5-32-544'
$script:System = 'S-1-5-18'
# Who may write the record beside the user: SYSTEM, Administrators, TrustedInstaller, CREATOR OWNER and OWNER RIGHTS.
$script:Trusted = @(
    $script:System, $script:Administrators, 'S-1-3-0', 'S-1-3-4',
    'S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464'
)
$script:Parts = [ordered]@{
    events = @{
        '*' = @{
            event = @{ event_id = 'text'; event_type = 'text' }
            claim = @{ run_id = 'text'; run_name = 'text'; since = 'time'; renewed = 'time'; silent_until = 'time' }
            'approval?' = @{ at = 'time'; status = 'text'; run_id = 'text'; message = 'text' }
            noticed = 'time'; 'lapsed?' = 'time'; 'ready?' = 'time'; 'started?' = 'time'; 'gone?' = 'time'; gone_reads = 'count'; unhealthy = 'count'; 'gave_up?' = 'text'
        }
    }
    steps = @(
        @{
            phase = 'text'; name = 'text'; kind = 'text'; status = 'status'; at = 'time'; message = 'text'; attempts = 'count'; 'timeout?' = 'time'
            options = @{}; before = @{}; data = @{}
        }
    )
    timeline = @(@{ at = 'time'; what = 'text'; detail = 'text'; event_id = 'text' })
    created = 'time'
    boot_id = 'text'
}
$script:LogIsReady = $null

# ---- what a record looks like

function Test-Shape {
    # Shapes are text, time, count, status, a list of one shape, or fields with their shapes: * is any name, with ? it may be null.
    param($Value, $Shape)
    if ($Shape -is [array]) {
        if ($Value -isnot [array]) { return $false }
        foreach ($one in $Value) { if (-not (Test-Shape $one $Shape[0])) { return $false } }
        return $true
    }
    if ($Shape -is [System.Collections.IDictionary]) {
        if ($Value -isnot [System.Collections.IDictionary]) { return $false }
        foreach ($key in $Shape.Keys) {
            $names = @($key.TrimEnd('?'))
            if ($key -eq '*') { $names = @($Value.PSBase.Keys) }
            foreach ($name in $names) {
                if (-not $Value.Contains($name)) { return $false }
                $mayBeNull = $key.EndsWith('?') -and $null -eq $Value[$name]
                if (-not $mayBeNull -and -not (Test-Shape $Value[$name] $Shape[$key])) { return $false }
            }
        }
        return $true
    }
    $whole = $Value -is [long] -or $Value -is [int]
    switch ($Shape) {
        'text' { return $Value -is [string] }
        'time' { return ($whole -or $Value -is [double]) -and $Value -ge 0 -and $Value -lt 1e11 }
        'count' { return $whole -and $Value -ge 0 }
        'status' { return @('doing', 'done', 'failed', 'undone') -ccontains $Value }
    }
}

function Get-Flaw {
    # Why this JSON is not a record; empty if it is one.
    param($Record)
    $version = $null
    if ($Record -is [System.Collections.IDictionary]) { $version = $Record['version'] }
    if ($version -isnot [long] -and $version -isnot [int]) { return 'it is JSON, but not a record of this collection' }
    if ($version -ne $script:Version) { return "it is of version $version, and this collection knows version $script:Version only" }
    $wrong = @($script:Parts.Keys | Where-Object { -not (Test-Shape $Record @{ $_ = $script:Parts[$_] }) })
    if ($wrong.Count -eq 0) { return '' }
    return "$($wrong -join ', ') missing or of the wrong form"
}

function New-Record {
    param([string]$BootId)
    return , (New-GracefulMap ([ordered]@{
                version = $script:Version; events = (New-GracefulMap); steps = @(); timeline = @(); created = Get-GracefulNow; boot_id = $BootId
            }))
}

function Find-GracefulStep {
    param($Record, [string]$Phase, [string]$Name)
    foreach ($step in @($Record['steps'])) {
        if ($step['phase'] -ceq $Phase -and $step['name'] -ceq $Name) { return , $step }
    }
    return $null
}

function Get-GracefulUnfinished {
    # The steps that were begun and are not undone. A failed step may have done a part of its work.
    param($Record)
    $left = @(@($Record['steps']) | Where-Object { $_['status'] -cne 'undone' })
    return , $left
}

# ---- the folder

function New-GracefulKeeper {
    # Reads and changes the record on behalf of one run: @{run_id; run_name; silent_for; force}.
    param([string]$Directory, [System.Collections.IDictionary]$Run)
    $path = [System.Environment]::ExpandEnvironmentVariables($Directory)
    if ($path -notmatch '^([A-Za-z]:[\\/]|\\\\[^\\]+\\[^\\]+)' -or $path.Contains('%')) {
        throw (New-GracefulError "record_dir has to be an absolute path, not $(Format-GracefulQuoted $Directory)." 'wrong_option')
    }
    $path = $path.TrimEnd('\', '/')
    if ($path.Length -gt $script:LongestPath) {
        throw (New-GracefulError (
                "record_dir has $($path.Length) characters, and Windows PowerShell takes $($script:LongestPath) here. Set a shorter " +
                'graceful_record_dir.') 'wrong_option')
    }
    return @{
        Path = $path
        File = [System.IO.Path]::Combine($path, 'record.json')
        History = [System.IO.Path]::Combine($path, 'history')
        Run = $Run
        Warnings = (New-Object System.Collections.ArrayList)
    }
}

function Test-WithoutAccessList {
    # Wine has no access control lists: tests there set the variable. On Windows it has no effect.
    return [System.Environment]::GetEnvironmentVariable('GRACEFUL_TEST_WITHOUT_ACL') -eq '1' -and (Test-Path -LiteralPath 'HKCU:\Software\Wine')
}

function Test-RecordDirectory {
    # What is in the record is undone as this user, so other users must not be able to write it.
    param($Keeper)
    if ([System.IO.File]::Exists($Keeper.Path)) {
        throw (New-GracefulError "$($Keeper.Path) is not a directory. Move it away, or set another graceful_record_dir." 'wrong_option')
    }
    if (-not [System.IO.Directory]::Exists($Keeper.Path) -or (Test-WithoutAccessList)) { return }
    $me = [System.Security.Principal.WindowsIdentity]::GetCurrent().User.Value
    $list = Get-Acl -LiteralPath $Keeper.Path
    $sid = [System.Security.Principal.SecurityIdentifier]
    $owner = $list.GetOwner($sid).Value
    $writes = [System.Security.AccessControl.FileSystemRights]'WriteData, AppendData, WriteAttributes, WriteExtendedAttributes, Delete, DeleteSubdirectoriesAndFiles, ChangePermissions, TakeOwnership'
    $others = @()
    foreach ($rule in $list.GetAccessRules($true, $true, $sid)) {
        $who = $rule.IdentityReference.Value
        if ([string]$rule.AccessControlType -ne 'Allow' -or $who -eq $me -or $script:Trusted -contains $who) { continue }
        # Generic write and generic all are separate bits.
        if (([int]$rule.FileSystemRights -band [int]$writes) -or ([int]$rule.FileSystemRights -band 0x50000000)) { $others += $who }
    }
    if ($owner -ne $me -and $script:Trusted -notcontains $owner) { $others += $owner }
    if ($others.Count) {
        throw (New-GracefulError (
                "$($Keeper.Path) (owner $owner) can be written by other users than $me, who could forge records: " +
                "$(($others | Select-Object -Unique) -join ', '). Give the records a directory of their own, or let only Administrators " +
                'and SYSTEM write to it.') 'wrong_option')
    }
}

function New-GracefulDirectory {
    # Creates a directory and its missing parents, for Administrators and SYSTEM only.
    param([string]$Path)
    if ([System.IO.Directory]::Exists($Path)) { return }
    $above = [System.IO.Path]::GetDirectoryName($Path)
    if ($above) { New-GracefulDirectory $above }
    $null = [System.IO.Directory]::CreateDirectory($Path)
    if (Test-WithoutAccessList) { return }
    try {
        $list = New-Object System.Security.AccessControl.DirectorySecurity
        $list.SetAccessRuleProtection($true, $false)
        foreach ($who in @($script:Administrators, $script:System)) {
            $list.AddAccessRule((New-Object System.Security.AccessControl.FileSystemAccessRule (
                        (New-Object System.Security.Principal.SecurityIdentifier ($who)), 'FullControl', 'ContainerInherit, ObjectInherit', 'None', 'Allow')))
        }
        Set-Acl -LiteralPath $Path -AclObject $list
        # Fails for a user who is not an administrator.
        $null = [System.IO.Directory]::GetFileSystemEntries($Path)
    }
    catch {
        try { [System.IO.Directory]::Delete($Path) } catch { $null = $_ }
        throw (New-GracefulError (
                "$Path could not be made for Administrators and SYSTEM only ($(Format-GracefulText $_.Exception.Message 200)). Connect as an " +
                'administrator, or set a graceful_record_dir on a file system with access control lists.') 'wrong_option')
    }
}

function Invoke-Explained {
    # Runs the block. An error of the file system becomes one that says what to do.
    param($Keeper, [scriptblock]$Work)
    try { return & $Work }
    catch {
        $inner = $_.Exception.GetBaseException()
        $denied = $inner -is [System.UnauthorizedAccessException] -or $inner -is [System.Security.SecurityException]
        if (-not $denied -and $inner -isnot [System.IO.IOException]) { throw }
        $advice = 'Correct this, or set another graceful_record_dir.'
        $code = $inner.HResult -band 0xffff
        if ($denied) { $advice = 'Connect as an administrator, or set a graceful_record_dir that this user may read and write.' }
        elseif (@(39, 112, 1295) -contains $code) { $advice = 'Free some space on that file system and run again.' }
        elseif (@(80, 183, 267) -contains $code) { $advice = 'Another file or directory is at this path: move it away.' }
        throw (New-GracefulError (
                "The host cannot read or write the record of a maintenance (graceful_record_dir): $($Keeper.Path): $(Get-GracefulReason $_ 300). If there was a record, it is still there: nothing was lost. $advice"))
    }
}

function Test-SharingViolation {
    param([System.Management.Automation.ErrorRecord]$Thrown)
    $inner = $Thrown.Exception.GetBaseException()
    return $inner -is [System.IO.IOException] -and @(32, 33) -contains ($inner.HResult -band 0xffff)
}

function Open-GracefulLock {
    # The file, opened exclusively; null if another process has it. The system closes it when the process ends.
    param([string]$File)
    try {
        return New-Object System.IO.FileStream ($File, [System.IO.FileMode]::OpenOrCreate, [System.IO.FileAccess]::ReadWrite, [System.IO.FileShare]::None)
    }
    catch {
        if (Test-SharingViolation $_) { return $null }
        throw
    }
}

function Test-GracefulLocked {
    # Whether a process has the lock. Who only looks shares the file with others who look, so that none of them takes another for
    # the process that has the lock.
    param([string]$File)
    try {
        $look = New-Object System.IO.FileStream ($File, [System.IO.FileMode]::OpenOrCreate, [System.IO.FileAccess]::Read, [System.IO.FileShare]::ReadWrite)
    }
    catch {
        if (Test-SharingViolation $_) { return $true }
        throw
    }
    $look.Dispose()
    return $false
}

function Invoke-Locked {
    # Runs the block under the lock.
    param($Keeper, [scriptblock]$LockedWork)
    return Invoke-Explained $Keeper {
        Test-RecordDirectory $Keeper
        New-GracefulDirectory $Keeper.Path
        $lock = $null
        $giveUp = (Get-GracefulMonotonic) + $script:LockWait
        while ($true) {
            $lock = Open-GracefulLock ([System.IO.Path]::Combine($Keeper.Path, '.lock'))
            if ($null -ne $lock) { break }
            if ((Get-GracefulMonotonic) -ge $giveUp) {
                throw (New-GracefulError (
                        "Another process has held the lock $($Keeper.Path)\.lock for $($script:LockWait) s. Nothing was written. Run again. " +
                        'If this is repeated, find the process that holds the file.') 'passing')
            }
            Wait-Graceful 0.05
        }
        try { & $LockedWork }
        finally { $lock.Dispose() }
    }
}

function Read-GracefulFile {
    # The bytes of a file, Most + 1 bytes if it is larger, null if there is none. A writer may replace it meanwhile, or a scanner
    # have it open for a moment.
    param([string]$File, [int]$Most)
    for ($try = 1; $true; $try++) {
        if (-not [System.IO.File]::Exists($File)) {
            # A file may be missing for a moment while it is replaced.
            if ($try -ge 3) { return $null }
            Wait-Graceful 0.01
            continue
        }
        try {
            $share = [System.IO.FileShare]'ReadWrite, Delete'
            $stream = New-Object System.IO.FileStream ($File, [System.IO.FileMode]::Open, [System.IO.FileAccess]::Read, $share)
        }
        catch {
            if ($try -ge 40 -or -not ((Test-SharingViolation $_) -or -not [System.IO.File]::Exists($File))) { throw }
            Wait-Graceful 0.05
            continue
        }
        try {
            if ($stream.Length -gt $Most) { return , (New-Object byte[] ($Most + 1)) }
            $content = New-Object System.IO.MemoryStream
            $stream.CopyTo($content)
            return , $content.ToArray()
        }
        finally { $stream.Dispose() }
    }
}

function New-Damaged {
    param($Keeper, [string]$Why)
    return New-GracefulError (
        "$($Keeper.File) cannot be used as a record: $Why. It was left as it is. Repair it or move it away. While an event " +
        'of this host is announced, a run with graceful_force_claim=true moves it to history/ and begins a new record.') 'damaged'
}

function Read-Record {
    # The record, null if there is none. Raises an error for anything else.
    param($Keeper)
    $file = $Keeper.File
    if ([System.IO.Directory]::Exists($file)) { throw (New-Damaged $Keeper 'it is a directory') }
    if ([System.IO.File]::Exists($file) -and ([System.IO.File]::GetAttributes($file) -band [System.IO.FileAttributes]::ReparsePoint)) {
        throw (New-Damaged $Keeper 'it is a symbolic link')
    }
    $bytes = Read-GracefulFile $file $script:LargestRecord
    if ($null -eq $bytes) { return $null }
    if ($bytes.Length -gt $script:LargestRecord) { throw (New-Damaged $Keeper "it is larger than $script:LargestRecord bytes") }
    try {
        $strict = New-Object System.Text.UTF8Encoding ($false, $true)
        $record = ConvertFrom-GracefulJson ($strict.GetString($bytes))
    }
    catch { throw (New-Damaged $Keeper "it is not JSON ($(Get-GracefulReason $_ 120))") }
    $flaw = Get-Flaw $record
    if ($flaw) { throw (New-Damaged $Keeper $flaw) }
    return , $record
}

function Read-GracefulRecord {
    # The record, without the lock: a file is always complete.
    param($Keeper)
    return Invoke-Explained $Keeper {
        Test-RecordDirectory $Keeper
        return , (Read-Record $Keeper)
    }
}

function Write-Draft {
    param($Keeper, [byte[]]$Bytes)
    # Under the lock one name is enough, and a process that is killed leaves at most one draft.
    $draft = [System.IO.Path]::Combine($Keeper.Path, '.draft')
    [System.IO.File]::Delete($draft)
    $stream = New-Object System.IO.FileStream ($draft, [System.IO.FileMode]::CreateNew, [System.IO.FileAccess]::Write, [System.IO.FileShare]::None)
    try {
        $stream.Write($Bytes, 0, $Bytes.Length)
        $stream.Flush($true)
    }
    finally { $stream.Dispose() }
    return $draft
}

function Move-GracefulDraft {
    # Renames a complete file to its name. A reader or a scanner may have the old file open for a moment.
    param([string]$Draft, [string]$File)
    for ($try = 1; $true; $try++) {
        try {
            if ([System.IO.File]::Exists($File)) { [System.IO.File]::Replace($Draft, $File, [NullString]::Value, $true) }
            else { [System.IO.File]::Move($Draft, $File) }
            return
        }
        catch {
            if ($try -ge 40 -or -not [System.IO.File]::Exists($Draft)) { throw }
            Wait-Graceful 0.05
        }
    }
}

function Save-Content {
    param($Keeper, $Content, [string]$File)
    try { $text = ConvertTo-GracefulJson $Content }
    catch { throw (New-GracefulError "The record cannot be written as JSON: $(Format-GracefulText $_.Exception.Message). Nothing was written." 'wrong_option') }
    $bytes = [System.Text.Encoding]::ASCII.GetBytes($text)
    if ($bytes.Length -gt $script:LargestRecord) {
        throw (New-GracefulError "$File would be larger than $script:LargestRecord bytes, nothing was written." 'wrong_option')
    }
    $draft = Write-Draft $Keeper $bytes
    try { Move-GracefulDraft $draft $File }
    finally { try { [System.IO.File]::Delete($draft) } catch { $null = $_ } }
}

function Write-Record {
    # A record without events and steps is removed.
    param($Keeper, $Record)
    if ($Record['events'].PSBase.Count -or (Get-GracefulUnfinished $Record).Count) {
        $flaw = Get-Flaw $Record
        if ($flaw) { throw (New-GracefulError "The record cannot be written: $flaw. Nothing was written." 'wrong_option') }
        Save-Content $Keeper $Record $Keeper.File
    }
    else { [System.IO.File]::Delete($Keeper.File) }
}

function Save-Archive {
    # Written before the record: if the process is killed in between, the event stays open.
    param($Keeper, $Entry, [string]$EventId)
    $short = $EventId.Substring(0, [Math]::Min(64, $EventId.Length))
    $name = '{0}.{1}.json' -f [regex]::Replace($short, '[^a-z0-9-]', '_'), [long][Math]::Floor((Get-GracefulNow) * 1000)
    New-GracefulDirectory $Keeper.History
    Save-Content $Keeper $Entry ([System.IO.Path]::Combine($Keeper.History, $name))
    try {
        $others = @((New-Object System.IO.DirectoryInfo ($Keeper.History)).GetFiles('*.json') | Where-Object { $_.Name -cne $name } | Sort-Object -Property LastWriteTimeUtc)
        for ($index = 0; $index -lt $others.Count - ($script:KeptInHistory - 1); $index++) { $others[$index].Delete() }
    }
    catch { $null = $_ }
}

function Move-Aside {
    # Moves a file that is no record to an unused name.
    param($Keeper)
    New-GracefulDirectory $Keeper.History
    $number = [long][Math]::Floor((Get-GracefulNow))
    while ($true) {
        $aside = [System.IO.Path]::Combine($Keeper.History, "record.json.$number.damaged")
        if (-not ([System.IO.File]::Exists($aside) -or [System.IO.Directory]::Exists($aside))) { break }
        $number++
    }
    if ([System.IO.Directory]::Exists($Keeper.File)) { [System.IO.Directory]::Move($Keeper.File, $aside) }
    else { [System.IO.File]::Move($Keeper.File, $aside) }
    return $aside
}

# ---- the keeper

function Test-GracefulRecordWritable {
    # Raises an error if no record could be written. Creates the directory.
    param($Keeper)
    Invoke-Locked $Keeper {
        $draft = Write-Draft $Keeper ([System.Text.Encoding]::ASCII.GetBytes('{}'))
        [System.IO.File]::Delete($draft)
    }
}

function Add-GracefulClaim {
    # Claims these events for this run. Returns who holds what could not be claimed, by id, and warnings.
    param($Keeper, $Events, [string]$BootId, [bool]$Standing = $false)
    $result = @{ Held = (New-GracefulMap); Warnings = @() }
    Invoke-Locked $Keeper {
        $record = $null
        try { $record = Read-Record $Keeper }
        catch {
            if ((Resolve-GracefulError $_).Kind -ne 'damaged' -or -not $Keeper.Run['force']) { throw }
            $aside = Move-Aside $Keeper
            $result.Warnings += (
                "$($Keeper.File) could not be used as a record and was set aside as $aside. What an earlier run did on this host is not " +
                'known: look into that file, and undo by hand what it did.')
        }
        if ($null -eq $record) { $record = New-Record $BootId }
        foreach ($announced in @($Events)) {
            $id = Get-GracefulSameId $announced['event_id']
            $entry = $record['events'][$id]
            $other = $null
            if ($null -ne $entry -and $entry['claim']['run_id'] -cne $Keeper.Run['run_id']) { $other = $entry['claim'] }
            if ($null -ne $other -and -not $Keeper.Run['force'] -and -not (Test-GracefulStale $other)) {
                $result.Held[$id] = Get-Holder $other
                continue
            }
            $claimed = New-ClaimedEntry $Keeper $record $announced $entry $other
            if ($Standing) {
                # It was missing for a moment only.
                $claimed['gone'] = $null
                $claimed['gone_reads'] = 0
            }
            $record['events'][$id] = $claimed
        }
        Write-Record $Keeper $record
    }
    return $result
}

function Test-GracefulStale {
    # Also if the clock was set back since then.
    param($Claim)
    $now = Get-GracefulNow
    if ($Claim['renewed'] - $now -gt $script:ClockSlack) {
        $Claim['silent_until'] = $now + $Claim['silent_until'] - $Claim['renewed']
        $Claim['renewed'] = $now
    }
    return $now -gt $Claim['silent_until']
}

function New-ClaimedEntry {
    param($Keeper, $Record, $Announced, $Entry, $Other)
    $now = Get-GracefulNow
    $blank = @{ ready = $null; started = $null; gone = $null; gone_reads = 0; unhealthy = 0; gave_up = $null; approval = $null; noticed = $now; lapsed = $null }
    $fresh = New-GracefulMap $blank $Entry
    $known = @{ event_type = 'Unknown' }
    if ($null -ne $Entry) { $known = $Entry['event'] }
    $merged = New-GracefulMap $known
    foreach ($key in @($Announced.PSBase.Keys)) { if ($null -ne $Announced[$key]) { $merged[$key] = $Announced[$key] } }
    $fresh['event'] = $merged
    $mine = $null
    if ($null -ne $Entry -and $null -eq $Other) { $mine = $Entry['claim'] }
    $fresh['claim'] = New-GracefulMap @{
        run_id = $Keeper.Run['run_id']; run_name = $Keeper.Run['run_name']; since = $now; renewed = $now; silent_until = $now + $Keeper.Run['silent_for']
    }
    if ($null -ne $mine) { $fresh['claim']['since'] = $mine['since'] }
    if ($null -eq $mine) {
        # Another run's verification does not count for this one.
        $fresh['ready'] = $null
        $fresh['gave_up'] = $null
        $by = [string]$Keeper.Run['run_name']
        if ($null -ne $Other) { $by += ", taken over from $(Format-Holder $Other)" }
        Add-GracefulMark $Keeper $Record 'claimed' $by ([string]$Announced['event_id'])
    }
    return , $fresh
}

function New-LostClaim {
    # The error if another run has claimed one of the events, or it was closed: this run must not act any more. Claims has those
    # events with the claim of the other run, or null.
    param($Claims)
    $said = 'the record was closed'
    $held = New-GracefulMap
    foreach ($id in @($Claims.PSBase.Keys)) {
        $held[$id] = New-GracefulMap
        if ($null -eq $Claims[$id]) { continue }
        if (-not @($held.PSBase.Values | Where-Object { $_.PSBase.Count }).Count) { $said = "$(Format-Holder $Claims[$id]) holds it" }
        $held[$id] = Get-Holder $Claims[$id]
    }
    return New-GracefulError (
        "This run does not hold the claim of the event any more: $said. This run does nothing more on the host."
    ) 'lost_claim' @{ state = 'held_by_other_run'; held = $held }
}

function Update-GracefulRecord {
    # Changes the record with the block, under the lock, and only while this run holds the claims of all of these events. The block
    # gets the record and, by their ids, the entries of these events. An empty block renews the claims: to be called before
    # something is done that the record does not note.
    param($Keeper, $EventIds, [scriptblock]$Change)
    $ids = @($EventIds)
    return Invoke-Locked $Keeper {
        $record = Read-Record $Keeper
        $own = New-GracefulMap
        $lost = New-GracefulMap
        foreach ($id in $ids) {
            $entry = $null
            if ($null -ne $record) { $entry = $record['events'][$id] }
            if ($null -eq $entry) { $lost[$id] = $null }
            elseif ($entry['claim']['run_id'] -cne $Keeper.Run['run_id']) { $lost[$id] = $entry['claim'] }
            else { $own[$id] = $entry }
        }
        if ($lost.PSBase.Count -or -not $own.PSBase.Count) { throw (New-LostClaim $lost) }
        $now = Get-GracefulNow
        foreach ($entry in @($own.PSBase.Values)) {
            $entry['claim']['renewed'] = $now
            $entry['claim']['silent_until'] = $now + $Keeper.Run['silent_for']
        }
        & $Change $record $own
        Write-Record $Keeper $record
    }
}

function Set-StepNote {
    param($Record, $Step)
    $noted = Find-GracefulStep $Record $Step['phase'] $Step['name']
    if ($null -eq $noted) {
        $noted = New-GracefulMap @{
            message = ''; attempts = 0; timeout = $null; options = (New-GracefulMap); before = (New-GracefulMap); data = (New-GracefulMap)
        }
        $Record['steps'] = @($Record['steps']) + @(, $noted)
    }
    foreach ($key in @($Step.PSBase.Keys)) { $noted[$key] = $Step[$key] }
    $noted['at'] = Get-GracefulNow
}

function Add-GracefulStepNote {
    # Notes a step, found by its phase and name; before and after it is taken.
    param($Keeper, $EventIds, $Step, [string]$Mark = '', [string]$Detail = '')
    Update-GracefulRecord $Keeper $EventIds {
        param($record)
        Set-StepNote $record $Step
        if (@('doing', 'failed') -ccontains $Step['status']) { Clear-Ready $record }
        if ($Mark) {
            $said = $Detail
            if (-not $said) { $said = $Step['name'] }
            Add-GracefulMark $Keeper $record $Mark $said
        }
    }
}

function Set-GracefulEvent {
    # New fields of one event.
    param($Keeper, [string]$EventId, $Fields, [string]$Mark = '')
    Update-GracefulRecord $Keeper @($EventId) {
        param($record, $own)
        foreach ($name in @($Fields.PSBase.Keys)) { $own[$EventId][$name] = $Fields[$name] }
        if ($Mark) { Add-GracefulMark $Keeper $record $Mark '' $EventId }
    }
}

function Clear-Ready {
    # Whichever run has verified that the host is ready: it is not any more.
    param($Record)
    foreach ($entry in @($Record['events'].PSBase.Values)) { $entry['ready'] = $null }
}

function Set-GracefulReady {
    # Everything was verified. That is marked once, until something else happens on the host.
    param($Keeper, $EventIds, [string]$Message)
    Update-GracefulRecord $Keeper $EventIds {
        param($record, $own)
        $marked = @()
        $marks = @($record['timeline'])
        for ($at = $marks.Count - 1; $at -ge 0 -and $marks[$at]['what'] -ceq 'ready'; $at--) { $marked += $marks[$at]['event_id'] }
        foreach ($entry in @($own.PSBase.Values)) {
            $id = $entry['event']['event_id']
            if (-not $entry['ready'] -and $marked -cnotcontains $id) { Add-GracefulMark $Keeper $record 'ready' $Message $id }
            $entry['ready'] = Get-GracefulNow
        }
    }
}

function Set-GracefulNotReady {
    param($Keeper, $EventIds)
    Update-GracefulRecord $Keeper $EventIds { param($record) Clear-Ready $record }
}

function Add-GracefulUnhealthy {
    # The health checks did not pass. Returns how often that was so; the same reason is marked only once.
    param($Keeper, $EventIds, [string]$Message)
    $result = @{ Attempts = [long]0 }
    Update-GracefulRecord $Keeper $EventIds {
        param($record, $own)
        foreach ($entry in @($own.PSBase.Values)) { $result.Attempts = [Math]::Max($result.Attempts, [long]$entry['unhealthy']) }
        $result.Attempts += 1
        foreach ($entry in @($own.PSBase.Values)) { $entry['unhealthy'] = $result.Attempts }
        $last = @($record['timeline']) | Select-Object -Last 1
        if ($null -eq $last -or $last['what'] -cne 'failed' -or $last['detail'] -cne (Format-GracefulText $Message)) {
            Add-GracefulMark $Keeper $record 'failed' $Message
        }
    }
    return $result.Attempts
}

function Add-GracefulOrphan {
    # Notes a step that was taken although the claim was lost, so that the next run undoes it.
    param($Keeper, $Announced, $Step, [string]$BootId)
    Invoke-Locked $Keeper {
        $record = Read-Record $Keeper
        if ($null -eq $record) { $record = New-Record $BootId }
        $noted = Find-GracefulStep $record $Step['phase'] $Step['name']
        $id = Get-GracefulSameId $Announced['event_id']
        $entry = $record['events'][$id]
        if ($null -eq $noted -or $noted['status'] -ceq 'undone') { Set-StepNote $record (New-GracefulMap $Step @{ status = 'failed' }) }
        # It is not lost: the event has started.
        elseif ($null -ne $entry -and $entry['claim']['run_id'] -ceq $Keeper.Run['run_id']) { return }
        if (-not $record['events'].Contains($id)) {
            $record['events'][$id] = New-ClaimedEntry $Keeper $record $Announced $null $null
            $record['events'][$id]['claim']['silent_until'] = Get-GracefulNow
        }
        Add-GracefulMark $Keeper $record 'failed' "$($Step['name']) was taken after the claim was lost" ([string]$Announced['event_id'])
        Write-Record $Keeper $record
    }
}

function Close-GracefulEvent {
    # Moves these events into the history. Returns the record as it was, for the report. Events that have lapsed are still pending: they
    # stay in the record without a valid claim, so that no run drains for them again.
    param($Keeper, $EventIds, $Closed, [string]$What, $Lapsed = @())
    $result = @{ Before = $null }
    Update-GracefulRecord $Keeper $EventIds {
        param($record, $own)
        foreach ($id in @($Closed)) {
            $entry = $own[$id]
            if ($null -eq $entry) { continue }
            Add-GracefulMark $Keeper $record $What '' $entry['event']['event_id']
            $whole = New-GracefulMap $record
            $whole['events'] = New-GracefulMap @{ $id = $entry }
            $whole['closed'] = Get-GracefulNow
            Save-Archive $Keeper $whole $id
        }
        $result.Before = New-GracefulMap $record
        $result.Before['events'] = New-GracefulMap $record['events']
        foreach ($id in @($Closed)) {
            $entry = $own[$id]
            if ($null -eq $entry) { continue }
            $record['events'].Remove($id)
            if (@($Lapsed) -ccontains $id) {
                $stays = New-GracefulMap $entry
                $stays['claim'] = New-GracefulMap $entry['claim']
                $stays['claim']['silent_until'] = Get-GracefulNow
                $stays['ready'] = $null
                $stays['lapsed'] = Get-GracefulNow
                $record['events'][$id] = $stays
            }
        }
        $standing = @($record['events'].PSBase.Values | Where-Object { -not $_['lapsed'] })
        if ($standing.Count -eq 0) { $record['steps'] = Get-GracefulUnfinished $record }
    }
    return , $result.Before
}

function Clear-GracefulClaim {
    # Ends the claims. If a step is not undone, or the host is not healthy, the record stays for another run.
    param($Keeper, $EventIds)
    $result = @{ Released = @() }
    Invoke-Locked $Keeper {
        $record = Read-Record $Keeper
        if ($null -ne $record) {
            foreach ($id in @($EventIds)) {
                $entry = $record['events'][$id]
                if ($null -eq $entry -or $entry['claim']['run_id'] -cne $Keeper.Run['run_id']) { continue }
                $result.Released += $id
                $entry['claim']['silent_until'] = Get-GracefulNow
                Add-GracefulMark $Keeper $record 'released' ([string]$Keeper.Run['run_name']) $entry['event']['event_id']
            }
            if ((Get-GracefulUnfinished $record).Count -eq 0) {
                foreach ($id in $result.Released) { if (-not $record['events'][$id]['unhealthy']) { $record['events'].Remove($id) } }
            }
            Write-Record $Keeper $record
        }
    }
    return , @($result.Released)
}

function Add-GracefulMark {
    # Adds an entry to the timeline of the record, and to the Application event log.
    param($Keeper, $Record, [string]$What, [string]$Detail = '', [string]$EventId = '')
    $mark = New-GracefulMap @{ at = Get-GracefulNow; what = $What; detail = (Format-GracefulText $Detail); event_id = $EventId }
    $marks = New-Object System.Collections.ArrayList
    $marks.AddRange(@($Record['timeline']))
    while ($marks.Count -ge $script:MostMarks) {
        # What fails again and again was said often enough.
        $drop = [int][Math]::Floor($script:MostMarks / 2)
        for ($index = 0; $index -lt $marks.Count; $index++) {
            if ($marks[$index]['what'] -ceq 'failed') {
                $drop = $index
                break
            }
        }
        $marks.RemoveAt($drop)
    }
    $null = $marks.Add($mark)
    $Record['timeline'] = $marks.ToArray()
    Write-SystemLog $Keeper (Format-GracefulText "$What $Detail $EventId".Trim() 300)
}

function Get-Holder {
    param($Claim)
    return , (New-GracefulMap @{ run_name = $Claim['run_name']; since = $Claim['since']; silent_until = $Claim['silent_until'] })
}

function Format-Holder {
    param($Claim)
    return "$(Format-GracefulText $Claim['run_name'] 80) (claimed at $(Format-GracefulTime $Claim['since']), claim valid until $(Format-GracefulTime $Claim['silent_until']))"
}

function Write-SystemLog {
    # If it cannot be written there, that is a warning only.
    param($Keeper, [string]$Text)
    if ($script:LogIsReady -eq $false) { return }
    try {
        if ($null -eq $script:LogIsReady) {
            if (-not [System.Diagnostics.EventLog]::SourceExists($script:Source)) {
                [System.Diagnostics.EventLog]::CreateEventSource($script:Source, 'Application')
            }
            $script:LogIsReady = $true
        }
        [System.Diagnostics.EventLog]::WriteEntry($script:Source, $Text, [System.Diagnostics.EventLogEntryType]::Information, 1)
    }
    catch {
        $script:LogIsReady = $false
        $null = $Keeper.Warnings.Add("What was done could not be written to the Application event log as $($script:Source): $(Get-GracefulReason $_).")
    }
}

Export-ModuleMember -Function @(
    'New-GracefulKeeper', 'Read-GracefulRecord', 'Test-GracefulRecordWritable', 'Add-GracefulClaim', 'Update-GracefulRecord',
    'Add-GracefulStepNote', 'Add-GracefulMark', 'Add-GracefulOrphan', 'Close-GracefulEvent', 'Clear-GracefulClaim',
    'Add-GracefulUnhealthy', 'Set-GracefulReady', 'Set-GracefulNotReady', 'Find-GracefulStep', 'Get-GracefulUnfinished',
    'Open-GracefulLock', 'Test-GracefulLocked', 'Read-GracefulFile', 'Move-GracefulDraft', 'New-GracefulDirectory',
    'Set-GracefulEvent', 'Test-GracefulStale'
)
