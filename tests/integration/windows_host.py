# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""As much of a Windows host as the connection plugins winrm and psrp need to run a module; who runs it is handed in."""

from __future__ import annotations

import base64
import re
import threading
import typing as t
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psrpcore

# WS-Management, in one shape for all answers: each plugin takes what it looks for.
ENVELOPE = """<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"
 xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing" xmlns:w="http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
 xmlns:x="http://schemas.xmlsoap.org/ws/2004/09/transfer"
 xmlns:rsp="http://schemas.microsoft.com/wbem/wsman/1/windows/shell">
<s:Header><a:RelatesTo>{message}</a:RelatesTo></s:Header><s:Body>{body}</s:Body></s:Envelope>"""
CREATED = """<x:ResourceCreated><a:ReferenceParameters><w:SelectorSet><w:Selector Name="ShellId">{shell}</w:Selector>
</w:SelectorSet></a:ReferenceParameters></x:ResourceCreated>"""
BEGUN = "<rsp:CommandResponse><rsp:CommandId>{command}</rsp:CommandId></rsp:CommandResponse>"
RECEIVED = """<rsp:ReceiveResponse><rsp:Stream Name="stdout">{output}</rsp:Stream>{state}</rsp:ReceiveResponse>"""
DONE = """<rsp:CommandState State="http://schemas.microsoft.com/wbem/wsman/1/windows/shell/CommandState/Done">
<rsp:ExitCode>0</rsp:ExitCode></rsp:CommandState>"""


# Runs a script, as it is encoded in a command line, with its input, and returns its output. None cuts the connection.
Runner = t.Callable[[str, bytes], "str | None"]


class WindowsHost(ThreadingHTTPServer):
    """Answers on the port it is given."""

    daemon_threads = True

    def __init__(self, port: int, runner: Runner, refusals: int = 0) -> None:
        self._runner = runner
        # How many requests are refused after a connection was cut: the host is up, its service not yet.
        self.refusals = refusals
        self.refusing = 0
        self.shells = 0
        # Of WinRM: the command and its input so far.
        self.commands: dict[str, tuple[str, bytes]] = {}
        self.pools: dict[str, Pool] = {}
        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def run(self, script: str, data: bytes) -> str | None:
        answer = self._runner(script, data)
        if answer is None:
            self.refusing = self.refusals
        return answer

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class Pool:
    """The far end of a runspace pool of PSRP, which answers each pipeline when it has had all of its input."""

    def __init__(self, host: WindowsHost) -> None:
        self._host = host
        self._pool = psrpcore.ServerRunspacePool()
        self._pipelines: dict[uuid.UUID, psrpcore.ServerPipeline] = {}
        self._scripts: dict[uuid.UUID, str] = {}
        self._input: dict[uuid.UUID, list[str]] = {}
        self._ready: dict[uuid.UUID | None, bytes] = {}

    def take(self, encoded: str, pipeline: str) -> None:
        data = base64.b64decode(encoded)
        number = uuid.UUID(pipeline) if pipeline else None
        if number and number not in self._pipelines:
            self._pipelines[number] = psrpcore.ServerPipeline(self._pool, number)
        self._pool.receive_data(psrpcore.PSRPPayload(data, psrpcore.StreamType.default, number))
        while (event := self._pool.next_event()) is not None:
            if isinstance(event, psrpcore.CreatePipelineEvent):
                (command,) = event.pipeline.commands
                self._scripts[event.pipeline_id] = command.command_text
                self._pipelines[event.pipeline_id].start()
            elif isinstance(event, psrpcore.PipelineInputEvent):
                self._input.setdefault(event.pipeline_id, []).append(str(event.data))
            elif isinstance(event, psrpcore.EndOfPipelineInputEvent):
                answered = self._pipelines[event.pipeline_id]
                encoded = base64.b64encode(self._scripts[event.pipeline_id].encode("utf-16-le")).decode()
                answer = self._host.run(encoded, "\n".join(self._input.get(event.pipeline_id, [])).encode())
                if answer is None:
                    raise ConnectionAbortedError
                answered.write_output(answer)
                answered.complete()
                answered.close()
        while (payload := self._pool.data_to_send()) is not None:
            self._ready[payload.pipeline_id] = self._ready.get(payload.pipeline_id, b"") + payload.data

    def give(self, pipeline: str) -> str:
        return base64.b64encode(self._ready.pop(uuid.UUID(pipeline) if pipeline else None, b"")).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WindowsHost

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.server.refusing:
            self.server.refusing -= 1
            self.send_error(503)
            return
        try:
            body = self._body(text)
        except ConnectionAbortedError:
            self.close_connection = True
            return
        data = ENVELOPE.format(message=_found(r"MessageID[^>]*>([^<]+)<", text), body=body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/soap+xml;charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self, text: str) -> str:
        action = _found(r"Action[^>]*>[^<]*/(\w+)<", text)
        shell = _found(r'Name="ShellId"[^>]*>([^<]+)<', text)
        command = _found(r'CommandId="([^"]+)"', text)
        pool = self.server.pools.get(shell)
        if action == "Create":
            self.server.shells += 1
            shell = _found(r' ShellId="([^"]+)"', text) or str(uuid.uuid4()).upper()
            creation = _found(r"creationXml[^>]*>([^<]+)<", text)
            if creation:
                self.server.pools[shell] = Pool(self.server)
                self.server.pools[shell].take(creation, "")
            return CREATED.format(shell=shell)
        if action == "Command":
            command = command or str(uuid.uuid4()).upper()
            if pool:
                pool.take(_found(r"Arguments[^>]*>([^<]+)<", text), command)
            else:
                self.server.commands[command] = _found(r"-EncodedCommand\s+([\w+/=]+)", text), b""
            return BEGUN.format(command=command)
        if action == "Send" and pool:
            pool.take(_found(r"Stream [^>]*>([^<]+)<", text), command)
        elif action == "Send":
            script, data = self.server.commands[command]
            sent = base64.b64decode(_found(r"Stream [^>]*>([^<]*)<", text))
            self.server.commands[command] = script, data + sent
        if action == "Receive" and pool:
            return RECEIVED.format(output=pool.give(command), state="")
        if action == "Receive":
            answer = self.server.run(*self.server.commands.pop(command))
            if answer is None:
                raise ConnectionAbortedError
            return RECEIVED.format(output=base64.b64encode(answer.encode()).decode(), state=DONE)
        return ""

    def log_message(self, format: str, *args: t.Any) -> None:
        """Nothing."""


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""
