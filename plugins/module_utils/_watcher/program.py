# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program: watcher [--config FILE] [--once] [--print]."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import typing as t

from .._errors import EventsError, WrongOption
from .._files import try_lock
from .._peer import tls_context
from .._text import clean
from . import config as configuration

# As in sysexits.h; the unit does not start it again after a configuration that cannot be used.
WRONG_CONFIGURATION, UNAVAILABLE = 78, 69
CONFIG = "/etc/graceful/watcher.json"


def main(arguments: t.Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    os.umask(0o077)
    try:
        config = configuration.load(given.config)
        if given.act:
            # The programs of the steps, and the files that they make, are as in a run.
            os.umask(0o022)
            return _act(config)
        return _watch(config, given.once, given.print)
    except WrongOption as exc:
        log(exc.message)
        return WRONG_CONFIGURATION
    except EventsError as exc:
        log(exc.message)
        return UNAVAILABLE
    except OSError as exc:
        # Such as a disk that is full, or cannot be written.
        log(f"{exc.filename or 'The watcher'}: {exc.strerror or exc}. It is tried again.")
        return UNAVAILABLE


def _arguments(arguments: t.Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "watcher", description="Reports every change of the events that Azure announces to this VM."
    )
    parser.add_argument(
        "--config", default=CONFIG, metavar="FILE", help=f"what the role has written (default: {CONFIG})"
    )
    parser.add_argument("--once", action="store_true", help="look once, report what is new, and end")
    parser.add_argument(
        "--print", action="store_true", help="a dry run: print the messages; send nothing, write nothing, drain nothing"
    )
    # What the service itself uses.
    parser.add_argument("--act", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _write(stream: t.TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def log(text: str) -> None:
    """One line for the journal, which adds the time."""
    _write(sys.stderr, clean(text, 1000))


def _end(_number: int, _frame: t.Any) -> None:
    # All files are complete at any moment, so it may end anywhere.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(0)


def _lock(path: str, message: str) -> None:
    """It is held until this process ends."""
    if try_lock(path) is None:
        raise EventsError(message)


def _watch(config: configuration.Config, once: bool, printed: bool) -> int:
    from .watcher import Watcher

    if printed:
        for receiver in config.receivers:
            if receiver.ca_file:
                # Nothing is sent, so that a mistake would not be noticed otherwise.
                tls_context(ca_file=receiver.ca_file)
        watcher = Watcher(config, log, printed=lambda message: _write(sys.stdout, json.dumps(message)))
    else:
        os.makedirs(config.state_dir, 0o700, exist_ok=True)
        busy = "The watcher runs already on this host. Look with --print, which changes nothing."
        _lock(os.path.join(config.state_dir, "lock"), busy)
        watcher = Watcher(config, log)
    if once:
        return 0 if watcher.once() else 1
    watcher.run()
    return 0


def _act(config: configuration.Config) -> int:
    """Drain the host and put it back, in a process of its own: what it does cannot delay the watching."""
    from .._client import Limits
    from .._record import Keeper
    from .on_its_own import HostRun, run_of

    if config.on_its_own is None:
        raise WrongOption(f"{config.path}: this host is not to act on its own.")
    parent = os.getppid()
    busy = "Another process of the watcher acts on this host already."
    _lock(os.path.join(config.state_dir, "act.lock"), busy)
    service, keeper = config.service(Limits(2.0, 10.0, 0)), Keeper(config.record_dir, run_of(config.host))
    return HostRun(config.on_its_own, keeper, service, config.vm_name, log, lambda: os.getppid() == parent).run()
