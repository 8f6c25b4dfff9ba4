# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.
# Errors, text, JSON and the clock, as _errors.py, _text.py and _clock.py have them. Windows PowerShell 5.1 syntax.

Set-StrictMode -Version 2.0

$script:Largest = 20000
# Control characters, marks that change the direction of text, lone surrogates, and what is not assigned.
$script:Unreadable = @('Control', 'Format', 'Surrogate', 'OtherNotAssigned', 'PrivateUse', 'LineSeparator', 'ParagraphSeparator')
$script:Scheme = '\b[A-Za-z][A-Za-z0-9+.-]*://'
$script:Token = New-Object System.Text.RegularExpressions.Regex (
    '\G[ \t\r\n]*(?:([{}\[\]:,])|("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|' +
    '(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(true|false|null))'
)
$script:Epoch = New-Object System.DateTime (1970, 1, 1, 0, 0, 0, [System.DateTimeKind]::Utc)
$script:Numbers = [System.TypeCode[]]@('SByte', 'Byte', 'Int16', 'UInt16', 'Int32', 'UInt32', 'Int64', 'UInt64', 'Decimal')
$script:Invariant = [System.Globalization.CultureInfo]::InvariantCulture

# ---- errors

function New-GracefulError {
    # An exception with a message for the operator, its kind, and the fields that are returned beside it. Kinds: step (any
    # failure), late, wrong_option, refused, passing, no_connection, not_taken, lost_claim, damaged.
    param([string]$Message, [string]$Kind = 'step', [System.Collections.IDictionary]$Fields = @{})
    $exception = New-Object System.InvalidOperationException ($Message)
    $exception.Data['graceful_kind'] = $Kind
    $exception.Data['graceful_fields'] = $Fields
    return $exception
}

function Get-GracefulError {
    # What an error record or exception of ours says: @{Kind; Message; Fields}; null if it is not one of ours.
    param($Thrown)
    $exception = $Thrown
    if ($Thrown -is [System.Management.Automation.ErrorRecord]) { $exception = $Thrown.Exception }
    while ($null -ne $exception) {
        if ($exception.Data.Contains('graceful_kind')) {
            return @{
                Kind = [string]$exception.Data['graceful_kind']
                Message = $exception.Message
                Fields = $exception.Data['graceful_fields']
            }
        }
        $exception = $exception.InnerException
    }
    return $null
}

function Stop-GracefulStep {
    # Ends a step with a message that says what happened and what to do. Late: it may still come to pass, but not in time.
    param([Parameter(Mandatory = $true)][string]$Message, [switch]$Late)
    $kind = 'step'
    if ($Late) { $kind = 'late' }
    throw (New-GracefulError $Message $kind)
}

# ---- text

function Format-GracefulText {
    # The value as one line of text that neither a terminal nor a template acts on, and without the secrets of URLs.
    param($Value, [int]$Limit = 600)
    $text = ConvertTo-PlainText $Value
    if ($text.Length -gt $script:Largest) { $text = $text.Substring(0, $script:Largest) }
    $text = Hide-GracefulSecret ([regex]::Replace($text, '[\s\x1c-\x1f]+', ' ').Trim(' '))
    if ($text -cmatch '[^\x20-\x7e]') { $text = Hide-Unreadable $text }
    $text = [regex]::Replace($text, '\{(?=[{%#])|#(?=jinja2:)', '$0 ')
    if ($text.Length -le $Limit) { return $text }
    # Python counts characters, and .NET halves of them.
    if ($text.Length - (Measure-LowSurrogate $text) -le $Limit) { return $text }
    $keep = 0
    $taken = 0
    while ($taken -lt $Limit - 1) {
        if ([char]::IsHighSurrogate($text[$keep])) { $keep++ }
        $keep++
        $taken++
    }
    return $text.Substring(0, $keep) + [char]0x2026
}

function Measure-LowSurrogate {
    param([string]$Text)
    return [regex]::Matches($Text, '[\udc00-\udfff]').Count
}

function ConvertTo-PlainText {
    param($Value)
    if ($null -eq $Value) { return 'None' }
    if ($Value -is [string]) { return $Value }
    if ($Value -is [bool]) { return [string]$Value }
    if ($Value -is [double] -or $Value -is [single] -or $Value -is [decimal]) {
        return ([System.IFormattable]$Value).ToString('R'.Substring([int]($Value -is [decimal])), $script:Invariant)
    }
    if ($Value -is [System.IFormattable]) { return $Value.ToString($null, $script:Invariant) }
    if ($Value -is [System.Collections.IEnumerable]) { return ConvertTo-GracefulJson $Value }
    return [string]$Value
}

