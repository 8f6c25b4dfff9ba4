# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Errors, text, JSON and the clock, as _errors.py, _text.py and _clock.py. Windows PowerShell 5.1 syntax.

Set-StrictMode -Version 2.0

$script:Largest = 20000
# How deep JSON may be nested.
$script:Deepest = 100
# Control characters, marks that change the direction of text, lone surrogates, and what is not assigned.
$script:Unreadable = '[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Zl}\p{Zp}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]'
$script:Scheme = '\b[A-Za-z][A-Za-z0-9+.-]*://'
# Marks, strings without their quotes, numbers, words, and the end.
$script:Token = New-Object System.Text.RegularExpressions.Regex (
    '\G[ \t\r\n]*(?:([{}\[\]:,])|"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"|' +
    '(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(true|false|null)|(\z))'
)
$script:Escapes = @{
    [char]'"' = '\"'; [char]'\' = '\\'; [char]8 = '\b'; [char]9 = '\t'; [char]10 = '\n'; [char]12 = '\f'; [char]13 = '\r'
}
$script:Epoch = New-Object System.DateTime (1970, 1, 1, 0, 0, 0, [System.DateTimeKind]::Utc)
$script:Numbers = [System.TypeCode[]]@('SByte', 'Byte', 'Int16', 'UInt16', 'Int32', 'UInt32', 'Int64', 'UInt64', 'Decimal')
$script:Invariant = [System.Globalization.CultureInfo]::InvariantCulture

# ---- errors

function New-GracefulError {
    # An exception with a message for the operator, its kind, and the fields that are returned beside it. Kinds: step (any
    # failure), late, wrong_option, refused, passing, no_connection, broken, not_taken, lost_claim, damaged, failed_step,
    # next_step. Of an answer of the metadata service also its status, and the pause before another try that it asked for.
    param([string]$Message, [string]$Kind = 'step', [System.Collections.IDictionary]$Fields = @{}, $Status = $null, $RetryAfter = $null)
    $exception = New-Object System.InvalidOperationException ($Message)
    $exception.Data['graceful'] = @{
        Kind = $Kind; Message = $Message; Fields = $Fields; Status = $Status; RetryAfter = $RetryAfter
        # Whether the error may be temporary.
        Passing = @('passing', 'no_connection') -contains $Kind
    }
    return $exception
}

function Get-GracefulError {
    # The content of an error record that New-GracefulError has made; null for others.
    param([System.Management.Automation.ErrorRecord]$Thrown)
    $exception = $Thrown.Exception
    while ($null -ne $exception) {
        if ($exception.Data.Contains('graceful')) { return $exception.Data['graceful'] }
        $exception = $exception.InnerException
    }
    return $null
}

function Resolve-GracefulError {
    # The same, but other errors are thrown again.
    param([System.Management.Automation.ErrorRecord]$Thrown)
    $known = Get-GracefulError $Thrown
    if ($null -eq $known) { throw $Thrown }
    return $known
}

function Get-GracefulReason {
    # The message of the innermost exception.
    param([System.Management.Automation.ErrorRecord]$Thrown, [int]$Limit = 200)
    return (Format-GracefulText $Thrown.Exception.GetBaseException().Message $Limit).TrimEnd('.')
}

function Exit-GracefulModule {
    # Ends a module with what the work returns, or with the error that it throws.
    param($Module, [scriptblock]$Work)
    try { $result = & $Work }
    catch {
        $known = Resolve-GracefulError $_
        foreach ($name in @($known.Fields.PSBase.Keys)) { $Module.Result[$name] = $known.Fields[$name] }
        $Module.FailJson($known.Message)
    }
    foreach ($name in @($result.PSBase.Keys)) { $Module.Result[$name] = $result[$name] }
    $Module.ExitJson()
}

function Stop-GracefulStep {
    # Ends a step with a message that says what happened and what to do. Late: it was not done in time.
    param([Parameter(Mandatory = $true)][string]$Message, [switch]$Late)
    $kind = 'step'
    if ($Late) { $kind = 'late' }
    throw (New-GracefulError $Message $kind)
}

# ---- text

function Format-GracefulText {
    # The value as one line of text, safe for terminals and templates, and without the secrets of URLs.
    param($Value, [int]$Limit = 600)
    $text = ConvertTo-PlainText $Value
    if ($text.Length -gt $script:Largest) { $text = $text.Substring(0, $script:Largest) }
    $text = Hide-Secret ([regex]::Replace($text, '[\s\x1c-\x1f]+', ' ').Trim(' '))
    if ($text -cmatch '[^\x20-\x7e]') { $text = Hide-Unreadable $text }
    $text = [regex]::Replace($text, '\{(?=[{%#])|#(?=jinja2:)', '$0 ')
    # Python counts characters, .NET counts UTF-16 units.
    if ($text.Length - [regex]::Matches($text, '[\udc00-\udfff]').Count -le $Limit) { return $text }
    $keep = 0
    $taken = 0
    while ($taken -lt $Limit - 1) {
        if ([char]::IsHighSurrogate($text[$keep])) { $keep++ }
        $keep++
        $taken++
    }
    return $text.Substring(0, $keep) + [char]0x2026
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
    $text = [regex]::Replace($Text, $script:Unreadable, '?')
    # The regular expression does not know the categories of surrogate pairs.
    foreach ($pair in [regex]::Matches($text, '[\ud800-\udbff][\udc00-\udfff]')) {
        $category = [string][System.Globalization.CharUnicodeInfo]::GetUnicodeCategory($pair.Value, 0)
        if (@('Format', 'OtherNotAssigned', 'PrivateUse') -contains $category) { $text = $text.Replace($pair.Value, '?') }
    }
    return $text
}

