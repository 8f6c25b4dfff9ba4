# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The metadata service, as _transport.py, _client.py, _endpoint.py and _service.py. Windows PowerShell 5.1 syntax.
# tests/integration has the cases for both languages.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._EventsDocument

Set-StrictMode -Version 2.0

$script:UserAgent = 'graceful.azure/0.2.0'
$script:MaxBody = 1048576
$script:LongestLine = 65536
$script:MostHeaders = 100
$script:VNetEndpoint = 'http://169.254.169.254'
$script:EventsPath = '/metadata/scheduledevents'
$script:InstancePath = '/metadata/instance'
$script:InstanceVersion = '2021-02-01'
$script:PreviewVersion = '2017-03-01'
# Seconds until a VM that has no name, such as a classic one, is asked for it again.
$script:NameAgain = 60.0
# api_version=auto tries them in this order.
$script:Versions = @(
    '2024-07-09', '2020-07-01', '2019-08-01', '2019-04-01', '2019-01-01', '2017-11-01', '2017-08-01', $script:PreviewVersion
)
$script:PassingStatuses = @(410, 429, 500, 502, 503, 504)
$script:ProxyAgentLog = 'C:\WindowsAzure\ProxyAgent\Logs\ProxyAgent.Connection.log'
$script:Latin1 = [System.Text.Encoding]::GetEncoding(28591)
$script:Invariant = [System.Globalization.CultureInfo]::InvariantCulture
# Windows has these messages in the language of the host.
$script:SocketErrors = @{
    ConnectionRefused = 'Connection refused'; ConnectionReset = 'Connection reset by peer'; TimedOut = 'Connection timed out'
    HostUnreachable = 'No route to host'; NetworkUnreachable = 'Network is unreachable'; AccessDenied = 'Permission denied'
    HostNotFound = 'Name or service not known'; NoData = 'Name or service not known'
    TryAgain = 'Temporary failure in name resolution'; ConnectionAborted = 'Software caused connection abort'
}

# ---- bytes: one HTTP request at a time over one kept-alive connection, bounded in time and size. No proxy, redirect or retry.

function Send-Request {
    param(
        $Service, [string]$Method, [string]$Endpoint, [string]$Path, [System.Collections.IDictionary]$Headers, [byte[]]$Body,
        [double]$TotalTimeout
    )
    $where = "The metadata service at $Endpoint"
    $deadline = (Get-GracefulMonotonic) + $TotalTimeout
    $lines = @(
        "$Method $Path HTTP/1.1", "Host: $(([Uri]$Endpoint).Authority)", 'Metadata: true', "User-Agent: $script:UserAgent",
        'Accept-Encoding: identity'
    )
    foreach ($name in $Headers.Keys) { $lines += "${name}: $($Headers[$name])" }
    if ($null -ne $Body) { $lines += "Content-Length: $($Body.Length)" }
    $head = $script:Latin1.GetBytes(($lines -join "`r`n") + "`r`n`r`n")

    $client = Get-Connection $Service $Endpoint
    if ($null -eq $client) { $client = Connect-Endpoint $where $Endpoint ([Math]::Min($Service.Limits['connect_timeout'], $TotalTimeout)) }
    $reply = $null
    try {
        $stream = $client.GetStream()
        $stream.WriteTimeout = [int][Math]::Max(1, [Math]::Ceiling($TotalTimeout * 1000))
        $stream.Write($head, 0, $head.Length)
        if ($null -ne $Body) { $stream.Write($Body, 0, $Body.Length) }
        $reply = Read-Reply $where $stream $deadline
        return $reply
    }
    catch {
        if ($null -ne (Get-GracefulError $_)) { throw }
        # A timer may end a moment early.
        if ((Get-GracefulMonotonic) -ge $deadline - 0.1) {
            throw (New-GracefulError ("$where did not finish its answer within $(Format-GracefulNumber $TotalTimeout) s. The first " +
                    'request of a VM may take two minutes: leave read_timeout above 120 for it.') 'passing')
        }
        throw (New-GracefulError "$where closed the connection ($(Get-SocketReason $_))." 'passing')
    }
    finally {
        if ($null -ne $reply -and $reply.Reusable) { $Service.Connection = @{ Endpoint = $Endpoint; Client = $client } }
        else { $client.Close() }
    }
}

