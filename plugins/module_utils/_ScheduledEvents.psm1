# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the collection: it may change without notice.
# Windows PowerShell 5.1 syntax. The metadata service as _transport.py, _client.py, _service.py, _document.py, _endpoint.py,
# _approver.py and _waiter.py have it: a change there is a change here, and tests/contract has the cases that both satisfy.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0

$script:UserAgent = 'graceful.azure/0.2.0'
$script:MaxBody = 1048576
$script:MaxHeader = 65536
$script:VNetEndpoint = 'http://169.254.169.254'
$script:EventsPath = '/metadata/scheduledevents'
$script:InstancePath = '/metadata/instance'
$script:InstanceVersion = '2021-02-01'
$script:PreviewVersion = '2017-03-01'
# Newest first: the order in which api_version=auto tries them.
$script:Versions = @(
    '2024-07-09', '2020-07-01', '2019-08-01', '2019-04-01', '2019-01-01', '2017-11-01', '2017-08-01', $script:PreviewVersion
)
$script:KnownTypes = @('Freeze', 'Reboot', 'Redeploy', 'Preempt', 'Terminate', 'SpotRebalanceRecommendation')
$script:KnownSources = @('Platform', 'User')
$script:PassingStatuses = @(410, 429, 500, 502, 503, 504)
$script:PassingKinds = @('passing', 'no_connection')
$script:ProxyAgentLog = 'C:\WindowsAzure\ProxyAgent\Logs\ProxyAgent.Connection.log'
# Azure may take its time: for that long the document is read after a POST that was not confirmed, before another one.
$script:UnconfirmedFor = 30.0
$script:ReadEvery = 1.0
$script:SettledReadTimeout = 10.0
$script:LongestWait = 2592000
$script:Latin1 = [System.Text.Encoding]::GetEncoding(28591)
$script:Invariant = [System.Globalization.CultureInfo]::InvariantCulture
# Windows says it in the language of the host; everybody is told the same.
$script:SocketErrors = @{
    ConnectionRefused = 'Connection refused'; ConnectionReset = 'Connection reset by peer'; TimedOut = 'Connection timed out'
    HostUnreachable = 'No route to host'; NetworkUnreachable = 'Network is unreachable'; AccessDenied = 'Permission denied'
    HostNotFound = 'Name or service not known'; NoData = 'Name or service not known'
    TryAgain = 'Temporary failure in name resolution'; ConnectionAborted = 'Software caused connection abort'
}

# ---- errors and text

function New-ServiceError {
    # With what decides whether another try makes sense: the status of the answer, and the pause that it asked for.
    param([string]$Message, [string]$Kind, $Status = $null, $RetryAfter = $null, [System.Collections.IDictionary]$Fields = @{})
    $exception = New-GracefulError $Message $Kind $Fields
    $exception.Data['graceful_status'] = $Status
    $exception.Data['graceful_retry_after'] = $RetryAfter
    return $exception
}

function Get-ServiceError {
    # @{Kind; Message; Fields; Status; RetryAfter} of what was thrown; thrown on if it is not one of ours.
    param([System.Management.Automation.ErrorRecord]$Thrown)
    $known = Get-GracefulError $Thrown
    if ($null -eq $known) { throw $Thrown }
    $exception = $Thrown.Exception
    while (-not $exception.Data.Contains('graceful_kind')) { $exception = $exception.InnerException }
    $known['Status'] = $exception.Data['graceful_status']
    $known['RetryAfter'] = $exception.Data['graceful_retry_after']
    return $known
}

function Format-General {
    # As `%g` has it.
    param([double]$Number)
    if ([double]::IsNaN($Number)) { return 'nan' }
    if ([double]::IsPositiveInfinity($Number)) { return 'inf' }
    if ([double]::IsNegativeInfinity($Number)) { return '-inf' }
    return $Number.ToString('G6', $script:Invariant).ToLowerInvariant()
}

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

function Format-List {
    # `web1, web2 and 3 more`.
    param($Names, [int]$Show = 5)
    $shown = @(@($Names) | Select-Object -First $Show | ForEach-Object { Format-GracefulText $_ 80 })
    $more = @($Names).Count - $Show
    if ($more -gt 0) { return ($shown -join ', ') + " and $more more" }
    if ($shown.Count -eq 0) { return 'nobody' }
    if ($shown.Count -eq 1) { return $shown[0] }
    return ($shown[0..($shown.Count - 2)] -join ', ') + ' and ' + $shown[-1]
}

function Format-QuotedList {
    param($Names, [int]$Show = 5)
    $shown = @(@($Names) | Select-Object -First $Show | ForEach-Object { Format-GracefulQuoted $_ }) -join ', '
    $more = @($Names).Count - $Show
    if ($more -gt 0) { return "$shown and $more more" }
    return $shown
}

# ---- bytes: one HTTP request at a time over one kept-alive connection, bounded in time and size. No proxy, redirect or retry.

function Send-Request {
    param(
        $Service, [string]$Method, [string]$Endpoint, [string]$Path, [System.Collections.IDictionary]$Headers, [byte[]]$Body,
        [double]$TotalTimeout
    )
    $where = "The metadata service at $Endpoint"
    $deadline = (Get-GracefulMonotonic) + $TotalTimeout
    $authority = $Endpoint.Substring('http://'.Length)
    $lines = New-Object System.Collections.ArrayList
    $null = $lines.Add("$Method $Path HTTP/1.1")
    $null = $lines.Add("Host: $authority")
    $null = $lines.Add('Metadata: true')
    $null = $lines.Add("User-Agent: $script:UserAgent")
    $null = $lines.Add('Accept-Encoding: identity')
    foreach ($name in @($Headers.PSBase.Keys)) { $null = $lines.Add("${name}: $($Headers[$name])") }
    if ($null -ne $Body) { $null = $lines.Add("Content-Length: $($Body.Length)") }
    $head = $script:Latin1.GetBytes(($lines -join "`r`n") + "`r`n`r`n")

    $client = Get-Connection $Service $Endpoint
    if ($null -eq $client) { $client = Connect-Endpoint $where $authority $Service.Limits['connect_timeout'] $TotalTimeout }
    $reply = $null
    try {
        $stream = $client.GetStream()
        try {
            $stream.WriteTimeout = [int][Math]::Max(1, [Math]::Ceiling($TotalTimeout * 1000))
            $stream.Write($head, 0, $head.Length)
            if ($null -ne $Body) { $stream.Write($Body, 0, $Body.Length) }
            $reply = Read-Reply $where $stream $deadline
            return $reply
        }
        catch {
            if ($null -ne (Get-GracefulError $_)) { throw }
            $cause = Get-Cause $_
            if ($cause.TimedOut -or (Get-GracefulMonotonic) -ge $deadline) {
                throw (New-ServiceError ("$where did not finish its answer within $(Format-GracefulNumber $TotalTimeout) s. The first " +
                        'request of a VM may take two minutes: leave read_timeout above 120 for it.') 'passing')
            }
            throw (New-ServiceError "$where broke off the connection ($($cause.Text))." 'passing')
        }
    }
    finally {
        if ($null -ne $reply -and $reply.Reusable) { $Service.Connection = @{ Endpoint = $Endpoint; Client = $client } }
        else { $client.Close() }
    }
}

function Get-Connection {
    # The kept one, if it is to that endpoint and the other side has not closed it; otherwise null.
    param($Service, [string]$Endpoint)
    $kept = $Service.Connection
    $Service.Connection = $null
    if ($null -eq $kept) { return $null }
    if ($kept.Endpoint -ceq $Endpoint -and -not $kept.Client.Client.Poll(0, [System.Net.Sockets.SelectMode]::SelectRead)) {
        return $kept.Client
    }
    $kept.Client.Close()
    return $null
}

