# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# What test_kinds.py puts into the place of a host: a clock that jumps, programs, and the cmdlets of services, clusters and IIS.
# The cmdlets are there only if the world has what they are about.

$global:StandIns = @{
    services = 'Get-Service', 'Stop-Service'
    cluster = 'Get-ClusterNode', 'Get-ClusterGroup', 'Suspend-ClusterNode', 'Resume-ClusterNode'
    iis = 'Get-WebsiteState', 'Stop-Website', 'Start-Website', 'Get-WebBinding', 'Get-WebAppPoolState', 'Stop-WebAppPool', 'Start-WebAppPool'
}

function global:Remove-StandIn {
    foreach ($name in $global:StandIns.Values | ForEach-Object { $_ }) {
        if (Test-Path "function:$name") { Remove-Item "function:$name" }
    }
}

function global:Set-World($World) {
    Remove-StandIn
    $global:World = @{ ran = @(); did = @(); environments = @(); late = $false; types = @{}; calls = 0 }
    foreach ($key in $World.Keys) { $global:World[$key] = $World[$key] }
    foreach ($key in $global:StandIns.Keys) {
        if (-not $World.ContainsKey($key)) { continue }
        foreach ($name in $global:StandIns[$key]) { $null = New-Item -Path function: -Name "global:$name" -Value (Get-Item "function:Use-$name").ScriptBlock -Force }
    }
    if ($World.ContainsKey('services')) { foreach ($name in $World.services.Keys) { $global:World.types[$name] = 'Automatic' } }
    $null
}

function global:Invoke-Private($Module, $Function) {
    $found = Get-Module $Module
    & $found { param($Function, $Given) & $Function @Given } $Function $args
}

function global:New-TestTools($Given) {
    $state = @{ Now = 0.0; Seconds = [double]$Given.seconds }
    $tools = @{
        Left = { [Math]::Max(0, $state.Seconds - $state.Now) }.GetNewClosure()
        Sleep = { param($Seconds) $state.Now += $Seconds }.GetNewClosure()
        Tell = { param($Message) }
        Run = {
            param($Argv, $Seconds, $Environment)
            $global:World.ran += ($Argv -join ' ')
            $global:World.environments += $Environment
            $answers = @($global:World.programs[$Argv[0]])
            if ($answers.Count -gt 1) { $global:World.programs[$Argv[0]] = $answers[1..($answers.Count - 1)] }
            @{ Code = $answers[0][0]; Out = $answers[0][1]; Err = ''; Message = $answers[0][1] }
        }
        Begun = [bool]$Given.begun
        Directory = $Given.directory
        FileName = $Given.file
        Secrets = @{}
    }
    $tools.RequestTimeout = { param($Longest = 5) [Math]::Max(0.1, [Math]::Min($Longest, $state.Seconds - $state.Now)) }.GetNewClosure()
    $tools.Until = {
        param($Probe, $Seconds, $Pause = 0.5, $Lasting = 0)
        $left = [Math]::Max(0, $state.Seconds - $state.Now)
        $span = $left
        if ($Seconds) { $span = [Math]::Min($Seconds, $left) }
        $end = $state.Now + $span
        $since = $null
        while ($true) {
            $begin = $state.Now
            $proof = & $Probe
            if (-not $proof.Holds) { $since = $null } elseif ($null -eq $since) { $since = $begin }
            if ($null -ne $since -and $state.Now - $since -ge $Lasting) { return $proof.Message }
            if ($state.Now -ge $end) {
                $global:World.late = $true
                Stop-GracefulStep -Late "After $(Format-GracefulNumber $span) s still: $($proof.Message)."
            }
            $state.Now += [Math]::Min($Pause, $end - $state.Now)
        }
    }.GetNewClosure()
    return $tools
}