function Hide-Unreadable {
    param([string]$Text)
    $shown = New-Object System.Text.StringBuilder
    for ($index = 0; $index -lt $Text.Length; $index++) {
        $pair = [char]::IsHighSurrogate($Text[$index]) -and $index + 1 -lt $Text.Length -and [char]::IsLowSurrogate($Text[$index + 1])
        $category = [string][System.Globalization.CharUnicodeInfo]::GetUnicodeCategory($Text, $index)
        if ($script:Unreadable -contains $category) { $null = $shown.Append('?') }
        elseif ($pair) { $null = $shown.Append($Text[$index]).Append($Text[$index + 1]) }
        else { $null = $shown.Append($Text[$index]) }
        if ($pair) { $index++ }
    }
    return $shown.ToString()
}

function Hide-GracefulSecret {
    # The text without the user names, passwords and queries of the URLs in it.
    param([string]$Text)
    if (-not $Text.Contains('://')) { return $Text }
    $Text = [regex]::Replace($Text, "($script:Scheme)(?:[^\s/?#]*@|[^\s/?#@:]*:(?!\d*[/?#])\S*@)", ('$1' + [char]0x2026 + '@'))
    return [regex]::Replace($Text, "($script:Scheme[^\s?#'""]*)\?[^\s'""]*", ('$1?' + [char]0x2026))
}

function Test-GracefulMasked {
    # Whether something of the value was masked, so that it cannot be used as it is.
    param($Value)
    if ($Value -is [string]) {
        $dots = [char]0x2026
        return [regex]::IsMatch($Value, "://(?:$dots@|[^\s?#'""]*\?$dots)")
    }
    if ($Value -is [System.Collections.IDictionary]) { $Value = $Value.PSBase.Values }
    if ($Value -is [System.Collections.IEnumerable]) {
        foreach ($one in $Value) { if (Test-GracefulMasked $one) { return $true } }
    }
    return $false
}

function Format-GracefulQuoted {
    # The text between quotes that it cannot end, without escapes.
    param($Value, [int]$Limit = 80)
    $text = Format-GracefulText $Value $Limit
    if (-not $text.Contains("'")) { return "'$text'" }
    return '"' + $text.Replace('"', "'") + '"'
}

function Format-GracefulCount {
    # `1 step`, `2 steps`.
    param([int]$Number, [string]$Noun)
    if ($Number -eq 1) { return "$Number $Noun" }
    return "$Number ${Noun}s"
}

function Format-GracefulDuration {
    # `14 min 32 s`: the two largest units are enough to act on.
    param([double]$Seconds)
    $left = [long][Math]::Max(0, [Math]::Truncate($Seconds))
    $parts = @()
    foreach ($unit in @(@('d', 86400), @('h', 3600), @('min', 60), @('s', 1))) {
        $amount = [long][Math]::Floor($left / $unit[1])
        $left = $left % $unit[1]
        if ($amount) { $parts += "$amount $($unit[0])" }
    }
    if ($parts.Count -eq 0) { return '0 s' }
    return ($parts | Select-Object -First 2) -join ' '
}

function Format-GracefulTime {
    # ISO 8601 in UTC, of seconds since 1970.
    param([double]$Seconds)
    return $script:Epoch.AddSeconds([Math]::Floor($Seconds)).ToString('yyyy-MM-ddTHH:mm:ssZ', $script:Invariant)
}

function Format-GracefulNumber {
    # Three significant digits, as `%.3g` has them.
    param([double]$Number)
    if ($Number -eq 0) { return '0' }
    $digits = $Number.ToString('E2', $script:Invariant)
    $exponent = [int]($digits.Substring($digits.IndexOf('E') + 1))
    if ($exponent -lt -4 -or $exponent -ge 3) {
        $mantissa = $digits.Substring(0, $digits.IndexOf('E')).TrimEnd('0').TrimEnd('.')
        $sign = '+'
        if ($exponent -lt 0) { $sign = '-' }
        return '{0}e{1}{2:00}' -f $mantissa, $sign, [Math]::Abs($exponent)
    }
    $text = ([double]::Parse($digits, $script:Invariant)).ToString(('F' + (2 - $exponent)), $script:Invariant)
    if ($text.Contains('.')) { $text = $text.TrimEnd('0').TrimEnd('.') }
    return $text
}

