# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs what it is asked for, one request after the other, in one process: starting PowerShell takes longer than most tests.
# A request is a line of JSON: "script" with "arguments", or "module" with "arguments", a file whose task is run as
# Ansible's wrapper would. The answer is a line of JSON: "output" or "error"; for a module also "result".
param([int]$Port, [string]$Ansible)

$ErrorActionPreference = 'Stop'
Import-Module "$Ansible/module_utils/powershell/Ansible.ModuleUtils.AddType.psm1" -DisableNameChecking
Add-CSharpType -References @([System.IO.File]::ReadAllText("$Ansible/module_utils/csharp/Ansible.Basic.cs"))

$global:lines = New-Object System.Collections.Generic.List[string]
[Ansible.Basic.AnsibleModule]::WriteLine = { param([string]$line) $global:lines.Add($line) }
[Ansible.Basic.AnsibleModule]::Exit = { param([int]$code) throw "the module has ended with $code" }

function ConvertTo-AnsibleArgument($value) {
    # Ansible's wrapper hands over hashtables and arrays.
    if ($value -is [System.Collections.IDictionary]) {
        $table = @{}
        foreach ($key in $value.Keys) { $table[$key] = ConvertTo-AnsibleArgument $value[$key] }
        return $table
    }
    if ($value -is [System.Collections.IList]) {
        return , @(foreach ($one in $value) { ConvertTo-AnsibleArgument $one })
    }
    return $value
}

function Invoke-Request([System.Collections.IDictionary]$request) {
    $arguments = ConvertTo-AnsibleArgument $request['arguments']
    if ($request.Contains('script')) {
        return @{ output = & ([scriptblock]::Create($request['script'])) $arguments }
    }
    $global:lines.Clear()
    $global:complex_args = $arguments
    $failure = $null
    try {
        foreach ($util in $request['utils']) { Import-Module $util -Force -DisableNameChecking -Scope Global }
        $null = & ([scriptblock]::Create([System.IO.File]::ReadAllText($request['module'])))
    }
    catch {
        $failure = "$_`n$($_.ScriptStackTrace)"
    }
    if ($global:lines.Count -eq 1) { return @{ result = $global:lines[0] } }
    return @{ error = "$($global:lines.Count) results; $failure" }
}

$client = New-Object System.Net.Sockets.TcpClient('127.0.0.1', $Port)
$utf8 = New-Object System.Text.UTF8Encoding($false)
$reader = New-Object System.IO.StreamReader($client.GetStream(), $utf8)
$writer = New-Object System.IO.StreamWriter($client.GetStream(), $utf8)
$writer.AutoFlush = $true
while ($null -ne ($line = $reader.ReadLine())) {
    try {
        $answer = Invoke-Request (ConvertFrom-Json $line -AsHashtable -DateKind String -Depth 100)
    }
    catch {
        $answer = @{ error = "$_`n$($_.ScriptStackTrace)" }
    }
    $writer.WriteLine((ConvertTo-Json $answer -Depth 50 -Compress))
}