function global:Invoke-Kind($Asked) {
    $kind = & $Asked.kind
    $options = ConvertTo-GracefulData $Asked.options
    $noted = $Asked.noted
    $tools = New-TestTools $Asked.tools
    foreach ($key in 'Before', 'Data', 'Now') {
        if ($noted.ContainsKey($key)) { $noted[$key] = ConvertTo-GracefulData $noted[$key] } else { $noted[$key] = New-GracefulMap }
    }
    if (-not $noted.ContainsKey('Lost')) { $noted.Lost = $false }
    switch ($Asked.verb) {
        { $_ -in 'Undo', 'CleanUp' } { return (& $kind[$_] $options $tools $noted) }
        'Merged' { return (& $kind.Merged $options $noted.Before $noted.Now) }
        default { return (& $kind[$_] $options $tools) }
    }
}

function global:Set-LinkStandIn([string]$Path) {
    $global:LinkStandIn = $Path
    $module = Get-Module '_Checkpoint_paths'
    & $module {
        if (-not (Get-Variable -Name RealTarget -Scope Script -ErrorAction SilentlyContinue)) { $script:RealTarget = ${function:Get-Target} }
        ${function:script:Get-Target} = {
            param([string]$Path, $Attributes)
            if ($global:LinkStandIn -and $Path -eq $global:LinkStandIn) { return 'Junction X:\elsewhere' }
            return (& $script:RealTarget $Path $Attributes)
        }
    }
    $null
}

# ---- services

function global:Use-Get-Service {
    [CmdletBinding()] param([string]$Name)
    if (-not $global:World.services.ContainsKey($Name)) { throw "Cannot find any service with service name '$Name'." }
    $service = $global:World.services[$Name]
    # A service that is told to stop or to start needs a look to get there.
    if ($service.status -eq 'StopPending' -and -not ($service.ContainsKey('stops') -and -not $service.stops)) { $next = 'Stopped' }
    elseif ($service.status -eq 'StartPending' -and -not ($service.ContainsKey('starts') -and -not $service.starts)) { $next = 'Running' }
    else { $next = $service.status }
    $now = $service.status
    $service.status = $next
    $object = [pscustomobject]@{
        Name = $Name; Status = $now; StartType = $global:World.types[$Name]
        DependentServices = @($service.dependents | ForEach-Object { [pscustomobject]@{ Name = $_ } })
    }
    $object | Add-Member -MemberType ScriptMethod -Name Start -Value {
        $one = $global:World.services[$this.Name]
        if ($one.ContainsKey('refuses')) { throw $one.refuses }
        $global:World.did += "start $($this.Name)"
        $one.status = 'StartPending'
    }
    return $object
}

function global:Use-Stop-Service {
    [CmdletBinding()] param([string]$Name, [switch]$Force, [switch]$NoWait)
    $service = $global:World.services[$Name]
    if ($service.ContainsKey('refuses')) { throw $service.refuses }
    $global:World.did += "stop $Name"
    $service.status = 'StopPending'
}

# ---- a cluster of two nodes

function global:Use-Get-ClusterNode {
    [CmdletBinding()] param()
    $cluster = $global:World.cluster
    $global:World.calls += 1
    if ($cluster.ContainsKey('silent')) { throw $cluster.silent }
    if ($cluster.ContainsKey('wakes') -and $global:World.calls -le $cluster.wakes) { throw 'it wakes up.' }
    if ($cluster.drain -eq 'InProgress') {
        if ('fails' -eq $cluster.moves) { $cluster.drain = 'Failed' }
        elseif ($cluster.moves -and @($cluster.roles).Count -gt 0) { $cluster.roles = @($cluster.roles | Select-Object -Skip 1) }
        elseif ($cluster.moves) { $cluster.drain = 'Completed' }
    }
    $name = 'sql1'
    if ($cluster.ContainsKey('name')) { $name = $cluster.name }
    [pscustomobject]@{ Name = $name; State = $cluster.state; DrainStatus = $cluster.drain }
    [pscustomobject]@{ Name = 'sql2'; State = 'Up'; DrainStatus = 'NotInitiated' }
}

