# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users write: read as they meant it, or said what is wrong. Never taken for something that was not written."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.graceful.azure.plugins.module_utils._kind import LINUX, WINDOWS
from ansible_collections.graceful.azure.plugins.plugin_utils._settings import (
    ARTIFACTS,
    INTERNAL,
    SETTINGS,
    SETTINGS_ON,
    Items,
    Settings,
    misspelt,
    misspelt_for_role,
    read_settings,
)

Json = dict[str, t.Any]
HEALTH: Json = {"name": "balancer", "kind": "health_probe", "url": "http://127.0.0.1/", "marker": "/run/out"}
OWN: Json = {"name": "queue", "kind": "tasks", "do": "do.yml", "probe": "paused"}
SOCKETS = [{"host": "lb1", "socket": "/run/a"}, {"host": "lb2", "socket": "127.0.0.1:9999"}]
BALANCED: Json = {"name": "lb", "kind": "haproxy", "backend": "web", "server": "web1", "sockets": SOCKETS}
CACHE: Json = {"name": "cache", "kind": "redis_sentinel", "master_name": "cache"}
PATHS: Json = {"name": "a", "kind": "paths", "paths": ["/mnt"]}
EVERYWHERE = ("host", "run", "drill")
JUNK = {
    "object": object(),
    "mapping": {"a": {"b": float("nan")}},
    "lists": [[["x"]]],
    "negative": -1,
    "text": "\x1b[2J{{ 1 + 1 }}",
    "huge": 10**400,
}


def read(platform: str = LINUX, /, **written: t.Any) -> Settings:
    variables = {f"graceful_{key}": value for key, value in written.items()}
    return read_settings(variables, lambda value: value, EVERYWHERE, platform)


def mistake(platform: str = LINUX, /, **written: t.Any) -> str:
    found = read(platform, **written).mistakes
    assert list(found) == [f"graceful_{key}" for key in written]
    return next(iter(found.values()))


# Every setting


def test_without_anything_written_all_defaults_hold_and_nothing_is_wrong() -> None:
    settings = read()
    assert settings.mistakes == {}
    assert set(settings.values) == set(SETTINGS)
    for key, setting in SETTINGS.items():
        value = settings.values[key]
        # Whether they are set is a field of its own.
        default = [] if key == "drain_steps" else setting.default
        assert (value.items if isinstance(value, Items) else value) == default


@pytest.mark.parametrize("key", SETTINGS)
def test_each_setting_takes_its_own_default(key: str) -> None:
    assert read(**{key: SETTINGS[key].default}).mistakes == {}


@pytest.mark.parametrize("key", SETTINGS)
def test_each_setting_is_described_and_has_a_type(key: str) -> None:
    assert SETTINGS[key].description.endswith((".", "`"))
    assert SETTINGS[key].type in ("str", "bool", "int", "float", "list", "dict", "path", "raw")
    assert SETTINGS[key].where in EVERYWHERE


@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.parametrize("junk", JUNK, ids=JUNK)
def test_junk_is_a_mistake_with_a_message_or_a_value_and_nothing_else(key: str, junk: str) -> None:
    for message in read(**{key: JUNK[junk]}).mistakes.values():
        assert f"graceful_{key}" in message
        assert message.isprintable()
        assert "{{" not in message


@pytest.mark.parametrize("key", [key for key, setting in SETTINGS.items() if not setting.literal])
def test_what_cannot_be_evaluated_is_a_mistake_and_never_a_default_that_nobody_hears_of(key: str) -> None:
    def undefined(_value: t.Any) -> t.Any:
        raise ValueError("'shop' is undefined {{ 1 }}\n")

    settings = read_settings({f"graceful_{key}": "{{ shop }}"}, undefined, EVERYWHERE)
    assert settings.mistakes == {
        f"graceful_{key}": f"graceful_{key} cannot be evaluated: 'shop' is undefined {{ {{ 1 }}}}."
    }


