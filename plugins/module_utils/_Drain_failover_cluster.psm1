# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# A node of a Windows failover cluster gives its roles to the others, by the cmdlets of the cluster. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$script:Module = 'FailoverClusters'
$script:Needed = @('Get-ClusterNode', 'Get-ClusterGroup', 'Suspend-ClusterNode', 'Resume-ClusterNode')
# Groups of the cluster itself, which are not moved.
$script:NoRoles = @('Cluster', 'AvailableStorage')
$script:Failbacks = @{ immediate = 'Immediate'; policy = 'Policy'; none = 'NoFailback' }

function Get-GracefulDrain_failover_cluster {
    return @{
        Look = {
            param($Options, $Tools)
            $seen = Get-Seen $Options
            return @{ Done = $seen.Drained; Message = $seen.Message; Before = @{ in_service = -not $seen.Paused } }
        }
        Do = {
            param($Options, $Tools)
            $seen = Get-Seen $Options
            if (-not $seen.Drained -and $seen.Drain -ne 'InProgress') {
                $more = @{}
                if ($Options['target_node']) { $more['TargetNode'] = [string]$Options['target_node'] }
                if ($Options['force_drain']) { $more['ForceDrain'] = $true }
                try { $null = Suspend-ClusterNode -Name $seen.Name -Drain -ErrorAction Stop @more }
                catch {
                    Stop-GracefulStep ("The node $($seen.Shown) could not be drained: $(Format-GracefulText $_.Exception.Message 300) " +
                        'Look with Get-ClusterGroup which roles cannot move, and why.')
                }
            }
            $probe = {
                $now = Get-Seen $Options
                if ($now.Paused -and $now.Drain -eq 'Failed') {
                    Stop-GracefulStep ("The drain of the node $($now.Shown) failed; $($now.Left). Look with Get-ClusterGroup and in the cluster's " +
                        'events which roles cannot move, and why. With force_drain they are taken offline to be moved.')
                }
                return @{ Holds = $now.Drained; Message = $now.Message }
            }
            return @{ Message = (& $Tools.Until $probe $null 1.0); Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            $probe = {
                # After a reboot the cluster service may need some time.
                try { $now = Get-Seen $Options }
                catch { return @{ Holds = $false; Message = (Format-GracefulText $_.Exception.Message 300).TrimEnd('.') } }
                if ($now.Paused) {
                    try { $null = Resume-ClusterNode -Name $now.Name -Failback $script:Failbacks[[string]$Options['failback']] -ErrorAction Stop }
                    catch {
                        $why = (Format-GracefulText $_.Exception.Message 300).TrimEnd('.')
                        return @{ Holds = $false; Message = "the node $($now.Shown) could not be resumed: $why" }
                    }
                    $now = Get-Seen $Options
                }
                return @{ Holds = $now.Up; Message = $now.Message }
            }
            Confirm-GracefulCmdlet $script:Needed $script:Module 'RSAT-Clustering-PowerShell' 'is this host a node of a cluster?'
            return (& $Tools.Until $probe $null 1.0)
        }
    }
}

function Get-Seen {
    param($Options)
    Confirm-GracefulCmdlet $script:Needed $script:Module 'RSAT-Clustering-PowerShell' 'is this host a node of a cluster?'
    $name = [string]$Options['node']
    if (-not $name) { $name = [System.Environment]::MachineName }
    $shown = Format-GracefulText $name 80
    try { $nodes = @(Get-ClusterNode -ErrorAction Stop) }
    catch {
        Stop-GracefulStep ("The cluster does not answer: $(Format-GracefulText $_.Exception.Message 300) Is its service (ClusSvc) running, " +
            'and may the user that the host is managed as administer the cluster?')
    }
    $node = @($nodes | Where-Object { [string]$_.Name -eq $name })
    if ($node.Count -eq 0) {
        $known = Format-GracefulText ((@($nodes | ForEach-Object { [string]$_.Name }) -join ', ')) 200
        Stop-GracefulStep "The cluster has no node $shown; its nodes are: $known. Correct the step's node."
    }
    try { $groups = @(Get-ClusterGroup -ErrorAction Stop) }
    catch { Stop-GracefulStep "The cluster does not tell its roles: $(Format-GracefulText $_.Exception.Message 300)" }
    $roles = @(
        $groups | Where-Object {
            [string]$_.OwnerNode -eq $name -and [string]$_.State -ne 'Offline' -and $script:NoRoles -notcontains [string]$_.GroupType
        } | ForEach-Object { [string]$_.Name }
    )
    $state = [string]$node[0].State
    $drain = [string]$node[0].DrainStatus
    $paused = $state -eq 'Paused'
    $left = 'no role is online on it'
    if ($roles.Count -gt 0) { $left = "online on it: $(Format-GracefulText ($roles -join ', ') 200)" }
    return @{
        Name = $name
        Shown = $shown
        Paused = $paused
        Up = $state -eq 'Up'
        Drain = $drain
        Drained = $paused -and $drain -eq 'Completed' -and $roles.Count -eq 0
        Left = $left
        Message = "the node $shown is $($state.ToLowerInvariant()), $left"
    }
}

Export-ModuleMember -Function 'Get-GracefulDrain_failover_cluster'
