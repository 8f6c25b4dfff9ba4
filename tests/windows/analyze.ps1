# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# One line for each finding of PSScriptAnalyzer in the given files.
param([string]$Analyzer, [string]$Files)

$ErrorActionPreference = 'Stop'
Import-Module $Analyzer
# Windows Server 2016 and 2019, with Windows PowerShell 5.1.
$targets = @(
    'win-8_x64_10.0.17763.0_5.1.17763.316_x64_4.0.30319.42000_framework'
    'win-8_x64_10.0.14393.0_5.1.14393.2791_x64_4.0.30319.42000_framework'
)
$settings = @{
    IncludeRules = @('PSUseCompatibleSyntax', 'PSUseCompatibleCommands', 'PSUseCompatibleTypes')
    Rules = @{
        PSUseCompatibleSyntax = @{ Enable = $true; TargetVersions = @('5.1') }
        PSUseCompatibleCommands = @{ Enable = $true; TargetProfiles = $targets }
        PSUseCompatibleTypes = @{
            Enable = $true
            TargetProfiles = $targets
            IgnoreTypes = @(
                # Of an assembly that the file loads.
                'System.IO.Compression.ZipArchive', 'System.IO.Compression.ZipArchiveMode'
                # Used only where files have no methods for it, as in PowerShell 7.
                'System.IO.FileSystemAclExtensions'
                # The profiles list few of its static methods; .NET has those we use since 3.5.
                'System.Linq.Expressions.Expression'
            )
        }
    }
}
foreach ($file in $Files.Split('|')) {
    foreach ($found in Invoke-ScriptAnalyzer -Path $file -Settings $settings) {
        '{0}:{1}: {2}: {3}' -f $found.ScriptName, $found.Line, $found.RuleName, $found.Message
    }
}
'done'