@pytest.mark.parametrize("key", ["drain_steps", "policy", "confirm", "record_dir", "force_claim"])
def test_what_a_host_tells_as_a_fact_is_no_setting(key: str) -> None:
    name, value = f"graceful_{key}", [] if (default := SETTINGS[key].default) is None else default
    told = read_settings({name: value, "ansible_facts": {name: value}}, lambda given: given, EVERYWHERE)
    assert "is a fact that the host returned" in told.mistakes[name]
    # A variable that goes before the fact counts.
    written = read_settings({name: value, "ansible_facts": {name: "other"}}, lambda given: given, EVERYWHERE)
    assert written.mistakes == {}


def test_only_what_counts_there_is_evaluated() -> None:
    evaluated: list[t.Any] = []

    def note(value: t.Any) -> t.Any:
        evaluated.append(value)
        return value

    read_settings(
        {"graceful_policy": None, "graceful_window": {"start": "1:00", "end": "2:00"}, "graceful_wait": 5}, note
    )
    assert evaluated == [{"start": "1:00", "end": "2:00"}]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("policy", [{"action": "reboot"}], "Rule 1 of the policy: action must be one of ignore"),
        ("policy", [{}], "Rule 1 of the policy has no action"),
        ("window", {}, "The window has no start"),
        ("min_available", "few", "min_available must be a whole number of hosts or a percentage"),
        ("drain_budget", "5m", "must be a whole number of seconds, not '5m'"),
        ("gone_timeout", "30m", "must be a number of seconds, up to 86400, not '30m'"),
        ("gone_timeout", -1, "a number of seconds"),
        ("gone_timeout", True, "a number of seconds"),
        ("gone_timeout", 10**9, "a number of seconds"),
        ("gone_timeout", float("nan"), "a number of seconds"),
        ("undo_on_failure", "perhaps", "must be true or false"),
        ("force_claim", "perhaps", "must be true or false"),
        ("record_dir", "records", "must be an absolute path"),
        ("endpoint", [1], "must be a string"),
        ("serial", [], "a number of hosts, a percentage, or a list"),
        ("serial", "\u00b2", "a number of hosts, a percentage, or a list"),
        ("serial", "50%%", "a number of hosts, a percentage, or a list"),
        ("serial", ["0"], "a number of hosts, a percentage, or a list"),
        ("serial", "150%", "a number of hosts, a percentage, or a list"),
        ("drill_event", "Flood", "must be one of Reboot"),
        ("webhooks", "http://x", "must be a list"),
    ],
)
def test_what_would_not_work_is_said_with_what_is_allowed(key: str, value: t.Any, said: str) -> None:
    assert said in mistake(**{key: value})


@pytest.mark.parametrize(
    ("key", "value", "read_as"),
    [
        ("gone_timeout", "30", 30.0),
        ("gone_timeout", 0, 0.0),
        ("drain_budget", "60", 60),
        ("undo_on_failure", "yes", True),
        ("force_claim", "false", False),
        ("serial", 5, ["5"]),
        ("serial", ["1", "50%"], ["1", "50%"]),
        ("policy", [{"action": "notify"}], [{"action": "notify"}]),
        # A survey says with an empty text that something is not set.
        ("policy", "", None),
        ("drain_budget", "", 300),
        ("run_name", "", ""),
    ],
)
def test_what_a_command_line_or_a_survey_makes_of_a_value_is_read_as_it_was_meant(
    key: str, value: t.Any, read_as: t.Any
) -> None:
    settings = read(**{key: value})
    assert (settings.mistakes, settings.values[key]) == ({}, read_as)


@pytest.mark.parametrize(
    ("written", "asks"),
    [
        (True, True),
        ("yes", True),
        (" Y ", True),
        (1, True),
        (False, False),
        ("no", False),
        ("off", False),
        (0, False),
        ("f", False),
    ],
)
def test_a_person_is_asked_or_not_in_all_ways_to_say_yes_and_no(written: t.Any, asks: bool) -> None:
    assert read(confirm=written).values["confirm"] is asks


