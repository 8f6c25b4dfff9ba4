# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down every message that it gets, one JSON object a line."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers["Authorization"] == "Bearer lab"
        if allowed:
            with open("/var/lib/lab_told", "a") as file:
                file.write(json.dumps({"at": time.time(), **body}) + "\n")
        self.send_response(200 if allowed else 401)
        self.end_headers()


HTTPServer(("0.0.0.0", 8765), Handler).serve_forever()
