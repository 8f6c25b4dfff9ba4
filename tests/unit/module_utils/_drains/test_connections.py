# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._drains.connections import Step, established
from ansible_collections.graceful.azure.plugins.module_utils._errors import EventsError
from ansible_collections.graceful.azure.plugins.module_utils._kind import StepRecord
from ansible_collections.graceful.azure.plugins.module_utils._patience import Late
from ansible_collections.graceful.azure.tests.unit.module_utils.scripted import mistake, options_of, tools

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TCP = HEADER + (
    "   0: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n"
    "   1: 0100000A:01BB 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1\n"
    "   2: 0100000A:01BB 10813FA8:D431 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1\n"
    "   3: 0100000A:0016 0300000A:C351 01 00000000:00000000 00:00000000 00000000     0        0 4 1 0 20 4 30 10 -1\n"
    "   4: 0100000A:01BB 0400000A:C352 06 00000000:00000000 00:00000000 00000000     0        0 5 1 0 20 4 30 10 -1\n"
)
MAPPED = "0000000000000000FFFF00000500000A"
TCP6 = HEADER + (
    f"   0: 00000000000000000000000000000000:01BB {MAPPED}:C353 01 00000000:00000000 00:0 0 0 0 6 1 0 20 4 30 10 -1\n"
    "   1: B80D0120000000000000000001000000:01BB B80D0120000000000000000002000000:C354 01 0:0 00:0 0 0 0 7 1 0 20\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tcp").write_text(TCP)
    (tmp_path / "tcp6").write_text(TCP6)
    return tmp_path


def step_in(folder: Path, ports: list[int], ignored: t.Sequence[str] = ()) -> Step:
    step = Step(options_of(Step, ports=ports, ignore_from=list(ignored)), tools(2))
    step.folder = str(folder)
    return step


pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are from a little-endian machine")


@pytest.mark.parametrize(
    ("ports", "ignored", "peers"),
    [
        ([443], [], ["10.0.0.2", "168.63.129.16", "10.0.0.5", "2001:db8::2"]),
        ([443], ["168.63.129.16"], ["10.0.0.2", "10.0.0.5", "2001:db8::2"]),
        ([443], ["10.0.0.0/8", "168.63.129.16", "2001:db8::/32"], []),
        ([22], [], ["10.0.0.3"]),
        ([22, 443], ["10.0.0.0/8"], ["168.63.129.16", "2001:db8::2"]),
        ([80], [], []),
    ],
)
def test_established_connections_of_the_ports_count(
    folder: Path, ports: list[int], ignored: list[str], peers: list[str]
) -> None:
    look = step_in(folder, ports, ignored).look()
    shown = ", ".join(map(str, ports))
    number = f"{len(peers)} connection" + "s" * (len(peers) > 1)
    assert look.done == (not peers)
    assert look.message.startswith(f"{number} on {shown}, from " if peers else f"no connections on {shown}")
    assert all(peer in look.message for peer in sorted(peers)[:3])


def test_what_is_left_is_said(folder: Path) -> None:
    message = step_in(folder, [443]).look().message
    assert message == "4 connections on 443, from 10.0.0.2, 10.0.0.5, 168.63.129.16 and 1 more"


def test_a_kernel_without_ipv6_has_one_table_less(folder: Path) -> None:
    (folder / "tcp6").unlink()
    assert step_in(folder, [443]).look().message == "2 connections on 443, from 10.0.0.2 and 168.63.129.16"


def test_another_system_is_told_apart_from_no_connections(tmp_path: Path) -> None:
    with pytest.raises(EventsError, match="only Linux"):
        step_in(tmp_path, [443]).look()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_real_connection_is_seen_until_it_is_closed(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, 0), family=family)
    except OSError as exc:
        pytest.skip(f"no {address} here: {exc}")
    with listening:
        port = listening.getsockname()[1]
        step = Step(options_of(Step, ports=[port]), tools(2))
        assert step.look().done
        with socket.create_connection((address, port)) as client:
            server, _peer = listening.accept()
            assert step.look().message == f"1 connection on {port}, from {address}"
            client.close()
            server.close()
        assert step.look().done


def test_an_empty_table_has_no_connections() -> None:
    assert established("") == []


def test_the_step_waits_until_the_last_connection_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        step = Step(options_of(Step, ports=[port]), tools(2))
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _peer = listening.accept()
            assert step.look() == (False, f"1 connection on {port}, from 127.0.0.1", {})
            with pytest.raises(Late, match=f"After 2 s still: 1 connection on {port}"):
                step.do()
            assert Step(options_of(Step, ports=[port], ignore_from=["127.0.0.0/8"]), tools(2)).look().done
            client.close()
            server.close()
        assert step.look() == (True, f"no connections on {port}", {})
        assert step.do().message == f"no connections on {port}"
        assert step.undo(StepRecord({}, {}, lost=False)) == "there is nothing to undo"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ports": [80, "443"], "ignore_from": ["168.63.129.16", "10.0.0.0/8", "::1"]}, ""),
        ({}, "ports"),
        ({"ports": []}, "ports has to be a list of port numbers"),
        ({"ports": [0]}, "ports has to be a list of port numbers"),
        ({"ports": [65536]}, "ports has to be a list of port numbers"),
        ({"ports": ["http"]}, "ports"),
        ({"ports": [80], "ignore_from": ["here"]}, "ignore_from has to be a list of addresses or networks"),
        ({"ports": [80], "ignore_from": ["10.0.0.0/33"]}, "ignore_from has to be a list of addresses or networks"),
    ],
)
def test_only_ports_and_networks_are_accepted(given: dict[str, t.Any], words: str) -> None:
    assert bool(mistake(Step, given)) == bool(words)
    assert words in mistake(Step, given)