@pytest.mark.parametrize("key", ["confirm", "undo_on_failure"])
@pytest.mark.parametrize("written", ["maybe", 2, [], {"a": 1}])
def test_what_is_neither_yes_nor_no_is_a_mistake(key: str, written: t.Any) -> None:
    assert "must be true or false" in read(**{key: written}).mistakes[f"graceful_{key}"]


def test_a_program_is_a_list_and_not_a_line_for_a_shell() -> None:
    step = {
        "name": "app",
        "kind": "command",
        "do": ["touch", "/x"],
        "probe": ["test", "-e", "/x"],
        "undo": ["rm", "/x"],
    }
    for key in ("do", "probe", "undo"):
        said = read(drain_steps=[{**step, key: "touch /x"}]).mistakes["graceful_drain_steps"]
        assert f"{key} has to be a list, such as [touch, /x]" in said
    assert read(drain_steps=[step]).mistakes == {}
    saved = [{"name": "dump", "kind": "command", "argv": "dump all"}]
    assert "argv has to be a list" in read(checkpoint=saved).mistakes["graceful_checkpoint"]
    assert "argv has to be a list" in read(health=[{"argv": "true"}]).mistakes["graceful_health"]
    # Where a text is a file or a condition, it stays one.
    own = [{"name": "own", "kind": "tasks", "do": "do.yml", "probe": "paused", "undo": "undo.yml"}]
    assert read(drain_steps=own).mistakes == {}


@pytest.mark.parametrize("name", ["gracefull_wait", "Graceful_wait", "GRACEFUL_wait", "gracful_wait", "gracefuly_wait"])
def test_a_beginning_that_is_nearly_ours_is_a_spelling_mistake(name: str) -> None:
    found = read_settings({name: 5}, lambda value: value).mistakes
    assert found == {name: f"{name} is set, but there is no such variable. Did you mean graceful_wait?"}


@pytest.mark.parametrize("name", ["gracefully_wait", "graceful", "gratis_wait", "gracefull_shop", "wait", "grace_wait"])
def test_other_names_are_none_of_our_business(name: str) -> None:
    assert read_settings({name: 5}, lambda value: value).mistakes == {}


# Names that do not exist


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("graceful_drain_step", "Did you mean graceful_drain_steps?"),
        ("graceful_polcy", "Did you mean graceful_policy?"),
        ("graceful_zzzz", "docs/maintenance.md lists all variables"),
    ],
)
def test_a_name_that_does_not_exist_is_said_with_the_nearest_one(name: str, hint: str) -> None:
    assert hint in misspelt({name: 1})[name]
    assert hint in read_settings({name: 1}, lambda value: value).messages[0]


def test_other_variables_and_those_of_the_roles_are_left_alone() -> None:
    ours = {f"graceful_{name}": 1 for name in SETTINGS}
    registered = {f"graceful_{name}": {"changed": False} for name in INTERNAL}
    assert misspelt({**ours, **registered, "nginx_drain_step": 1, 5: 6}) == {}  # type: ignore[dict-item]


def test_what_the_roles_register_is_a_slip_if_a_user_has_written_it() -> None:
    assert "Did you mean graceful_hosts?" in misspelt({"graceful_host": "web1"})["graceful_host"]
    assert set(misspelt({f"graceful_{name}": False for name in INTERNAL})) == {f"graceful_{name}" for name in INTERNAL}


def test_what_an_earlier_job_of_a_workflow_left_is_no_mistake() -> None:
    left = {f"graceful_{name}": "" for name in ARTIFACTS}
    assert misspelt(left) == {}
    # One alone was not left by a run.
    for name in left:
        assert name in misspelt({name: ""})


