# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The events document as data, as _document.py. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0

$script:KnownTypes = @('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate', 'SpotRebalanceRecommendation')
$script:Invariant = [System.Globalization.CultureInfo]::InvariantCulture
# ISO 8601 and RFC 1123 (any weekday): day, time and zone.
$script:Times = @(
    '\A(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d+)?\s*([Zz]|[+-]\d\d:?\d\d)?\z'
    '\A(?:[A-Za-z]+,\s*)?(\d{1,2}[ -][A-Za-z]{3}[ -]\d{4}) (\d\d:\d\d:\d\d)(?: (\S+))?\z'
)
$script:Formats = [string[]]@('yyyy-MM-dd HH:mm:ss', 'd-MMM-yyyy HH:mm:ss')
$script:AsUtc = [System.Globalization.DateTimeStyles]'AssumeUniversal, AdjustToUniversal'
$script:Zones = @{ EST = -5; EDT = -4; CST = -6; CDT = -5; MST = -7; MDT = -6; PST = -8; PDT = -7; AST = -4; ADT = -3 }

function Format-Repr {
    # As Python shows a value from JSON.
    param($Value)
    if ($null -eq $Value) { return 'None' }
    if ($Value -is [bool]) { return [string]$Value }
    if ($Value -is [string]) {
        $text = $Value.Replace('\', '\\').Replace("`n", '\n').Replace("`r", '\r').Replace("`t", '\t')
        $text = [regex]::Replace($text, '[\x00-\x1f\x7f-\xa0\xad]', { param($found) '\x{0:x2}' -f [int][char]$found.Value })
        if (-not $text.Contains("'")) { return "'$text'" }
        if (-not $text.Contains('"')) { return '"' + $text + '"' }
        return "'" + $text.Replace("'", "\'") + "'"
    }
    if ($Value -is [double]) {
        $text = $Value.ToString('R', $script:Invariant)
        if ($text -notmatch '[.E]') { $text += '.0' }
        return $text
    }
    if ($Value -is [System.Collections.IDictionary]) {
        $pairs = foreach ($key in @($Value.PSBase.Keys)) { '{0}: {1}' -f (Format-Repr $key), (Format-Repr $Value[$key]) }
        return '{' + (@($pairs) -join ', ') + '}'
    }
    if ($Value -is [array]) { return '[' + (@(foreach ($one in $Value) { Format-Repr $one }) -join ', ') + ']' }
    return $Value.ToString($null, $script:Invariant)
}

function ConvertFrom-GracefulBody {
    # The JSON of an answer in UTF-8; a byte order mark is accepted.
    param([byte[]]$Body)
    try {
        $text = (New-Object System.Text.UTF8Encoding ($false, $true)).GetString($Body)
        return , (ConvertFrom-GracefulJson $text.TrimStart([char]0xfeff))
    }
    catch { Stop-BrokenDocument "it is not JSON ($(Get-GracefulReason $_ 600))" }
}

function Stop-BrokenDocument {
    param([string]$Why)
    throw (New-GracefulError $Why 'broken')
}

function Get-JsonKind {
    param($Value)
    if ($null -eq $Value) { return 'null' }
    if ($Value -is [bool]) { return 'boolean' }
    if ($Value -is [string]) { return 'string' }
    if ($Value -is [System.Collections.IDictionary]) { return 'object' }
    if ($Value -is [array]) { return 'list' }
    return 'number'
}

function ConvertFrom-GracefulDocument {
    # The response as @{Incarnation; Events; Oddities}. Fields that depend on the VM and the time are empty.
    param([byte[]]$Body)
    if (-not [System.Text.Encoding]::ASCII.GetString($Body).Trim()) { Stop-BrokenDocument 'it is empty' }
    $content = ConvertFrom-GracefulBody $Body
    if ($content -isnot [System.Collections.IDictionary]) {
        Stop-BrokenDocument "it is a JSON $(Get-JsonKind $content) instead of an object"
    }
    if ($content['Events'] -isnot [array]) { Stop-BrokenDocument 'it has no list named Events' }
    $oddities = New-Object System.Collections.ArrayList
    $events = New-Object System.Collections.ArrayList
    foreach ($entry in $content['Events']) { $null = $events.Add((ConvertFrom-EventEntry ($events.Count + 1) $entry $oddities)) }
    $seen = @{}
    foreach ($one in $events) {
        $id = Get-GracefulSameId $one['event_id']
        if ($seen.ContainsKey($id)) { $null = $oddities.Add("Event $(Format-Repr $one['event_id']) is in the document more than once.") }
        $seen[$id] = $true
    }
    $incarnation = $content['DocumentIncarnation']
    if ($incarnation -is [string] -and $incarnation) {
        if ($incarnation -cmatch '^[0-9]{1,18}\z') { $incarnation = [long]$incarnation }
        else { $incarnation = Repair-Text $incarnation }
    }
    elseif ($incarnation -isnot [long]) {
        $null = $oddities.Add('The document has no DocumentIncarnation.')
        $incarnation = $null
    }
    return @{ Incarnation = $incarnation; Events = $events.ToArray(); Oddities = $oddities.ToArray() }
}

function ConvertFrom-EventEntry {
    param([int]$Number, $Entry, [System.Collections.ArrayList]$Oddities)
    if ($Entry -isnot [System.Collections.IDictionary]) {
        Stop-BrokenDocument "entry $Number of Events is a JSON $(Get-JsonKind $Entry) instead of an object"
    }
    $id = Get-EntryText $Entry 'EventId'
    if (-not $id) { Stop-BrokenDocument "entry $Number of Events has no EventId" }
    $label = "Event $(Format-Repr $id)"

    $resources = $Entry['Resources']
    if ($null -eq $resources) { $resources = @() }
    if ($resources -isnot [array] -or @($resources | Where-Object { $_ -isnot [string] }).Count) {
        Stop-BrokenDocument "the Resources of event $(Format-Repr $id) are not a list of names"
    }
    $names = @(foreach ($name in $resources) { Get-GracefulPlainName (Repair-Text $name) })
    if ($names.Count -eq 0) { $null = $Oddities.Add("$label names no resources.") }

    $type = Get-EntryText $Entry 'EventType'
    if (-not $type) { $type = 'Unknown' }
    if ($script:KnownTypes -cnotcontains $type) { $null = $Oddities.Add("$label has the unknown type $(Format-Repr $type).") }
    $status = Get-EntryText $Entry 'EventStatus'
    if (-not $status) { $status = 'Unknown' }
    # In any letter case: an event that has started must not be taken for another one.
    foreach ($known in @('Scheduled', 'Started')) { if ($status.Trim() -eq $known) { $status = $known } }
    if (@('Scheduled', 'Started') -cnotcontains $status) { $null = $Oddities.Add("$label has the unknown status $(Format-Repr $status).") }

    $written = [string](Get-EntryText $Entry 'NotBefore')
    $moment = ConvertFrom-GracefulTime $written
    if ($written.Trim() -and $null -eq $moment) { $null = $Oddities.Add("$label has a NotBefore that is not a date: $(Format-Repr $written).") }
    elseif (-not $written.Trim() -and $status -ceq 'Scheduled') { $null = $Oddities.Add("$label is Scheduled without a NotBefore.") }

    $one = New-GracefulMap
    $one['event_id'] = $id
    $one['event_type'] = $type
    $one['event_status'] = $status
    $one['resource_type'] = Get-EntryText $Entry 'ResourceType'
    $one['resources'] = $names
    $one['not_before'] = $null
    if ($null -ne $moment) { $one['not_before'] = $moment.ToString('yyyy-MM-ddTHH:mm:ssZ', $script:Invariant) }
    $one['seconds_left'] = $null
    $one['description'] = Get-EntryText $Entry 'Description'
    $one['event_source'] = Get-EntryText $Entry 'EventSource'
    $one['duration_seconds'] = Get-EntryDuration $Entry['DurationInSeconds'] $label $Oddities
    $one['affects_me'] = $null
    $one['leader'] = $null
    if ($names.Count) { $one['leader'] = $names[0] }
    return , $one
}

function Get-EntryDuration {
    param($Value, [string]$Label, [System.Collections.ArrayList]$Oddities)
    if ($null -eq $Value) { return $null }
    if ($Value -is [long] -or ($Value -is [double] -and -not [double]::IsInfinity($Value))) {
        if ($Value -lt 0) { return $null }
        return [long][Math]::Truncate($Value)
    }
    $shown = Format-Repr $Value
    if ($shown.Length -gt 80) { $shown = $shown.Substring(0, 80) }
    $null = $Oddities.Add("$Label has a DurationInSeconds that is not a number: $shown.")
    return $null
}

function Get-EntryText {
    param($Entry, [string]$Field)
    $value = $Entry[$Field]
    if ($null -eq $value) { return $null }
    if ($value -isnot [string]) { Stop-BrokenDocument "$Field of an event is a JSON $(Get-JsonKind $value) instead of a string" }
    return Repair-Text $value
}

function Repair-Text {
    # A lone surrogate is valid JSON but cannot be written as UTF-8.
    param([string]$Text)
    return [regex]::Replace($Text, '[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]', '?')
}

function ConvertFrom-GracefulTime {
    # A time in UTC; null if the text is not a date.
    param([string]$Text)
    foreach ($pattern in $script:Times) {
        $found = [regex]::Match($Text.Trim(), $pattern, 'ECMAScript')
        if (-not $found.Success) { continue }
        $written = $found.Groups[1].Value.Replace(' ', '-') + ' ' + $found.Groups[2].Value
        $moment = [System.DateTime]::MinValue
        if (-not [System.DateTime]::TryParseExact($written, $script:Formats, $script:Invariant, $script:AsUtc, [ref]$moment)) { return $null }
        # The offset may lead outside of the years 1 to 9999.
        try { return $moment.AddMinutes(-(Get-ZoneOffset $found.Groups[3].Value.Replace(':', ''))) } catch { return $null }
    }
    return $null
}

function Get-ZoneOffset {
    # In minutes. What is not known counts as UTC.
    param([string]$Zone)
    if ($Zone -match '^([+-])(\d\d)(\d\d)$') { return [int]"$($Matches[1])1" * ([int]$Matches[2] * 60 + [int]$Matches[3]) }
    if ($script:Zones.ContainsKey($Zone)) { return $script:Zones[$Zone] * 60 }
    return 0
}

function Get-GracefulPlainName {
    # An Azure name without the underscore that the preview version puts before it.
    param([string]$Name)
    if ($Name.StartsWith('_', [System.StringComparison]::Ordinal)) { return $Name.Substring(1) }
    return $Name
}

function Get-GracefulSameName {
    param([string]$Name)
    return (Get-GracefulPlainName $Name).ToLowerInvariant()
}

function Get-GracefulSeenBy {
    # The events with the fields that depend on the VM and the time.
    param($Document, $VmName, [System.DateTime]$Now)
    $seen = New-Object System.Collections.ArrayList
    foreach ($source in $Document['Events']) {
        $one = New-GracefulMap $source
        if ($null -ne $VmName) {
            $names = @(foreach ($name in $source['resources']) { Get-GracefulSameName $name })
            $one['affects_me'] = $names -ccontains (Get-GracefulSameName $VmName)
        }
        if ($null -ne $source['not_before'] -and $source['event_status'] -ceq 'Scheduled') {
            $moment = ConvertFrom-GracefulTime $source['not_before']
            $one['seconds_left'] = [long][Math]::Max(0, [Math]::Truncate(($moment - $Now).TotalSeconds))
        }
        $null = $seen.Add($one)
    }
    return , $seen.ToArray()
}

function Select-GracefulEvent {
    # The events that match all filters; an empty filter matches everything.
    param($Events, $Filters)
    $ids = @($Filters['event_ids'] | ForEach-Object { Get-GracefulSameId $_ })
    $found = @(foreach ($one in $Events) {
            if ($ids.Count -and $ids -cnotcontains (Get-GracefulSameId $one['event_id'])) { continue }
            if ($Filters['event_types'].Count -and $Filters['event_types'] -notcontains $one['event_type']) { continue }
            if ($Filters['event_statuses'].Count -and $Filters['event_statuses'] -notcontains $one['event_status']) { continue }
            if ($Filters['event_sources'].Count -and $Filters['event_sources'] -notcontains [string]$one['event_source']) { continue }
            if ($Filters['only_mine'] -and -not $one['affects_me']) { continue }
            , $one
        })
    return , $found
}

function Get-GracefulById {
    # An id that is in the document twice counts once, as Started if one of them is.
    param($Events)
    $found = New-GracefulMap
    foreach ($one in @($Events)) {
        $id = Get-GracefulSameId $one['event_id']
        if (-not $found.Contains($id) -or $one['event_status'] -ceq 'Started') { $found[$id] = $one }
    }
    return , $found
}

function Get-GracefulFingerprint {
    # Equal for equal events, whatever their order and the time; the same value as in Python.
    param($Events)
    $lasting = [string[]]@(foreach ($one in @($Events)) {
            $copy = New-GracefulMap $one
            $copy['seconds_left'] = $null
            ConvertTo-GracefulJson $copy -Sorted
        })
    [System.Array]::Sort($lasting, [System.StringComparer]::Ordinal)
    return Get-GracefulHash ($lasting -join "`n")
}

function Get-GracefulKnownType {
    return $script:KnownTypes
}

Export-ModuleMember -Function @(
    'ConvertFrom-GracefulBody', 'ConvertFrom-GracefulDocument', 'ConvertFrom-GracefulTime', 'Get-GracefulPlainName', 'Get-GracefulSameName',
    'Get-GracefulSeenBy', 'Select-GracefulEvent', 'Get-GracefulById', 'Get-GracefulFingerprint', 'Get-GracefulKnownType'
)
