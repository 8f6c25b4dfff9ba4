# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# A program of the user's own that saves something, as _checkpoints/command.py. Windows PowerShell 5.1 syntax.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

function Get-GracefulCheckpoint_command {
    return @{
        Do = {
            param($Options, $Tools)
            $ran = & $Tools.Run @($Options['argv']) (& $Tools.Left) @{}
            if ($ran.Code -ne 0) {
                # Its arguments may be secret.
                $program = Format-GracefulText @($Options['argv'])[0] 200
                Stop-GracefulStep "$program ended with $($ran.Code): $(Format-GracefulText $ran.Message 300)"
            }
            return @{ Message = "the program has ended: $(Format-GracefulText $ran.Message 200)"; Data = @{} }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            return 'there is nothing to put back'
        }
    }
}

Export-ModuleMember -Function 'Get-GracefulCheckpoint_command'