def test_an_empty_list_of_steps_is_a_choice_and_a_missing_one_is_none() -> None:
    assert read().drain_not_set
    assert read(drain_steps=None).drain_not_set
    assert read(drain_steps="").drain_not_set, "a template or a survey that comes to nothing"
    assert not read(drain_steps=[]).drain_not_set
    assert not read(drain_steps=[{}]).drain_not_set, "it is wrong, which is said"


@pytest.mark.parametrize(
    ("role", "name", "meant"),
    [
        ("drain", "drain_stpes", "drain_steps"),
        ("checkpoint", "checkpoint_item", "checkpoint_items"),
        ("restore", "restore_healt", "restore_health"),
        ("prepare", "prepare_endpont", "prepare_endpoint"),
        ("watcher", "watcher_recievers", "watcher_receivers"),
    ],
)
def test_a_misspelt_variable_of_a_role_is_said_unless_the_right_one_is_set(role: str, name: str, meant: str) -> None:
    default: str | list[str] = {"prepare_endpoint": ""}.get(meant, [])
    (said,) = misspelt_for_role(role, {name: ["x"], meant: default})
    assert said == f"{name} is set, but there is no such variable. Did you mean {meant}?"
    assert misspelt_for_role(role, {name: ["x"], meant: ["x"]}) == []


def test_other_variables_with_the_prefix_of_a_role_are_left_alone() -> None:
    other = {"drain_report": {}, "drain_notes": "", "drain_events": [], "drain_event": {"event_id": "E"}, 5: 6}
    assert misspelt_for_role("drain", {**other, "drain_steps": []}) == []  # type: ignore[dict-item]


# Steps, checkpoints and health checks

RIGHT = [
    HEALTH,
    {**HEALTH, "interval": "2", "threshold": 3, "healthy": [200, 204], "must_answer": "false", "timeout": "30"},
    {"name": "x", "kind": "health_probe", "url": "https://h:1/", "out_url": "http://h/o", "in_url": "http://h/i"},
    BALANCED,
    {"name": "x", "kind": "connections", "ports": [80, "443"], "ignore_from": ["168.63.129.16", "10.0.0.0/8", "::1"]},
    {"name": "x", "kind": "services", "services": ["a"], "use": "systemd"},
    {"name": "x", "kind": "patroni"},
    {"name": "x", "kind": "patroni", "url": "https://db:8008", "validate_certs": False, "candidate": "db2"},
    {**CACHE, "sentinels": [{"host": "s1"}, {"host": "s2", "port": 26380}]},
    {"name": "x", "kind": "pacemaker", "node": "db1"},
    OWN,
    {**OWN, "probe": ["a", "b"], "undo": "undo.yaml", "undo_probe": "gone.yml"},
]


@pytest.mark.parametrize("step", RIGHT, ids=lambda step: f"{step['kind']} {len(step)}")
def test_a_step_that_can_be_carried_out_is_accepted(step: Json) -> None:
    settings = read(drain_steps=[step])
    assert settings.mistakes == {}
    (found,) = settings.values["drain_steps"].items
    assert (found["name"], found["kind"]) == (step["name"], step["kind"])


def test_options_have_their_types_and_defaults_and_the_time_is_apart() -> None:
    (found,) = read(drain_steps=[{**HEALTH, "threshold": "3", "timeout": "30"}]).values["drain_steps"].items
    assert (found["timeout"], found["options"]["threshold"], found["options"]["must_answer"]) == (30.0, 3, True)