function Connect-Endpoint {
    param([string]$Where, [string]$Authority, [double]$ConnectTimeout, [double]$TotalTimeout)
    $name = $Authority
    $port = 80
    if ($Authority -match '^(.*):([0-9]+)$' -and -not $Authority.EndsWith(']')) {
        $name = $Matches[1]
        $port = [int]$Matches[2]
    }
    $name = $name.Trim('[', ']')
    $address = $null
    $family = [System.Net.Sockets.AddressFamily]::InterNetwork
    if ([System.Net.IPAddress]::TryParse($name, [ref]$address)) { $family = $address.AddressFamily }
    $client = New-Object System.Net.Sockets.TcpClient ($family)
    try {
        if ($null -ne $address) { $begun = $client.BeginConnect($address, $port, $null, $null) }
        else { $begun = $client.BeginConnect($name, $port, $null, $null) }
        if (-not $begun.AsyncWaitHandle.WaitOne([int][Math]::Max(1, [Math]::Min($ConnectTimeout, $TotalTimeout) * 1000))) {
            throw (New-ServiceError ("$Where did not take the connection within $(Format-General $ConnectTimeout) s. Is this an Azure VM " +
                    'with its primary network interface up, and is the address not blocked by a firewall or routed elsewhere?'
                ) 'no_connection')
        }
        $client.EndConnect($begun)
    }
    catch {
        $client.Close()
        if ($null -ne (Get-GracefulError $_)) { throw }
        throw (New-ServiceError ("$Where cannot be reached ($((Get-Cause $_).Text)). Is this an Azure VM, and is endpoint right?"
            ) 'no_connection')
    }
    return $client
}

function Get-Cause {
    # What the innermost error says, and whether it says that time is over.
    param([System.Management.Automation.ErrorRecord]$Thrown)
    $exception = $Thrown.Exception
    while ($null -ne $exception) {
        if ($exception -is [System.Net.Sockets.SocketException]) {
            $code = [string]$exception.SocketErrorCode
            $text = $script:SocketErrors[$code]
            if (-not $text) { $text = Format-GracefulText $exception.Message }
            return @{ Text = $text; TimedOut = @('TimedOut', 'WouldBlock') -contains $code }
        }
        $last = $exception
        $exception = $exception.InnerException
    }
    return @{ Text = (Format-GracefulText $last.Message); TimedOut = $false }
}

function Read-Reply {
    param([string]$Where, [System.IO.Stream]$Stream, [double]$Deadline)
    $buffer = New-Object System.IO.MemoryStream
    while ($true) {
        $head = Read-Head $Where $Stream $buffer $Deadline
        # Answers that say nothing yet.
        if ($head.Status -lt 100 -or $head.Status -ge 200) { break }
        $rest = $buffer.ToArray()
        $buffer = New-Object System.IO.MemoryStream
        $buffer.Write($rest, $head.Length, $rest.Length - $head.Length)
    }
    $start = $head.Length
    $announced = [string]$head.Headers['Content-Length']
    $chunked = ([string]$head.Headers['Transfer-Encoding']).Trim() -eq 'chunked'
    $bodiless = $head.Status -eq 304 -or $head.Status -eq 204
    $expected = $null
    if (-not $chunked -and $announced -match '^[0-9]{1,18}$') { $expected = [long]$announced }
    $body = $null
    while ($true) {
        $length = $buffer.Length - $start
        if ($bodiless) { $body = New-Object byte[] 0; break }
        if ($chunked) { $body = Join-Chunk ($script:Latin1.GetString($buffer.ToArray(), $start, $length)) }
        elseif ($null -ne $expected -and $length -ge $expected) { $length = $expected; $body = $buffer }
        if ($null -ne $body -or $length -gt 2 * $script:MaxBody -or (-not $chunked -and $length -gt $script:MaxBody)) { break }
        if (-not (Read-More $Stream $buffer $Deadline)) {
            if ($chunked) { throw (New-ServiceError "$Where broke off the connection (its answer is not complete)." 'passing') }
            break
        }
    }
    if (-not $chunked -and -not $bodiless) {
        $body = New-Object byte[] ([int]$length)
        [System.Array]::Copy($buffer.GetBuffer(), $start, $body, 0, $body.Length)
    }
    if ($null -eq $body -or $body.Length -gt $script:MaxBody) {
        throw (New-ServiceError ("$Where sent more than 1 MiB, which no Scheduled Events document needs. " +
                "Check that endpoint is Azure's metadata service.") 'refused')
    }
    if ($null -ne $expected -and $body.Length -lt $expected -and -not $bodiless) {
        throw (New-ServiceError "$Where broke off after $($body.Length) of $announced bytes." 'passing')
    }
    $closes = $head.Version -cne '1.1' -or [string]$head.Headers['Connection'] -match '\bclose\b'
    $delimited = $chunked -or $bodiless -or ($null -ne $expected -and $buffer.Length -eq $start + $expected)
    return @{ Status = $head.Status; Headers = $head.Headers; Body = $body; Reusable = $delimited -and -not $closes }
}

function Read-More {
    # Whether anything came before the other side closed; one deadline for all of the answer.
    param([System.IO.Stream]$Stream, [System.IO.MemoryStream]$Buffer, [double]$Deadline)
    $left = $Deadline - (Get-GracefulMonotonic)
    if ($left -le 0) { throw (New-Object System.Net.Sockets.SocketException (10060)) }
    $Stream.ReadTimeout = [int][Math]::Max(1, [Math]::Ceiling($left * 1000))
    $bytes = New-Object byte[] 65536
    $count = $Stream.Read($bytes, 0, $bytes.Length)
    $Buffer.Write($bytes, 0, $count)
    return $count -gt 0
}

function Read-Head {
    # @{Status; Headers; Length}, the length of it in bytes.
    param([string]$Where, [System.IO.Stream]$Stream, [System.IO.MemoryStream]$Buffer, [double]$Deadline)
    while ($true) {
        $text = $script:Latin1.GetString($Buffer.ToArray())
        $end = [regex]::Match($text, '\r?\n\r?\n')
        $first = ($text -split "`r?`n", 2)[0]
        if ($text.Contains("`n") -and $first -notmatch '^HTTP/[0-9.]+ +([0-9]{3})(?: .*)?$') {
            throw (New-ServiceError "$Where broke off the connection ($(Format-GracefulText $first 200))." 'passing')
        }
        if ($end.Success) { break }
        if ($text.Length -gt $script:MaxHeader) {
            throw (New-ServiceError "$Where broke off the connection (its headers are too long)." 'passing')
        }
        if (-not (Read-More $Stream $Buffer $Deadline)) {
            $cause = 'Remote end closed connection without response'
            if ($text) { $cause = Format-GracefulText $first 200 }
            throw (New-ServiceError "$Where broke off the connection ($cause)." 'passing')
        }
    }
    $null = $first -match '^HTTP/([0-9.]+) +([0-9]{3})'
    $version = $Matches[1]
    $status = [int]$Matches[2]
    $headers = New-Object System.Collections.Hashtable ([System.StringComparer]::OrdinalIgnoreCase)
    foreach ($line in @($text.Substring(0, $end.Index) -split "`r?`n" | Select-Object -Skip 1)) {
        $name, $value = $line -split ':', 2
        if ($null -ne $value) { $headers[$name.Trim()] = $value.Trim() }
    }
    return @{ Status = $status; Version = $version; Headers = $headers; Length = $end.Index + $end.Length }
}

