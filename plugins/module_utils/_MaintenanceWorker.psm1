# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs long work in a process of its own, so that a lost connection does not end it, and later calls get its result. As _worker.py
# and _run.py. The process gets its code, its order and the secrets in it through a pipe; they are not written to disk.

#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceTools
#AnsibleRequires -PowerShell ansible_collections.graceful.azure.plugins.module_utils._MaintenanceRecord

Set-StrictMode -Version 2.0

# How long a worker may take to end, in seconds.
$script:Grace = 5.0
# How long the new process may take until it has the lock: PowerShell starts slowly on a busy host.
$script:StartSeconds = 60
# How long another call may take that only looks whether there is a worker.
$script:LookSeconds = 0.25
# Bytes of stdout and of stderr that are kept.
$script:LargestOutput = 4 * 1024 * 1024

# Starts a process outside of the job of the connection, which ends with the connection. Puts programs into a job of their own, so
# that they end with a worker that is killed.
$script:Native = @'
using System;
using System.ComponentModel;
using System.Runtime.InteropServices;

namespace GracefulAzure
{
    public static class Native
    {
        [StructLayout(LayoutKind.Sequential, CharSet = CharSet.Unicode)]
        private struct StartupInfo
        {
            public int Size;
            public string Reserved, Desktop, Title;
            public int X, Y, XSize, YSize, XCountChars, YCountChars, FillAttribute, Flags;
            public short ShowWindow, Reserved2Size;
            public IntPtr Reserved2, StdInput, StdOutput, StdError;
        }

        [StructLayout(LayoutKind.Sequential)]
        private struct ProcessInformation
        {
            public IntPtr Process, Thread;
            public int ProcessId, ThreadId;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct Limits
        {
            public long PerProcessUserTimeLimit, PerJobUserTimeLimit;
            public uint LimitFlags;
            public UIntPtr MinimumWorkingSetSize, MaximumWorkingSetSize;
            public uint ActiveProcessLimit;
            public UIntPtr Affinity;
            public uint PriorityClass, SchedulingClass;
            public ulong Reads, Writes, Others, ReadBytes, WriteBytes, OtherBytes;
            public UIntPtr ProcessMemoryLimit, JobMemoryLimit, PeakProcessMemoryUsed, PeakJobMemoryUsed;
        }

        internal const int ExtendedLimits = 9;
        internal const uint BreakawayOk = 0x800, SilentBreakawayOk = 0x1000, KillOnClose = 0x2000;
        private const uint NewProcessGroup = 0x200, BreakawayFromJob = 0x1000000, NoWindow = 0x8000000;

        [DllImport("kernel32.dll", CharSet = CharSet.Unicode, SetLastError = true)]
        private static extern bool CreateProcessW(string application, System.Text.StringBuilder commandLine, IntPtr processSecurity,
            IntPtr threadSecurity, bool inheritHandles, uint flags, IntPtr environment, string directory, ref StartupInfo startup,
            out ProcessInformation information);

        [DllImport("kernel32.dll", SetLastError = true)]
        internal static extern bool CloseHandle(IntPtr handle);

        [DllImport("kernel32.dll")]
        private static extern IntPtr GetCurrentProcess();

        [DllImport("kernel32.dll", SetLastError = true)]
        private static extern bool IsProcessInJob(IntPtr process, IntPtr job, out bool result);

        [DllImport("kernel32.dll", SetLastError = true)]
        private static extern bool QueryInformationJobObject(IntPtr job, int kind, out Limits limits, int size, IntPtr returned);

        [DllImport("kernel32.dll", CharSet = CharSet.Unicode, SetLastError = true)]
        internal static extern IntPtr CreateJobObjectW(IntPtr security, string name);

        [DllImport("kernel32.dll", SetLastError = true)]
        internal static extern bool SetInformationJobObject(IntPtr job, int kind, ref Limits limits, int size);

        [DllImport("kernel32.dll", SetLastError = true)]
        internal static extern bool AssignProcessToJobObject(IntPtr job, IntPtr process);

        [DllImport("kernel32.dll", SetLastError = true)]
        internal static extern bool TerminateJobObject(IntPtr job, uint code);

        private static bool InJob()
        {
            bool result;
            return IsProcessInJob(GetCurrentProcess(), IntPtr.Zero, out result) && result;
        }

