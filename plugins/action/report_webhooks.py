# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import threading
import time
import typing as t
from datetime import datetime, timezone

from ansible_collections.graceful.azure.plugins.modules import report_webhooks

from ..module_utils._checks import WrongSetting
from ..plugin_utils import _report_dir as report_dir
from ..plugin_utils import _webhooks as webhooks
from ..plugin_utils._options import documented
from ..plugin_utils._play import Plugin
from ..plugin_utils._report import safe
from ..plugin_utils._webhook_messages import bodies

Json = dict[str, t.Any]


class ActionModule(Plugin):
    """Posts from the controller, in this process."""

    _requires_connection = False
    OPTIONS: t.ClassVar[Json] = {
        **documented(report_webhooks),
        # Each is validated separately, so that a mistake in one does not affect the others.
        "webhooks": {"type": "raw", "required": True},
    }

    def _result(self, options: Json) -> Json:
        result: Json = {"problems": [], "event_ids": []}
        if not isinstance(options["webhooks"], (list, tuple)):
            result["problems"] = ["The webhooks have to be a list."]
        elif options["webhooks"] and not self._task.check_mode:
            self._send_all(result, options["webhooks"], safe(options["data"]), options)
        for problem in result["problems"]:
            self._display.warning(problem)
        return {**result, "ansible_facts": {"report_webhook_problems": result["problems"]}}

    def _send_all(self, result: Json, given: t.Sequence[t.Any], data: Json, options: Json) -> None:
        now, occasion = datetime.now(timezone.utc), options["occasion"]
        directory = report_dir.absolute(options["directory"]) if options["directory"] else ""
        sent = report_dir.read_sent(directory) if directory else {}
        event_ids = webhooks.unsent(data, occasion, sent, now)
        if not event_ids:
            return
        accepted = False
        for number, item in enumerate(given, 1):
            try:
                webhook = webhooks.read_webhook(item, webhooks.name_of(number, len(given), item))
            except WrongSetting as exc:
                result["problems"].append(str(exc))
                continue
            if occasion in webhook["events"]:
                messages = bodies(webhook, data, occasion, event_ids, options["page"])
                reason = _post_all(webhook, messages)
                accepted = accepted or bool(messages and not reason)
                if reason:
                    result["problems"].append(f"{webhooks.name_of(number, len(given), webhook)} {reason}")
        result["event_ids"] = [event_id for event_id in event_ids if event_id and accepted]
        if accepted and directory:
            try:
                report_dir.write_sent(directory, webhooks.with_sent(sent, data, occasion, event_ids, now))
            except OSError as exc:
                problem = f"The report directory cannot be written ({exc.strerror}), so the next run sends this again."
                result["problems"].append(problem)


def _post_all(webhook: Json, messages: t.Sequence[Json]) -> str:
    """Why it failed, empty if it did not. The time is for all messages together."""
    end = time.monotonic() + webhook["timeout"]
    reason = ""
    for body in messages:
        reason = reason or _post(webhook, body, end - time.monotonic())
    return reason


def _post(webhook: Json, body: Json, seconds: float) -> str:
    """In a thread, because a name lookup or a very slow answer cannot be ended otherwise."""
    found: list[str] = []
    if seconds > 0:
        thread = threading.Thread(target=lambda: found.append(_send(webhook, body, seconds)), daemon=True)
        thread.start()
        thread.join(seconds)
    return found[0] if found else webhooks.LATE


def _send(webhook: Json, body: Json, seconds: float) -> str:
    # Loaded only where there is a webhook.
    from ansible.module_utils.urls import open_url

    headers = {str(name): str(value) for name, value in webhook["headers"].items()}
    try:
        open_url(
            webhook["url"],
            data=json.dumps(body),
            headers={"Content-Type": "application/json", **headers},
            method="POST",
            timeout=seconds,
            force_basic_auth=True,
            follow_redirects="none",
            use_netrc=False,
            http_agent="graceful.azure",
        ).close()
    except Exception as exc:
        return webhooks.failure(exc)
    return ""