# ---- JSON, the same on every PowerShell: no date is made of a text, and keys differ by case

function New-GracefulMap {
    # An ordered dictionary whose keys differ by case, with the entries of the given ones, later ones first.
    $map = New-Object System.Collections.Specialized.OrderedDictionary ([System.StringComparer]::Ordinal)
    foreach ($source in $args) {
        if ($null -eq $source) { continue }
        foreach ($key in @($source.PSBase.Keys)) { $map[[string]$key] = $source[$key] }
    }
    return , $map
}

function ConvertTo-GracefulData {
    # What Ansible or anybody else hands over, as ordered dictionaries, arrays, texts, numbers, booleans and null.
    param($Value)
    if ($null -eq $Value -or $Value -is [string] -or $Value -is [bool]) { return $Value }
    if ($Value -is [char]) { return [string]$Value }
    if ($Value -is [decimal]) { return [double]$Value }
    # PowerShell 7, and with it Ansible's wrapper, makes one of each text that looks like it.
    if ($Value -is [System.DateTime]) {
        if ($Value.Kind -eq [System.DateTimeKind]::Local) { $Value = $Value.ToUniversalTime() }
        return $Value.ToString('yyyy-MM-ddTHH:mm:ssZ', $script:Invariant)
    }
    if ($Value -is [System.Collections.IDictionary]) {
        $map = New-GracefulMap
        foreach ($key in @($Value.PSBase.Keys)) { $map[[string]$key] = ConvertTo-GracefulData $Value[$key] }
        return , $map
    }
    if ($Value -is [System.Management.Automation.PSCustomObject]) {
        $map = New-GracefulMap
        foreach ($property in $Value.PSObject.Properties) { $map[$property.Name] = ConvertTo-GracefulData $property.Value }
        return , $map
    }
    if ($Value -is [System.Collections.IEnumerable]) {
        $list = New-Object System.Collections.ArrayList
        foreach ($one in $Value) { $null = $list.Add((ConvertTo-GracefulData $one)) }
        return , $list.ToArray()
    }
    return $Value
}

function ConvertFrom-GracefulJson {
    # JSON as ordered dictionaries, arrays, texts, [long] and [double], booleans and null. Raises FormatException.
    param([string]$Text, [int]$Depth = 200)
    $stack = New-Object System.Collections.Stack
    $position = 0
    # What may come next: value, first (value or the end of a list), key, firstkey, colon, next (comma or end), end.
    $state = 'value'
    $root = $null
    while ($state -ne 'end') {
        $found = $script:Token.Match($Text, $position)
        if (-not $found.Success) { throw (New-Object System.FormatException ("nothing that JSON knows at character $position")) }
        $position = $found.Index + $found.Length
        $mark = $found.Groups[1].Value
        $value = $null
        $complete = $false
        if ($state -eq 'colon') {
            if ($mark -ne ':') { throw (New-Object System.FormatException ("':' is missing at character $position")) }
            $state = 'value'
            continue
        }
        if ($state -eq 'key' -or ($state -eq 'firstkey' -and $mark -ne '}')) {
            if (-not $found.Groups[2].Success) { throw (New-Object System.FormatException ("a name is missing at character $position")) }
            $stack.Peek().Key = ConvertFrom-JsonText $found.Groups[2].Value
            $state = 'colon'
            continue
        }
        if ($state -eq 'next' -and $mark -eq ',') {
            $state = 'value'
            if ($stack.Peek().IsMap) { $state = 'key' }
            continue
        }
        if ($mark -eq '}' -or $mark -eq ']') {
            $fits = $stack.Count -gt 0 -and @('next', 'first', 'firstkey') -contains $state -and ($stack.Peek().IsMap -eq ($mark -eq '}'))
            if (-not $fits) { throw (New-Object System.FormatException ("'$mark' is not expected at character $position")) }
            $frame = $stack.Pop()
            $value = $frame.Value
            if (-not $frame.IsMap) { $value = $frame.Value.ToArray() }
            $complete = $true
        }
        elseif ($state -eq 'next' -or $mark -eq ',' -or $mark -eq ':') {
            throw (New-Object System.FormatException ("'$($found.Value.Trim())' is not expected at character $position"))
        }
        elseif ($mark -eq '{' -or $mark -eq '[') {
            if ($stack.Count -ge $Depth) { throw (New-Object System.FormatException ('it is nested too deeply')) }
            if ($mark -eq '{') {
                $stack.Push(@{ IsMap = $true; Value = (New-GracefulMap); Key = '' })
                $state = 'firstkey'
            }
            else {
                $stack.Push(@{ IsMap = $false; Value = (New-Object System.Collections.ArrayList); Key = '' })
                $state = 'first'
            }
            continue
        }
        elseif ($found.Groups[2].Success) { $value = ConvertFrom-JsonText $found.Groups[2].Value }
        elseif ($found.Groups[3].Success) { $value = ConvertFrom-JsonNumber $found.Groups[3].Value }
        elseif ($found.Groups[4].Value -ne 'null') { $value = $found.Groups[4].Value -eq 'true' }
        if ($stack.Count -eq 0) {
            $root = $value
            $state = 'end'
        }
        else {
            $frame = $stack.Peek()
            if ($frame.IsMap) { $frame.Value[$frame.Key] = $value } else { $null = $frame.Value.Add($value) }
            $state = 'next'
        }
    }
    if ($Text.Substring($position).Trim(" `t`r`n".ToCharArray()) -ne '') {
        throw (New-Object System.FormatException ("something follows at character $position"))
    }
    return , $root
}

