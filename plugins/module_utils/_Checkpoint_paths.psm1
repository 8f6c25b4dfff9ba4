# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Files and directories in an archive; what the maintenance loses is put back from it. Windows PowerShell 5.1 syntax.
#
# The archive is a zip file: each file under its path, and manifest.json with times, attributes and rights. Links are not followed.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$script:Manifest = 'manifest.json'
$script:Part = '.part'
$script:Chunk = 1MB
$script:Link = [System.IO.FileAttributes]::ReparsePoint
# The attributes that a program may set.
$script:Settable = [System.IO.FileAttributes]'ReadOnly, Hidden, System, Archive, NotContentIndexed'
$script:Sections = [System.Security.AccessControl.AccessControlSections]'Access, Owner, Group'
# The rights of a new file or directory until it gets its own: Administrators and SYSTEM.
$script:Private = 'O:BAG:SYD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)'
# Accepted as owners of a directory that had another owner when it was saved.
$script:Trusted = @('BA', 'SY', 'S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464')
$script:TooLate = 'It is not saved. Give the checkpoint more time, or save less'
$script:Ignoring = [System.StringComparison]::OrdinalIgnoreCase

function Get-GracefulCheckpoint_paths {
    return @{
        Do = {
            param($Options, $Tools)
            $archive = Get-Archive $Tools
            $saved = Save-Path @($Options['paths']) $archive $Tools
            $message = "$(Format-GracefulCount $saved.Entries 'file') with directories, $(Format-GracefulCount $saved.Size 'byte') in " +
                (Format-GracefulText $archive)
            if ($saved.Remarks) { $message += "; $($saved.Remarks)" }
            return @{
                Message = $message
                Data = @{
                    paths = $saved.Paths
                    links = $saved.Links
                    archive = $archive
                    checksum = $saved.Checksum
                    fetched = $Options['to'] -eq 'controller'
                }
            }
        }
        Undo = {
            param($Options, $Tools, $Noted)
            if ($null -eq $Noted.Data -or -not $Noted.Data['checksum']) { return 'nothing was saved, so there is nothing to put back' }
            $restored = Restore-Path $Noted.Data $Tools ([bool]$Noted.Lost)
            $message = "$($restored.Paths.Count) put back"
            if ($restored.Paths.Count -gt 0) {
                $message += ': ' + (@($restored.Paths | Select-Object -First 3 | ForEach-Object { Format-GracefulQuoted $_ }) -join ', ')
            }
            if ($restored.Paths.Count -gt 3) { $message += " and $($restored.Paths.Count - 3) more" }
            if ($restored.Remarks) { $message += "; $($restored.Remarks)" }
            return $message
        }
        Saved = {
            param($Options, $Tools, $Noted)
            # If the archive was fetched, the controller has a copy.
            return [bool]$Noted.Data['fetched'] -or [System.IO.File]::Exists((Get-GracefulLongPath (Get-NotedArchive $Tools $Noted)))
        }
        CleanUp = {
            param($Options, $Tools, $Noted)
            $archive = Get-NotedArchive $Tools $Noted
            foreach ($path in @($archive, ($archive + $script:Part))) {
                # If it cannot be removed, the next archive of that name overwrites it.
                try { [System.IO.File]::Delete((Get-GracefulLongPath $path)) } catch { $null = $_ }
            }
        }
    }
}

# ---- paths

function Get-NotedArchive {
    param($Tools, $Noted)
    if ($null -ne $Noted.Data -and $Noted.Data['archive']) { return [string]$Noted.Data['archive'] }
    return Get-Archive $Tools
}