function Join-Chunk {
    # The bytes of a body that came in pieces; null while some are missing.
    param([string]$Text)
    $body = New-Object System.Text.StringBuilder
    $position = 0
    while ($true) {
        $end = $Text.IndexOf("`n", $position)
        if ($end -lt 0) { return $null }
        $size = ($Text.Substring($position, $end - $position) -split ';', 2)[0].Trim()
        if ($size -notmatch '^[0-9A-Fa-f]{1,8}$') { throw (New-Object System.FormatException ('its answer is not complete')) }
        $length = [Convert]::ToInt64($size, 16)
        if ($length -eq 0) { break }
        if ($body.Length + $length -gt $script:MaxBody) { return , (New-Object byte[] ($script:MaxBody + 1)) }
        if ($end + 1 + $length -ge $Text.Length) { return $null }
        $null = $body.Append($Text, $end + 1, [int]$length)
        $position = $Text.IndexOf("`n", $end + 1 + [int]$length) + 1
        if ($position -le 0) { return $null }
    }
    return , $script:Latin1.GetBytes($body.ToString())
}

# ---- HTTP: which answers are final, which failures pass, and when to ask again

function Get-AnswerError {
    # What an answer other than 200 means.
    param([string]$What, $Reply, [string]$ApiVersion)
    $status = $Reply.Status
    $content = $null
    try { $content = ConvertFrom-GracefulJson (ConvertFrom-Utf8 $Reply.Body) }
    catch { $content = $null }
    $said = ''
    $offered = @()
    if ($content -is [System.Collections.IDictionary]) {
        if ($content['error'] -is [string] -and $content['error']) { $said = " ($(Format-GracefulQuoted $content['error'] 300))" }
        if ($content['newest-versions'] -is [array]) {
            $offered = @($content['newest-versions'] | Select-Object -First 20 | ForEach-Object { Format-GracefulText $_ 40 })
        }
    }
    $said = "$What $status$said."
    if ($script:PassingStatuses -contains $status) {
        return New-ServiceError $said 'passing' $status (Get-RetryAfter $Reply)
    }
    if ($status -ge 300 -and $status -lt 400) {
        $target = 'nowhere'
        if ($Reply.Headers.ContainsKey('Location')) { $target = $Reply.Headers['Location'] }
        return New-ServiceError ("$said It redirects to $(Format-GracefulQuoted $target 200), which the metadata service never does and " +
            'which is not followed. Check endpoint, and what answers at that address.') 'refused' $status
    }
    if ($status -eq 401 -or $status -eq 403) {
        $user = [Environment]::UserName
        try { $user = [System.Security.Principal.WindowsIdentity]::GetCurrent().Name }
        catch { Write-Debug 'The name without its domain has to do.' }
        return New-ServiceError ("$said The Metadata Security Protocol is enforced on this VM: its guest proxy agent lets only allowed " +
            "users, groups and processes through, and this request came from the user $(Format-GracefulQuoted $user). Allow it in the " +
            "agent's rules, or run the task as a user that is allowed. The agent logs what it refuses in $script:ProxyAgentLog."
        ) 'refused' $status
    }
    if ($offered.Count) {
        return New-ServiceError "$said Set api_version to one that it offers: $($offered -join ', '); or to auto." 'refused' $status
    }
    $advice = 'Check that endpoint is the metadata service.'
    if ($status -eq 400) {
        $advice = "It refuses the request as it is. If it does not know api_version $(Format-GracefulQuoted $ApiVersion 40), set " +
        "api_version to auto for the newest that it has; otherwise check that endpoint is Azure's metadata service."
    }
    if ($status -eq 404) {
        $advice = "It does not have api_version $(Format-GracefulQuoted $ApiVersion 40): set api_version to auto for the newest that it " +
        'has. If it has none, this is not the metadata service: check endpoint.'
    }
    return New-ServiceError "$said $advice" 'refused' $status
}

function Get-RetryAfter {
    param($Reply)
    if (-not $Reply.Headers.ContainsKey('Retry-After')) { return $null }
    $value = [string]$Reply.Headers['Retry-After']
    $moment = ConvertFrom-EventTime $value
    $seconds = 0.0
    if ($null -ne $moment) { $seconds = ($moment - [DateTime]::UtcNow).TotalSeconds }
    elseif (-not [double]::TryParse($value, [System.Globalization.NumberStyles]::Float, $script:Invariant, [ref]$seconds)) { return $null }
    if ([double]::IsNaN($seconds)) { return $null }
    return [Math]::Min([Math]::Max($seconds, 1.0), 30.0)
}

function Get-Deadline {
    # When a request that begins now has to be over, with all its retries.
    param($Service)
    return (Get-GracefulMonotonic) + $Service.Limits['connect_timeout'] + $Service.Limits['read_timeout']
}

function Invoke-Fetch {
    # GET, again and again while the failure may pass, the retries allow it and the time lasts.
    param($Service, [string]$Path, [string]$ApiVersion, [scriptblock]$Decode, [System.Collections.IDictionary]$Headers, [double]$Deadline)
    $begin = Get-GracefulMonotonic
    $tries = 0
    while ($true) {
        $tries++
        try { return & $Decode $Service (Get-Reply $Service $Path $ApiVersion $Headers $Deadline) }
        catch {
            $failure = Get-ServiceError $_
            if ($script:PassingKinds -notcontains $failure.Kind) { throw }
            $elapsed = (Get-GracefulMonotonic) - $begin
            $pause = Get-Pause $Service $failure $tries $elapsed
            if ($null -eq $pause -or $elapsed + $pause -ge $Deadline - $begin) {
                $times = Format-GracefulCount $tries 'time'
                $message = "$($failure.Message) Tried $times in $($elapsed.ToString('F1', $script:Invariant)) s."
                throw (New-ServiceError $message $failure.Kind $failure.Status $failure.RetryAfter $failure.Fields)
            }
            Wait-Graceful $pause
        }
    }
}

function Get-Pause {
    # Seconds until the next try; null if there is none.
    param($Service, $Failure, [int]$Tries, [double]$Elapsed)
    $backoff = 0.5 * [Math]::Pow(2, [Math]::Min($Tries - 1, 6))
    if ($Failure.Status -eq 410 -and $Service.Limits['retries']) {
        if ($Elapsed -lt 70) { return [Math]::Min($backoff, 10.0) }
        return $null
    }
    if ($Tries -gt $Service.Limits['retries']) { return $null }
    if ($null -eq $Failure.RetryAfter) { return $backoff }
    return $Failure.RetryAfter
}

function Get-Reply {
    # From the first endpoint that takes a connection; it stays with that.
    param($Service, [string]$Path, [string]$ApiVersion, [System.Collections.IDictionary]$Headers, [double]$Deadline)
    try { return Send-ToService $Service 'GET' $Service.Endpoint $Path $ApiVersion $Headers $null $Deadline }
    catch {
        $failure = Get-ServiceError $_
        if ($failure.Kind -ne 'no_connection' -or -not $Service.Fallbacks) { throw }
        $attempts = @($failure.Message)
        foreach ($endpoint in @(& $Service.Fallbacks)) {
            try {
                $reply = Send-ToService $Service 'GET' $endpoint $Path $ApiVersion $Headers $null $Deadline
                $Service.Endpoint = $endpoint
                $Service.Fallbacks = $null
                return $reply
            }
            catch { $attempts += (Get-ServiceError $_).Message }
        }
        throw (New-ServiceError ($attempts -join ' ') 'no_connection')
    }
}

