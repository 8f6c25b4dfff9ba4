# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Nobody is connected to some ports of this host, as _drains/connections.py. None is closed. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

function Get-GracefulDrain_connections {
    return @{
        Look = {
            param($Options, $Tools)
            $proof = Test-NoneOpen $Options
            return @{ Done = $proof.Holds; Message = $proof.Message; Before = @{} }
        }
        Do = {
            param($Options, $Tools)
            $probe = { Test-NoneOpen $Options }
            return @{ Message = (& $Tools.Until $probe $null); Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            return 'there is nothing to undo'
        }
    }
}

function Test-NoneOpen {
    param($Options)
    $ports = @($Options['ports'] | ForEach-Object { [int]$_ } | Sort-Object -Unique)
    $networks = @(foreach ($text in @($Options['ignore_from'])) { Read-Network $text })
    $peers = @(
        foreach ($one in [System.Net.NetworkInformation.IPGlobalProperties]::GetIPGlobalProperties().GetActiveTcpConnections()) {
            if ($one.State -ne [System.Net.NetworkInformation.TcpState]::Established) { continue }
            if ($ports -notcontains $one.LocalEndPoint.Port) { continue }
            $address = Get-PlainAddress $one.RemoteEndPoint.Address
            if (-not (Test-Within $address $networks)) { $address.ToString() }
        }
    )
    $shown = $ports -join ', '
    if ($peers.Count -eq 0) { return @{ Holds = $true; Message = "no connections on $shown" } }
    $from = Format-GracefulList @($peers | Sort-Object -Unique) 3
    return @{ Holds = $false; Message = "$(Format-GracefulCount $peers.Count 'connection') on $shown, from $from" }
}

function Get-PlainAddress {
    param([System.Net.IPAddress]$Address)
    if ($Address.AddressFamily -eq 'InterNetworkV6' -and $Address.IsIPv4MappedToIPv6) { return $Address.MapToIPv4() }
    return $Address
}

function Read-Network {
    # An address or a network, as bytes and the number of bits that count.
    param([string]$Text)
    $parts = $Text.Trim().Split('/')
    $address = $null
    if (-not [System.Net.IPAddress]::TryParse($parts[0], [ref]$address)) {
        Stop-GracefulStep "ignore_from has to be a list of addresses or networks: $(Format-GracefulQuoted $Text) is none."
    }
    $bytes = $address.GetAddressBytes()
    $bits = 8 * $bytes.Length
    $mask = $null
    if ($parts.Length -gt 1 -and $parts[1] -match '^\d+$') { $bits = [int]$parts[1] }
    elseif ($parts.Length -gt 1 -and [System.Net.IPAddress]::TryParse($parts[1], [ref]$mask)) {
        $bits = 0
        foreach ($byte in $mask.GetAddressBytes()) { $bits += [Convert]::ToString($byte, 2).Replace('0', '').Length }
    }
    return @{ Bytes = $bytes; Bits = $bits }
}

function Test-Within {
    param([System.Net.IPAddress]$Address, $Networks)
    $bytes = $Address.GetAddressBytes()
    foreach ($network in @($Networks)) {
        if ($network.Bytes.Length -ne $bytes.Length) { continue }
        $same = $true
        for ($bit = 0; $bit -lt $network.Bits -and $same; $bit += 8) {
            $mask = 0xff
            if ($network.Bits - $bit -lt 8) { $mask = (0xff -shl (8 - ($network.Bits - $bit))) -band 0xff }
            $index = $bit -shr 3
            $same = ($bytes[$index] -band $mask) -eq ($network.Bytes[$index] -band $mask)
        }
        if ($same) { return $true }
    }
    return $false
}

Export-ModuleMember -Function 'Get-GracefulDrain_connections'