function Get-Archive {
    param($Tools)
    $directory = Get-Full ([System.Environment]::ExpandEnvironmentVariables([string]$Tools.Directory))
    return $directory.TrimEnd('\') + '\' + [string]$Tools.FileName
}

function Get-Full {
    # The path in its normal form. Not by .NET, of which older versions take 260 characters at most.
    param([string]$Path)
    $plain = $Path.Replace('/', '\')
    if ($plain.StartsWith('\\?\UNC\', $script:Ignoring)) { $plain = '\\' + $plain.Substring(8) }
    elseif ($plain.StartsWith('\\?\')) { $plain = $plain.Substring(4) }
    if ($plain -match '^[A-Za-z]:\\') {
        $root = $plain.Substring(0, 1).ToUpperInvariant() + ':\'
        $rest = $plain.Substring(3)
    }
    elseif ($plain -match '^\\\\([^\\?.*][^\\?*]*)\\([^\\]+)(\\|$)') {
        $root = '\\' + $Matches[1] + '\' + $Matches[2] + '\'
        $rest = $plain.Substring([Math]::Min($plain.Length, $root.Length))
    }
    else {
        Stop-GracefulStep "$(Format-GracefulText $Path 200) is not an absolute path. Check the paths of the checkpoint."
    }
    $names = New-Object System.Collections.ArrayList
    foreach ($name in $rest.Split('\')) {
        if ($name -eq '' -or $name -eq '.') { continue }
        if ($name -ne '..') { $null = $names.Add($name) }
        elseif ($names.Count -gt 0) { $names.RemoveAt($names.Count - 1) }
    }
    if ($names.Count -eq 0) { return $root }
    return $root + ($names -join '\')
}

function Get-Root {
    param([string]$Path)
    if ($Path.StartsWith('\\')) { return ($Path -replace '^(\\\\[^\\]+\\[^\\]+).*$', '$1\') }
    return $Path.Substring(0, 3)
}

function Get-Parent {
    # The parent directory; empty for a drive or a share.
    param([string]$Path)
    if ($Path.TrimEnd('\').Length -le (Get-Root $Path).TrimEnd('\').Length) { return '' }
    $parent = $Path.Substring(0, $Path.LastIndexOf('\'))
    if ($parent.Length -lt (Get-Root $Path).Length) { return (Get-Root $Path) }
    return $parent
}

function Get-AllParent {
    # All parent directories, the topmost first, without the drive or the share.
    param([string]$Path)
    $found = New-Object System.Collections.ArrayList
    $parent = Get-Parent $Path
    while ($parent -and $parent -ne (Get-Root $Path)) {
        $found.Insert(0, $parent)
        $parent = Get-Parent $parent
    }
    return $found.ToArray()
}

function Test-Within {
    param([string]$Path, [string]$Above)
    return $Path.Equals($Above, $script:Ignoring) -or $Path.StartsWith($Above.TrimEnd('\') + '\', $script:Ignoring)
}

function Get-Attribute {
    # The attributes of a file, a directory or a link itself; null if there is none.
    param([string]$Path)
    try { return [System.IO.File]::GetAttributes((Get-GracefulLongPath $Path)) }
    catch {
        $why = $_.Exception.GetBaseException()
        if ($why -is [System.IO.FileNotFoundException] -or $why -is [System.IO.DirectoryNotFoundException]) { return $null }
        throw
    }
}

function Test-Directory {
    param($Attributes)
    return ($Attributes -band [System.IO.FileAttributes]::Directory) -ne 0
}

function Get-Target {
    # The target of a link; empty if it is none. A file in offline storage is also a reparse point, but no link.
    param([string]$Path, $Attributes)
    if (($Attributes -band $script:Link) -eq 0) { return '' }
    $item = Get-Item -LiteralPath (Get-GracefulLongPath $Path) -Force
    $kind = $item.PSObject.Properties['LinkType']
    if ($null -eq $kind -or -not $kind.Value) {
        if (Test-Directory $Attributes) { return 'unknown' }
        return ''
    }
    return "$($kind.Value) $(@($item.Target) -join '|')"
}

function Confirm-Time {
    param($Tools, [string]$Message)
    if ((& $Tools.Left) -le 0) { Stop-GracefulStep -Late "The time for it is over. $Message." }
}

# ---- saving

function Save-Path {
    param([string[]]$Paths, [string]$Archive, $Tools)
    $part = $Archive + $script:Part
    $roots = @(foreach ($path in $Paths) { Get-Existing $path $Archive })
    $links = @{}
    foreach ($root in $roots) {
        foreach ($parent in @(Get-AllParent $root)) {
            $target = Get-Target $parent (Get-Attribute $parent)
            if ($target) { $links[$parent] = $target }
        }
    }
    $remarks = New-Object System.Collections.ArrayList
    try {
        New-PrivateDirectory (Get-Parent $Archive)
        $entries = Write-Archive $roots $part $Tools $remarks
        Test-Archive $part $roots $Tools
        $checksum = Get-Checksum $part $Tools
        $size = (New-Object System.IO.FileInfo (Get-GracefulLongPath $part)).Length
        [System.IO.File]::Delete((Get-GracefulLongPath $Archive))
        [System.IO.File]::Move((Get-GracefulLongPath $part), (Get-GracefulLongPath $Archive))
    }
    catch {
        if ($null -ne (Get-GracefulError $_)) { throw }
        Stop-GracefulStep ("Saving to $(Format-GracefulText $Archive) failed: $(Get-GracefulReason $_). Nothing was saved. If there is no room, or it may " +
            'not be written there, choose another place (graceful_checkpoint_dir).')
    }
    finally {
        try { [System.IO.File]::Delete((Get-GracefulLongPath $part)) } catch { $null = $_ }
    }
    return @{ Paths = $roots; Links = $links; Entries = $entries; Size = $size; Checksum = $checksum; Remarks = (Join-Remark $remarks) }
}

function Get-Existing {
    param([string]$Path, [string]$Archive)
    $root = Get-Full $Path
    $shown = Format-GracefulText $Path 200
    $attributes = $null
    try { $attributes = Get-Attribute $root }
    catch { Stop-GracefulStep "$shown cannot be saved: $(Get-GracefulReason $_)." }
    if ($null -eq $attributes) { Stop-GracefulStep "$shown does not exist, so it cannot be saved. Check the paths of the checkpoint." }
    if (Get-Target $root $attributes) {
        Stop-GracefulStep "$shown is a link, a junction or a mount point, so it cannot be saved. Name what it leads to."
    }
    if (Test-Within $Archive $root) {
        Stop-GracefulStep ("The archive $(Format-GracefulText $Archive) is inside $shown, which is to be saved. Choose another place for " +
            'archives (graceful_checkpoint_dir).')
    }
    return $root
}

function New-PrivateDirectory {
    # Archives may hold secrets. The rights of a directory that exists are not changed.
    param([string]$Path)
    if ($null -ne (Get-Attribute $Path)) { return }
    $null = [System.IO.Directory]::CreateDirectory((Get-GracefulLongPath $Path))
    try { Set-Security $Path $script:Private $true }
    catch {
        [System.IO.Directory]::Delete((Get-GracefulLongPath $Path))
        throw
    }
}

function Write-Archive {
    # The number of files and directories that were saved.
    param([string[]]$Roots, [string]$Part, $Tools, $Remarks)
    Add-Type -AssemblyName System.IO.Compression
    $entries = New-Object System.Collections.ArrayList
    $outermost = @($Roots | Where-Object { $root = $_; -not ($Roots | Where-Object { $_ -ne $root -and (Test-Within $root $_) }) } | Sort-Object -Unique)
    $file = New-Object System.IO.FileStream ((Get-GracefulLongPath $Part), [System.IO.FileMode]::Create, [System.IO.FileAccess]::ReadWrite, [System.IO.FileShare]::None)
    try {
        $zip = New-Object System.IO.Compression.ZipArchive ($file, [System.IO.Compression.ZipArchiveMode]::Create, $true)
        try {
            $seen = @{}
            foreach ($root in $outermost) {
                foreach ($parent in @(Get-AllParent $root)) {
                    if (-not $seen.ContainsKey($parent)) {
                        $seen[$parent] = $true
                        $null = $entries.Add((New-Entry $parent 'parent' (Get-Attribute $parent)))
                    }
                }
            }
            $parents = $entries.Count
            foreach ($root in $outermost) { Add-Tree $root $zip $entries $Tools $Remarks }
            $stream = $zip.CreateEntry($script:Manifest, [System.IO.Compression.CompressionLevel]::Fastest).Open()
            try {
                $bytes = [System.Text.Encoding]::UTF8.GetBytes((ConvertTo-GracefulJson @{ version = 1; entries = $entries.ToArray() }))
                $stream.Write($bytes, 0, $bytes.Length)
            }
            finally { $stream.Dispose() }
        }
        finally { $zip.Dispose() }
        $file.Flush($true)
    }
    finally { $file.Dispose() }
    return $entries.Count - $parents
}

function New-Entry {
    param([string]$Path, [string]$Type, $Attributes)
    $info = Get-Info $Path (Test-Directory $Attributes)
    return [ordered]@{
        path = $Path
        type = $Type
        attributes = [int]($Attributes -band $script:Settable)
        created = $info.CreationTimeUtc.Ticks
        modified = $info.LastWriteTimeUtc.Ticks
        security = (Get-Security $Path (Test-Directory $Attributes))
        size = [long]0
        checksum = ''
        entry = ''
    }
}

function Add-Tree {
    param([string]$Root, $Zip, $Entries, $Tools, $Remarks)
    $pending = New-Object System.Collections.Stack
    $pending.Push($Root)
    while ($pending.Count -gt 0) {
        $path = $pending.Pop()
        Confirm-Time $Tools $script:TooLate
        try {
            $attributes = Get-Attribute $path
            if ($null -eq $attributes) {
                Add-Remark $Remarks 'left out (vanished while it was read)' $path
                continue
            }
            if (Get-Target $path $attributes) {
                Add-Remark $Remarks 'left out (link or junction)' $path
                continue
            }
            if (-not (Test-Directory $attributes)) {
                Add-File $path $attributes $Zip $Entries $Tools
                continue
            }
            $null = $Entries.Add((New-Entry $path 'directory' $attributes))
            $names = @([System.IO.Directory]::GetFileSystemEntries((Get-GracefulLongPath $path)) | ForEach-Object { $_.Substring($_.LastIndexOf('\') + 1) })
            [Array]::Sort($names, [System.StringComparer]::OrdinalIgnoreCase)
            [Array]::Reverse($names)
            foreach ($name in $names) { $pending.Push($path.TrimEnd('\') + '\' + $name) }
        }
        catch {
            if ($null -ne (Get-GracefulError $_)) { throw }
            $why = $_.Exception.GetBaseException()
            if ($path -ne $Root -and ($why -is [System.IO.FileNotFoundException] -or $why -is [System.IO.DirectoryNotFoundException])) {
                Add-Remark $Remarks 'left out (vanished while it was read)' $path
                continue
            }
            Stop-GracefulStep ("$(Format-GracefulText $path 200) cannot be saved: $(Get-GracefulReason $_). If a service uses it, stop that service " +
                'in a drain step; if access is denied, manage the host as an administrator.')
        }
    }
}

function Add-File {
    param([string]$Path, $Attributes, $Zip, $Entries, $Tools)
    $share = [System.IO.FileShare]'ReadWrite, Delete'
    $source = New-Object System.IO.FileStream ((Get-GracefulLongPath $Path), [System.IO.FileMode]::Open, [System.IO.FileAccess]::Read, $share, 65536)
    try {
        $entry = New-Entry $Path 'file' $Attributes
        $entry['entry'] = ($Path -replace '^\\\\', 'UNC/' -replace '^([A-Za-z]):', '$1').Replace('\', '/')
        $target = $Zip.CreateEntry($entry['entry'], [System.IO.Compression.CompressionLevel]::Fastest).Open()
        try { $copied = Copy-Stream $source $target $Tools $script:TooLate }
        finally { $target.Dispose() }
        $entry['size'] = $copied.Size
        $entry['checksum'] = $copied.Checksum
        $null = $Entries.Add($entry)
    }
    finally { $source.Dispose() }
}

function Copy-Stream {
    # Copies the rest of a stream to another, or only reads it, within the time. Returns the size and the checksum.
    param($Source, $Target, $Tools, [string]$Late)
    $buffer = New-Object byte[] $script:Chunk
    $hash = [System.Security.Cryptography.SHA256]::Create()
    $size = [long]0
    try {
        while (($read = $Source.Read($buffer, 0, $buffer.Length)) -gt 0) {
            Confirm-Time $Tools $Late
            if ($null -ne $Target) { $Target.Write($buffer, 0, $read) }
            $null = $hash.TransformBlock($buffer, 0, $read, $buffer, 0)
            $size += $read
        }
        $null = $hash.TransformFinalBlock($buffer, 0, 0)
        return @{ Size = $size; Checksum = [BitConverter]::ToString($hash.Hash).Replace('-', '').ToLowerInvariant() }
    }
    finally { $hash.Dispose() }
}

function Get-Checksum {
    param([string]$Path, $Tools)
    $file = [System.IO.File]::OpenRead((Get-GracefulLongPath $Path))
    try { return (Copy-Stream $file $null $Tools 'The archive was not read to its end. Give it more time').Checksum }
    finally { $file.Dispose() }
}

function Test-Archive {
    # Reads the archive back.
    param([string]$Part, [string[]]$Roots, $Tools)
    $file = [System.IO.File]::OpenRead((Get-GracefulLongPath $Part))
    try {
        $zip = New-Object System.IO.Compression.ZipArchive ($file, [System.IO.Compression.ZipArchiveMode]::Read, $true)
        try {
            foreach ($entry in @(Read-Manifest $zip $Roots)) {
                if ($entry['type'] -ne 'file') { continue }
                $stream = $zip.GetEntry($entry['entry']).Open()
                try { $found = Copy-Stream $stream $null $Tools $script:TooLate }
                finally { $stream.Dispose() }
                if ($found.Checksum -ne $entry['checksum']) { throw (New-Object System.IO.InvalidDataException ('a file in it is another one')) }
            }
        }
        finally { $zip.Dispose() }
    }
    finally { $file.Dispose() }
}

function Read-Manifest {
    # The entries. Raises InvalidDataException if one is neither within the saved paths nor a parent of them.
    param($Zip, [string[]]$Roots)
    $listed = $Zip.GetEntry($script:Manifest)
    if ($null -eq $listed) { throw (New-Object System.IO.InvalidDataException ('it has no list of what is in it')) }
    $reader = New-Object System.IO.StreamReader ($listed.Open(), [System.Text.Encoding]::UTF8)
    try { $manifest = ConvertFrom-GracefulJson $reader.ReadToEnd() }
    finally { $reader.Dispose() }
    $types = @{}
    foreach ($entry in @($manifest['entries'])) {
        $path = [string]$entry['path']
        $shown = Format-GracefulQuoted $path
        $inside = @($Roots | Where-Object { Test-Within $path $_ }).Count -gt 0
        $above = @($Roots | Where-Object { Test-Within $_ $path }).Count -gt 0
        if ((Get-Full $path) -cne $path -or -not ($inside -or ($above -and $entry['type'] -eq 'parent'))) {
            throw (New-Object System.IO.InvalidDataException ("it holds $shown, which is not among the paths"))
        }
        if ($types.ContainsKey($path)) { throw (New-Object System.IO.InvalidDataException ("it holds $shown twice")) }
        $parent = Get-Parent $path
        if ($parent -and $parent -ne (Get-Root $path) -and @('directory', 'parent') -notcontains $types[$parent]) {
            throw (New-Object System.IO.InvalidDataException ("it holds $shown, but not as part of a directory"))
        }
        if ($entry['type'] -eq 'file' -and $null -eq $Zip.GetEntry([string]$entry['entry'])) {
            throw (New-Object System.IO.InvalidDataException ("it does not hold $shown"))
        }
        $types[$path] = [string]$entry['type']
    }
    return @($manifest['entries'])
}

# ---- putting back

function Restore-Path {
    # Restores what is in the archive and not on the disk. What is there is not changed.
    param($Data, $Tools, [bool]$Lost)
    $roots = @(Get-NotedRoot $Data)
    $links = $Data['links']
    if ($null -eq $links) { $links = @{} }
    foreach ($root in $roots) { Confirm-NoLink $root $links 'Nothing was put back: ' }
    $missing = @($roots | Where-Object { $null -eq (Get-Attribute $_) })
    if (-not $Lost -and $missing.Count -eq 0) { return @{ Paths = @(); Remarks = '' } }
    $wanted = $roots
    if (-not $Lost) { $wanted = $missing }
    $archive = [string]$Data['archive']
    $restored = New-Object System.Collections.ArrayList
    $remarks = New-Object System.Collections.ArrayList
    Add-Type -AssemblyName System.IO.Compression
    $file = $null
    try {
        try { $file = New-Object System.IO.FileStream ((Get-GracefulLongPath (Get-Full $archive)), [System.IO.FileMode]::Open, [System.IO.FileAccess]::Read, [System.IO.FileShare]::Read) }
        catch {
            Stop-GracefulStep ("The checkpoint $(Format-GracefulText $archive) cannot be read: $(Get-GracefulReason $_). Nothing was put back. If you have " +
                'a copy of it, put it there and run it again.')
        }
        $found = (Copy-Stream $file $null $Tools 'Nothing was put back. Give it more time').Checksum
        if ($found -ne [string]$Data['checksum']) {
            Stop-Damaged $archive "its checksum is $found, but $(Format-GracefulText $Data['checksum'] 80) was recorded"
        }
        $file.Position = 0
        $zip = $null
        try {
            $zip = New-Object System.IO.Compression.ZipArchive ($file, [System.IO.Compression.ZipArchiveMode]::Read, $true)
            $entries = @(Read-Manifest $zip $roots)
        }
        catch {
            if ($null -ne (Get-GracefulError $_)) { throw }
            Stop-Damaged $archive (Get-GracefulReason $_)
        }
        try {
            $made = New-Object System.Collections.ArrayList
            foreach ($entry in $entries) {
                $path = [string]$entry['path']
                if ($entry['type'] -ne 'parent' -and @($wanted | Where-Object { Test-Within $path $_ }).Count -eq 0) { continue }
                Confirm-Time $Tools "$($restored.Count) put back. Run it again for the rest"
                try {
                    if ($null -ne (Get-Attribute $path)) {
                        if ($entry['type'] -ne 'file') { Confirm-Owner $path $entry }
                        continue
                    }
                    Confirm-NoLink $path $links ''
                    if ($entry['type'] -eq 'file') { Restore-File $entry $zip $Tools $remarks }
                    else {
                        $null = [System.IO.Directory]::CreateDirectory((Get-GracefulLongPath $path))
                        Restore-Security $entry $remarks $true
                        $null = $made.Add($entry)
                    }
                    $null = $restored.Add($path)
                }
                catch {
                    $ours = Get-GracefulError $_
                    if ($null -ne $ours -and $ours.Kind -eq 'late') { throw }
                    Stop-GracefulStep "Putting back $(Format-GracefulText $path 200) failed, after $($restored.Count) others: $(Get-GracefulReason $_). Run it again."
                }
            }
            # Restoring the files changed the time of their directory.
            $made.Reverse()
            foreach ($entry in $made) { Set-Time $entry $true }
        }
        finally { $zip.Dispose() }
    }
    finally { if ($null -ne $file) { $file.Dispose() } }
    return @{ Paths = $restored.ToArray(); Remarks = (Join-Remark $remarks) }
}

function Stop-Damaged {
    param([string]$Archive, [string]$Why)
    Stop-GracefulStep ("The checkpoint $(Format-GracefulText $Archive) is damaged: $Why. Nothing was put back. If you have a copy of it, put it " +
        'there and run it again.')
}

function Get-NotedRoot {
    # The record is a file that may be damaged: the paths are checked before they are used.
    param($Data)
    $paths = @($Data['paths'])
    $wrong = @($paths | Where-Object { $_ -isnot [string] -or -not $_ })
    if ($paths.Count -gt 0 -and $wrong.Count -eq 0) { $wrong = @($paths | Where-Object { (Get-Full $_) -cne $_ }) }
    if ($paths.Count -eq 0 -or $wrong.Count -gt 0) {
        Stop-GracefulStep 'The record does not say which paths were saved, so nothing was put back. Repair the record.'
    }
    return $paths
}

function Confirm-NoLink {
    # No parent directory may be a link, unless it was the same link when it was saved.
    param([string]$Path, $Links, [string]$Before)
    foreach ($parent in @(Get-AllParent $Path)) {
        $attributes = Get-Attribute $parent
        if ($null -eq $attributes) { return }
        $target = Get-Target $parent $attributes
        if ($target -and $target -ne [string]$Links[$parent]) {
            Stop-GracefulStep "$Before$(Format-GracefulText $parent 200) is a link or a junction, which it was not when it was saved. Move it away and run it again."
        }
        if (-not (Test-Directory $attributes)) {
            Stop-GracefulStep "$Before$(Format-GracefulText $parent 200) is no directory. Move it away and run it again."
        }
    }
}

function Confirm-Owner {
    # The owner of a directory can give others access to it, so it has to be the same owner.
    param([string]$Path, $Entry)
    $pattern = '^O:(.+?)(?=G:|D:|S:|$)'
    if ([string]$Entry['security'] -notmatch $pattern) { return }
    $was = $Matches[1]
    if ((Get-Security $Path $true) -notmatch $pattern) { return }
    if ($Matches[1] -ne $was -and $script:Trusted -notcontains $Matches[1]) {
        Stop-GracefulStep "$(Format-GracefulText $Path 200) belongs to another user now than when it was saved"
    }
}

function Restore-File {
    param($Entry, $Zip, $Tools, $Remarks)
    $path = [string]$Entry['path']
    $part = (Get-Parent $path).TrimEnd('\') + '\.graceful-' + [Guid]::NewGuid().ToString('N')
    $source = $Zip.GetEntry([string]$Entry['entry']).Open()
    try {
        $target = New-Object System.IO.FileStream ((Get-GracefulLongPath $part), [System.IO.FileMode]::CreateNew, [System.IO.FileAccess]::Write, [System.IO.FileShare]'ReadWrite, Delete')
        try {
            # While it is still empty.
            Restore-Security (New-GracefulMap $Entry @{ path = $part; shown = $path }) $Remarks $false
            $copied = Copy-Stream $source $target $Tools 'Run it again for the rest'
            $target.Flush($true)
        }
        finally { $target.Dispose() }
        if ($copied.Checksum -ne [string]$Entry['checksum']) { Stop-GracefulStep 'its content in the archive is another one than was saved' }
        # If somebody else has created it meanwhile, this fails, and the next attempt leaves it as it is.
        [System.IO.File]::Move((Get-GracefulLongPath $part), (Get-GracefulLongPath $path))
        Set-Time $Entry $false
    }
    finally {
        $source.Dispose()
        try { [System.IO.File]::Delete((Get-GracefulLongPath $part)) } catch { $null = $_ }
    }
}

function Set-Time {
    param($Entry, [bool]$IsDirectory)
    $info = Get-Info ([string]$Entry['path']) $IsDirectory
    $info.CreationTimeUtc = New-Object System.DateTime ([long]$Entry['created'], [System.DateTimeKind]::Utc)
    $info.LastWriteTimeUtc = New-Object System.DateTime ([long]$Entry['modified'], [System.DateTimeKind]::Utc)
    $wanted = [System.IO.FileAttributes]([int]$Entry['attributes']) -band $script:Settable
    # Other attributes stay as they are. Last, since a read-only file cannot be written.
    $info.Refresh()
    $info.Attributes = ($info.Attributes -band (-bnot $script:Settable)) -bor $wanted
}

# ---- access rights

function Get-Info {
    param([string]$Path, [bool]$IsDirectory)
    if ($IsDirectory) { return (New-Object System.IO.DirectoryInfo (Get-GracefulLongPath $Path)) }
    return (New-Object System.IO.FileInfo (Get-GracefulLongPath $Path))
}

function Get-Security {
    # Owner, group and access rights as text; empty where the file system has none.
    param([string]$Path, [bool]$IsDirectory)
    $info = Get-Info $Path $IsDirectory
    try {
        if ($null -ne $info.PSObject.Methods['GetAccessControl']) { $security = $info.GetAccessControl($script:Sections) }
        else { $security = [System.IO.FileSystemAclExtensions]::GetAccessControl($info, $script:Sections) }
        return $security.GetSecurityDescriptorSddlForm($script:Sections)
    }
    catch {
        $why = $_.Exception.GetBaseException()
        if ($why -is [System.NotSupportedException] -or $why -is [System.PlatformNotSupportedException]) { return '' }
        throw
    }
}

function Set-Security {
    param([string]$Path, [string]$Text, [bool]$IsDirectory, $Sections = $script:Sections)
    $info = Get-Info $Path $IsDirectory
    $security = New-Object System.Security.AccessControl.FileSecurity
    if ($IsDirectory) { $security = New-Object System.Security.AccessControl.DirectorySecurity }
    $security.SetSecurityDescriptorSddlForm($Text, $Sections)
    if ($null -ne $info.PSObject.Methods['SetAccessControl']) { $info.SetAccessControl($security) }
    else { [System.IO.FileSystemAclExtensions]::SetAccessControl($info, $security) }
}

function Restore-Security {
    # As it was saved. A user who may not change the owner restores the access rights only.
    param($Entry, $Remarks, [bool]$IsDirectory)
    $text = [string]$Entry['security']
    if (-not $text) { return }
    $shown = [string]$Entry['path']
    if ($Entry.Contains('shown')) { $shown = [string]$Entry['shown'] }
    try { Set-Security ([string]$Entry['path']) $text $IsDirectory }
    catch {
        Set-Security ([string]$Entry['path']) $text $IsDirectory ([System.Security.AccessControl.AccessControlSections]::Access)
        Add-Remark $Remarks 'put back without its owner' $shown
    }
}

# ---- remarks

function Add-Remark {
    param($Remarks, [string]$What, [string]$Path)
    $null = $Remarks.Add(@($What, $Path))
}

function Join-Remark {
    # Each kind of remark once, with the first path and the number of others.
    param($Remarks)
    $order = @($Remarks | ForEach-Object { $_[0] } | Select-Object -Unique)
    $texts = foreach ($what in $order) {
        $paths = @($Remarks | Where-Object { $_[0] -eq $what } | ForEach-Object { $_[1] })
        $more = ''
        if ($paths.Count -gt 1) { $more = " and $($paths.Count - 1) more" }
        "${what}: $(Format-GracefulQuoted $paths[0])$more"
    }
    return (@($texts) -join '; ')
}

Export-ModuleMember -Function 'Get-GracefulCheckpoint_paths'