function Send-ToService {
    param(
        $Service, [string]$Method, [string]$Endpoint, [string]$Path, [string]$ApiVersion, [System.Collections.IDictionary]$Headers,
        [byte[]]$Body, [double]$Deadline
    )
    $left = [Math]::Max([Math]::Min($Service.Limits['read_timeout'], $Deadline - (Get-GracefulMonotonic)), 0.1)
    $target = "${Path}?api-version=$([Uri]::EscapeDataString($ApiVersion))"
    $reply = Send-Request $Service $Method $Endpoint $target $Headers $Body $left
    if ($reply.Status -ne 200 -and ($reply.Status -ne 304 -or $Method -ne 'GET')) {
        throw (Get-AnswerError "The metadata service at $Endpoint answered $Method $Path with" $reply $ApiVersion)
    }
    if ($Endpoint -eq $Service.Endpoint) { $Service.Fallbacks = $null }
    return $reply
}

# ---- where the service is

function Test-Endpoint {
    # The endpoint as the client uses it, or an error that says what is wrong with it.
    param([string]$Endpoint)
    $text = $Endpoint.Trim()
    $scheme = ''
    if ($text -match '^([A-Za-z][A-Za-z0-9+.-]*):(.*)$') {
        $scheme = $Matches[1]
        $text = $Matches[2]
    }
    if ($scheme -ne 'http') {
        $found = 'has no scheme'
        if ($scheme) { $found = "has the scheme $($scheme.ToLowerInvariant())" }
        Stop-WrongEndpoint $Endpoint "$found; the metadata service speaks plain http"
    }
    $authority = ''
    $rest = $text
    if ($text -match '^//([^/?#]*)(.*)$') {
        $authority = $Matches[1]
        $rest = $Matches[2]
    }
    if ($authority.Contains('@')) { Stop-WrongEndpoint $Endpoint 'has a user name or password, which the service does not ask for' }
    $name = $authority
    $port = $null
    if ($authority -match '^(\[[^\]]*\])(?::(.*))?$' -or $authority -match '^([^:\[\]]*)(?::(.*))?$') {
        $name = $Matches[1]
        if ($Matches.ContainsKey(2) -and $Matches[2] -ne '') { $port = $Matches[2] }
    }
    else { Stop-WrongEndpoint $Endpoint 'is not a URL (Invalid IPv6 URL)' }
    if ($null -ne $port) {
        if ($port -notmatch '^[0-9]{1,9}$') { Stop-WrongEndpoint $Endpoint "is not a URL (Port could not be cast to integer value as '$port')" }
        if ([int]$port -gt 65535) { Stop-WrongEndpoint $Endpoint 'is not a URL (Port out of range 0-65535)' }
        $port = [int]$port
    }
    if ($name.Trim('[', ']') -notmatch '^[A-Za-z0-9._:%-]+$') { Stop-WrongEndpoint $Endpoint 'names no host' }
    if ($rest -ne '' -and $rest -ne '/') { Stop-WrongEndpoint $Endpoint 'has more than a host' }
    $name = $name.ToLowerInvariant()
    if ($null -eq $port) { return "http://$name" }
    return "http://${name}:$port"
}

function Stop-WrongEndpoint {
    param([string]$Endpoint, [string]$Why)
    throw (New-GracefulError ("endpoint $(Format-GracefulQuoted $Endpoint 200) $(Format-GracefulText $Why). Give the scheme and host " +
            'only, such as http://169.254.169.254 or http://127.0.0.1:8080, or auto.') 'wrong_option')
}

function Get-LeaseEndpoint {
    # Where VMs outside of a VNet have it: DHCP option 245, or what Microsoft's samples have left of it.
    $found = @(Get-DhcpAddress) + @(
        [Environment]::GetEnvironmentVariable('SCHEDULEDEVENTSIP')
        [Environment]::GetEnvironmentVariable('SCHEDULEDEVENTSIP', 'Machine')
        try { (Get-ItemProperty -Path 'HKLM:\Software\ScheduledEvents' -Name 'ScheduledEventsIp' -ErrorAction Stop).ScheduledEventsIp }
        catch { Write-Debug 'Nobody has left it there.' }
    )
    $seen = @()
    foreach ($text in $found) {
        $address = $null
        if (-not [System.Net.IPAddress]::TryParse([string]$text, [ref]$address)) { continue }
        $first = $address.GetAddressBytes()[0]
        # Zero, multicast and broadcast cannot be a server's address.
        if ($address.AddressFamily -ne 'InterNetwork' -or $first -eq 0 -or $first -ge 224) { continue }
        if ($seen -notcontains [string]$address) { $seen += [string]$address }
    }
    foreach ($address in $seen) {
        "http://$address"
        "http://${address}:8080"
    }
}

function Get-DhcpAddress {
    # Rarely needed, so that it is compiled when it is. Whatever goes wrong here, there is no such address then.
    try {
        if (-not ('Graceful.Dhcp' -as [type])) {
            Add-Type -TypeDefinition @'
using System;
using System.Runtime.InteropServices;
namespace Graceful {
    public static class Dhcp {
        [StructLayout(LayoutKind.Sequential)]
        struct Option { public uint Flags; public uint Id; [MarshalAs(UnmanagedType.Bool)] public bool IsVendor; public IntPtr Data; public uint Size; }
        [StructLayout(LayoutKind.Sequential)]
        struct Options { public uint Count; public IntPtr First; }
        [DllImport("dhcpcsvc.dll", CharSet = CharSet.Unicode)]
        static extern uint DhcpCApiInitialize(out uint version);
        [DllImport("dhcpcsvc.dll", CharSet = CharSet.Unicode)]
        static extern uint DhcpRequestParams(uint flags, IntPtr reserved, string adapter, IntPtr classId, Options send, Options wanted,
            byte[] buffer, ref uint size, string requestId);
        public static byte[] Read(string adapter, uint id) {
            uint version;
            DhcpCApiInitialize(out version);
            Option option = new Option();
            option.Id = id;
            IntPtr memory = Marshal.AllocHGlobal(Marshal.SizeOf(typeof(Option)));
            GCHandle handle = new GCHandle();
            try {
                Marshal.StructureToPtr(option, memory, false);
                Options wanted = new Options();
                wanted.Count = 1;
                wanted.First = memory;
                byte[] buffer = new byte[4096];
                handle = GCHandle.Alloc(buffer, GCHandleType.Pinned);
                uint size = (uint)buffer.Length;
                if (DhcpRequestParams(2, IntPtr.Zero, adapter, IntPtr.Zero, new Options(), wanted, buffer, ref size, null) != 0) return null;
                option = (Option)Marshal.PtrToStructure(memory, typeof(Option));
                if (option.Size != 4 || option.Data == IntPtr.Zero) return null;
                byte[] found = new byte[4];
                Marshal.Copy(option.Data, found, 0, 4);
                return found;
            }
            finally {
                if (handle.IsAllocated) handle.Free();
                Marshal.FreeHGlobal(memory);
            }
        }
    }
}
'@
        }
        foreach ($adapter in [System.Net.NetworkInformation.NetworkInterface]::GetAllNetworkInterfaces()) {
            if ([string]$adapter.OperationalStatus -ne 'Up' -or [string]$adapter.NetworkInterfaceType -eq 'Loopback') { continue }
            $bytes = [Graceful.Dhcp]::Read($adapter.Id, 245)
            if ($null -ne $bytes) { $bytes -join '.' }
        }
    }
    catch { Write-Debug "DHCP does not say: $_" }
}