function Get-Connection {
    # The connection of the last request, if it is to that endpoint and still open; otherwise null.
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
    param([string]$Where, [string]$Endpoint, [double]$Timeout)
    $uri = [Uri]$Endpoint
    $family = [System.Net.Sockets.AddressFamily]::InterNetwork
    if ($uri.HostNameType -eq 'IPv6') { $family = [System.Net.Sockets.AddressFamily]::InterNetworkV6 }
    $client = New-Object System.Net.Sockets.TcpClient ($family)
    try {
        $begun = $client.BeginConnect($uri.DnsSafeHost, $uri.Port, $null, $null)
        if (-not $begun.AsyncWaitHandle.WaitOne([int][Math]::Max(1, $Timeout * 1000))) {
            throw (New-GracefulError ("$Where did not accept the connection within $(Format-GracefulNumber $Timeout 6) s. Is this an Azure " +
                    'VM with its primary network interface up, and is the address not blocked by a firewall or routed elsewhere?'
                ) 'no_connection')
        }
        $client.EndConnect($begun)
    }
    catch {
        $client.Close()
        if ($null -ne (Get-GracefulError $_)) { throw }
        throw (New-GracefulError ("$Where cannot be reached ($(Get-SocketReason $_)). Check that this is an Azure VM, and that endpoint is correct."
            ) 'no_connection')
    }
    return $client
}

function Get-SocketReason {
    # Windows has these messages in the language of the host.
    param([System.Management.Automation.ErrorRecord]$Thrown)
    $inner = $Thrown.Exception.GetBaseException()
    if ($inner -is [System.Net.Sockets.SocketException] -and $script:SocketErrors.ContainsKey([string]$inner.SocketErrorCode)) {
        return $script:SocketErrors[[string]$inner.SocketErrorCode]
    }
    return Get-GracefulReason $Thrown 600
}

function Read-Reply {
    # Returns @{Status; Headers; Body; Reusable}. The deadline is for the whole response.
    param([string]$Where, [System.IO.Stream]$Stream, [double]$Deadline)
    # In Latin-1 each character is a byte. The stream stays open for the next request.
    $reader = @{ Stream = $Stream; Text = (New-Object System.IO.StreamReader ($Stream, $script:Latin1, $false, 65536, $true)); Deadline = $Deadline }
    do {
        $first = Read-Line $reader
        if ($null -eq $first) { Stop-BrokenOff $Where 'Remote end closed connection without response' }
        if ($first -notmatch '^HTTP/([0-9.]+) +([0-9]{3})(?: .*)?$') { Stop-BrokenOff $Where (Format-GracefulText $first 200) }
        $version, $status = $Matches[1], [int]$Matches[2]
        $headers = New-Object System.Collections.Hashtable ([System.StringComparer]::OrdinalIgnoreCase)
        while ($line = Read-Line $reader) {
            $name, $value = $line -split ':', 2
            if ($null -ne $value) { $headers[$name.Trim()] = $value.Trim() }
            if ($headers.PSBase.Count -gt $script:MostHeaders) { Stop-BrokenOff $Where 'it has too many headers' }
        }
        # Responses below 200 are informational.
    } while ($status -ge 100 -and $status -lt 200)

    $announced = [string]$headers['Content-Length']
    $delimited = $true
    $body = ''
    if (([string]$headers['Transfer-Encoding']).Trim() -eq 'chunked') { $body = Read-Chunk $Where $reader }
    elseif ($status -ne 204 -and $status -ne 304) {
        $delimited = $announced -match '^[0-9]{1,18}$'
        $wanted = $script:MaxBody + 1
        if ($delimited) { $wanted = [Math]::Min([long]$announced, $wanted) }
        $body = Read-Body $reader $wanted
        if ($delimited -and $body.Length -lt $wanted) {
            throw (New-GracefulError "$Where sent only $($body.Length) of $announced bytes." 'passing')
        }
    }
    if ($body.Length -gt $script:MaxBody) {
        throw (New-GracefulError ("$Where sent more than 1 MiB, which no Scheduled Events document needs. " +
                "Check that endpoint is Azure's metadata service.") 'refused')
    }
    $closes = $version -cne '1.1' -or [string]$headers['Connection'] -match '\bclose\b'
    return @{ Status = $status; Headers = $headers; Body = $script:Latin1.GetBytes($body); Reusable = $delimited -and -not $closes }
}