WRONG: list[tuple[t.Any, str]] = [
    ("health_probe", "graceful_drain_steps must be a list, not 'health_probe'"),
    ({"name": "x"}, "graceful_drain_steps must be a list"),
    ([HEALTH, "x"], "Drain step 2 of graceful_drain_steps must be a dictionary with a name and a kind"),
    ([{"kind": "tasks"}], "Drain step 1 of graceful_drain_steps has no name"),
    ([{"name": " ", "kind": "tasks"}], "has no name"),
    ([{"name": 5, "kind": "tasks"}], "has no name"),
    ([{"name": "x"}], "Drain step 'x' has no kind. Kinds are: command, connections, haproxy"),
    ([{"name": "x", "kind": "reboot"}], "unknown kind 'reboot'. Kinds are: "),
    ([{"name": "x", "kind": ["tasks"]}], "unknown kind"),
    ([{**HEALTH, "colour": "red"}], "(health_probe) has the key 'colour', which is not known. Allowed are: url"),
    ([{**HEALTH, "treshold": 3}], "did you mean threshold?"),
    ([{"name": "x", "kind": "haproxy", "backend": "b"}], "missing required arguments: server, sockets"),
    ([HEALTH, HEALTH], "Two entries of graceful_drain_steps have the name 'balancer'"),
    ([{**HEALTH, "url": "ftp://h/"}], "url has to be a URL of http or https"),
    ([{**HEALTH, "marker": "out"}], "marker has to be the absolute path"),
    ([{**HEALTH, "interval": -1}], "interval has to be more than 0"),
    ([{**HEALTH, "timeout": "soon"}], "timeout must be a number of seconds"),
    ([{**HEALTH, "timeout": "nan"}], "timeout must be a number of seconds"),
    ([{**HEALTH, "timeout": 0}], "timeout must be more than 0"),
    ([{**HEALTH, "healthy": [2000]}], "healthy has to be a list of HTTP statuses"),
    ([{key: HEALTH[key] for key in ("name", "kind", "url")}], "one of the following is required: marker, out_url"),
    ([{**HEALTH, "out_url": "http://h/", "in_url": "http://h/"}], "mutually exclusive: marker|out_url"),
    ([{**HEALTH, "in_url": "http://h/"}], "required together: out_url, in_url"),
    ([{**BALANCED, "sockets": []}], "sockets has to be a list of {host"),
    ([{"name": "x", "kind": "connections", "ports": [0]}], "ports has to be a list of port numbers"),
    ([{"name": "x", "kind": "connections", "ports": [80], "ignore_from": ["here"]}], "ignore_from has to be"),
    ([{"name": "x", "kind": "services", "services": []}], "services has to be a list of texts"),
    ([{**OWN, "do": "rm -rf /"}], "do has to be a task file"),
    ([{"name": "x", "kind": "tasks", "do": "do.yml"}], "missing required arguments: probe"),
    ([{**BALANCED, "backend": None}], "missing required arguments: backend"),
    ([{**HEALTH, "threshold": "many"}], "Drain step 'balancer' (health_probe): threshold has to be a number."),
    (
        [{"name": "x", "kind": "connections", "ports": ["http"]}],
        "ports has to be a list in which each entry is a",
    ),
    ([{**BALANCED, "sockets": [{"host": "lb1"}]}], "each entry is a dictionary with host, socket."),
]


@pytest.mark.parametrize(("steps", "said"), WRONG, ids=[said[:60] for _steps, said in WRONG])
def test_a_step_that_cannot_be_carried_out_is_said_with_what_is_allowed(steps: t.Any, said: str) -> None:
    assert said in mistake(drain_steps=steps)
    # Nothing of a list with a mistake is carried out.
    assert read(drain_steps=steps).values["drain_steps"].items == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("checkpoint", "foo", "graceful_checkpoint must be a list"),
        ("checkpoint", ["foo"], "Checkpoint 1 of graceful_checkpoint must be a dictionary"),
        ("checkpoint", [{**PATHS, "path": 1}], "which is not known; did you mean paths?"),
        ("checkpoint", [{**PATHS, "kind": "path"}], "Kinds are: command, paths"),
        ("checkpoint", [PATHS, PATHS], "have the name 'a'"),
        ("checkpoint", [{**PATHS, "paths": ["mnt"]}], "paths has to be a list of absolute paths"),
        ("checkpoint", [{**PATHS, "timeout": -5}], "timeout must be a number of seconds"),
        ("checkpoint", [{"name": "a", "kind": "command"}], "missing required arguments: argv"),
        ("health", {"port": 1}, "graceful_health must be a list"),
        ("health", ["x"], "graceful_health[0] must be a dictionary"),
        (
            "health",
            [{"port": 1}, {"prot": 1}],
            "graceful_health[1] has the key 'prot', which is not known; did you mean port?",
        ),
        ("health", [{}], "one of the following is required: port, url, argv"),
        ("health", [{"port": 1, "url": "http://h"}], "mutually exclusive: port|url|argv"),
    ],
)
def test_a_checkpoint_or_health_check_that_would_not_work_is_said(key: str, value: t.Any, said: str) -> None:
    assert said in mistake(**{key: value})


