# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs programs without a shell, for no longer than they may take."""

from __future__ import annotations

import contextlib
import os
import pwd
import selectors
import signal
import subprocess
import time
import typing as t

from ._errors import EventsError
from ._kind import Ran
from ._patience import Late
from ._text import clean

# Of each of stdout and stderr; the rest is read and dropped.
LARGEST_OUTPUT = 4 * 1024 * 1024
# How often it is looked whether the program has ended while something else keeps its output open.
POLL = 0.05


def run(
    argv: t.Sequence[str],
    seconds: float,
    user: str | None = None,
    environment: t.Mapping[str, str] | None = None,
    pass_fds: t.Sequence[int] = (),
    note: t.Callable[[int | None], None] | None = None,
) -> Ran:
    """Run a program to its end. At the deadline it is killed, with everything that it has started in its group.

    `note` is called with its process group when it has begun, and with None when it has ended.
    """
    program = clean(argv[0], 200)
    become, variables = _as_user(program, user)
    try:
        # There is no Ansible here whose run_command could be called.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Where any user may be, and the same whoever called us.
            cwd="/",
            env={**_environment(), **variables, **(environment or {})},
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=become,
        )
    except FileNotFoundError as exc:
        raise EventsError(f"{program} cannot be run: there is no such program on this host.") from exc
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        reason = clean(getattr(exc, "strerror", None) or exc, 200)
        raise EventsError(f"{program} cannot be run: {reason}.") from exc
    try:
        if note:
            note(process.pid)
        out, err = _output(process, time.monotonic() + seconds)
    except TimeoutError:
        raise Late(f"{program} did not end within {max(0.0, seconds):.3g} s and was stopped.") from None
    finally:
        # Also when this process gets a signal to end meanwhile.
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if note:
            note(None)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return Ran(process.returncode, out, err)


def _environment() -> dict[str, str]:
    # Tools of administrators live where the path of a login without a shell may not lead.
    path = os.pathsep.join([os.environ.get("PATH") or os.defpath, "/usr/sbin", "/sbin"])
    return {**os.environ, "PATH": path, "LC_ALL": "C"}


def _as_user(program: str, user: str | None) -> tuple[t.Callable[[], None] | None, dict[str, str]]:
    """The function that changes the user of the child, and the variables of that user."""
    if user is None:
        return None, {}
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError) as exc:
        raise EventsError(f"{program} cannot be run: there is no user {clean(user, 80)} on this host.") from exc
    variables = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    if entry.pw_uid == os.geteuid():
        return None, variables
    if os.geteuid() != 0:
        raise EventsError(
            f"{program} cannot be run as {clean(user, 80)}: only root can become another user. Set become to true for "
            "this host."
        )
    # Looked up here: the child must not ask a directory service.
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)

    def become() -> None:
        os.setgroups(groups)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)

    return become, variables


def _output(process: subprocess.Popen[bytes], end: float) -> tuple[str, str]:
    """What the program prints until it ends. A process that it leaves running may keep its output open: that is no
    reason to wait."""
    kept: dict[t.Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        while True:
            has_ended = process.poll() is not None
            left = end - time.monotonic()
            for key, _events in selector.select(0 if has_ended else max(0.0, min(POLL, left))):
                piece = os.read(key.fd, 65536)
                room = LARGEST_OUTPUT - len(kept[key.fileobj])
                kept[key.fileobj] += piece[:room]
                if not piece:
                    selector.unregister(key.fileobj)
            if has_ended:
                break
            if left <= 0:
                raise TimeoutError
            if not selector.get_map():
                # It has closed its output: only its end is waited for.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, left))
    out, err = (bytes(each).decode("utf-8", "replace") for each in kept.values())
    return out, err