function Read-Chunk {
    # A body in chunks. Reading ends when it is larger than allowed.
    param([string]$Where, $Reader)
    $body = New-Object System.Text.StringBuilder
    while ($body.Length -le $script:MaxBody) {
        $size = ([string](Read-Line $Reader) -split ';', 2)[0].Trim()
        if ($size -notmatch '^[0-9A-Fa-f]{1,8}$') { Stop-BrokenOff $Where 'its answer is not complete' }
        $wanted = [Math]::Min([Convert]::ToInt64($size, 16), $script:MaxBody + 1)
        $piece = Read-Body $Reader $wanted
        if ($piece.Length -lt $wanted) { Stop-BrokenOff $Where 'its answer is not complete' }
        $null = $body.Append($piece)
        # The line end after the chunk; the last chunk may be followed by headers.
        while ((Read-Line $Reader) -and -not $wanted) { }
        if (-not $wanted) { break }
    }
    return $body.ToString()
}

function Read-Line {
    # A line without its end; null if the connection is closed before that.
    param($Reader)
    $line = New-Object System.Text.StringBuilder
    Set-ReadTimeout $Reader
    while ($line.Length -lt $script:LongestLine) {
        # If nothing is buffered, the next read may take the time that is left.
        if ($Reader.Text.Peek() -lt 0) { Set-ReadTimeout $Reader }
        $next = $Reader.Text.Read()
        if ($next -lt 0) { return $null }
        if ($next -eq 10) { return $line.ToString().TrimEnd("`r") }
        $null = $line.Append([char]$next)
    }
    throw (New-Object System.FormatException ('a line of its answer is too long'))
}

function Read-Body {
    # So many bytes; fewer if the connection is closed before that.
    param($Reader, [int]$Count)
    $text = New-Object char[] $Count
    $read = 0
    while ($read -lt $Count) {
        Set-ReadTimeout $Reader
        $piece = $Reader.Text.Read($text, $read, $Count - $read)
        if ($piece -le 0) { break }
        $read += $piece
    }
    return New-Object string ($text, 0, $read)
}

function Set-ReadTimeout {
    param($Reader)
    $left = $Reader.Deadline - (Get-GracefulMonotonic)
    if ($left -le 0) { throw (New-Object System.TimeoutException) }
    $Reader.Stream.ReadTimeout = [int][Math]::Ceiling($left * 1000)
}

function Stop-BrokenOff {
    param([string]$Where, [string]$Why)
    throw (New-GracefulError "$Where closed the connection ($Why)." 'passing')
}

# ---- HTTP: which answers are final, which failures pass, and when to ask again