def test_secrets_leave_the_options_and_are_found_by_the_name_of_their_item() -> None:
    steps = read(drain_steps=[HEALTH, {**CACHE, "password": "hunter2", "sentinel_password": "hunter3"}]).values[
        "drain_steps"
    ]
    assert "hunter" not in str(steps.items)
    assert steps.secrets == {"drain/cache": {"password": "hunter2", "sentinel_password": "hunter3"}}
    health = read(health=[{"port": 1}, {"url": "http://h/", "username": "u", "password": "hunter2"}]).values["health"]
    assert "hunter2" not in str(health.items)
    assert health.secrets["health/1"]["password"] == "hunter2"


def test_a_message_about_a_secret_does_not_quote_it() -> None:
    assert "hunter2" not in mistake(drain_steps=[{**CACHE, "password": "hunter2", "passwort": "x"}])
    assert "hunter2" not in mistake(webhooks=[{"url": "http://x", "headers": "hunter2"}])
    assert "hunter2" not in mistake(webhooks=["http://hunter2"])
    assert "graceful_webhooks[0]" in mistake(webhooks=["http://hunter2"])


# Hosts of Windows

MARKER: Json = {"name": "b", "kind": "health_probe", "url": "http://127.0.0.1/", "marker": "D:\\sites\\out.txt"}
FOR_WINDOWS: list[tuple[str, Json]] = [
    ("drain_steps", MARKER),
    ("drain_steps", {"name": "x", "kind": "connections", "ports": [80]}),
    ("drain_steps", {"name": "x", "kind": "services", "services": ["MSSQL$SHOP", "Apache Tomcat"], "use": "auto"}),
    ("drain_steps", {"name": "x", "kind": "command", "do": ["a.exe"], "probe": ["b.exe"]}),
    ("drain_steps", {"name": "x", "kind": "failover_cluster"}),
    ("drain_steps", {"name": "x", "kind": "iis", "sites": ["Default Web Site"]}),
    ("drain_steps", BALANCED),
    ("drain_steps", OWN),
    ("checkpoint", {"name": "x", "kind": "paths", "paths": ["D:\\my cache", "E:/a", r"\\files.example.com\share\a"]}),
    (
        "checkpoint",
        {"name": "x", "kind": "paths", "paths": ["C:\\" + 60 * "directory\\" + "x", r"\\?\D:\long", r"\\?\UNC\s\t\u"]},
    ),
    ("checkpoint", {"name": "x", "kind": "command", "argv": ["save.exe"]}),
    ("checkpoint", {"name": "x", "kind": "tasks", "file": "save.yml", "probe": "saved"}),
]


@pytest.mark.parametrize(
    ("key", "item"), FOR_WINDOWS, ids=lambda value: value if isinstance(value, str) else value["kind"]
)
def test_a_step_that_a_windows_host_can_carry_out_is_accepted(key: str, item: Json) -> None:
    assert read(WINDOWS, **{key: [item]}).mistakes == {}