function Hide-Secret {
    # The text without the user names, passwords and queries of the URLs in it.
    param([string]$Text)
    if (-not $Text.Contains('://')) { return $Text }
    $Text = [regex]::Replace($Text, "($script:Scheme)(?:[^\s/?#]*@|[^\s/?#@:]*:(?!\d*[/?#])\S*@)", ('$1' + [char]0x2026 + '@'))
    return [regex]::Replace($Text, "($script:Scheme[^\s?#'""]*)\?[^\s'""]*", ('$1?' + [char]0x2026))
}

function Test-GracefulMasked {
    # Whether a part of the value was masked, so that it cannot be used.
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
    # The text in quotes that do not occur in it.
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
    # As `%.3g`, or with another number of digits.
    param([double]$Number, [int]$Digits = 3)
    if ([double]::IsNaN($Number)) { return 'nan' }
    if ([double]::IsInfinity($Number)) { return @('inf', '-inf')[[int]($Number -lt 0)] }
    return $Number.ToString("G$Digits", $script:Invariant).ToLowerInvariant()
}

function Format-GracefulList {
    # `web1, web2 and 3 more`.
    param($Names, [int]$Show = 5)
    $shown = @(@($Names) | Select-Object -First $Show | ForEach-Object { Format-GracefulText $_ 80 })
    $more = @($Names).Count - $Show
    if ($more -gt 0) { return ($shown -join ', ') + " and $more more" }
    if ($shown.Count -eq 0) { return 'none' }
    if ($shown.Count -eq 1) { return $shown[0] }
    return ($shown[0..($shown.Count - 2)] -join ', ') + ' and ' + $shown[-1]
}

# ---- JSON, the same on every PowerShell: no date is made of a text, and keys differ by case

function New-GracefulMap {
    # An ordered, case-sensitive dictionary with the entries of all arguments; the last one wins.
    $map = New-Object System.Collections.Specialized.OrderedDictionary ([System.StringComparer]::Ordinal)
    foreach ($source in $args) {
        if ($null -eq $source) { continue }
        foreach ($key in @($source.PSBase.Keys)) { $map[[string]$key] = $source[$key] }
    }
    return , $map
}

function ConvertTo-GracefulData {
    # Data of Ansible or a kind as ordered dictionaries, arrays, strings, numbers, booleans and null.
    param($Value)
    if ($null -eq $Value -or $Value -is [string] -or $Value -is [bool]) { return $Value }
    if ($Value -is [char]) { return [string]$Value }
    if ($Value -is [decimal]) { return [double]$Value }
    # PowerShell 7 converts strings that look like a date.
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
    # JSON as ordered dictionaries, arrays, strings, [long] and [double], booleans and null. Raises FormatException.
    param([string]$Text)
    $reader = @{ Token = $script:Token.Match($Text); At = 0 }
    $value = Read-JsonValue $reader 0
    if (-not $reader.Token.Groups[5].Success) { Stop-Json $reader }
    return , $value
}

function Stop-Json {
    param($Reader)
    throw (New-Object System.FormatException ("something is missing or wrong after character $($Reader.At)"))
}

function Skip-JsonMark {
    # Whether the current token is this mark; it is skipped then.
    param($Reader, [string]$Mark)
    $token = $Reader.Token
    if ($token.Groups[1].Value -ne $Mark) { return $false }
    $Reader.At = $token.Index + $token.Length
    $Reader.Token = $token.NextMatch()
    return $true
}