# ---- the document as pure data

function ConvertFrom-Utf8 {
    # A byte order mark is accepted.
    param([byte[]]$Body)
    $start = 0
    if ($Body.Length -ge 3 -and $Body[0] -eq 0xEF -and $Body[1] -eq 0xBB -and $Body[2] -eq 0xBF) { $start = 3 }
    return (New-Object System.Text.UTF8Encoding ($false, $true)).GetString($Body, $start, $Body.Length - $start)
}

function ConvertFrom-Body {
    param([byte[]]$Body)
    try { return , (ConvertFrom-GracefulJson (ConvertFrom-Utf8 $Body)) }
    catch { Stop-BrokenDocument "it is not JSON ($((Get-Cause $_).Text))" }
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

function ConvertFrom-EventsDocument {
    # The service's answer as @{Incarnation; Events; Oddities}; the fields that depend on who asks and when stay empty.
    param([byte[]]$Body)
    if (-not $script:Latin1.GetString($Body).Trim(" `t`n`r$([char]11)$([char]12)".ToCharArray())) { Stop-BrokenDocument 'it is empty' }
    $content = ConvertFrom-Body $Body
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
    $names = @(foreach ($name in $resources) { Get-PlainName (Repair-Text $name) })
    if ($names.Count -eq 0) { $null = $Oddities.Add("$label names no resources.") }

    $type = Get-EntryText $Entry 'EventType'
    if (-not $type) { $type = 'Unknown' }
    if ($script:KnownTypes -cnotcontains $type) { $null = $Oddities.Add("$label has the unknown type $(Format-Repr $type).") }
    $status = Get-EntryText $Entry 'EventStatus'
    if (-not $status) { $status = 'Unknown' }
    # In any case of letters: nothing that has started may pass for something else.
    foreach ($known in @('Scheduled', 'Started')) { if ($status.Trim() -eq $known) { $status = $known } }
    if (@('Scheduled', 'Started') -cnotcontains $status) { $null = $Oddities.Add("$label has the unknown status $(Format-Repr $status).") }

    $written = [string](Get-EntryText $Entry 'NotBefore')
    $moment = ConvertFrom-EventTime $written
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
    # Half of a character is valid JSON but cannot be written as UTF-8 later on.
    param([string]$Text)
    return [regex]::Replace($Text, '[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]', '?')
}

function ConvertFrom-EventTime {
    # RFC 1123 (any weekday) or ISO 8601, as a time in UTC; null for anything else.
    param([string]$Text)
    $text = $Text.Trim()
    $utc = [System.DateTimeKind]::Utc
    $iso = [regex]::Match($text,
        '\A(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d+)?\s*(?:[Zz]|([+-])(\d\d):?(\d\d))?\z', 'ECMAScript')
    $rfc = [regex]::Match($text, '\A(?:[A-Za-z]+,\s*)?(\d{1,2})[ -]([A-Za-z]{3})[ -](\d{4}) (\d\d):(\d\d):(\d\d)(?: (\S+))?\z')
    try {
        if ($iso.Success) {
            $part = $iso.Groups
            $offset = 0
            if ($part[7].Success) { $offset = [int]$part[8].Value * 60 + [int]$part[9].Value }
            if ($part[7].Value -eq '-') { $offset = -$offset }
            $numbers = 1..6 | ForEach-Object { [int]$part[$_].Value }
        }
        elseif ($rfc.Success) {
            $part = $rfc.Groups
            $months = @('jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec')
            $month = [array]::IndexOf($months, $part[2].Value.ToLowerInvariant()) + 1
            $numbers = @([int]$part[3].Value, $month, [int]$part[1].Value) + @(4..6 | ForEach-Object { [int]$part[$_].Value })
            $offset = Get-ZoneOffset $part[7].Value
        }
        else { return $null }
        $moment = New-Object System.DateTime ($numbers[0], $numbers[1], $numbers[2], $numbers[3], $numbers[4], $numbers[5], $utc)
        return $moment.AddMinutes(-$offset)
    }
    catch { return $null }
}

function Get-ZoneOffset {
    # In minutes. What is not known counts as UTC.
    param([string]$Zone)
    if ($Zone -match '^([+-])(\d\d)(\d\d)$') {
        $minutes = [int]$Matches[2] * 60 + [int]$Matches[3]
        if ($Matches[1] -eq '-') { return -$minutes }
        return $minutes
    }
    $hours = @{ EST = -5; EDT = -4; CST = -6; CDT = -5; MST = -7; MDT = -6; PST = -8; PDT = -7; AST = -4; ADT = -3 }
    if ($hours.ContainsKey($Zone)) { return $hours[$Zone] * 60 }
    return 0
}

function Get-PlainName {
    # An Azure name without the underscore that the preview version puts before it.
    param([string]$Name)
    if ($Name.StartsWith('_', [System.StringComparison]::Ordinal)) { return $Name.Substring(1) }
    return $Name
}

function Get-SameName {
    param([string]$Name)
    return (Get-PlainName $Name).ToLowerInvariant()
}

function Get-GracefulSeenBy {
    # The document's events as the VM of that name sees them at that time.
    param($Document, $VmName, [System.DateTime]$Now)
    $seen = New-Object System.Collections.ArrayList
    foreach ($source in $Document['Events']) {
        $one = New-GracefulMap $source
        if ($null -ne $VmName) {
            $names = @(foreach ($name in $source['resources']) { Get-SameName $name })
            $one['affects_me'] = $names -ccontains (Get-SameName $VmName)
        }
        if ($null -ne $source['not_before'] -and $source['event_status'] -ceq 'Scheduled') {
            $moment = ConvertFrom-EventTime $source['not_before']
            $one['seconds_left'] = [long][Math]::Max(0, [Math]::Truncate(($moment - $Now).TotalSeconds))
        }
        $null = $seen.Add($one)
    }
    return , $seen.ToArray()
}

function Select-Event {
    # The events that every given filter lets through; an empty filter lets everything through.
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

function Get-GracefulFingerprint {
    # Equal for equal events, whatever the time at which they are looked at and their order; the same as Python's.
    param($Events)
    $lasting = [string[]]@(foreach ($one in @($Events)) {
            $copy = New-GracefulMap $one
            $copy['seconds_left'] = $null
            ConvertTo-GracefulJson $copy -Sorted
        })
    [System.Array]::Sort($lasting, [System.StringComparer]::Ordinal)
    $hash = [System.Security.Cryptography.SHA256]::Create()
    try { $bytes = $hash.ComputeHash([System.Text.Encoding]::UTF8.GetBytes($lasting -join "`n")) }
    finally { $hash.Dispose() }
    return [System.BitConverter]::ToString($bytes).Replace('-', '').ToLowerInvariant()
}

# ---- the service: the events, this VM's name, and how to approve

function New-GracefulService {
    # One VM's metadata service, as the shared options name it.
    param([System.Collections.IDictionary]$Params)
    $automatic = ([string]$Params['endpoint']).Trim() -eq 'auto'
    $endpoint = $script:VNetEndpoint
    if (-not $automatic) { $endpoint = Test-Endpoint $Params['endpoint'] }
    foreach ($name in @('connect_timeout', 'read_timeout')) {
        if (-not ($Params[$name] -gt 0 -and $Params[$name] -le 3600)) {
            throw (New-GracefulError "$name is $(Format-General $Params[$name]); give seconds greater than 0, at most 3600." 'wrong_option')
        }
    }
    if ($Params['retries'] -lt 0 -or $Params['retries'] -gt 100) {
        throw (New-GracefulError "retries is $($Params['retries']); give a number from 0 (none) to 100." 'wrong_option')
    }
    $version = ([string]$Params['api_version']).Trim()
    if (-not $version) {
        throw (New-GracefulError 'api_version is empty; leave it out, or give one such as 2020-07-01, or auto.' 'wrong_option')
    }
    # Until the service has taken one, auto goes from the newest version to the oldest.
    $choosing = $version -eq 'auto'
    if ($choosing) { $version = $script:Versions[0] }
    $fallbacks = $null
    if ($automatic) { $fallbacks = { Get-LeaseEndpoint } }
    return @{
        Endpoint = $endpoint; Fallbacks = $fallbacks; ApiVersion = $version; Choosing = $choosing; Etag = $null; Document = $null; Connection = $null
        Limits = @{
            connect_timeout = [double]$Params['connect_timeout']; read_timeout = [double]$Params['read_timeout']; retries = [int]$Params['retries']
        }
    }
}

function Read-GracefulEvents {
    # @{Document; ServiceTime; ClockOffset}: the document as it stands now, with the time by the service's own clock.
    param($Service)
    $headers = @{}
    if ($Service.Etag) { $headers['If-None-Match'] = $Service.Etag }
    $deadline = Get-Deadline $Service
    while ($true) {
        try {
            $reading = Invoke-Fetch $Service $script:EventsPath $Service.ApiVersion { param($Of, $Reply) Read-EventsReply $Of $Reply } $headers $deadline
            $Service.Choosing = $false
            return $reading
        }
        catch {
            $refusal = Get-ServiceError $_
            if (-not $Service.Choosing -or $refusal.Kind -ne 'refused' -or @(400, 404) -notcontains $refusal.Status) { throw }
            if ($Service.ApiVersion -eq $script:Versions[-1]) {
                throw (New-ServiceError ("The metadata service at $($Service.Endpoint) takes none of the API versions from " +
                        "$($script:Versions[0]) to $($script:Versions[-1]); it answered $($refusal.Status) to the last. Check endpoint, and " +
                        'that this VM has a metadata service.') 'refused' $refusal.Status)
            }
            $Service.ApiVersion = $script:Versions[[array]::IndexOf($script:Versions, $Service.ApiVersion) + 1]
        }
    }
}

function Read-EventsReply {
    param($Service, $Reply)
    if ($Reply.Status -ne 304 -or $null -eq $Service.Document) {
        try { $document = ConvertFrom-EventsDocument $Reply.Body }
        catch { Stop-Unusable $Service $script:EventsPath 'an events document' $_ }
        $document['Oddities'] = @($document['Oddities'] | ForEach-Object { Format-GracefulText $_ })
        $Service.Document = $document
        $Service.Etag = $Reply.Headers['ETag']
    }
    $now = [DateTime]::UtcNow
    $date = ConvertFrom-EventTime ([string]$Reply.Headers['Date'])
    $reading = @{ Document = $Service.Document; ServiceTime = $now; ClockOffset = $null }
    if ($null -ne $date) {
        $reading['ServiceTime'] = $date
        $reading['ClockOffset'] = [Math]::Round(($date - $now).TotalSeconds, 1)
    }
    return $reading
}

function Stop-Unusable {
    param($Service, [string]$Path, [string]$Expected, [System.Management.Automation.ErrorRecord]$Thrown)
    $broken = Get-ServiceError $Thrown
    if ($broken.Kind -ne 'broken') { throw $Thrown }
    throw (New-ServiceError ("What $($Service.Endpoint)$Path sent is not ${Expected}: $(Format-GracefulText $broken.Message). " +
        'Check what answers at endpoint.') 'passing')
}

function Get-GracefulVmName {
    # This VM's Azure name; null where the service has no instance metadata, as on classic VMs.
    param($Service)
    try {
        return Invoke-Fetch $Service $script:InstancePath $script:InstanceVersion { param($Of, $Reply) Read-NameReply $Of $Reply } @{} (Get-Deadline $Service)
    }
    catch {
        $refusal = Get-ServiceError $_
        if ($refusal.Kind -eq 'refused' -and @(400, 404, 405) -contains $refusal.Status) { return $null }
        throw
    }
}

function Read-NameReply {
    param($Service, $Reply)
    try { $content = ConvertFrom-Body $Reply.Body }
    catch { Stop-Unusable $Service $script:InstancePath 'instance metadata' $_ }
    if ($content -isnot [System.Collections.IDictionary] -or $content['compute'] -isnot [System.Collections.IDictionary]) { return $null }
    $name = $content['compute']['name']
    if ($name -is [string] -and $name) { return Get-PlainName $name }
    return $null
}

function Send-Approval {
    # Approves these events, spelled as in the document; sent once, never repeated here.
    param($Service, $EventIds, $Document)
    $content = New-GracefulMap
    $content['StartRequests'] = @(foreach ($id in $EventIds) { @{ EventId = $id } })
    if ($Service.ApiVersion -eq $script:PreviewVersion) { $content['DocumentIncarnation'] = $Document['Incarnation'] }
    $body = [System.Text.Encoding]::UTF8.GetBytes((ConvertTo-GracefulJson $content))
    $headers = @{ 'Content-Type' = 'application/json' }
    $null = Send-ToService $Service 'POST' $Service.Endpoint $script:EventsPath $Service.ApiVersion $headers $body (Get-Deadline $Service)
}

# ---- approving: which of the named events may be posted, and what became of them

function Invoke-GracefulApproval {
    # Reads, decides, posts, and reads what became of it. BeforePost is called with the ids right before each POST; an error
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
        try { Send-Approval $Service $pending $document }
        catch {
            $failure = Get-ServiceError $_
            if ($failure.Kind -eq 'refused') {
                Resolve-Refusal $Service $approval $pending $failure
                break
            }
            if ($script:PassingKinds -notcontains $failure.Kind) { throw }
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
                throw (New-GracefulError ("$($failure.Message) The approval of $(Format-List $pending) was posted " +
                        "$(Format-GracefulCount $posts 'time') and not confirmed, and after $(Format-General $script:UnconfirmedFor) s the " +
                        'document still shows Scheduled. It is probably not approved. Azure acts at NotBefore anyway; run the task again ' +
                        'to approve sooner.') 'step' (Get-ApprovalList $approval))
            }
            continue
        }
        $approval['approved'] += $pending
        Confirm-Approval $Service $approval
        break
    }
    return $approval
}

