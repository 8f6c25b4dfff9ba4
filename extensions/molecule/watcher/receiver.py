# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down every message that it gets, one JSON object a line.

receiver.py FILE TOKEN   a message with another token is refused, and written to FILE.refused
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILE, TOKEN = sys.argv[1:]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        at = time.time()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        with open(FILE if allowed else f"{FILE}.refused", "a") as file:
            file.write(json.dumps({"at": at, **body}) + "\n")
        self.send_response(200 if allowed else 401)
        self.end_headers()


ThreadingHTTPServer(("0.0.0.0", 8765), Handler).serve_forever()