function Read-JsonValue {
    # The value that begins with the current token.
    param($Reader, [int]$Depth)
    if ($Depth -gt $script:Deepest) { throw (New-Object System.FormatException ('it is nested too deeply')) }
    $token = $Reader.Token
    $Reader.At = $token.Index + $token.Length
    $Reader.Token = $token.NextMatch()
    if ($token.Groups[2].Success) {
        $text = $token.Groups[2].Value
        # The escapes of JSON mean the same in a regular expression.
        if ($text.Contains('\')) { $text = [regex]::Unescape($text) }
        return $text
    }
    if ($token.Groups[3].Success) { return ConvertFrom-JsonNumber $token.Groups[3].Value }
    switch ($token.Groups[4].Value) {
        'true' { return $true }
        'false' { return $false }
        'null' { return $null }
    }
    switch ($token.Groups[1].Value) {
        '[' {
            $list = New-Object System.Collections.ArrayList
            while (-not (Skip-JsonMark $Reader ']')) {
                if ($list.Count -and -not (Skip-JsonMark $Reader ',')) { Stop-Json $Reader }
                $null = $list.Add((Read-JsonValue $Reader ($Depth + 1)))
            }
            return , $list.ToArray()
        }
        '{' {
            $map = New-GracefulMap
            while (-not (Skip-JsonMark $Reader '}')) {
                if ($map.PSBase.Count -and -not (Skip-JsonMark $Reader ',')) { Stop-Json $Reader }
                $name = Read-JsonValue $Reader ($Depth + 1)
                if ($name -isnot [string] -or -not (Skip-JsonMark $Reader ':')) { Stop-Json $Reader }
                $map[$name] = Read-JsonValue $Reader ($Depth + 1)
            }
            return , $map
        }
    }
    Stop-Json $Reader
}

function ConvertFrom-JsonNumber {
    param([string]$Text)
    $whole = [long]0
    if ([long]::TryParse($Text, [System.Globalization.NumberStyles]::AllowLeadingSign, $script:Invariant, [ref]$whole)) { return $whole }
    return [double]::Parse($Text, $script:Invariant)
}

function ConvertTo-GracefulJson {
    # JSON in ASCII as Python's json.dumps writes it. Raises FormatException for other types.
    param($Value, [switch]$Sorted)
    $out = New-Object System.Text.StringBuilder
    Add-Json $out $Value ([bool]$Sorted) 0
    return $out.ToString()
}

function Add-Json {
    param([System.Text.StringBuilder]$Out, $Value, [bool]$Sorted, [int]$Depth)
    if ($Depth -gt $script:Deepest) { throw (New-Object System.FormatException ('it is nested too deeply')) }
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
    if ($Text -cmatch '[^\x20-\x7e]|["\\]') {
        $Text = -join @(foreach ($char in $Text.ToCharArray()) {
                if ($script:Escapes.ContainsKey($char)) { $script:Escapes[$char] }
                elseif ([int]$char -lt 32 -or [int]$char -gt 126) { '\u{0:x4}' -f [int]$char }
                else { $char }
            })
    }
    $null = $Out.Append('"').Append($Text).Append('"')
}

# ---- the clock

function Get-GracefulNow {
    # Seconds since 1970.
    return ([System.DateTime]::UtcNow - $script:Epoch).TotalSeconds
}

function Get-GracefulMonotonic {
    # Seconds of a clock that is never set, the same for all processes of a host.
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

function Get-GracefulHash {
    # The SHA-256 of a text, in hexadecimal digits.
    param([string]$Text)
    $sha = [System.Security.Cryptography.SHA256]::Create()
    try { return [System.BitConverter]::ToString($sha.ComputeHash([System.Text.Encoding]::UTF8.GetBytes($Text))).Replace('-', '').ToLowerInvariant() }
    finally { $sha.Dispose() }
}

function Confirm-GracefulCmdlet {
    # Ends the step with what to do if the cmdlets of a Windows feature are missing.
    param([string[]]$Names, [string]$Module, [string]$Feature, [string]$Question)
    $missing = @($Names | Where-Object { $null -eq (Get-Command -Name $_ -ErrorAction SilentlyContinue) })
    if ($missing.Count -gt 0 -and $null -ne (Get-Module -ListAvailable -Name $Module)) {
        Import-Module -Name $Module -ErrorAction SilentlyContinue -WarningAction SilentlyContinue
        $missing = @($Names | Where-Object { $null -eq (Get-Command -Name $_ -ErrorAction SilentlyContinue) })
    }
    if ($missing.Count -eq 0) { return }
    Stop-GracefulStep ("The cmdlet $($missing[0]) does not exist: the PowerShell module $Module is not installed on this host. " +
        "Install it (Install-WindowsFeature $Feature), or correct the step: $Question")
}

function Get-GracefulLongPath {
    # An absolute path that may be longer than 260 characters. The long form only where it is needed: Windows does not correct
    # it, and old versions of .NET refuse it.
    param([string]$Path)
    $plain = $Path.Replace('/', '\')
    if ($plain.StartsWith('\\?\') -or ($plain.Length -lt 240 -and $plain -notmatch '[. ](\\|$)')) { return $plain }
    if ($plain.StartsWith('\\')) { return '\\?\UNC\' + $plain.Substring(2) }
    return '\\?\' + $plain
}

Export-ModuleMember -Function @(
    'New-GracefulError', 'Get-GracefulError', 'Resolve-GracefulError', 'Get-GracefulReason', 'Stop-GracefulStep', 'Exit-GracefulModule',
    'Format-GracefulText', 'Format-GracefulQuoted', 'Format-GracefulCount', 'Format-GracefulDuration', 'Format-GracefulTime',
    'Format-GracefulNumber', 'Format-GracefulList', 'Test-GracefulMasked',
    'New-GracefulMap', 'ConvertTo-GracefulData', 'ConvertFrom-GracefulJson', 'ConvertTo-GracefulJson',
    'Get-GracefulNow', 'Get-GracefulMonotonic', 'Wait-Graceful',
    'Get-GracefulLongPath', 'Get-GracefulSameId', 'Get-GracefulHash', 'Confirm-GracefulCmdlet'
)