function Get-AnswerError {
    # The error for a response other than 200.
    param([string]$What, $Reply, [string]$ApiVersion)
    $status = $Reply.Status
    try { $content = ConvertFrom-GracefulBody $Reply.Body } catch { $content = $null }
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
        return New-GracefulError $said 'passing' @{} $status (Get-RetryAfter $Reply)
    }
    if ($status -ge 300 -and $status -lt 400) {
        $target = 'nowhere'
        if ($Reply.Headers.ContainsKey('Location')) { $target = $Reply.Headers['Location'] }
        return New-GracefulError ("$said It redirects to $(Format-GracefulQuoted $target 200), which the metadata service never does and " +
            'which is not followed. Check endpoint, and what answers at that address.') 'refused' @{} $status
    }
    if ($status -eq 401 -or $status -eq 403) {
        $user = [Environment]::UserName
        try { $user = [System.Security.Principal.WindowsIdentity]::GetCurrent().Name }
        catch { Write-Debug 'The name without its domain has to do.' }
        return New-GracefulError ("$said The Metadata Security Protocol is enforced on this VM: its guest proxy agent lets only allowed " +
            "users, groups and processes through, and this request came from the user $(Format-GracefulQuoted $user). Allow it in the " +
            "agent's rules, or run the task as a user that is allowed. The agent logs what it refuses in $script:ProxyAgentLog."
        ) 'refused' @{} $status
    }
    if ($offered.Count) {
        return New-GracefulError "$said Set api_version to one that it offers: $($offered -join ', '); or to auto." 'refused' @{} $status
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
    return New-GracefulError "$said $advice" 'refused' @{} $status
}

function Get-RetryAfter {
    param($Reply)
    if (-not $Reply.Headers.ContainsKey('Retry-After')) { return $null }
    $value = [string]$Reply.Headers['Retry-After']
    $moment = ConvertFrom-GracefulTime $value
    $seconds = 0.0
    if ($null -ne $moment) { $seconds = ($moment - [DateTime]::UtcNow).TotalSeconds }
    elseif (-not [double]::TryParse($value, [System.Globalization.NumberStyles]::Float, $script:Invariant, [ref]$seconds)) { return $null }
    if ([double]::IsNaN($seconds)) { return $null }
    return [Math]::Min([Math]::Max($seconds, 1.0), 30.0)
}

function Get-Deadline {
    # When a request that begins now has to be done, including all retries.
    param($Service)
    return (Get-GracefulMonotonic) + $Service.Limits['connect_timeout'] + $Service.Limits['read_timeout']
}

