# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# One line for each finding of PSScriptAnalyzer in the given files.
param([string]$Analyzer, [string]$Files)

$ErrorActionPreference = 'Stop'
Import-Module $Analyzer
$settings = @{
    IncludeRules = @('PSUseCompatibleSyntax')
    Rules = @{ PSUseCompatibleSyntax = @{ Enable = $true; TargetVersions = @('5.1') } }
}
foreach ($file in $Files.Split('|')) {
    foreach ($found in Invoke-ScriptAnalyzer -Path $file -Settings $settings) {
        '{0}:{1}: {2}: {3}' -f $found.ScriptName, $found.Line, $found.RuleName, $found.Message
    }
}
'done'
