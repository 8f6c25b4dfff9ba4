# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A place for what the modules of awx.awx send."""

from __future__ import annotations

import json
import threading
import typing as t
import urllib.parse
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

API = "/api/v2/"
UNIFIED = ("projects", "inventory_sources", "job_templates", "workflow_job_templates")

Json = dict[str, t.Any]


class Controller:
    """Keeps what it is sent and gives it back, as the lists and objects of AWX's API. It judges nothing."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[int, Json]] = defaultdict(dict)
        self.associated: dict[str, list[int]] = defaultdict(list)
        self.surveys: dict[str, Json] = {}
        self.changes: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"controller": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.add("organizations", {"name": "Default"})
        for name in ("Azure VMs", "Azure reader"):
            self.add("credentials", {"name": name})

    def add(self, kind: str, fields: Json) -> Json:
        number = sum(map(len, self.objects.values())) + 1
        url = f"{API}{kind}/{number}/"
        related = {"survey_spec": f"{url}survey_spec/"}
        made = {"id": number, "type": kind.removesuffix("s"), "url": url, "related": related, **fields}
        if kind == "projects":
            made.update(status="successful", scm_revision="1", summary_fields={})
        # As in AWX: an inventory source is given the organization of its inventory.
        if kind == "inventory_sources":
            made["organization"] = self.objects["inventories"][fields["inventory"]]["organization"]
        if kind == "tokens":
            made["token"] = "the watcher's token"
        self.objects[kind][number] = made
        return made

    def listed(self, kind: str) -> list[Json]:
        kinds = UNIFIED if kind == "unified_job_templates" else (kind,)
        return [made for one in kinds for made in self.objects[one].values()]

    def named(self, kind: str) -> dict[str, Json]:
        return {str(made.get("name") or made.get("identifier")): made for made in self.objects[kind].values()}

    def related_names(self, made: Json, relation: str) -> list[str]:
        everything = {number: one for kind in self.objects.values() for number, one in kind.items()}
        wanted = self.associated[f"{made['url']}{relation}/"]
        return [str(everything[number].get("name") or everything[number].get("identifier")) for number in wanted]


class Handler(BaseHTTPRequestHandler):
    controller: Controller

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: object = None) -> None:
        payload = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("X-API-Product-Name", "AWX")
        self.send_header("X-API-Product-Version", "24.6.1")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    @property
    def parts(self) -> list[str]:
        return urllib.parse.urlsplit(self.path).path.removeprefix(API).strip("/").split("/")

    def sent(self) -> Json:
        return t.cast(Json, json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"))

    def do_GET(self) -> None:
        url, held = urllib.parse.urlsplit(self.path), self.controller
        if url.path.endswith("/survey_spec/"):
            self.answer(200, held.surveys.get(url.path, {}))
        elif len(self.parts) == 2:
            self.answer(200, held.objects[self.parts[0]][int(self.parts[1])])
        else:
            everything = {number: made for kind in held.objects.values() for number, made in kind.items()}
            found = held.listed(self.parts[0])
            if len(self.parts) == 3:
                found = [everything[number] for number in held.associated[url.path]]
            wanted = dict(urllib.parse.parse_qsl(url.query))
            found = [one for one in found if all(str(one.get(key)) == value for key, value in wanted.items())]
            self.answer(200, {"count": len(found), "next": None, "results": found})

    def do_POST(self) -> None:
        sent, held, path = self.sent(), self.controller, urllib.parse.urlsplit(self.path).path
        held.changes.append(f"POST {path}")
        if path.endswith("/survey_spec/"):
            held.surveys[path] = sent
            self.answer(200, {})
        elif path.endswith("/create_approval_template/"):
            made = held.add("workflow_approval_templates", sent)
            held.objects[self.parts[0]][int(self.parts[1])]["related"]["unified_job_template"] = made["url"]
            self.answer(201, made)
        elif len(self.parts) == 3:
            held.associated[path].append(sent["id"])
            self.answer(204)
        else:
            self.answer(201, held.add(self.parts[0], sent))

    def do_PATCH(self) -> None:
        self.controller.changes.append(f"PATCH {self.path}")
        made = self.controller.objects[self.parts[0]][int(self.parts[1])]
        made.update(self.sent())
        self.answer(200, made)