function Get-ApprovalList {
    # What the module returns.
    param($Approval)
    $lists = New-GracefulMap
    foreach ($name in @('approved', 'already_started', 'missing', 'not_leader', 'unexpected')) { $lists[$name] = @($Approval[$name]) }
    $lists['changed'] = [bool]@($Approval['approved']).Count
    return , $lists
}

function Split-Wanted {
    # Puts every wanted id into its list; what is left may be posted.
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
    return $null -ne $Of['leader'] -and (Get-SameName $Of['leader']) -ceq (Get-SameName $Name)
}

function Get-Unexpected {
    # Azure may change an event, or name more VMs in it, while the hosts get ready for what it was.
    param($Terms, $Of)
    if ($Of['event_status'] -cne 'Scheduled') {
        return "its status is $(Format-GracefulQuoted $Of['event_status']), which is not known; only Scheduled can be approved"
    }
    if ($null -ne $Terms['EventType'] -and $Of['event_type'].ToLowerInvariant() -cne ([string]$Terms['EventType']).Trim().ToLowerInvariant()) {
        return "it is now of the type $(Format-GracefulQuoted $Of['event_type']), expected was $(Format-GracefulQuoted $Terms['EventType'])"
    }
    if ($null -ne $Terms['Resources']) {
        $known = @($Terms['Resources'] | ForEach-Object { Get-SameName $_ })
        $more = @($Of['resources'] | Where-Object { $known -cnotcontains (Get-SameName $_) })
        if ($more.Count -or -not @($Of['resources']).Count) {
            $names = Format-QuotedList $more
            if (-not $names) { $names = 'no VM' }
            return "it now names $names, which was not expected"
        }
    }
    return ''
}

