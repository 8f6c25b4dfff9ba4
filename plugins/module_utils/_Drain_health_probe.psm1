# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The host leaves its load balancer by what its health URL answers, as _drains/health_probe.py. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Peer

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

function Get-GracefulDrain_health_probe {
    return @{
        CarriesTraffic = $true
        Look = {
            param($Options, $Tools)
            $answer = Get-Answer $Options $Tools
            $isOut = Test-Marker $Options
            if ($null -eq $isOut -and -not $answer.Healthy) {
                # One bad answer is not enough: a load balancer would not act on it either.
                $longer = Get-LongerAnswer $Options $Tools $answer
                $answer = $longer.Answer
                $isOut = $longer.IsOut
            }
            $out = [bool]$isOut
            return @{ Done = $out -and -not $answer.Healthy; Message = $answer.Message; Before = @{ in_service = -not $out } }
        }
        Do = {
            param($Options, $Tools)
            # After an interrupted attempt, a later step may have stopped the application.
            if ($Options['must_answer'] -and -not $Tools.Begun) { Confirm-Answer $Options $Tools }
            return @{ Message = (Set-Traffic $Options $Tools $true); Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            return (Set-Traffic $Options $Tools $false)
        }
    }
}

function Invoke-Url {
    param($Options, [string]$Url, [double]$Seconds, [string]$Method)
    return Invoke-GracefulRequest -Url $Url -Seconds $Seconds -Method $Method -Headers $Options['headers'] `
        -User $Options['username'] -Secret $Options['password'] -NoVerify
}

function Get-Answer {
    param($Options, $Tools)
    $answer = Invoke-Url $Options $Options['url'] (& $Tools.RequestTimeout 5) 'GET'
    $answer.Healthy = $null -ne $answer.Status -and @($Options['healthy']) -contains $answer.Status
    return $answer
}

function Get-LongerAnswer {
    # The last answer, and whether none was healthy for as long as a load balancer needs to notice.
    param($Options, $Tools, $First)
    $seen = @{ Answer = $First }
    $lasting = Get-Lasting $Options
    $hasTime = (& $Tools.Left) -ge $lasting
    $probe = {
        $seen.Answer = Get-Answer $Options $Tools
        return @{ Holds = $seen.Answer.Healthy; Message = $seen.Answer.Message }
    }
    try { $null = & $Tools.Until $probe $lasting (Get-Pause $Options) }
    catch {
        if ((Resolve-GracefulError $_).Kind -ne 'late') { throw }
        return @{ Answer = $seen.Answer; IsOut = $hasTime }
    }
    return @{ Answer = $seen.Answer; IsOut = $false }
}

function Confirm-Answer {
    param($Options, $Tools)
    $answer = Get-Answer $Options $Tools
    if (-not $answer.Healthy -and [int]$answer.Status -lt 500) {
        Stop-GracefulStep ("$($answer.Message), which is neither healthy nor out of service, so nothing could be proven with it. " +
            "Correct the step's url, or name what is healthy; if the application is meant to be like this, set must_answer to false.")
    }
}

function Set-Traffic {
    # Takes the host out of service or back, and verifies it for as long as a load balancer needs to notice.
    param($Options, $Tools, [bool]$Out)
    if ((Test-Marker $Options) -ne $Out) {
        if ($Options['marker']) { Set-Marker $Options $Out } else { Send-Url $Options $Tools $Out }
    }
    $lasting = Get-Lasting $Options
    $probe = {
        $answer = Get-Answer $Options $Tools
        return @{ Holds = $answer.Healthy -ne $Out; Message = $answer.Message }
    }
    $message = & $Tools.Until $probe $null (Get-Pause $Options) $lasting
    return "$message, for $(Format-GracefulNumber $lasting) s"
}

function Get-Lasting {
    param($Options)
    return [double]$Options['interval'] * [double]$Options['threshold']
}

function Get-Pause {
    param($Options)
    return [Math]::Min([double]$Options['interval'], 1.0)
}

function Test-Marker {
    # Whether the marker says that the host is out; null if only the health URL can tell.
    param($Options)
    if (-not $Options['marker']) { return $null }
    $there = $true
    try { $null = [System.IO.File]::GetAttributes((Get-GracefulLongPath $Options['marker'])) }
    catch {
        $why = $_.Exception.GetBaseException()
        if ($why -isnot [System.IO.FileNotFoundException] -and $why -isnot [System.IO.DirectoryNotFoundException]) {
            Stop-GracefulStep "The marker $(Format-GracefulText $Options['marker'] 200) cannot be looked at: $(Format-GracefulText $why.Message 200)"
        }
        $there = $false
    }
    return $there -eq ($Options['marker_means'] -eq 'out')
}

function Set-Marker {
    param($Options, [bool]$Out)
    $path = Get-GracefulLongPath $Options['marker']
    $shown = Format-GracefulText $Options['marker'] 200
    $make = $Out -eq ($Options['marker_means'] -eq 'out')
    try {
        if (-not $make) { [System.IO.File]::Delete($path) }
        elseif (-not [System.IO.File]::Exists($path)) { [System.IO.File]::Open($path, 'CreateNew', 'Write').Close() }
    }
    catch {
        $why = $_.Exception.GetBaseException()
        if ($why -is [System.IO.DirectoryNotFoundException]) {
            if (-not $make) { return }
            Stop-GracefulStep "The marker $shown cannot be made: its folder does not exist."
        }
        if ($make -and [System.IO.File]::Exists($path)) { return }
        Stop-GracefulStep "The marker $shown cannot be changed: $(Format-GracefulText $why.Message 200)"
    }
}

function Send-Url {
    param($Options, $Tools, [bool]$Out)
    $url = $Options['in_url']
    if ($Out) { $url = $Options['out_url'] }
    $method = ([string]$Options['method']).ToUpperInvariant()
    $answer = Invoke-Url $Options $url (& $Tools.RequestTimeout 30) $method
    if ($null -eq $answer.Status -or $answer.Status -lt 200 -or $answer.Status -ge 300) {
        Stop-GracefulStep "$method $($answer.Message), which is not a success."
    }
}

Export-ModuleMember -Function 'Get-GracefulDrain_health_probe'