        // Whether a child can be outside of the job that this process is in.
        public static bool CanBreakAway()
        {
            if (!InJob()) { return true; }
            Limits limits;
            int size = Marshal.SizeOf(typeof(Limits));
            if (!QueryInformationJobObject(IntPtr.Zero, ExtendedLimits, out limits, size, IntPtr.Zero)) { return false; }
            return (limits.LimitFlags & (BreakawayOk | SilentBreakawayOk)) != 0;
        }

        // Starts a process that inherits nothing, and returns its id.
        public static int Start(string application, string commandLine, string directory)
        {
            StartupInfo startup = new StartupInfo();
            startup.Size = Marshal.SizeOf(typeof(StartupInfo));
            ProcessInformation information;
            uint flags = NoWindow | NewProcessGroup | (InJob() ? BreakawayFromJob : 0);
            if (!CreateProcessW(application, new System.Text.StringBuilder(commandLine), IntPtr.Zero, IntPtr.Zero, false, flags,
                IntPtr.Zero, directory, ref startup, out information))
            {
                throw new Win32Exception();
            }
            CloseHandle(information.Thread);
            CloseHandle(information.Process);
            return information.ProcessId;
        }
    }

    // Ends with the process that made it, and takes everything in it along, unless it was released before.
    public sealed class Job : IDisposable
    {
        private IntPtr _handle;

        public Job()
        {
            _handle = Native.CreateJobObjectW(IntPtr.Zero, null);
            if (_handle == IntPtr.Zero) { throw new Win32Exception(); }
            Limit(Native.KillOnClose);
        }

        private void Limit(uint flags)
        {
            Native.Limits limits = new Native.Limits();
            limits.LimitFlags = flags;
            if (!Native.SetInformationJobObject(_handle, Native.ExtendedLimits, ref limits, Marshal.SizeOf(typeof(Native.Limits))))
            {
                throw new Win32Exception();
            }
        }

        public bool Add(IntPtr process) { return Native.AssignProcessToJobObject(_handle, process); }

        public void End() { Native.TerminateJobObject(_handle, 1); }

        public void Release() { Limit(0); }