function Resolve-Refusal {
    # The service has answered that it does not take the POST: it is not sent again, whatever the document says.
    param($Service, $Approval, $Posted, $Refusal)
    try { $document = (Read-GracefulEvents $Service)['Document'] }
    catch {
        $unread = Get-ServiceError $_
        throw (New-GracefulError (Get-UnknownText $Posted $Refusal $unread) 'not_taken' (Get-ApprovalList $Approval))
    }
    $still = @(Split-Wanted $Approval $document $Posted)
    Assert-NotMissing $Approval 'its approval was refused'
    if ($still.Count) {
        throw (New-GracefulError ("$($Refusal.Message) Not approved: $(Format-List $still), still Scheduled. Azure acts at NotBefore " +
                'anyway; run the task again to approve sooner.') 'not_taken' (Get-ApprovalList $Approval))
    }
}

function Get-UnknownText {
    param($Posted, $Failure, $Unread)
    return "$($Failure.Message) Whether the approval of $(Format-List $Posted) was taken is unknown: $($Unread.Message) Run the task " +
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
            $unread = Get-ServiceError $_
            if ($last -or $script:PassingKinds -notcontains $unread.Kind) {
                throw (New-GracefulError (Get-UnknownText $still $Failure $unread) 'step' (Get-ApprovalList $Approval))
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
    # Nobody refused our POST, and the event has started: count it as ours rather than lose a change.
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
    # What became of the approved events; Azure may take its time, so none of it takes the approval back.
    param($Service, $Approval)
    try { $document = (Read-GracefulEvents $Service)['Document'] }
    catch {
        $Approval['warnings'] += "Approved, but the document could not be read afterwards: $((Get-ServiceError $_).Message)"
        return
    }
    foreach ($id in $Approval['approved']) {
        $status = 'gone'
        foreach ($one in $document['Events']) { if ((Get-GracefulSameId $one['event_id']) -ceq (Get-GracefulSameId $id)) { $status = $one['event_status'] } }
        if ($status -ceq 'Scheduled') { $status = 'Scheduled, approved' }
        $Approval['statuses'][$id] = $status
    }
}

function Assert-NotMissing {
    param($Approval, [string]$State)
    if ($Approval['missing'].Count -and -not $Approval['missing_ok']) {
        throw (New-GracefulError ("No such event: $(Format-List $Approval['missing']) ($State). It has completed, was cancelled, or never " +
                'was; read the current ids with graceful.azure.scheduled_events_info, or set missing=ok to accept it.'
            ) 'step' (Get-ApprovalList $Approval))
    }
}

# ---- waiting: what counts as the end of a wait, and a loop that polls until then

function New-Seen {
    # What a wait has to remember from one slice to the next, from the option.
    param($Option)
    $seen = New-GracefulMap
    $seen['answered'] = $false
    $seen['event_ids'] = @()
    $seen['fingerprint'] = ''
    $seen['started'] = $false
    $seen['times'] = New-GracefulMap
    $seen['vm_name'] = $null
    $seen['api_version'] = $null
    $seen['polls'] = 0
    $seen['elapsed'] = 0.0
    $seen['slice'] = $null
    if ($null -eq $Option) { return , $seen }
    foreach ($key in @($Option.PSBase.Keys)) {
        $value = $Option[$key]
        $number = $value -is [int] -or $value -is [long]
        $real = $number -or $value -is [double] -or $value -is [single] -or $value -is [decimal]
        $fits = switch -CaseSensitive ([string]$key) {
            'answered' { $value -is [bool] }
            'event_ids' { $value -is [System.Collections.IList] }
            'fingerprint' { $value -is [string] }
            'started' { $value -is [bool] }
            'times' { $value -is [System.Collections.IDictionary] }
            'vm_name' { $null -eq $value -or $value -is [string] }
            'api_version' { $null -eq $value -or $value -is [string] }
            'polls' { $number -or $value -is [bool] }
            'elapsed' { $real -or $value -is [bool] }
            'slice' { $null -eq $value -or $real -or $value -is [bool] }
            'continues' { $value -is [bool] }
            default { $false }
        }
        if (-not $fits) {
            throw (New-GracefulError "seen.$(Format-GracefulText $key 80) is not what an earlier wait returned; leave seen out." 'wrong_option')
        }
        if ($key -cne 'continues') { $seen[$key] = $value }
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

function Add-Sight {
    # Asked are ids that are waited for to leave: one that was never there counts as gone.
    param($Seen, $Events, $Found, $Asked)
    $now = Format-GracefulTime (Get-GracefulNow)
    $status = @{}
    foreach ($one in $Events) { $status[(Get-GracefulSameId $one['event_id'])] = $one['event_status'] }
    $times = New-GracefulMap
    $known = @(foreach ($one in $Found) { $one['event_id'] }) + @($Asked)
    foreach ($id in $known) { $times[(Get-GracefulSameId $id)] = New-GracefulMap @{ started_at = $null; gone_at = $null } }
    foreach ($id in @($Seen['times'].PSBase.Keys)) {
        $times[$id] = New-GracefulMap @{ started_at = $Seen['times'][$id]['started_at']; gone_at = $Seen['times'][$id]['gone_at'] }
    }
    foreach ($id in @($times.PSBase.Keys)) {
        $entry = $times[$id]
        if ($status[$id] -ceq 'Started' -and -not $entry['started_at']) { $entry['started_at'] = $now }
        if ($status.ContainsKey($id)) { $entry['gone_at'] = $null }
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
    # What must reach the controller before the host can go down: a slice ends when it changes.
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
    # Reads until what Params asks for holds or the time is over; a failure that may pass is only waited out.
    param($Module, $Service, $Params)
    foreach ($check in @(@('timeout', 0), @('poll_interval', 1))) {
        $name, $positive = $check
        $value = $Params[$name]
        if ($value -ge 0 -and $value -le $script:LongestWait -and ($value -gt 0 -or -not $positive)) { continue }
        $range = "give seconds from 0 (read once) to $script:LongestWait."
        if ($positive) { $range = 'give seconds greater than 0.' }
        throw (New-GracefulError "$name is $(Format-General $value); $range" 'wrong_option')
    }
    $seen = New-Seen $Params['seen']
    $filters = Get-Filter $Params
    $view = New-Viewpoint $Module $Service $Params $seen['vm_name']
    $asked = $Service.Limits
    if ($Service.Choosing -and $script:Versions -ccontains $seen['api_version']) { $Service.ApiVersion = $seen['api_version'] }
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
        # Only the first answer of a VM takes long; later, a stalled read must not hide a 30-second notice.
        $patience = $asked['read_timeout']
        if ($seen['answered']) { $patience = [Math]::Min($patience, $script:SettledReadTimeout) }
        $Service.Limits = @{
            connect_timeout = [Math]::Min($asked['connect_timeout'], $budget); read_timeout = [Math]::Min($patience, $budget); retries = 0
        }
        try {
            if ($filters['only_mine']) { $null = Get-RequiredName $view 'only_mine' }
            $look = Read-Viewpoint $view
            $seen['vm_name'] = $view.VmName
            $seen['api_version'] = $Service.ApiVersion
            $events = $look['Events']
            $found = Select-Event $events $filters
            Add-Sight $seen $events $found $leaving
            $outcome = Get-WaitOutcome $until $seen $events $found
        }
        catch {
            $failure = Get-ServiceError $_
            if ($script:PassingKinds -notcontains $failure.Kind) {
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
    # Why what was waited for did not happen, and what to do.
    param($Failure, [string]$Until, [double]$Timeout, $Found)
    $seconds = Format-General $Timeout
    if ($null -ne $Failure) { return "The service did not answer properly until the timeout of $seconds s: $($Failure.Message)" }
    $happened = @{
        appeared = 'no matching event had appeared'
        started = 'no matching event had started'
        gone = "$(Format-GracefulCount @($Found).Count 'matching event') had not left the document"
        changed = 'nothing had changed'
    }
    return "After $seconds s $($happened[$Until]). Give a longer timeout, or set on_timeout=ok and look at outcome."
}

# ---- what the modules share

function Get-GracefulServiceOption {
    return @{
        endpoint = @{ type = 'str'; default = 'auto' }
        api_version = @{ type = 'str'; default = '2020-07-01' }
        connect_timeout = @{ type = 'float'; default = 5 }
        read_timeout = @{ type = 'float'; default = 130 }
        retries = @{ type = 'int'; default = 3 }
        vm_name = @{ type = 'str' }
    }
}

function Get-GracefulFilterOption {
    return @{
        event_ids = @{ type = 'list'; elements = 'str'; aliases = @('event_id') }
        event_types = @{ type = 'list'; elements = 'str' }
        event_statuses = @{ type = 'list'; elements = 'str' }
        event_sources = @{ type = 'list'; elements = 'str' }
        only_mine = @{ type = 'bool'; default = $false }
    }
}

function Get-Filter {
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
            throw (New-GracefulError "event_statuses has $(Format-GracefulQuoted $status). Azure knows Scheduled and Started." 'wrong_option')
        }
    }
    return $filters
}

function New-Viewpoint {
    # The events as this VM sees them: its Azure name is asked of the service once, and only if it is not given.
    param($Module, $Service, $Params, $KnownName = $null)
    $given = $Params['vm_name']
    if ($null -ne $given -and -not $given.Trim()) {
        throw (New-GracefulError "vm_name is empty; leave it out to ask the service, or give the VM's Azure name." 'wrong_option')
    }
    $name = $KnownName
    if ($given) { $name = Get-PlainName $given.Trim() }
    foreach ($option in @(@('event_types', $script:KnownTypes), @('event_sources', $script:KnownSources))) {
        foreach ($one in @($Params[$option[0]] | Where-Object { $null -ne $_ -and $option[1] -notcontains $_ })) {
            # Not an error: Azure may announce what nobody knows yet.
            $Module.Warn("$($option[0]) has $(Format-GracefulQuoted $one), which is not known. Known are $($option[1] -join ', ').")
        }
    }
    return @{ Module = $Module; Service = $Service; VmName = $name; Asked = $null -ne $name; Warned = @{} }
}

function Get-ViewpointName {
    param($View)
    if (-not $View.Asked) {
        $View.VmName = Get-GracefulVmName $View.Service
        $View.Asked = $true
    }
    return $View.VmName
}

function Get-RequiredName {
    # This VM's name, for what cannot be decided without it.
    param($View, [string]$Option)
    $name = Get-ViewpointName $View
    if ($null -eq $name) {
        throw (New-GracefulError ("$Option needs this VM's Azure name, which the service does not tell (a classic VM?). Set vm_name."
            ) 'wrong_option')
    }
    return $name
}

function Read-Viewpoint {
    # @{Events; Incarnation; ClockOffset} as this VM sees them now.
    param($View)
    $reading = Read-GracefulEvents $View.Service
    $texts = @()
    if ($null -eq (Get-ViewpointName $View)) {
        $texts += "The service does not tell this VM's Azure name (a classic VM?): vm_name and affects_me are null. Set vm_name to the " +
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

function Get-GracefulEventsInfo {
    # What win_scheduled_events_info returns.
    param($Module, $Service, $Params)
    $view = New-Viewpoint $Module $Service $Params
    $filters = Get-Filter $Params
    if ($filters['only_mine']) { $null = Get-RequiredName $view 'only_mine' }
    $look = Read-Viewpoint $view
    $result = New-GracefulMap
    $result['events'] = Select-Event $look['Events'] $filters
    $result['document_incarnation'] = $look['Incarnation']
    $result['vm_name'] = $view.VmName
    $result['api_version'] = $Service.ApiVersion
    $result['endpoint'] = $Service.Endpoint
    $result['clock_offset'] = $look['ClockOffset']
    return , $result
}

function Approve-GracefulEvent {
    # What win_scheduled_event_approve does and returns.
    param($Module, $Service, $Params)
    $ids = @($Params['event_ids'])
    if (-not $ids.Count -or @($ids | Where-Object { -not $_.Trim() }).Count) {
        throw (New-GracefulError ('event_ids names no event, or an empty one. Give the ids that scheduled_events_info returns.'
            ) 'wrong_option')
    }
    $terms = @{ Leader = $null; Resources = $Params['expected_resources']; EventType = $Params['expected_type'] }
    if ($Params['leader_only']) { $terms['Leader'] = Get-RequiredName (New-Viewpoint $Module $Service $Params) 'leader_only' }
    $missingOk = $Params['missing'] -eq 'ok'
    $approval = Invoke-GracefulApproval $Service $ids $terms -MissingOk:$missingOk -CheckMode:$Module.CheckMode
    foreach ($warning in (@($approval['warnings']) + @($approval['refusals']))) { $Module.Warn($warning) }
    $result = New-GracefulMap (Get-ApprovalList $approval)
    $before = New-GracefulMap
    $after = New-GracefulMap
    foreach ($id in $approval['approved']) {
        $before[$id] = 'Scheduled'
        $after[$id] = 'Started'
        if ($approval['statuses'].ContainsKey($id)) { $after[$id] = $approval['statuses'][$id] }
    }
    $result['diff'] = @{ before = $before; after = $after }
    if (@($approval['refusals']).Count) { $result['msg'] = @($approval['refusals']) -join ' ' }
    return , $result
}

function Invoke-GracefulEventsModule {
    # Does the work with the service that the options name, and ends the module with its result or its error.
    param($Module, [scriptblock]$Work)
    try { $result = & $Work $Module (New-GracefulService $Module.Params) $Module.Params }
    catch {
        $known = Get-GracefulError $_
        if ($null -eq $known) { throw }
        foreach ($name in @($known.Fields.PSBase.Keys)) { $Module.Result[$name] = $known.Fields[$name] }
        $Module.FailJson($known.Message)
    }
    foreach ($name in @($result.PSBase.Keys)) { $Module.Result[$name] = $result[$name] }
    $Module.ExitJson()
}

Export-ModuleMember -Function @(
    'New-GracefulService', 'Read-GracefulEvents', 'Get-GracefulVmName', 'Get-GracefulSeenBy', 'Get-GracefulFingerprint',
    'Invoke-GracefulApproval', 'Get-GracefulServiceOption', 'Get-GracefulFilterOption', 'Get-GracefulEventsInfo',
    'Approve-GracefulEvent', 'Wait-GracefulEvent', 'Invoke-GracefulEventsModule'
)