function Invoke-Fetch {
    # GET, with retries as long as the error may be temporary and there is time.
    param($Service, [string]$Path, [string]$ApiVersion, [scriptblock]$Decode, [System.Collections.IDictionary]$Headers, [double]$Deadline)
    $begin = Get-GracefulMonotonic
    $tries = 0
    while ($true) {
        $tries++
        try { return & $Decode $Service (Get-Reply $Service $Path $ApiVersion $Headers $Deadline) }
        catch {
            $failure = Resolve-GracefulError $_
            if (-not $failure.Passing) { throw }
            $elapsed = (Get-GracefulMonotonic) - $begin
            $pause = Get-Pause $Service $failure $tries $elapsed
            if ($null -eq $pause -or $elapsed + $pause -ge $Deadline - $begin) {
                $times = Format-GracefulCount $tries 'time'
                $message = "$($failure.Message) Tried $times in $($elapsed.ToString('F1', $script:Invariant)) s."
                throw (New-GracefulError $message $failure.Kind $failure.Fields $failure.Status $failure.RetryAfter)
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
    # From the first endpoint that accepts a connection; later requests go there, too.
    param($Service, [string]$Path, [string]$ApiVersion, [System.Collections.IDictionary]$Headers, [double]$Deadline)
    try { return Send-ToService $Service 'GET' $Service.Endpoint $Path $ApiVersion $Headers $null $Deadline }
    catch {
        $failure = Resolve-GracefulError $_
        if ($failure.Kind -ne 'no_connection' -or -not $Service.Fallbacks) { throw }
        $attempts = @($failure.Message)
        foreach ($endpoint in @(& $Service.Fallbacks)) {
            try {
                $reply = Send-ToService $Service 'GET' $endpoint $Path $ApiVersion $Headers $null $Deadline
                $Service.Endpoint = $endpoint
                $Service.Fallbacks = $null
                return $reply
            }
            catch { $attempts += (Resolve-GracefulError $_).Message }
        }
        throw (New-GracefulError ($attempts -join ' ') 'no_connection')
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
    $uri = $null
    if (-not [Uri]::TryCreate($Endpoint.Trim(), [UriKind]::Absolute, [ref]$uri)) { $why = 'is not a URL' }
    elseif ($uri.Scheme -ne 'http') { $why = "has the scheme $($uri.Scheme); the metadata service speaks plain http" }
    elseif ($uri.UserInfo) { $why = 'has a user name or password, which the service does not ask for' }
    elseif ($uri.PathAndQuery -ne '/' -or $uri.Fragment) { $why = 'has more than a host' }
    else { return $uri.GetLeftPart([UriPartial]::Authority) }
    throw (New-GracefulError ("endpoint $(Format-GracefulQuoted $Endpoint 200) $why. Give the scheme and host only, such as " +
            'http://169.254.169.254 or http://127.0.0.1:8080, or auto.') 'wrong_option')
}

function Get-LeaseEndpoint {
    # For VMs outside of a VNet: DHCP option 245, or where Microsoft's samples have stored it.
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
    # Compiled only when needed, which is rare. Any failure here means that there is no such address.
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

# ---- the service: the events, this VM's name, and how to approve

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

function New-GracefulService {
    # The metadata service that the shared options describe.
    param([System.Collections.IDictionary]$Params)
    $automatic = ([string]$Params['endpoint']).Trim() -eq 'auto'
    $endpoint = $script:VNetEndpoint
    if (-not $automatic) { $endpoint = Test-Endpoint $Params['endpoint'] }
    foreach ($name in @('connect_timeout', 'read_timeout')) {
        if (-not ($Params[$name] -gt 0 -and $Params[$name] -le 3600)) {
            throw (New-GracefulError "$name is $(Format-GracefulNumber $Params[$name] 6); give seconds greater than 0, at most 3600." 'wrong_option')
        }
    }
    if ($Params['retries'] -lt 0 -or $Params['retries'] -gt 100) {
        throw (New-GracefulError "retries is $($Params['retries']); give a number from 0 (none) to 100." 'wrong_option')
    }
    $version = ([string]$Params['api_version']).Trim()
    if (-not $version) {
        throw (New-GracefulError 'api_version is empty; leave it out, or give one such as 2020-07-01, or auto.' 'wrong_option')
    }
    # With auto, versions are tried from the newest to the oldest until the service accepts one.
    $choosing = $version -eq 'auto'
    if ($choosing) { $version = $script:Versions[0] }
    $fallbacks = $null
    if ($automatic) { $fallbacks = { Get-LeaseEndpoint } }
    return @{
        Endpoint = $endpoint; Fallbacks = $fallbacks; ApiVersion = $version; Choosing = $choosing; Etag = $null; Document = $null; Connection = $null; AskNameAt = 0.0
        Limits = @{
            connect_timeout = [double]$Params['connect_timeout']; read_timeout = [double]$Params['read_timeout']; retries = [int]$Params['retries']
        }
    }
}

function Read-GracefulEvents {
    # Returns @{Document; ServiceTime; ClockOffset}: the current document, and the time by the clock of the service.
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
            $refusal = Resolve-GracefulError $_
            if (-not $Service.Choosing -or $refusal.Kind -ne 'refused' -or @(400, 404) -notcontains $refusal.Status) { throw }
            if ($Service.ApiVersion -eq $script:Versions[-1]) {
                throw (New-GracefulError ("The metadata service at $($Service.Endpoint) supports none of the API versions from " +
                        "$($script:Versions[0]) to $($script:Versions[-1]); it answered $($refusal.Status) to the last. Check endpoint, and " +
                        'that this VM has a metadata service.') 'refused' @{} $refusal.Status)
            }
            $Service.ApiVersion = $script:Versions[[array]::IndexOf($script:Versions, $Service.ApiVersion) + 1]
        }
    }
}

function Read-EventsReply {
    param($Service, $Reply)
    if ($Reply.Status -ne 304 -or $null -eq $Service.Document) {
        try { $document = ConvertFrom-GracefulDocument $Reply.Body }
        catch { Stop-Unusable $Service $script:EventsPath 'an events document' $_ }
        $document['Oddities'] = @($document['Oddities'] | ForEach-Object { Format-GracefulText $_ })
        $Service.Document = $document
        $Service.Etag = $Reply.Headers['ETag']
    }
    $now = [DateTime]::UtcNow
    $date = ConvertFrom-GracefulTime ([string]$Reply.Headers['Date'])
    $reading = @{ Document = $Service.Document; ServiceTime = $now; ClockOffset = $null }
    if ($null -ne $date) {
        $reading['ServiceTime'] = $date
        $reading['ClockOffset'] = [Math]::Round(($date - $now).TotalSeconds, 1)
    }
    return $reading
}

function Stop-Unusable {
    param($Service, [string]$Path, [string]$Expected, [System.Management.Automation.ErrorRecord]$Thrown)
    $broken = Resolve-GracefulError $Thrown
    if ($broken.Kind -ne 'broken') { throw $Thrown }
    throw (New-GracefulError ("The response of $($Service.Endpoint)$Path is not ${Expected}: $(Format-GracefulText $broken.Message). " +
        'Check which service is at endpoint.') 'passing')
}

function Get-GracefulVmName {
    # This VM's Azure name; null where the service has no instance metadata, as on classic VMs.
    param($Service)
    if ((Get-GracefulMonotonic) -lt $Service.AskNameAt) { return $null }
    $name = $null
    try {
        $name = Invoke-Fetch $Service $script:InstancePath $script:InstanceVersion { param($Of, $Reply) Read-NameReply $Of $Reply } @{} (Get-Deadline $Service)
    }
    catch {
        $refusal = Resolve-GracefulError $_
        if ($refusal.Kind -ne 'refused' -or @(400, 404, 405) -notcontains $refusal.Status) { throw }
    }
    if ($null -eq $name) { $Service.AskNameAt = (Get-GracefulMonotonic) + $script:NameAgain }
    return $name
}

function Read-NameReply {
    param($Service, $Reply)
    try { $content = ConvertFrom-GracefulBody $Reply.Body }
    catch { Stop-Unusable $Service $script:InstancePath 'instance metadata' $_ }
    if ($content -isnot [System.Collections.IDictionary] -or $content['compute'] -isnot [System.Collections.IDictionary]) { return $null }
    $name = $content['compute']['name']
    if ($name -is [string] -and $name) { return Get-GracefulPlainName $name }
    return $null
}

function Send-GracefulApproval {
    # Sends one POST for these events, with their ids as in the document.
    param($Service, $EventIds, $Document)
    $content = New-GracefulMap
    $content['StartRequests'] = @(foreach ($id in $EventIds) { @{ EventId = $id } })
    if ($Service.ApiVersion -eq $script:PreviewVersion) { $content['DocumentIncarnation'] = $Document['Incarnation'] }
    $body = [System.Text.Encoding]::UTF8.GetBytes((ConvertTo-GracefulJson $content))
    $headers = @{ 'Content-Type' = 'application/json' }
    $null = Send-ToService $Service 'POST' $Service.Endpoint $script:EventsPath $Service.ApiVersion $headers $body (Get-Deadline $Service)
}

function Use-GracefulApiVersion {
    # The version that an earlier call has found, so that it is not searched for again.
    param($Service, [string]$ApiVersion)
    if ($Service.Choosing -and $script:Versions -ccontains $ApiVersion) { $Service.ApiVersion = $ApiVersion }
}

Export-ModuleMember -Function @(
    'Get-GracefulServiceOption', 'New-GracefulService', 'Read-GracefulEvents', 'Get-GracefulVmName', 'Send-GracefulApproval',
    'Use-GracefulApiVersion'
)
