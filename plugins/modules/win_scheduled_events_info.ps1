#!powershell

# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

#Requires -Version 5.1
#AnsibleRequires -CSharpUtil Ansible.Basic
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._ScheduledEvents

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$options = (Get-GracefulServiceOption) + (Get-GracefulFilterOption)
$module = [Ansible.Basic.AnsibleModule]::Create($args, @{ options = $options; supports_check_mode = $true })
Invoke-GracefulEventsModule $module { param($module, $service, $params) Get-GracefulEventsInfo $module $service $params }
