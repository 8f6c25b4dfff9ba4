# Copyright (c) 2026, graceful.azure contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that the modules share, and the one place where an error becomes a failed task."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ._errors import EventsError
from ._service import Service, service_of

if t.TYPE_CHECKING:
    from ._client import Sender


def connection_options() -> dict[str, t.Any]:
    return {
        "endpoint": {"type": "str", "default": "auto"},
        "api_version": {"type": "str", "default": "2020-07-01"},
        "connect_timeout": {"type": "float", "default": 5},
        "read_timeout": {"type": "float", "default": 130},
        "retries": {"type": "int", "default": 3},
        "vm_name": {"type": "str"},
    }


def requests_are_there() -> bool:
    from ._requests_transport import REQUESTS_ERROR

    return not REQUESTS_ERROR


def run(
    module: AnsibleModule,
    work: t.Callable[[AnsibleModule, Service], dict[str, t.Any]],
    transport: Sender | None = None,
) -> None:
    """Do the work with the service that the options describe, and end the module with its result."""
    if transport is None:
        from ._requests_transport import REQUESTS_ERROR

        if REQUESTS_ERROR:
            reason = "(the playbook graceful.azure.prepare installs it on every host)"
            module.fail_json(msg=missing_required_lib("requests", reason=reason), exception=REQUESTS_ERROR)
    try:
        result = work(module, service_of(module.params, transport))
    except EventsError as exc:
        module.fail_json(msg=exc.message, **exc.fields)
    else:
        module.exit_json(**result)
