# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Programs of the user's own, as _drains/command.py: one drains, one checks whether it is done, one undoes it. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

# A probe runs many times, so it has to be short.
$script:LongestProbe = 30.0

function Get-GracefulDrain_command {
    return @{
        Look = {
            param($Options, $Tools)
            $proof = Test-Drained $Options $Tools
            $wasOut = $proof.Holds -and -not $Tools.Begun
            return @{ Done = $proof.Holds; Message = $proof.Message; Before = @{ in_service = -not $wasOut } }
        }
        Do = {
            param($Options, $Tools)
            $null = Invoke-Demanded 'do' $Options $Tools
            $probe = { Test-Drained $Options $Tools }
            return @{ Message = (& $Tools.Until $probe $null 1.0); Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            if (-not $Options['undo']) { return 'there is nothing to undo' }
            $ran = Invoke-Demanded 'undo' $Options $Tools
            return "undo has ended: $(Format-GracefulText $ran.Message 200)"
        }
    }
}

function Test-Drained {
    param($Options, $Tools)
    $ran = Invoke-Program 'probe' $Options $Tools (& $Tools.RequestTimeout $script:LongestProbe)
    $ended = "ends with $($ran.Code)"
    if ($ran.Code -eq 0) { $ended = 'passes' }
    return @{ Holds = $ran.Code -eq 0; Message = "the probe ${ended}: $(Format-GracefulText $ran.Message 200)" }
}

function Invoke-Demanded {
    param([string]$Name, $Options, $Tools)
    $ran = Invoke-Program $Name $Options $Tools (& $Tools.Left)
    if ($ran.Code -ne 0) {
        Stop-GracefulStep "The program of $Name ended with $($ran.Code): $(Format-GracefulText $ran.Message 300)"
    }
    return $ran
}

function Invoke-Program {
    param([string]$Name, $Options, $Tools, [double]$Seconds)
    $variables = @{}
    if ($null -ne $Options['environment']) {
        foreach ($key in @($Options['environment'].Keys)) {
            $variables[$key] = [Convert]::ToString($Options['environment'][$key], [System.Globalization.CultureInfo]::InvariantCulture)
        }
    }
    return (& $Tools.Run @($Options[$Name]) $Seconds $variables)
}

Export-ModuleMember -Function 'Get-GracefulDrain_command'
