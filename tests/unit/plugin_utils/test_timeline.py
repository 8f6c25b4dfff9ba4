# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page is judged as a browser and a reader would: parsed, and by where things are and what is said."""

from __future__ import annotations

import copy
import dataclasses
import html.parser
import itertools
import re
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.graceful.azure.plugins.plugin_utils import _style as style
from ansible_collections.graceful.azure.plugins.plugin_utils import _timeline as timeline

Data = dict[str, t.Any]
BEGIN = datetime(2026, 9, 19, 18, 0, 0, tzinfo=timezone.utc)
EVENT_ID = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
OTHER_ID = "0C0C0C0C-1111-4C40-A10B-86575A9EABD5"
HOSTILE = (
    "{{ lookup('pipe', 'id') }}{% raw %}<script>alert(1)</script>\"'><img src=x onerror=alert(1)></style></title>"
    "<a href=//evil.example>x</a>\x00\x1b[31m\x85\u202e\u2066\u200f\ufeff\u2028&lt;]]>--><svg onload=x>"
)
VOID = {"meta", "br", "img", "link", "input"}


def iso(second: float | None) -> str | None:
    return None if second is None else (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def host(*moments: tuple[float | None, str], result: str = "restored", event_id: str | None = EVENT_ID) -> Data:
    return {
        "vm_name": "",
        "result": result,
        "reason": "",
        "events": [event_id] if event_id else [],
        "timeline": [
            {"at": iso(at), "what": what, "detail": f"detail of {what}", "event_id": event_id} for at, what in moments
        ],
    }


LIFE = (
    (0, "noticed"),
    (2, "draining"),
    (22, "drained"),
    (30, "checkpointed"),
    (36, "ready"),
    (41, "approved"),
    (47, "down"),
    (108, "back"),
    (112, "restoring"),
    (136, "restored"),
)


def event(**fields: t.Any) -> Data:
    return {
        "event_id": EVENT_ID,
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "resource_type": "VirtualMachine",
        "resources": ["web_0"],
        "not_before": iso(900),
        "seconds_left": 880,
        "description": "It is restarted.",
        "event_source": "Platform",
        "duration_seconds": None,
        "leader": "web-0",
        "action": "drain_and_approve",
        "reason": "The third rule.",
        "outcome": "completed",
        "holds": [],
        "message": "completed: Reboot of web-0, approved by web-0, took 1 min 30 s",
        "noticed": iso(0),
        "approved": iso(41),
        "approved_by": "web-0",
        "started": iso(44),
        "gone": iso(131),
        "hosts": ["web-0"],
        **fields,
    }


def report(hosts: Data | None = None, events: list[Data] | None = None, **fields: t.Any) -> Data:
    hosts = {"web-0": host(*LIFE)} if hosts is None else hosts
    return {
        "version": 2,
        "drill": False,
        "run": {
            "run_id": "5d0f6f8a-0d9b-4d54-8f60-0a4d2f4c2a11",
            "run_name": "controller, maintenance.yml",
            "started": iso(-2),
            "finished": iso(150),
            "check_mode": False,
        },
        "result": "done",
        "messages": ["One host was rebooted."],
        "events": [event(hosts=list(hosts))] if events is None else events,
        "hosts": hosts,
        **fields,
    }


def fleet(count: int) -> Data:
    names = [f"web-{number:03d}.a-rather-long-name.example.com" for number in range(count)]
    return report({name: host(*((at + number, what) for at, what in LIFE)) for number, name in enumerate(names)})


def hostile() -> Data:
    evil = {"web-0": host(*LIFE), HOSTILE: host(*LIFE, result=HOSTILE)}
    evil["web-0"].update(vm_name=HOSTILE, reason=HOSTILE)
    for moment in evil["web-0"]["timeline"]:
        moment["detail"] = HOSTILE
    evil["web-0"]["timeline"].append({"at": HOSTILE, "what": HOSTILE, "detail": HOSTILE, "event_id": HOSTILE})
    texts = ("event_type", "event_status", "event_source", "reason", "action", "outcome", "approved_by", "message")
    odd = event(**dict.fromkeys(texts, HOSTILE), hosts=list(evil), resources=[HOSTILE], holds=[HOSTILE])
    odd.update(description=(HOSTILE * 100)[:10240], duration_seconds=HOSTILE)
    whole = report(evil, [odd], messages=[HOSTILE], result=HOSTILE, drill=True)
    whole["run"].update(run_id=HOSTILE, run_name=HOSTILE, finished=HOSTILE)
    return whole


UNTIMED = event(**dict.fromkeys(("noticed", "approved", "started", "gone", "not_before")))
SITUATIONS: dict[str, Data] = {
    "done": report(),
    "drill": report(drill=True),
    "no hosts": report({}, [event(hosts=[])]),
    "no events": report({"web-0": host(result="untouched", event_id=None)}, [], result="nothing"),
    "no times": report({"web-0": host((None, "noticed"), (None, "down"))}, [UNTIMED]),
    "a host without a record": report({}, [event(hosts=["web-0"])]),
    "many hosts": fleet(60),
    "hostile": hostile(),
    "one moment": report({"web-0": host((0, "noticed"))}, [event(approved=None, started=None, gone=None)]),
    "left from earlier": report({"web-0": host((5, "restored"), event_id="GONE")}, []),
    "nothing at all": {},
}


@dataclasses.dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    parts: list[Node | str] = dataclasses.field(default_factory=list)

    def all(self, tag: str = "", **attributes: str) -> list[Node]:
        found = []
        for child in (part for part in self.parts if isinstance(part, Node)):
            matches = (not tag or child.tag == tag) and all(
                wanted in child.attributes.get(name.rstrip("_"), "").split() for name, wanted in attributes.items()
            )
            found += ([child] if matches else []) + child.all(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)


class Reader(html.parser.HTMLParser):
    """Builds the tree, and refuses what a browser would have to repair."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _value in attrs}) == len(attrs), f"an attribute twice in <{tag}>"
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].parts.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/> is not closed in HTML")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")


def parsed(data: t.Any) -> Node:
    reader = Reader()
    # Known and the same everywhere: looked at below.
    reader.feed(timeline.page(data).replace(style.CSS, ""))
    reader.close()
    assert reader.open == [reader.root], "something is not closed"
    return reader.root


def classes(node: Node) -> list[str]:
    return node.attributes.get("class", "").split()


def lanes(page: Node) -> dict[str, Node]:
    """The lanes of events and hosts, by name."""
    found = [lane for lane in page.all("div", class_="lane") if "axis" not in classes(lane)]
    return {lane.all("b")[0].text: lane for lane in found}


def place(node: Node) -> tuple[float, float]:
    """From where to where a node reaches, in percent."""
    found = re.fullmatch(r"left:([0-9.]+)%(?:;width:([0-9.]+)%)?", node.attributes["style"])
    assert found, node.attributes
    return float(found[1]), float(found[1]) + float(found[2] or 0)


def bars(lane: Node) -> dict[str, tuple[float, float]]:
    return {classes(drawn)[1]: place(drawn) for drawn in lane.all("i", class_="p")}


def rows(page: Node) -> dict[str, list[list[str]]]:
    """The rows of the table, by the heading of their group."""
    found: dict[str, list[list[str]]] = {}
    for group in page.all("tbody"):
        heading, *lines = group.all("tr")
        found[heading.all("bdi")[0].text] = [[cell.text for cell in line.all("td")] for line in lines]
    return found


def only_lane(*moments: tuple[float | None, str], **fields: t.Any) -> Node:
    return lanes(parsed(report({"web-0": host(*moments, **fields)})))["web-0"]


# What a browser does with the page


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_page_is_well_formed_and_does_nothing(name: str) -> None:
    page = parsed(SITUATIONS[name])
    ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in page.all():
        assert node.tag not in {"script", "iframe", "img", "object", "embed", "link", "base", "form", "a", "svg"}
        for attribute, value in node.attributes.items():
            assert not attribute.startswith("on")
            assert attribute not in {"src", "srcset", "href", "action", "background", "poster", "data"}
            if attribute == "aria-labelledby":
                assert value in ids
            if attribute == "style":
                assert place(node)


def test_the_style_sheet_loads_nothing() -> None:
    assert style.CSS in timeline.page(report())
    assert not re.search("[<]|@import|url", style.CSS)


def test_every_phase_of_a_host_has_a_look() -> None:
    for what in (*style.HOST_PHASES, *style.EVENT_PHASES):
        assert f".p.{what}{{" in style.CSS


def test_hostile_text_is_text_only() -> None:
    tame, wild = parsed(report(drill=True)), parsed(hostile())
    assert {node.tag for node in wild.all()} <= {node.tag for node in tame.all()} | {"h3", "div"}
    assert "{ { lookup('pipe', 'id') }}{ % raw %}<script>alert(1)</script>\"'><img src=x onerror" in wild.text


def test_no_character_of_the_page_acts() -> None:
    acting = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
    assert not acting.search(timeline.page(hostile()))


def test_a_lone_surrogate_does_not_keep_the_page_from_being_written() -> None:
    assert timeline.page(report(messages=["\ud800"])).encode("utf-8")


def test_a_long_text_is_cut_and_says_so() -> None:
    page = parsed(report(events=[event(description="x" * 10240)]))
    assert "x" * 999 + "…" in page.text


def replaced(data: t.Any, odd: t.Any) -> t.Iterator[t.Any]:
    """The data with one value after the other replaced."""
    if isinstance(data, (dict, list)):
        keys: t.Iterable[t.Any] = list(data) if isinstance(data, dict) else range(len(data))
        for key in keys:
            for inner in replaced(data[key], odd):
                changed = copy.copy(data)
                changed[key] = inner
                yield changed
    yield odd


@pytest.mark.parametrize(
    "odd",
    [None, 7, -1e300, True, "x", [], {}, [None], {"x": 1}, [[["x"]]], "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"],
)
def test_whatever_is_wrong_in_the_data_there_is_a_page(odd: t.Any) -> None:
    small = report({"web-0": host(LIFE[1], LIFE[6])}, drill=True)
    for data in replaced(small, odd):
        assert parsed(data).all("h1")


def test_sixty_hosts_make_a_small_file() -> None:
    assert len(timeline.page(fleet(60)).encode()) < 500_000


# What a person sees first


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        ("nothing", "Nothing to do"),
        ("done", "Maintenance done"),
        ("held", "Held: not approved"),
        ("failed", "Failed: action is required"),
        ("deferred", "Deferred: it is not time yet"),
        ("planned", "Planned: nothing was changed"),
        ("in progress", "In progress"),
        ("new", "new"),
        (None, "No result"),
    ],
)
def test_the_heading_is_the_verdict(result: str | None, verdict: str) -> None:
    page = parsed(report(result=result))
    assert [heading.text for heading in page.all("h1")] == [verdict]
    assert page.all("title")[0].text.startswith(verdict)


def test_the_messages_of_the_run_stand_at_the_top() -> None:
    (messages,) = parsed(report(messages=["first", "second"])).all("header")[0].all("ul")
    assert [item.text for item in messages.all("li")] == ["first", "second"]


def test_check_mode_is_said() -> None:
    data = report()
    assert "Check mode" not in parsed(data).text
    data["run"]["check_mode"] = True
    assert "Check mode" in parsed(data).text


def test_a_drill_is_said_with_its_margin() -> None:
    assert "drill" not in parsed(report()).text.lower()
    page = parsed(report(drill=True))
    assert page.all("h1")[0].text == "Drill: Maintenance done"
    assert "This was a drill" in page.all("header")[0].text
    margin = next(card for card in page.all("section") if card.attributes["aria-labelledby"] == "margin")
    assert "Ready and approved 41 s after the announcement." in [item.text for item in margin.all("li")]


def test_a_card_tells_who_why_and_what_holds() -> None:
    data = report(
        events=[event(holds=["web-0 is late", "web_9 is unknown"], outcome="held", resources=["web_0", "web_9"])]
    )
    card = parsed(data).all("section")[0]
    facts = {fact.all("dt")[0].text: fact.all("dd")[0].text for fact in card.all("dl")[0].all("div")}
    assert card.all("h2")[0].text == "1. Reboot of web-0 held"
    assert [reason.text for reason in card.all("div", class_="holds")[0].all("li")] == [
        "web-0 is late",
        "web_9 is unknown",
    ]
    assert card.all("p", class_="message")[0].text.startswith("completed: Reboot of web-0, approved by web-0")
    assert facts == {
        "Hosts": "web-0",
        "In Azure": "web_0 and web_9",
        "Noticed": "19 Sep 2026, 18:00:00 UTC; not before (earliest start) 18:15:00, 15 min later",
        "Announced": "Scheduled by Platform",
        "Approved": "18:00:41 UTC by web-0, 41 s later",
        "Action": "drain_and_approve",
        "Reason": "The third rule.",
        "Azure says": "It is restarted.",
    }


def test_hosts_without_an_event_are_named() -> None:
    hosts = {"web-0": host(*LIFE), "db-0": host(result="untouched", event_id=None)}
    page = parsed(report(hosts, [event(hosts=["web-0"])]))
    (others,) = page.all("ul", class_="plain")
    assert [name.text for name in others.all("bdi")] == ["db-0"]
    assert "db-0" not in lanes(page)


# The picture


def test_each_event_and_host_has_one_lane_in_order() -> None:
    page = parsed(fleet(60))
    assert list(lanes(page)) == ["1. Reboot", *fleet(60)["hosts"]]


def test_a_phase_lasts_until_the_next_thing_happened() -> None:
    drawn = bars(only_lane(*LIFE))
    assert list(drawn) == [what for _at, what in LIFE]
    # The picture spans 0 to 150 s, the end of the run.
    times = [at / 150 * 100 for at, _what in LIFE] + [100]
    for (left, right), begin, end in zip(drawn.values(), times, times[1:], strict=False):
        assert (left, right) == pytest.approx((begin, end), abs=0.02)


def test_order_in_the_data_does_not_matter() -> None:
    assert bars(only_lane(*reversed(LIFE))) == bars(only_lane(*LIFE))


def test_an_event_has_the_phases_that_azure_knows() -> None:
    drawn = bars(lanes(parsed(report()))["1. Reboot"])
    expected = {"scheduled": (0, 27.33), "approved": (27.33, 29.33), "started": (29.33, 87.33), "gone": (87.33, 100)}
    assert drawn.keys() == expected.keys()
    for what, (left, right) in expected.items():
        assert drawn[what] == pytest.approx((left, right), abs=0.02)


@pytest.mark.parametrize("kind", ["draining", "drained", "ready", "down", "restoring", "failed"])
def test_what_never_ended_reaches_the_end_and_says_so(kind: str) -> None:
    (drawn,) = only_lane((0, "noticed"), (50, kind), result="failed").all("i", class_=kind)
    assert place(drawn)[1] == pytest.approx(100, abs=0.02)
    assert "open" in classes(drawn)
    assert "not ended" in drawn.attributes["title"]


def test_a_host_that_is_back_in_service_is_not_open() -> None:
    (drawn,) = only_lane(*LIFE).all("i", class_="restored")
    assert "open" not in classes(drawn)
    assert "not ended" not in drawn.attributes["title"]


def test_more_steps_or_events_in_the_same_phase_do_not_begin_it_anew() -> None:
    twice = ((0, "noticed"), (2, "draining"), (9, "draining"), (12, "noticed"), (20, "drained"), (90, "restored"))
    lane = only_lane(*twice)
    assert list(bars(lane)) == ["noticed", "draining", "drained", "restored"]
    assert bars(lane)["draining"] == pytest.approx((2 / 1.5, 20 / 1.5), abs=0.02)


def test_what_is_no_phase_is_told_but_not_drawn() -> None:
    page = parsed(report({"web-0": host((0, "noticed"), (3, "claimed"), (9, "draining"))}))
    assert list(bars(lanes(page)["web-0"])) == ["noticed", "draining"]
    assert ["18:00:03", "claimed", "detail of claimed"] in rows(page)["web-0"]


CROWDED = tuple((at / 10, what) for at, what in LIFE)
LATE = tuple((140 + at / 14, what) for at, what in LIFE)


@pytest.mark.parametrize("life", [LIFE, CROWDED, LATE], ids=["usual", "at the beginning", "at the end"])
def test_no_phase_hides_another(life: tuple[tuple[float, str], ...]) -> None:
    drawn = list(bars(only_lane(*life)).values())
    assert len(drawn) == len(LIFE)
    for left, right in drawn:
        assert 0 <= left < right <= 100.01
        assert right - left > 1
    for (_left, right), (left, _right) in itertools.pairwise(drawn):
        assert right == pytest.approx(left, abs=0.02)


def test_hundreds_of_marks_stay_inside_the_picture() -> None:
    many = [(n / 10, "draining" if n % 2 else "drained") for n in range(400)]
    for drawn in only_lane(*many).all("i", class_="p"):
        left, right = place(drawn)
        assert 0 <= left <= right <= 100.01


def test_moments_without_a_time_are_told_but_not_drawn() -> None:
    page = parsed(report({"web-0": host((0, "noticed"), (None, "down"), (9, "back"))}))
    assert list(bars(lanes(page)["web-0"])) == ["noticed", "back"]
    assert rows(page)["web-0"][-1] == ["unknown", "down", "detail of down"]


@pytest.mark.parametrize(
    ("second", "line"), [(75, 50.0), (200, 100.0), (900, None), (86400 * 9, None), (-900, None), (None, None)]
)
def test_not_before_is_a_line_where_the_picture_reaches_it(second: float | None, line: float | None) -> None:
    page = parsed(report(events=[event(not_before=iso(second))]))
    drawn = [place(mark)[0] for mark in lanes(page)["1. Reboot"].all("i", class_="limit")]
    assert drawn == ([] if line is None else [pytest.approx(line, abs=0.02)])
    assert ("Not before (earliest start)" in page.all("ul", class_="legend")[0].text) == (line is not None)


def test_a_wrong_clock_does_not_squeeze_the_picture() -> None:
    page = parsed(report({"web-0": host(*LIFE), "web-1": host((-1e9, "noticed"), (50, "down"), (1e9, "back"))}))
    assert bars(lanes(page)["web-0"]) == bars(only_lane(*LIFE))
    wrong = bars(lanes(page)["web-1"])
    assert wrong["noticed"][0] == 0
    assert wrong["down"][0] == pytest.approx(33.33, abs=0.01)
    assert wrong["back"][1] == pytest.approx(100, abs=0.01)
    assert "Phases at the left edge began earlier. Phases at the right edge were later." in page.text


def test_days_of_waiting_do_not_squeeze_what_was_done() -> None:
    days = 2 * 86400
    drawn = bars(only_lane((-days, "noticed"), *LIFE[1:]))
    assert drawn["noticed"][0] == 0
    assert drawn["restored"][0] - drawn["draining"][0] > 50


@pytest.mark.parametrize(
    ("last", "labels"),
    [
        (10, ["18:00:00", "18:00:02", "18:00:04"]),
        (150, ["18:00:00", "18:00:30", "18:01:00"]),
        (1500, ["18:00", "18:05", "18:10"]),
        (6 * 3600, ["18:00", "19:00", "20:00"]),
        (20 * 3600, ["18:00", "20 Sep 00:00", "06:00"]),
        (5 * 86400, ["20 Sep", "21 Sep", "22 Sep"]),
        (90 * 86400, ["4 Oct", "19 Oct", "3 Nov"]),
    ],
)
def test_the_axis_has_round_times(last: float, labels: list[str]) -> None:
    data = report({"web-0": host((0, "noticed"), (last / 2, "down"), (last, "back"))}, [UNTIMED], run={})
    axis = parsed(data).all("div", class_="axis")[0]
    ticks = axis.all("span", class_="tick")
    assert [tick.text for tick in ticks][:3] == labels
    assert len(ticks) <= 7
    gaps = [place(b)[0] - place(a)[0] for a, b in itertools.pairwise(ticks)]
    assert min(gaps) * timeline.NARROWEST / 100 > 70


def test_the_legend_explains_every_phase() -> None:
    page = parsed(report())
    legend = page.all("ul", class_="legend")[0]
    assert [classes(drawn)[1] for drawn in legend.all("i", class_="p")] == list(bars(lanes(page)["web-0"]))
    assert {item.text for item in legend.all("li")} >= {"draining", "ready", "noticed, in service"}


def test_a_label_that_does_not_fit_is_left_out_and_none_is_wider_than_its_phase() -> None:
    lane = only_lane(*LIFE)
    labels = {classes(drawn)[1]: drawn.text for drawn in lane.all("i", class_="p")}
    assert labels["down"] == "down 1 min 1 s"
    assert labels["back"] == ""
    for drawn in lane.all("i", class_="p"):
        left, right = place(drawn)
        assert len(drawn.text) * timeline.LETTER <= (right - left) * timeline.NARROWEST / 100


# The same for those who cannot see the picture


def test_the_table_tells_the_same_as_the_picture() -> None:
    data = fleet(3)
    told = rows(parsed(data))
    for name, entry in data["hosts"].items():
        expected = [[m["at"][11:19], m["what"], m["detail"]] for m in entry["timeline"]]
        assert told[name] == expected
    assert [row[:2] for row in told["1. Reboot"]] == [
        ["18:00:00", "scheduled"],
        ["18:00:41", "approved"],
        ["18:00:44", "started"],
        ["18:02:11", "gone"],
        ["18:15:00", "not before"],
    ]


def test_the_table_says_which_event_where_there_are_several() -> None:
    both = host((1, "down"), (2, "back"))
    both["timeline"][1]["event_id"] = OTHER_ID.lower()
    page = parsed(report({"web-0": both}, [event(), event(event_id=OTHER_ID, event_type="Freeze")]))
    assert [row[1] for row in rows(page)["web-0"]] == ["down (event 1)", "back (event 2)"]


def test_the_table_has_the_reason_and_the_azure_name_of_a_host() -> None:
    data = report()
    data["hosts"]["web-0"].update(vm_name="WEB_0", result="left drained", reason="the event still stands")
    headings = [group.all("th")[0].text for group in parsed(data).all("tbody")]
    assert "web-0 (in Azure: WEB_0) left drained the event still stands" in headings


def test_the_table_has_the_date_where_it_matters() -> None:
    told = rows(parsed(report({"web-0": host((-86400, "noticed"), (0, "down"))})))
    assert [row[0] for row in told["web-0"]] == ["18 Sep 2026, 18:00:00", "19 Sep 2026, 18:00:00"]


def test_the_picture_has_a_name_for_screen_readers() -> None:
    (picture,) = parsed(report()).all("div", class_="lanes")
    assert picture.attributes["role"] == "img"
    assert picture.attributes["aria-label"].startswith("1 event and 1 host from 18:00:00 to 18:02:30 UTC.")


# How it looks


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


PAIRS = [
    *((style.COLOURS[front], style.COLOURS[back]) for front in ("ink", "soft") for back in ("card", "page")),
    *((style.COLOURS["ink"], style.COLOURS[back]) for back in ("calm-back", "wait-back")),
    *((style.COLOURS[look], style.COLOURS[f"{look}-back"]) for look in style.LOOKS),
    *((four[1::2], four[::2]) for four in style.PHASES.values()),
]


@pytest.mark.parametrize("dark", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_text_has_enough_contrast(dark: int, front: tuple[str, str], back: tuple[str, str]) -> None:
    bright, dim = sorted((luminance(front[dark]), luminance(back[dark])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5


def test_no_text_is_small() -> None:
    sizes = [int(size) for size in re.findall(r"font(?:-size)?: (\d+)px", style.CSS)]
    assert min(sizes) >= 14
