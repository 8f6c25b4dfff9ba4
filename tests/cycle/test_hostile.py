# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that lie, and bad luck: nothing of it runs on the controller, and nothing is approved too early."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

from ansible_collections.graceful.azure.tests.cycle.harness import Fleet, Run

# Runs the module as the real Python would, and then tells what its lie makes of the result.
LIAR = """#!{python}
import json, subprocess, sys
done = subprocess.run([{python!r}, *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE)
try:
    told = json.loads(done.stdout)
    scope = {{}}
    exec(open({lie!r}).read(), scope)
    told = json.dumps(scope["lie"](told))
except ValueError:
    told = done.stdout.decode()
sys.stdout.write(told)
sys.exit(done.returncode)
"""
# Every text that a host sends is a payload, but for those that the controller has to understand to go on.
PAYLOADS_EVERYWHERE = """
KEPT = ("state", "mode", "event_id", "event_type", "event_status", "phase", "kind", "status", "what", "not_before",
        "run_id", "resources", "vm_name", "leader", "order", "name", "document")

def poisoned(value, key=""):
    if isinstance(value, dict):
        return {{**{{name: poisoned(one, name) for name, one in value.items()}}, {payload!r}: {payload!r}}}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return {payload!r} if isinstance(value, str) and key not in KEPT else value

def lie(told):
    # Facts go before what the inventory says.
    told["ansible_facts"] = dict.fromkeys(("graceful_pass", "graceful_host", "maintenance_looked"), {payload!r})
    if "report" in told:
        told["report"], told["observation"] = poisoned(told["report"]), poisoned(told["observation"])
        told.update(msg={payload!r}, warnings=[{payload!r}], exception={payload!r})
        told.update(deprecations=[{{"msg": {payload!r}}}])
    return told
"""
# A terminal, and text that is read from right to left.
CONTROLS = "\x1b]0;owned\x07\x9b31m\u202egnihton\u2066\u200f"


def payloads(flag: Path) -> list[str]:
    """What ansible-core before 2.19 would evaluate if it came across it; the second one by what a text begins with."""
    touch = f"touch {flag}"
    header = "#jinja2:variable_start_string:'[[',variable_end_string:']]',x:"
    return [
        f"{{{{ lookup('pipe', '{touch}') }}}}{CONTROLS}",
        f"{header}[[ lookup(*'pipe~{touch}'.split('~')) ]].",
        f"{{% set x = lookup('pipe', '{touch}') %}}",
    ]


def make_liar(fleet: Fleet, host: str, lie: str) -> None:
    """From now on the host's Python tells what the lie makes of each result."""
    program, file = fleet.directory / f"python-of-{host}", fleet.home(host) / "lie.py"
    file.write_text(lie)
    program.write_text(LIAR.format(python=sys.executable, lie=str(file)))
    program.chmod(0o755)
    fleet.variables[host]["ansible_python_interpreter"] = str(program)


def check_terminal(run: Run) -> None:
    """Nothing but lines of text, which read as they were written."""
    odd = {char for char in run.output if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not odd, sorted(map(ascii, odd))


def test_nothing_that_a_host_tells_is_evaluated_on_the_controller(fleet: Fleet) -> None:
    flag = fleet.directory / "evaluated"
    for host, payload in zip(fleet.names, payloads(flag), strict=False):
        make_liar(fleet, host, PAYLOADS_EVERYWHERE.format(payload=payload))
    # What is written for the hosts may refer to the event.
    why = {"WHY": "{{ drain_event.description }} {{ drain_event }}"}
    told = {"name": "told", "kind": "command", "do": ["true"], "undo": ["true"], "probe": ["true"], "environment": why}
    fleet.common["graceful_drain_steps"] = [*fleet._defaults()["graceful_drain_steps"], told]
    fleet.announce(*fleet.names, Description=payloads(flag)[1])
    run = fleet.run()
    assert not flag.exists(), run.output[-4000:]
    assert "Traceback" not in run.output
    check_terminal(run)
    assert run.report["result"] == "done", run.output[-4000:]
    assert len(fleet.posts()) == 1
