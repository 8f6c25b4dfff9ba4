# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Services that are stopped in order, with those that depend on them, and started again if they ran before. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

# How long a service may take to start, in seconds.
$script:SettlesWithin = 60.0
$script:States = @{
    Running = 'running'; Paused = 'running'; PausePending = 'running'; ContinuePending = 'running'
    StartPending = 'starting'; StopPending = 'stopping'; Stopped = 'stopped'
}

function Get-GracefulDrain_services {
    return @{
        Look = {
            param($Options, $Tools)
            $running = @()
            $dependents = @()
            $done = $true
            foreach ($name in @($Options['services'])) {
                $state = Get-State $name
                if ($state -ne 'stopped') { $done = $false }
                if (@('running', 'starting') -contains $state) { $running += $name }
                # Services that the step names are stopped in their own order.
                $dependents += @(Get-RunningDependent $name | Where-Object { @($Options['services']) -notcontains $_ })
            }
            $dependents = @($dependents | Select-Object -Unique)
            if ($dependents.Count -gt 0) { $done = $false }
            $message = "running: $(Format-Name $running)"
            if ($dependents.Count -gt 0) { $message += "; what depends on them: $(Format-Name $dependents)" }
            return @{ Done = $done; Message = $message; Before = @{ running = $running; dependents = $dependents } }
        }
        Do = {
            param($Options, $Tools)
            foreach ($name in @($Options['services'])) {
                foreach ($dependent in @(Get-RunningDependent $name)) { Stop-One $dependent $Tools }
                Stop-One $name $Tools
            }
            return @{ Message = "stopped: $(Format-Name @($Options['services']))"; Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            # Dependents were stopped first, so they are started last.
            $names = @($Options['services'])
            if ($null -ne $Noted.Before -and $null -ne $Noted.Before['running']) { $names = @($Noted.Before['running']) }
            # Copies: what is noted stays as it is.
            $names = @($names).Clone()
            [Array]::Reverse($names)
            $more = @()
            if ($null -ne $Noted.Before -and $null -ne $Noted.Before['dependents']) { $more = @($Noted.Before['dependents']) }
            $more = @($more).Clone()
            [Array]::Reverse($more)
            foreach ($name in $names + $more) { Start-One $name $Tools }
            return "started: $(Format-Name ($names + $more))"
        }
        Merged = {
            param($Options, $Before, $Now)
            # Somebody may have added a service to the step since the first attempt.
            $merged = New-GracefulMap $Before
            foreach ($key in @('running', 'dependents')) {
                $seen = @(@($Before[$key]) + @($Now[$key]) | Where-Object { $null -ne $_ } | Select-Object -Unique)
                $named = @(@($Options['services']) | Where-Object { $seen -contains $_ })
                $merged[$key] = @($named + @($seen | Where-Object { $named -notcontains $_ }))
            }
            return , $merged
        }
    }
}

function Get-One {
    param([string]$Name)
    try { return (Get-Service -Name $Name -ErrorAction Stop) }
    catch {
        Stop-GracefulStep ("There is no service $(Format-GracefulText $Name 80) on this host, or it cannot be looked at: " +
            "$(Format-GracefulText $_.Exception.Message 200) Correct the step's services: they are names, not display names.")
    }
}

function Get-State {
    param([string]$Name)
    $status = [string](Get-One $Name).Status
    if (-not $script:States.ContainsKey($status)) {
        Stop-GracefulStep "The service $(Format-GracefulText $Name 80) is in a state that is not known: $(Format-GracefulText $status 80)."
    }
    return $script:States[$status]
}

function Get-RunningDependent {
    # The services that depend on this one and run, those that depend on others first: the order to stop them in.
    param([string]$Name, [string[]]$Above = @())
    if ($Above -contains $Name) { return }
    $found = @()
    foreach ($dependent in @((Get-One $Name).DependentServices)) {
        if ($null -eq $dependent) { continue }
        $found += @(Get-RunningDependent $dependent.Name ($Above + $Name))
        if (@('running', 'starting') -contains (Get-State $dependent.Name)) { $found += $dependent.Name }
    }
    return ($found | Select-Object -Unique)
}

function Stop-One {
    param([string]$Name, $Tools)
    $shown = Format-GracefulText $Name 80
    $state = Get-State $Name
    if ($state -eq 'stopped') { return }
    if ($state -ne 'stopping') {
        try { Stop-Service -Name $Name -Force -NoWait -ErrorAction Stop -WarningAction SilentlyContinue }
        catch {
            Stop-GracefulStep ("The service $shown could not be stopped: $(Get-GracefulReason $_ 300). " +
                'If access is denied, manage the host as an administrator.')
        }
    }
    try { Wait-State $Name 'stopped' $Tools }
    catch {
        $ours = Resolve-GracefulError $_
        if ($ours.Kind -ne 'late') { throw }
        Stop-GracefulStep -Late "$($ours.Message) It does not stop: look into its own log, or end its process, and give the step more time."
    }
}

function Start-One {
    param([string]$Name, $Tools)
    $state = Get-State $Name
    if ($state -eq 'running') { return }
    if ($state -eq 'stopping') { Wait-State $Name 'stopped' $Tools }
    if ($state -ne 'starting') {
        # Not Start-Service, which waits without a limit.
        try { (Get-One $Name).Start() }
        catch {
            # It may have been started as a dependency of another service.
            if (@('running', 'starting') -notcontains (Get-State $Name)) {
                Stop-GracefulStep "The service $(Format-GracefulText $Name 80) could not be started: $(Get-GracefulReason $_ 300)."
            }
        }
    }
    Wait-State $Name 'running' $Tools ([Math]::Max(0.1, [Math]::Min($script:SettlesWithin, (& $Tools.Left))))
}

function Wait-State {
    # Without seconds: as long as the step has time.
    param([string]$Name, [string]$State, $Tools, $Seconds = $null)
    $probe = {
        $now = Get-State $Name
        return @{ Holds = $now -eq $State; Message = "the service $(Format-GracefulText $Name 80) is $now" }
    }
    $null = & $Tools.Until $probe $Seconds
}

function Format-Name {
    param($Names)
    if (@($Names).Count -eq 0) { return 'none' }
    return (Format-GracefulText (@($Names) -join ', ') 300)
}

Export-ModuleMember -Function 'Get-GracefulDrain_services'