function ConvertFrom-JsonText {
    param([string]$Quoted)
    $text = $Quoted.Substring(1, $Quoted.Length - 2)
    if (-not $text.Contains('\')) { return $text }
    $plain = New-Object System.Text.StringBuilder
    for ($index = 0; $index -lt $text.Length; $index++) {
        if ($text[$index] -ne '\') {
            $null = $plain.Append($text[$index])
            continue
        }
        $index++
        switch -CaseSensitive ([string]$text[$index]) {
            'b' { $null = $plain.Append([char]8) }
            'f' { $null = $plain.Append([char]12) }
            'n' { $null = $plain.Append([char]10) }
            'r' { $null = $plain.Append([char]13) }
            't' { $null = $plain.Append([char]9) }
            'u' {
                $null = $plain.Append([char][Convert]::ToInt32($text.Substring($index + 1, 4), 16))
                $index += 4
            }
            default { $null = $plain.Append($text[$index]) }
        }
    }
    return $plain.ToString()
}

function ConvertFrom-JsonNumber {
    param([string]$Text)
    $whole = [long]0
    if ($Text -notmatch '[.eE]' -and [long]::TryParse($Text, [System.Globalization.NumberStyles]::Integer, $script:Invariant, [ref]$whole)) {
        return $whole
    }
    return [double]::Parse($Text, $script:Invariant)
}

function ConvertTo-GracefulJson {
    # As Python's json.dumps writes it, in ASCII. Raises FormatException for what JSON cannot say.
    param($Value, [switch]$Sorted)
    $out = New-Object System.Text.StringBuilder
    Add-Json $out $Value ([bool]$Sorted) 0
    return $out.ToString()
}

function Add-Json {
    param([System.Text.StringBuilder]$Out, $Value, [bool]$Sorted, [int]$Depth)
    if ($Depth -gt 100) { throw (New-Object System.FormatException ('it is nested too deeply')) }
    if ($null -eq $Value) { $null = $Out.Append('null') }
    elseif ($Value -is [bool]) { $null = $Out.Append(([string]$Value).ToLowerInvariant()) }
    elseif ($Value -is [string] -or $Value -is [char]) { Add-JsonText $Out ([string]$Value) }
    elseif ($Value -is [double] -or $Value -is [single]) {
        if ([double]::IsNaN($Value) -or [double]::IsInfinity($Value)) { throw (New-Object System.FormatException ('a number is not finite')) }
        $text = ([double]$Value).ToString('R', $script:Invariant)
        if ($text -notmatch '[.E]') { $text += '.0' }
        $null = $Out.Append($text)
    }
    elseif ($script:Numbers -contains [System.Type]::GetTypeCode($Value.GetType())) {
        $null = $Out.Append($Value.ToString($null, $script:Invariant))
    }
    elseif ($Value -is [System.DateTime]) { Add-JsonText $Out (ConvertTo-GracefulData $Value) }
    elseif ($Value -is [System.Collections.IDictionary]) {
        $keys = @($Value.PSBase.Keys)
        if ($Sorted) {
            $keys = [string[]]$keys
            [Array]::Sort($keys, [System.StringComparer]::Ordinal)
        }
        $null = $Out.Append('{')
        $between = ''
        foreach ($key in $keys) {
            $null = $Out.Append($between)
            Add-JsonText $Out ([string]$key)
            $null = $Out.Append(': ')
            Add-Json $Out $Value[$key] $Sorted ($Depth + 1)
            $between = ', '
        }
        $null = $Out.Append('}')
    }
    elseif ($Value -is [System.Collections.IEnumerable]) {
        $null = $Out.Append('[')
        $between = ''
        foreach ($one in $Value) {
            $null = $Out.Append($between)
            Add-Json $Out $one $Sorted ($Depth + 1)
            $between = ', '
        }
        $null = $Out.Append(']')
    }
    else { throw (New-Object System.FormatException ("a value is of the type $($Value.GetType().Name)")) }
}

function Add-JsonText {
    param([System.Text.StringBuilder]$Out, [string]$Text)
    $null = $Out.Append('"')
    if ($Text -cnotmatch '[^\x20-\x7e]|["\\]') { $null = $Out.Append($Text) }
    else {
        foreach ($char in $Text.ToCharArray()) {
            $number = [int]$char
            if ($number -eq 34 -or $number -eq 92) { $null = $Out.Append('\').Append($char) }
            elseif ($number -eq 8) { $null = $Out.Append('\b') }
            elseif ($number -eq 9) { $null = $Out.Append('\t') }
            elseif ($number -eq 10) { $null = $Out.Append('\n') }
            elseif ($number -eq 12) { $null = $Out.Append('\f') }
            elseif ($number -eq 13) { $null = $Out.Append('\r') }
            elseif ($number -lt 32 -or $number -gt 126) { $null = $Out.Append('\u').Append($number.ToString('x4')) }
            else { $null = $Out.Append($char) }
        }
    }
    $null = $Out.Append('"')
}

# ---- the clock

function Get-GracefulNow {
    # Seconds since 1970.
    return ([System.DateTime]::UtcNow - $script:Epoch).TotalSeconds
}

function Get-GracefulMonotonic {
    # Seconds that no change of the clock moves, the same for all processes of a host.
    return [System.Diagnostics.Stopwatch]::GetTimestamp() / [double][System.Diagnostics.Stopwatch]::Frequency
}

function Wait-Graceful {
    param([double]$Seconds)
    if ($Seconds -gt 0) { [System.Threading.Thread]::Sleep([int][Math]::Ceiling($Seconds * 1000)) }
}

function Get-GracefulSameId {
    # The form in which two spellings of an EventId compare equal.
    param([string]$EventId)
    return $EventId.Trim().ToLowerInvariant()
}

function Confirm-GracefulCmdlet {
    # Fails with what to do if the cmdlets of a feature of Windows are not there.
    param([string[]]$Names, [string]$Module, [string]$Feature, [string]$Question)
    $missing = @($Names | Where-Object { $null -eq (Get-Command -Name $_ -ErrorAction SilentlyContinue) })
    if ($missing.Count -gt 0 -and $null -ne (Get-Module -ListAvailable -Name $Module)) {
        Import-Module -Name $Module -ErrorAction SilentlyContinue -WarningAction SilentlyContinue
        $missing = @($Names | Where-Object { $null -eq (Get-Command -Name $_ -ErrorAction SilentlyContinue) })
    }
    if ($missing.Count -eq 0) { return }
    Stop-GracefulStep ("The cmdlet $($missing[0]) is not there: the PowerShell module $Module is not installed on this host. " +
        "Install it (Install-WindowsFeature $Feature), or correct the step: $Question")
}

function Get-GracefulLongPath {
    # An absolute path as the system takes it at any length: older versions of .NET end at 260 characters.
    param([string]$Path)
    $plain = $Path.Replace('/', '\')
    if ($plain.StartsWith('\\?\')) { return $plain }
    if ($plain.StartsWith('\\')) { return '\\?\UNC\' + $plain.Substring(2) }
    return '\\?\' + $plain
}

Export-ModuleMember -Function @(
    'New-GracefulError', 'Get-GracefulError', 'Stop-GracefulStep',
    'Format-GracefulText', 'Format-GracefulQuoted', 'Format-GracefulCount', 'Format-GracefulDuration', 'Format-GracefulTime',
    'Format-GracefulNumber', 'Test-GracefulMasked',
    'New-GracefulMap', 'ConvertTo-GracefulData', 'ConvertFrom-GracefulJson', 'ConvertTo-GracefulJson',
    'Get-GracefulNow', 'Get-GracefulMonotonic', 'Wait-Graceful',
    'Get-GracefulLongPath', 'Get-GracefulSameId', 'Confirm-GracefulCmdlet'
)