function global:Use-Get-ClusterGroup {
    [CmdletBinding()] param()
    [pscustomobject]@{ Name = 'Cluster Group'; OwnerNode = 'sql1'; State = 'Online'; GroupType = 'Cluster' }
    [pscustomobject]@{ Name = 'Other'; OwnerNode = 'sql2'; State = 'Online'; GroupType = 'FileServer' }
    [pscustomobject]@{ Name = 'Old'; OwnerNode = 'sql1'; State = 'Offline'; GroupType = 'FileServer' }
    foreach ($name in @($global:World.cluster.roles)) { [pscustomobject]@{ Name = $name; OwnerNode = 'sql1'; State = 'Online'; GroupType = 'Unknown' } }
}

function global:Use-Suspend-ClusterNode {
    [CmdletBinding()] param([string]$Name, [switch]$Drain, [switch]$ForceDrain, [string]$TargetNode)
    if ($global:World.cluster.ContainsKey('refuses')) { throw $global:World.cluster.refuses }
    $words = @('suspend', $Name)
    if ($Drain) { $words += 'drain' }
    if ($TargetNode) { $words += 'target', $TargetNode }
    if ($ForceDrain) { $words += 'force' }
    $global:World.did += ($words -join ' ')
    $global:World.cluster.state = 'Paused'
    $global:World.cluster.drain = 'InProgress'
}

function global:Use-Resume-ClusterNode {
    [CmdletBinding()] param([string]$Name, [string]$Failback)
    $global:World.did += "resume $Name $Failback"
    $global:World.cluster.state = 'Up'
    $global:World.cluster.drain = 'NotInitiated'
}

# ---- IIS

function global:Get-IisState($Kind, $Name) {
    $states = $global:World.iis[$Kind]
    if (-not $states.ContainsKey($Name)) { throw "Cannot find path '$Name' because it does not exist." }
    $now = $states[$Name]
    if ($now -eq 'Stopping' -and -not ($global:World.iis.ContainsKey('stops') -and -not $global:World.iis.stops)) { $states[$Name] = 'Stopped' }
    return $now
}

function global:Use-Get-WebsiteState { [CmdletBinding()] param([string]$Name) [pscustomobject]@{ Value = (Get-IisState 'sites' $Name) } }
function global:Use-Get-WebAppPoolState { [CmdletBinding()] param([string]$Name) [pscustomobject]@{ Value = (Get-IisState 'pools' $Name) } }

function global:Use-Get-WebBinding {
    [CmdletBinding()] param([string]$Name)
    foreach ($text in @($global:World.iis.bindings[$Name])) {
        if (-not $text) { continue }
        $parts = $text.Split(' ')
        [pscustomobject]@{ protocol = $parts[0]; bindingInformation = $parts[1] }
    }
}

function global:Use-Stop-Website {
    [CmdletBinding()] param([string]$Name)
    if ($global:World.iis.ContainsKey('refuses')) { throw $global:World.iis.refuses }
    $global:World.did += "stop site $Name"
    $global:World.iis.sites[$Name] = 'Stopped'
}

function global:Use-Start-Website {
    [CmdletBinding()] param([string]$Name)
    if ($global:World.iis.ContainsKey('refuses')) { throw $global:World.iis.refuses }
    $global:World.did += "start site $Name"
    $global:World.iis.sites[$Name] = 'Started'
}

function global:Use-Stop-WebAppPool {
    [CmdletBinding()] param([string]$Name)
    $global:World.did += "stop pool $Name"
    $global:World.iis.pools[$Name] = 'Stopping'
}

function global:Use-Start-WebAppPool {
    [CmdletBinding()] param([string]$Name)
    $global:World.did += "start pool $Name"
    $global:World.iis.pools[$Name] = 'Started'
}