@pytest.mark.parametrize(
    ("platform", "key", "item", "said"),
    [
        (WINDOWS, "drain_steps", {"kind": "patroni"}, "not supported on Windows hosts. Kinds for them are: command"),
        (WINDOWS, "drain_steps", {"kind": "pacemaker"}, "which is not supported on Windows hosts"),
        (WINDOWS, "drain_steps", CACHE, "which is not supported on Windows hosts"),
        (WINDOWS, "checkpoint", {"kind": "postgresql"}, "Windows hosts. Kinds for them are: command, paths, tasks."),
        (WINDOWS, "checkpoint", {"kind": "redis"}, "which is not supported on Windows hosts"),
        (LINUX, "drain_steps", {"kind": "iis", "sites": ["a"]}, "the kind iis, which is not supported on Linux hosts"),
        (LINUX, "drain_steps", {"kind": "failover_cluster"}, "which is not supported on Linux hosts"),
        (WINDOWS, "drain_steps", {"kind": "services", "services": ["a"], "use": "systemd"}, "use is not supported on"),
        (WINDOWS, "drain_steps", {"kind": "services", "services": ["a*"]}, "cannot be the name of a service"),
        (WINDOWS, "drain_steps", {"kind": "services", "services": ["a "]}, "cannot be the name of a service"),
        (LINUX, "drain_steps", {"kind": "services", "services": ["Apache Tomcat"]}, "cannot be the name of a service"),
        (WINDOWS, "drain_steps", {"kind": "command", "do": ["a"], "probe": ["a"], "become_user": "x"}, "become_user"),
        (WINDOWS, "checkpoint", {"kind": "command", "argv": ["a"], "become_user": "x"}, "become_user is not supported"),
        (WINDOWS, "drain_steps", HEALTH, r"marker has to be the absolute path of a file, such as D:\out"),
        (LINUX, "drain_steps", MARKER, "marker has to be the absolute path of a file, such as /mnt/out"),
        (WINDOWS, "checkpoint", PATHS, r"paths has to be a list of absolute paths, such as D:\cache"),
        (WINDOWS, "checkpoint", {"kind": "paths", "paths": ["D:cache"]}, "list of absolute paths"),
        (WINDOWS, "checkpoint", {"kind": "paths", "paths": ["D:\\a*"]}, "list of absolute paths"),
        (WINDOWS, "checkpoint", {"kind": "paths", "paths": ["D:\\a:stream"]}, "list of absolute paths"),
        (WINDOWS, "checkpoint", {"kind": "paths", "paths": [r"\\.\PhysicalDrive0\a"]}, "list of absolute paths"),
        (WINDOWS, "checkpoint", {"kind": "paths", "paths": [r"\\server"]}, "list of absolute paths"),
        (LINUX, "checkpoint", {"kind": "paths", "paths": ["D:\\cache"]}, "such as /mnt/cache"),
    ],
)  # fmt: skip
def test_what_a_host_of_that_platform_cannot_carry_out_is_said(platform: str, key: str, item: Json, said: str) -> None:
    assert said in mistake(platform, **{key: [{"name": "x", **item}]})


def test_a_windows_host_keeps_its_records_and_archives_where_windows_does() -> None:
    settings = read(WINDOWS)
    assert settings.mistakes == {}
    assert settings.values["record_dir"] == "%ProgramData%\\graceful\\records"
    assert settings.values["checkpoint_dir"] == "%ProgramData%\\graceful\\checkpoints"
    assert set(SETTINGS_ON[WINDOWS]) == set(SETTINGS)


@pytest.mark.parametrize("path", ["D:\\graceful", "%ProgramData%\\x", r"\\files\share\x"])
def test_another_place_on_a_windows_host_is_taken(path: str) -> None:
    assert read(WINDOWS, record_dir=path).values["record_dir"] == path


@pytest.mark.parametrize("path", ["/var/lib/graceful", "graceful", "%ProgramData%", 5])
def test_a_place_that_a_windows_host_does_not_have_is_said(path: t.Any) -> None:
    assert "must be an absolute path of Windows" in mistake(WINDOWS, record_dir=path)
