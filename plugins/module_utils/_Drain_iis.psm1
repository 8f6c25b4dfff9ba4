# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Sites and application pools of IIS, stopped once nobody is connected to them. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._Drain_connections

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$script:Module = 'WebAdministration'
$script:Needed = @(
    'Get-WebsiteState', 'Stop-Website', 'Start-Website', 'Get-WebBinding', 'Get-WebAppPoolState', 'Stop-WebAppPool', 'Start-WebAppPool'
)
# How long a site or a pool may take to start, in seconds.
$script:StartsWithin = 60.0
$script:Site = @{ Noun = 'site'; Option = 'sites'; State = 'Get-WebsiteState'; Stop = 'Stop-Website'; Start = 'Start-Website' }
$script:Pool = @{
    Noun = 'application pool'; Option = 'app_pools'; State = 'Get-WebAppPoolState'; Stop = 'Stop-WebAppPool'; Start = 'Start-WebAppPool'
}

function Get-GracefulDrain_iis {
    return @{
        Look = {
            param($Options, $Tools)
            Confirm-Cmdlet
            $sites = @(Get-Running $script:Site $Options)
            $pools = @(Get-Running $script:Pool $Options)
            $message = "started: $(Format-Name $sites $pools)"
            return @{ Done = $sites.Count + $pools.Count -eq 0; Message = $message; Before = @{ sites = $sites; app_pools = $pools } }
        }
        Do = {
            param($Options, $Tools)
            Confirm-Cmdlet
            $sites = @(Get-Running $script:Site $Options)
            $pools = @(Get-Running $script:Pool $Options)
            $message = ''
            $ports = Get-WaitPort $Options
            if ($ports.Count -gt 0 -and $sites.Count + $pools.Count -gt 0) {
                $connections = Get-GracefulDrain_connections
                $message = (& $connections.Do @{ ports = $ports; ignore_from = @($Options['ignore_from']) } $Tools).Message + '; '
            }
            foreach ($name in $sites) { Stop-One $script:Site $name $Tools }
            foreach ($name in $pools) { Stop-One $script:Pool $name $Tools }
            $message += "stopped: $(Format-Name @($Options['sites']) @($Options['app_pools']))"
            return @{ Message = $message; Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            Confirm-Cmdlet
            # Copies: what is noted stays as it is.
            $pools = @(Get-Noted $Noted $Options 'app_pools').Clone()
            $sites = @(Get-Noted $Noted $Options 'sites').Clone()
            # A site answers only if its pool runs.
            [Array]::Reverse($pools)
            [Array]::Reverse($sites)
            foreach ($name in $pools) { Start-One $script:Pool $name $Tools }
            foreach ($name in $sites) { Start-One $script:Site $name $Tools }
            return "started: $(Format-Name $sites $pools)"
        }
        Merged = {
            param($Options, $Before, $Now)
            # Somebody may have added a site or a pool to the step since the first attempt.
            $merged = New-GracefulMap $Before
            foreach ($key in @('sites', 'app_pools')) {
                $merged[$key] = @(@($Before[$key]) + @($Now[$key]) | Where-Object { $null -ne $_ } | Select-Object -Unique)
            }
            return , $merged
        }
    }
}

function Confirm-Cmdlet {
    Confirm-GracefulCmdlet $script:Needed $script:Module 'Web-Scripting-Tools' 'does IIS run on this host?'
}

function Get-Running {
    param($What, $Options)
    @($Options[$What.Option]) | Where-Object { (Get-State $What $_) -ne 'Stopped' }
}

function Get-State {
    param($What, [string]$Name)
    try { return (Read-State (& $What.State -Name $Name -ErrorAction Stop)) }
    catch {
        Stop-GracefulStep ("IIS has no $($What.Noun) $(Format-GracefulQuoted $Name), or does not tell its state: " +
            "$(Format-GracefulText $_.Exception.Message 300) Correct the step's $($What.Option).")
    }
}

function Read-State {
    # Some versions return the text, others an object with the text as its value.
    param($Told)
    if ($null -eq $Told) { throw 'it gave no state.' }
    if ($Told -is [string]) { return $Told }
    if ($null -ne $Told.PSObject.Properties['Value']) { return [string]$Told.Value }
    return [string]$Told
}

function Get-WaitPort {
    # The ports that the step names, or else those of the sites' bindings.
    param($Options)
    if ($null -ne $Options['ports']) { return , [int[]]@($Options['ports']) }
    $ports = @(
        foreach ($site in @($Options['sites'])) {
            foreach ($binding in @(Get-WebBinding -Name $site -ErrorAction Stop)) {
                # Such as *:80:shop.example.com or [::1]:443:
                if ([string]$binding.protocol -match '^https?$' -and [string]$binding.bindingInformation -match ':(\d+):[^:\]]*$') { [int]$Matches[1] }
            }
        }
    )
    return , [int[]]@($ports | Sort-Object -Unique)
}

function Stop-One {
    param($What, [string]$Name, $Tools)
    try {
        # Stopping a pool that is already stopping is an error.
        if ((Get-State $What $Name) -eq 'Started') { $null = & $What.Stop -Name $Name -ErrorAction Stop }
    }
    catch {
        if ($null -ne (Get-GracefulError $_)) { throw }
        Stop-GracefulStep "The $($What.Noun) $(Format-GracefulQuoted $Name) could not be stopped: $(Format-GracefulText $_.Exception.Message 300)"
    }
    Wait-State $What $Name 'Stopped' $Tools (& $Tools.Left)
}

function Start-One {
    param($What, [string]$Name, $Tools)
    try {
        if ((Get-State $What $Name) -eq 'Stopping') { Wait-State $What $Name 'Stopped' $Tools (& $Tools.Left) }
        if ((Get-State $What $Name) -eq 'Stopped') { $null = & $What.Start -Name $Name -ErrorAction Stop }
    }
    catch {
        if ($null -ne (Get-GracefulError $_)) { throw }
        Stop-GracefulStep "The $($What.Noun) $(Format-GracefulQuoted $Name) could not be started: $(Format-GracefulText $_.Exception.Message 300)"
    }
    Wait-State $What $Name 'Started' $Tools ([Math]::Min($script:StartsWithin, (& $Tools.Left)))
}

function Wait-State {
    param($What, [string]$Name, [string]$State, $Tools, [double]$Seconds)
    $probe = {
        $now = Get-State $What $Name
        return @{ Holds = $now -eq $State; Message = "the $($What.Noun) $(Format-GracefulQuoted $Name) is $($now.ToLowerInvariant())" }
    }
    $null = & $Tools.Until $probe ([Math]::Max(0.1, $Seconds))
}

function Get-Noted {
    # What ran before, or everything that the step names if that was not noted.
    param($Noted, $Options, [string]$Key)
    if ($null -ne $Noted.Before -and $null -ne $Noted.Before[$Key]) { return $Noted.Before[$Key] }
    return $Options[$Key]
}

function Format-Name {
    param($Sites, $Pools)
    $parts = @(@($Sites) | Where-Object { $null -ne $_ } | ForEach-Object { "site $_" })
    $parts += @(@($Pools) | Where-Object { $null -ne $_ } | ForEach-Object { "application pool $_" })
    if ($parts.Count -eq 0) { return 'none' }
    return (Format-GracefulText ($parts -join ', ') 300)
}

Export-ModuleMember -Function 'Get-GracefulDrain_iis'