        public void Dispose()
        {
            if (_handle != IntPtr.Zero) { Native.CloseHandle(_handle); }
            _handle = IntPtr.Zero;
        }
    }
}
'@

function Import-Native {
    if ($null -eq ('GracefulAzure.Native' -as [type])) { Add-Type -TypeDefinition $script:Native }
}

# ---- programs

function Invoke-GracefulProgram {
    # Runs a program without a shell, for so many seconds at most. Returns @{Code; Out; Err; Message}.
    param($Argv, [double]$Seconds, $Environment = $null)
    Import-Native
    $arguments = @($Argv)
    $program = Format-GracefulText $arguments[0] 200
    $start = New-Object System.Diagnostics.ProcessStartInfo
    $start.FileName = [string]$arguments[0]
    $start.Arguments = (@($arguments | Select-Object -Skip 1) | ForEach-Object { ConvertTo-Argument ([string]$_) }) -join ' '
    $start.UseShellExecute = $false
    $start.CreateNoWindow = $true
    $start.RedirectStandardInput = $true
    $start.RedirectStandardOutput = $true
    $start.RedirectStandardError = $true
    # A directory that every user can read.
    $start.WorkingDirectory = [System.Environment]::GetFolderPath('System')
    if ($null -ne $Environment) {
        foreach ($name in @($Environment.PSBase.Keys)) { $start.EnvironmentVariables[[string]$name] = [string]$Environment[$name] }
    }
    $job = New-Object GracefulAzure.Job
    $process = New-Object System.Diagnostics.Process
    $process.StartInfo = $start
    try {
        try { $null = $process.Start() }
        catch {
            $inner = $_.Exception.GetBaseException()
            $why = Get-GracefulReason $_
            if ($inner -is [System.ComponentModel.Win32Exception] -and @(2, 3) -contains $inner.NativeErrorCode) { $why = 'there is no such program on this host' }
            throw (New-GracefulError "$program cannot be run: $why.")
        }
        $null = $job.Add($process.Handle)
        $process.StandardInput.Close()
        $said = Read-Output $process ((Get-GracefulMonotonic) + $Seconds)
        if ($null -eq $said) {
            $job.End()
            throw (New-GracefulError "$program did not end within $(Format-GracefulNumber ([Math]::Max(0.0, $Seconds))) s and was stopped." 'late')
        }
        # Processes that it has started and left running go on.
        $job.Release()
        $lines = @(($said.Err.Trim() + "`n" + $said.Out.Trim()).Trim() -split "`r?`n")
        if ($said.Err.Trim()) { $lines = @($said.Err.Trim() -split "`r?`n") }
        $message = $lines[-1].Trim()
        if (-not $message) { $message = 'no output' }
        return @{ Code = $process.ExitCode; Out = $said.Out; Err = $said.Err; Message = $message }
    }
    finally {
        # Also if this process is ended meanwhile.
        $job.Dispose()
        $process.Dispose()
    }
}

function ConvertTo-Argument {
    # Quoted as the C runtime parses a command line.
    param([string]$Text)
    if ($Text -and $Text -notmatch '[\s"]') { return $Text }
    $text = [regex]::Replace($Text, '(\\*)"', '$1$1\"')
    return '"' + [regex]::Replace($text, '(\\+)$', '$1$1') + '"'
}

function Read-Output {
    # The output of the program until it ends, null at the deadline. A process that it leaves running may keep its output open, and is not waited for.
    param([System.Diagnostics.Process]$Process, [double]$End)
    $streams = @()
    foreach ($base in @($Process.StandardOutput.BaseStream, $Process.StandardError.BaseStream)) {
        $buffer = New-Object byte[] 65536
        $streams += @{ Base = $base; Buffer = $buffer; Task = $base.ReadAsync($buffer, 0, $buffer.Length); Kept = (New-Object System.IO.MemoryStream) }
    }
    while ($true) {
        $ended = $Process.HasExited
        $left = $End - (Get-GracefulMonotonic)
        $pause = 50
        # The last output may come a moment after the end.
        if (-not $ended) { $pause = [int][Math]::Max(0, [Math]::Min(50, $left * 1000)) }
        $read = $false
        foreach ($one in $streams) {
            if ($null -eq $one.Task) { continue }
            $complete = $false
            try { $complete = $one.Task.Wait($pause) } catch { $one.Task = $null }
            if (-not $complete) { continue }
            $size = $one.Task.Result
            if ($size -le 0) {
                $one.Task = $null
                continue
            }
            $read = $true
            $room = [int][Math]::Max(0, [Math]::Min($size, $script:LargestOutput - $one.Kept.Length))
            $one.Kept.Write($one.Buffer, 0, $room)
            $one.Task = $one.Base.ReadAsync($one.Buffer, 0, $one.Buffer.Length)
        }
        if ($ended -and -not $read) { break }
        if (-not $ended -and $left -le 0) { return $null }
        if (@($streams | Where-Object { $null -ne $_.Task }).Count -eq 0 -and -not $ended) { $null = $Process.WaitForExit($pause) }
    }
    return @{ Out = (ConvertFrom-Output $streams[0].Kept.ToArray()); Err = (ConvertFrom-Output $streams[1].Kept.ToArray()) }
}

function ConvertFrom-Output {
    # Programs write UTF-8, or the code page of the console.
    param([byte[]]$Bytes)
    if ($null -eq $Bytes -or $Bytes.Length -eq 0) { return '' }
    try { return (New-Object System.Text.UTF8Encoding ($false, $true)).GetString($Bytes) }
    catch {
        try { return [System.Text.Encoding]::GetEncoding([System.Globalization.CultureInfo]::CurrentCulture.TextInfo.OEMCodePage).GetString($Bytes) }
        catch { return [System.Text.Encoding]::UTF8.GetString($Bytes) }
    }
}

# ---- the worker, at most one on a host. Its lock ends with its process; its state file says whose it is and how far it came

function Get-WorkerFile {
    param($Keeper, [string]$Name)
    return [System.IO.Path]::Combine($Keeper.Path, $Name)
}

function Test-GracefulWorker {
    # Whether a worker is running.
    param($Keeper)
    if (-not [System.IO.Directory]::Exists($Keeper.Path)) { return $false }
    return Test-GracefulLocked (Get-WorkerFile $Keeper '.worker.lock')
}

function Open-WorkerLock {
    # Null if a worker has it, and not another call that only looks, which takes a moment.
    param($Keeper, [double]$Seconds)
    $end = (Get-GracefulMonotonic) + $Seconds
    while ($true) {
        $lock = Open-GracefulLock (Get-WorkerFile $Keeper '.worker.lock')
        if ($null -ne $lock -or (Get-GracefulMonotonic) -ge $end) { return $lock }
        Wait-Graceful 0.01
    }
}

function Get-GracefulWorkerState {
    param($Keeper)
    try {
        $bytes = Read-GracefulFile (Get-WorkerFile $Keeper '.worker.json') (1 -shl 20)
        if ($null -ne $bytes) {
            $state = ConvertFrom-GracefulJson ([System.Text.Encoding]::UTF8.GetString($bytes))
            if ($state -is [System.Collections.IDictionary]) { return , $state }
        }
    }
    catch { $null = $_ }
    return , (New-GracefulMap)
}

function Save-State {
    param($Keeper, $State)
    $file = Get-WorkerFile $Keeper '.worker.json'
    try {
        [System.IO.File]::WriteAllText("$file.draft", (ConvertTo-GracefulJson $State))
        Move-GracefulDraft "$file.draft" $file
    }
    catch { $null = $_ }
}

function Get-Began {
    # When a process began, which no later one with the same id has.
    param([System.Diagnostics.Process]$Process)
    return [string]$Process.StartTime.ToUniversalTime().Ticks
}

function Wait-GracefulWorker {
    # Waits for so long at most. Returns whether the work is done.
    param($Keeper, [double]$Seconds)
    $end = (Get-GracefulMonotonic) + $Seconds
    $pause = 0.02
    while ($true) {
        if (-not (Test-GracefulWorker $Keeper)) { return $true }
        $left = $end - (Get-GracefulMonotonic)
        if ($left -le 0) { return $false }
        Wait-Graceful ([Math]::Min($pause, $left))
        $pause = [Math]::Min(0.2, $pause * 1.5)
    }
}

function Stop-GracefulWorker {
    # Ends a worker whose run has lost its claim, or whose order was replaced; its programs end with it.
    param($Keeper)
    for ($try = 0; $try -lt 2; $try++) {
        Stop-WorkerProcess $Keeper
        if (Wait-GracefulWorker $Keeper $script:Grace) { return }
    }
    throw (New-GracefulError 'An earlier process on this host does not end. It is tried again.')
}

function Stop-WorkerProcess {
    # The worker notes its process a moment after it has begun. By now, another process may have its id: that one is left alone.
    param($Keeper)
    $end = (Get-GracefulMonotonic) + $script:Grace
    while ((Test-GracefulWorker $Keeper) -and (Get-GracefulMonotonic) -lt $end) {
        $state = Get-GracefulWorkerState $Keeper
        $id = $state['pid']
        if (($id -is [long] -or $id -is [int]) -and $id -gt 4 -and $state['began']) {
            try {
                $process = [System.Diagnostics.Process]::GetProcessById($id)
                try { if ((Get-Began $process) -ceq $state['began']) { $process.Kill() } } finally { $process.Dispose() }
            }
            catch { $null = $_ }
            return
        }
        Wait-Graceful 0.02
    }
}

function Set-GracefulReported {
    # Notes that a call has returned the result.
    param($Keeper, $State)
    if (-not $State.Contains('result')) { return }
    $lock = Open-WorkerLock $Keeper $script:LookSeconds
    # Otherwise the next worker has begun, and the state is its own.
    if ($null -eq $lock) { return }
    try {
        if ((ConvertTo-GracefulJson (Get-GracefulWorkerState $Keeper) -Sorted) -ceq (ConvertTo-GracefulJson $State -Sorted)) {
            Save-State $Keeper (New-GracefulMap $State @{ reported = $true })
        }
    }
    finally { $lock.Dispose() }
}

function Invoke-Work {
    # Does the work in this process. The block gets a block to call with its progress.
    param($Keeper, $Owner, [scriptblock]$Work)
    $mine = New-GracefulMap $Owner @{ pid = $PID; began = (Get-Began ([System.Diagnostics.Process]::GetCurrentProcess())) }
    Save-State $Keeper $mine
    $progress = {
        param([string]$Message)
        Save-State $Keeper (New-GracefulMap $mine @{ progress = $Message })
    }
    try { $result = & $Work $progress }
    catch {
        $result = New-GracefulMap @{ state = 'failed' }
        $known = Get-GracefulError $_
        if ($null -ne $known) {
            $result['message'] = $known.Message
            if ($known.Fields.Contains('state')) { $result['state'] = $known.Fields['state'] }
        }
        else {
            $where = "$($_.InvocationInfo.ScriptLineNumber): $($_.Exception.GetType().Name) $($_.Exception.Message)"
            $result['message'] = "An error in graceful.azure itself: $(Format-GracefulText $where 300)"
        }
    }
    Save-State $Keeper (New-GracefulMap $mine @{ result = $result; ended = Get-GracefulNow })
}

function Get-SourceOf {
    # The text of the file that a command is in. What Ansible sends is in no file.
    param([string]$Command)
    $ast = (Get-Command -Name $Command -CommandType Function).ScriptBlock.Ast
    while ($null -ne $ast.Parent) { $ast = $ast.Parent }
    return $ast.Extent.Text
}

function Start-GracefulWorker {
    # Starts the work in a process that does not end with this one. Returns false if another worker has begun first. Request: all
    # that Invoke-GracefulOrderedWork needs.
    param($Keeper, $Owner, $Request)
    $lock = Open-WorkerLock $Keeper $script:LookSeconds
    if ($null -eq $lock) { return $false }
    try {
        Save-State $Keeper $Owner
        Send-Work $Request $lock
    }
    finally { $lock.Dispose() }
    return $true
}

function Send-Work {
    # Starts the process, and returns when it has the lock, which is held until then.
    param($Request, [System.IO.FileStream]$Lock)
    $commands = @('New-GracefulMap', 'New-GracefulKeeper', 'Invoke-GracefulWorkerRequest', 'Invoke-GracefulOrderedWork', 'Test-GracefulPort')
    $commands += @(Get-Command -Name 'Get-GracefulDrain_*', 'Get-GracefulCheckpoint_*' -CommandType Function | ForEach-Object { $_.Name })
    $lines = @()
    foreach ($command in $commands) {
        $bytes = [System.Text.Encoding]::UTF8.GetBytes((Get-SourceOf $command))
        $lines += (Get-Command -Name $command -CommandType Function).ModuleName + ' ' + [Convert]::ToBase64String($bytes)
    }
    $lines += 'request ' + [Convert]::ToBase64String([System.Text.Encoding]::UTF8.GetBytes((ConvertTo-GracefulJson $Request)))
    $name = 'graceful.azure.' + [System.Guid]::NewGuid().ToString('N')
    # Other users may find the pipe and connect to it, and the order may have secrets in it: only a process that knows this gets it.
    $token = [System.Guid]::NewGuid().ToString('N')
    $pipe = New-Object System.IO.Pipes.NamedPipeServerStream ($name, [System.IO.Pipes.PipeDirection]::InOut, 1, [System.IO.Pipes.PipeTransmissionMode]::Byte, [System.IO.Pipes.PipeOptions]::Asynchronous)
    try {
        Start-OutsideOfJob (Get-Bootstrap $name $token)
        $connected = $pipe.BeginWaitForConnection($null, $null)
        if (-not $connected.AsyncWaitHandle.WaitOne($script:StartSeconds * 1000)) {
            throw (New-GracefulError "The process that does the work did not begin within $($script:StartSeconds) s. It is tried again.")
        }
        $pipe.EndWaitForConnection($connected)
        if ((Read-FromPipe $pipe 32) -cne $token) { throw (New-GracefulError 'The process that does the work did not begin. It is tried again.') }
        $bytes = [System.Text.Encoding]::ASCII.GetBytes(($lines -join "`n") + "`n`n")
        $pipe.Write($bytes, 0, $bytes.Length)
        $pipe.Flush()
        $Lock.Dispose()
        if ((Read-FromPipe $pipe 1) -cne '1') {
            throw (New-GracefulError 'The process that does the work did not begin. It is tried again.')
        }
    }
    catch [System.IO.IOException] {
        throw (New-GracefulError "The process that does the work did not begin ($(Format-GracefulText $_.Exception.Message 200)). It is tried again.")
    }
    finally { $pipe.Dispose() }
}

function Read-FromPipe {
    # So many characters; fewer if they do not come in time.
    param([System.IO.Stream]$Pipe, [int]$Count)
    $end = (Get-GracefulMonotonic) + $script:StartSeconds
    $bytes = New-Object byte[] $Count
    $read = 0
    while ($read -lt $Count) {
        $reading = $Pipe.BeginRead($bytes, $read, $Count - $read, $null, $null)
        $left = [int](1000 * [Math]::Max(0.0, $end - (Get-GracefulMonotonic)))
        if (-not $reading.AsyncWaitHandle.WaitOne($left)) { break }
        $piece = $Pipe.EndRead($reading)
        if ($piece -le 0) { break }
        $read += $piece
    }
    return [System.Text.Encoding]::ASCII.GetString($bytes, 0, $read)
}

function Get-Bootstrap {
    # The script of the new process: it gets its code and its order through the pipe.
    param([string]$PipeName, [string]$Token)
    $text = @'
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$pipe = New-Object System.IO.Pipes.NamedPipeClientStream ('.', 'PIPE_NAME', [System.IO.Pipes.PipeDirection]::InOut)
$pipe.Connect(60000)
$pipe.Write([System.Text.Encoding]::ASCII.GetBytes('TOKEN'), 0, 32)
$pipe.Flush()
$reader = New-Object System.IO.StreamReader ($pipe, [System.Text.Encoding]::ASCII)
$request = ''
while ($true) {
    $line = $reader.ReadLine()
    if (-not $line) { break }
    $name, $body = $line.Split(' ')
    $text = [System.Text.Encoding]::UTF8.GetString([Convert]::FromBase64String($body))
    if ($name -eq 'request') { $request = $text }
    else { New-Module -Name $name -ScriptBlock ([ScriptBlock]::Create($text)) | Import-Module -Global -WarningAction SilentlyContinue }
}
Invoke-GracefulWorkerRequest $request $pipe
'@
    return $text.Replace('PIPE_NAME', $PipeName).Replace('TOKEN', $Token)
}

function Invoke-GracefulWorkerRequest {
    # In the new process: takes the lock, confirms that, and does the work of the request.
    param([string]$Json, [System.IO.Stream]$Pipe)
    $request = ConvertFrom-GracefulJson $Json
    $keeper = New-GracefulKeeper $request['directory'] $request['run']
    $lock = Open-WorkerLock $keeper $script:Grace
    if ($null -eq $lock) { return }
    try {
        $Pipe.WriteByte(49)
        $Pipe.Flush()
        $Pipe.Dispose()
        Invoke-Work $keeper $request['owner'] {
            param($progress)
            Invoke-GracefulOrderedWork $keeper $request $progress
        }
    }
    finally { $lock.Dispose() }
}

function Start-OutsideOfJob {
    # With WinRM and ssh a child can leave the job of the connection; where it cannot, as with PSRP, WMI starts it.
    param([string]$Script)
    Import-Native
    $name = 'pwsh.exe'
    if ($PSVersionTable.PSVersion.Major -lt 6) { $name = 'powershell.exe' }
    $program = [System.IO.Path]::Combine($PSHOME, $name)
    $encoded = [Convert]::ToBase64String([System.Text.Encoding]::Unicode.GetBytes($Script))
    $commandLine = "`"$program`" -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass -EncodedCommand $encoded"
    $directory = [System.Environment]::GetFolderPath('System')
    if ([GracefulAzure.Native]::CanBreakAway()) {
        $null = [GracefulAzure.Native]::Start($program, $commandLine, $directory)
        return
    }
    $hidden = New-CimInstance -ClassName Win32_ProcessStartup -ClientOnly -Property @{ ShowWindow = [uint16]0 }
    $made = Invoke-CimMethod -ClassName Win32_Process -MethodName Create -Arguments @{
        CommandLine = $commandLine; CurrentDirectory = $directory; ProcessStartupInformation = $hidden
    }
    if ($made.ReturnValue -ne 0) {
        throw (New-GracefulError "The process that does the work could not be started: WMI answered $($made.ReturnValue).")
    }
}

Export-ModuleMember -Function @(
    'Invoke-GracefulProgram', 'Test-GracefulWorker', 'Get-GracefulWorkerState', 'Wait-GracefulWorker', 'Stop-GracefulWorker',
    'Set-GracefulReported', 'Start-GracefulWorker', 'Invoke-GracefulWorkerRequest'
)
