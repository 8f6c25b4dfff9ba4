# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Requests to other services and ports, as _peer.py: without proxies and redirects, with a time limit. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

function Invoke-GracefulRequest {
    # Returns @{Status; Message}; the status is null if there is no response. The body is not read.
    param(
        [string]$Url,
        [double]$Seconds,
        [string]$Method = 'GET',
        [System.Collections.IDictionary]$Headers = @{},
        [string]$User,
        [string]$Secret,
        [switch]$NoVerify
    )
    $shown = Format-GracefulText $Url 200
    $response = $null
    try {
        Enable-Tls12
        $request = [System.Net.HttpWebRequest][System.Net.WebRequest]::Create($Url)
        $request.Method = $Method.ToUpperInvariant()
        $request.AllowAutoRedirect = $false
        $request.KeepAlive = $false
        $request.Proxy = $null
        $milliseconds = [int][Math]::Max(100, [Math]::Min(3600000, $Seconds * 1000))
        $request.Timeout = $milliseconds
        $request.ReadWriteTimeout = $milliseconds
        if ($NoVerify) { $request.ServerCertificateValidationCallback = Get-AnyCertificate }
        if (@('POST', 'PUT', 'PATCH') -contains $request.Method) { $request.ContentLength = 0 }
        if ($null -ne $Headers) {
            foreach ($name in @($Headers.PSBase.Keys)) { Set-Header $request ([string]$name) ([string]$Headers[$name]) }
        }
        if ($User) {
            $login = [System.Text.Encoding]::UTF8.GetBytes("${User}:$Secret")
            $request.Headers['Authorization'] = 'Basic ' + [Convert]::ToBase64String($login)
        }
        # Waited for here, since the timeout of the request does not include the name lookup.
        $answer = $request.GetResponseAsync()
        if (-not $answer.Wait($milliseconds)) {
            $request.Abort()
            return @{ Status = $null; Message = "$shown does not answer (no complete answer within $(Format-GracefulNumber $Seconds) s)" }
        }
        $response = $answer.Result
    }
    catch {
        # Most statuses raise an exception.
        $thrown = $_.Exception
        while ($null -ne $thrown -and $thrown -isnot [System.Net.WebException]) { $thrown = $thrown.InnerException }
        if ($null -eq $thrown -or $null -eq $thrown.Response) {
            return @{ Status = $null; Message = "$shown does not answer ($(Get-GracefulReason $_))" }
        }
        $response = $thrown.Response
    }
    $status = [int]$response.StatusCode
    $response.Close()
    return @{ Status = $status; Message = "$shown answers $status" }
}

function Test-GracefulPort {
    # Whether a port of this host takes connections.
    param([int]$Port, [double]$Seconds)
    $client = New-Object System.Net.Sockets.TcpClient
    try {
        $connected = $client.ConnectAsync('127.0.0.1', $Port)
        if ($connected.Wait([int][Math]::Max(100, $Seconds * 1000))) {
            return @{ Holds = $true; Message = "127.0.0.1:$Port takes connections" }
        }
        $why = "no complete answer within $(Format-GracefulNumber $Seconds) s"
    }
    catch { $why = Get-GracefulReason $_ }
    finally { $client.Close() }
    return @{ Holds = $false; Message = "127.0.0.1:$Port takes no connection ($why)" }
}

function Set-Header {
    param([System.Net.HttpWebRequest]$Request, [string]$Name, [string]$Value)
    # .NET has separate properties for these.
    switch ($Name) {
        'Host' { $Request.Host = $Value }
        'User-Agent' { $Request.UserAgent = $Value }
        'Accept' { $Request.Accept = $Value }
        'Content-Type' { $Request.ContentType = $Value }
        'Referer' { $Request.Referer = $Value }
        default { $Request.Headers[$Name] = $Value }
    }
}

function Get-AnyCertificate {
    # Compiled, since a script block cannot run on the thread that checks a certificate.
    $types = @(
        [object], [System.Security.Cryptography.X509Certificates.X509Certificate],
        [System.Security.Cryptography.X509Certificates.X509Chain], [System.Net.Security.SslPolicyErrors]
    )
    $parameters = [System.Linq.Expressions.ParameterExpression[]]@(
        foreach ($type in $types) { [System.Linq.Expressions.Expression]::Parameter($type) }
    )
    $yes = [System.Linq.Expressions.Expression]::Constant($true)
    $lambda = [System.Linq.Expressions.Expression]::Lambda(
        [System.Net.Security.RemoteCertificateValidationCallback], $yes, $parameters)
    return $lambda.Compile()
}

function Enable-Tls12 {
    # Older versions of .NET do not offer it by default. 0 leaves the choice to the system.
    $now = [int][System.Net.ServicePointManager]::SecurityProtocol
    if ($now -ne 0) { [System.Net.ServicePointManager]::SecurityProtocol = $now -bor 3072 }
}

Export-ModuleMember -Function 'Invoke-GracefulRequest', 'Test-GracefulPort'
