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
SVG_LEAVES = {"use", "line", "rect", "path", "circle"}


def iso(second: float | None) -> str | None:
    return None if second is None else (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def host(*moments: tuple[float | None, str], result: str = "restored", event_id: str | None = EVENT_ID) -> Data:
    return {
        "vm_name": "",
        "result": result,
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
        "event_status": "Started",
        "event_source": "Platform",
        "description": "It is restarted.",
        "resources": ["web_0"],
        "not_before": iso(900),
        "action": "drain_and_approve",
        "reason": "The third rule.",
        "outcome": "completed",
        "hold": [],
        "leader": "web-0",
        "noticed": iso(0),
        "approved": iso(41),
        "started": iso(44),
        "gone": iso(131),
        "hosts": ["web-0"],
        **fields,
    }


def report(hosts: Data | None = None, events: list[Data] | None = None, **fields: t.Any) -> Data:
    hosts = {"web-0": host(*LIFE)} if hosts is None else hosts
    return {
        "version": 1,
        "run": {
            "run_id": "5d0f6f8a-0d9b-4d54-8f60-0a4d2f4c2a11",
            "run_name": "controller, maintenance.yml",
            "started": iso(-2),
            "finished": iso(150),
            "check_mode": False,
        },
        "result": "done",
        "words": ["One host was rebooted."],
        "events": [event(hosts=list(hosts))] if events is None else events,
        "hosts": hosts,
        **fields,
    }


def fleet(count: int) -> Data:
    names = [f"web-{number:03d}.a-rather-long-name.example.com" for number in range(count)]
    return report({name: host(*((at + number, what) for at, what in LIFE)) for number, name in enumerate(names)})


def hostile() -> Data:
    evil = {"web-0": host(*LIFE), HOSTILE: host(*LIFE, result=HOSTILE)}
    evil["web-0"]["vm_name"] = HOSTILE
    for moment in evil["web-0"]["timeline"]:
        moment["detail"] = HOSTILE
    evil["web-0"]["timeline"].append({"at": HOSTILE, "what": HOSTILE, "detail": HOSTILE, "event_id": HOSTILE})
    texts = ("event_type", "event_status", "event_source", "reason", "action", "outcome", "leader")
    odd = event(**dict.fromkeys(texts, HOSTILE), hosts=list(evil), resources=[HOSTILE], hold=[HOSTILE])
    odd["description"] = (HOSTILE * 100)[:10240]
    whole = report(evil, [odd], words=[HOSTILE], result=HOSTILE)
    whole["run"].update(run_id=HOSTILE, run_name=HOSTILE, finished=HOSTILE)
    return whole


SITUATIONS: dict[str, Data] = {
    "done": report(),
    "no hosts": report({}, [event(hosts=[])]),
    "no events": report({"web-0": host(result="untouched", event_id=None)}, [], result="nothing"),
    "no times": report({"web-0": host((None, "noticed"), (None, "down"))}, [event(noticed=None, approved=None)]),
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

    def percent(self, name: str) -> float:
        assert self.attributes[name].endswith("%")
        return float(self.attributes[name][:-1])


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
        assert tag in SVG_LEAVES, f"<{tag}/> is not closed in HTML"
        self.handle_starttag(tag, attrs)
        self.open.pop()

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


def lanes(page: Node) -> list[Node]:
    return [lane for lane in page.all("div", class_="lane") if not {"axis", "azure"} & set(classes(lane))]


def classes(node: Node) -> list[str]:
    return node.attributes.get("class", "").split()


def marks(lane: Node) -> list[tuple[str, float, float]]:
    """What, x and y of each mark of a lane."""
    return [
        (classes(use)[1], use.percent("x"), float(use.attributes["y"]))
        for use in lane.all("use", class_="mark")
        if "y" in use.attributes
    ]


def bars(lane: Node) -> dict[str, tuple[float, float]]:
    return {
        classes(rect)[-1]: (rect.percent("x"), rect.percent("x") + rect.percent("width"))
        for rect in lane.all("rect", class_="bar")
    }


def rows(page: Node) -> dict[str, list[list[str]]]:
    """The rows of the tables, by the heading of their group."""
    found: dict[str, list[list[str]]] = {}
    for group in page.all("tbody"):
        heading, *lines = group.all("tr")
        found[heading.all("bdi")[0].text] = [[cell.text for cell in line.all("td")] for line in lines]
    return found


def only_lane(*moments: tuple[float | None, str], **fields: t.Any) -> Node:
    (lane,) = lanes(parsed(report({"web-0": host(*moments, **fields)})))
    return lane


# What a browser does with the page


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_page_is_well_formed_and_does_nothing(name: str) -> None:
    page = parsed(SITUATIONS[name])
    ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in page.all():
        assert node.tag not in {"script", "iframe", "img", "object", "embed", "link", "base", "form", "a", "image"}
        for attribute, value in node.attributes.items():
            assert not attribute.startswith("on")
            assert attribute not in {"src", "srcset", "action", "xlink:href", "background", "poster", "data"}
            if attribute == "href":
                assert value.removeprefix("#") in ids
            if attribute == "style":
                assert value == "position:absolute"


def test_the_style_sheet_loads_nothing() -> None:
    assert style.CSS in timeline.page(report())
    assert not re.search("[<]|@import", style.CSS)
    assert set(re.findall(r"url\([^)]*\)", style.CSS)) == {"url(#p-draining)", "url(#p-restoring)"}


def test_hostile_text_is_text_only() -> None:
    tame, wild = parsed(report()), parsed(hostile())
    assert {node.tag for node in wild.all()} <= {node.tag for node in tame.all()} | {"h3", "div"}
    assert "{{ lookup('pipe', 'id') }}{% raw %}<script>alert(1)</script>\"'><img src=x onerror" in wild.text


def test_no_character_of_the_page_acts() -> None:
    acting = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
    whole = timeline.page(hostile())
    assert not acting.search(whole)
    assert "⟨U+202E⟩" in whole
    assert "␛[31m" in whole


def test_a_lone_surrogate_does_not_keep_the_page_from_being_written() -> None:
    assert timeline.page(report(words=["\ud800"])).encode("utf-8")


def test_a_long_text_is_cut_and_says_so() -> None:
    page = parsed(report(events=[event(description="x" * 10240)]))
    assert "x" * 1000 + " … (9240 more characters in the JSON file)" in page.text


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
    "odd", [None, 7, -1e300, True, "x", [], {}, [None], {"x": 1}, [[["x"]]], "9999-12-31T23:59:59Z"]
)
def test_whatever_is_wrong_in_the_data_there_is_a_page(odd: t.Any) -> None:
    small = report({"web-0": host(LIFE[1], LIFE[5])})
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
        ("failed", "Failed: a person is needed"),
        ("new", "new"),
        (None, "No result"),
    ],
)
def test_the_heading_is_the_verdict(result: str | None, verdict: str) -> None:
    page = parsed(report(result=result))
    assert [heading.text for heading in page.all("h1")] == [verdict]
    assert page.all("title")[0].text.startswith(verdict)


def test_check_mode_is_said() -> None:
    data = report()
    assert "Check mode" not in parsed(data).text
    data["run"]["check_mode"] = True
    assert "Check mode" in parsed(data).text


def test_a_card_tells_who_why_and_what_holds() -> None:
    data = report(
        events=[event(hold=["web-0 is late", "web_9 is unknown"], outcome="held", resources=["web_0", "web_9"])]
    )
    data["hosts"]["web-0"]["vm_name"] = "WEB_0"
    (card,) = parsed(data).all("section")
    facts = {fact.all("dt")[0].text: fact.all("dd")[0].text for fact in card.all("dl")[0].all("div")}
    assert card.all("h2")[0].text == "Reboot Held"
    assert [reason.text for reason in card.all("div", class_="hold")[0].all("li")] == [
        "web-0 is late",
        "web_9 is unknown",
    ]
    assert facts["Hosts"] == "web-0"
    assert facts["Not in the inventory"] == "web_9"
    assert facts["Action"] == "drain, then approve drain_and_approve"
    assert facts["Why"] == "The third rule."
    assert facts["Notice"] == "noticed 19 Sep 2026, 18:00:00 UTC; not before 18:15:00, 15 min later"
    assert facts["Approved"] == "18:00:41, 14 min 19 s before NotBefore"


def test_hosts_that_no_event_touched_are_named() -> None:
    hosts = {"web-0": host(*LIFE), "db-0": host(result="untouched", event_id=None)}
    page = parsed(report(hosts, [event(hosts=["web-0"])]))
    (silent,) = page.all("ul", class_="silent")
    assert [name.text for name in silent.all("bdi")] == ["db-0"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.6, "1 min"),
        (65, "1 min 5 s"),
        (3600, "1 h"),
        (7260, "2 h 1 min"),
        (90061, "1 d 1 h"),
        (-5, "5 s"),
    ],
)
def test_a_length_of_time_in_words(seconds: float, words: str) -> None:
    assert timeline.lasting(seconds) == words


# The picture


def test_each_host_has_one_lane_in_order() -> None:
    page = parsed(fleet(60))
    assert [lane.all("b")[0].text for lane in lanes(page)] == list(fleet(60)["hosts"])


def test_an_event_has_only_its_own_hosts_and_moments() -> None:
    both = host((1, "down"), (2, "back"), (3, "restored"))
    both["events"] = [EVENT_ID, OTHER_ID]
    for moment, event_id in zip(both["timeline"], (EVENT_ID, OTHER_ID.lower(), None), strict=True):
        moment["event_id"] = event_id
    hosts = {"web-0": host((0, "noticed")), "db-0": both}
    page = parsed(report(hosts, [event(hosts=["web-0"]), event(event_id=OTHER_ID, hosts=[])]))
    told = [
        {lane.all("b")[0].text: [what for what, _x, _y in marks(lane)] for lane in lanes(card)}
        for card in page.all("section")
    ]
    assert told == [{"web-0": ["noticed"], "db-0": ["down", "restored"]}, {"db-0": ["back", "restored"]}]


def test_marks_stand_where_their_time_is() -> None:
    lane = only_lane(*LIFE)
    times = {what: at for at, what in LIFE}
    placed = marks(lane)
    assert [what for what, _x, _y in placed] == [what for _at, what in LIFE if what in timeline.MARKS]
    for what, x, _y in placed:
        # The picture spans 0 to 150 s, the end of the run, between the margins.
        assert x == pytest.approx(6 + times[what] / 150 * 88, abs=0.02)


def test_order_in_the_data_does_not_matter() -> None:
    assert marks(only_lane(*reversed(LIFE))) == marks(only_lane(*LIFE))


def test_bars_run_from_begin_to_end() -> None:
    lane = only_lane(*LIFE)
    x = {what: x for what, x, _y in marks(lane)}
    drawn = bars(lane)
    assert drawn.keys() == {"draining", "down", "restoring"}
    assert drawn["draining"][1] == pytest.approx(x["drained"], abs=0.02)
    assert drawn["down"] == pytest.approx((x["down"], x["back"]), abs=0.02)
    assert drawn["restoring"][1] == pytest.approx(x["restored"], abs=0.02)


@pytest.mark.parametrize("kind", ["draining", "down", "restoring"])
def test_what_never_ended_reaches_the_end_and_says_so(kind: str) -> None:
    lane = only_lane((0, "noticed"), (50, kind), result="failed")
    assert bars(lane)[kind][1] == pytest.approx(94, abs=0.02)
    assert "not ended" in lane.text
    assert "open" in classes(lane.all("rect", class_="bar")[0])


def test_a_span_that_ends_before_it_begins_has_no_length() -> None:
    # The host's clock was set back while it drained.
    lane = only_lane((60, "draining"), (40, "drained"), (90, "restored"))
    left, right = bars(lane)["draining"]
    assert 0 < right - left < 1


@pytest.mark.parametrize(
    ("moments", "result", "begin", "end"),
    [
        (LIFE, "restored", "draining", "restored"),
        (((0, "noticed"), (10, "drained")), "left drained", "drained", None),
        (((0, "noticed"), (10, "down"), (20, "back")), "restored", "down", "back"),
        (((0, "noticed"), (10, "down")), "gone", "down", None),
    ],
)
def test_the_thin_line_tells_how_long_a_host_was_out_of_service(
    moments: tuple[tuple[float, str], ...], result: str, begin: str, end: str | None
) -> None:
    lane = only_lane(*moments, result=result)
    (rail,) = lane.all("rect", class_="rail")
    times = {what: 6 + at / 150 * 88 for at, what in moments}
    right = times[end] if end else 94
    assert rail.percent("x") == pytest.approx(times[begin], abs=0.02)
    assert rail.percent("x") + rail.percent("width") == pytest.approx(right, abs=0.02)
    assert ("not back in service" in rail.text) == (end is None)


CROWDED = ((0, "noticed"), (1, "drained"), (2, "checkpointed"), (3, "approved"), (4, "down"), (140, "back"))


@pytest.mark.parametrize("data", [fleet(60), report({"web-0": host(*CROWDED)})], ids=["fleet", "crowded"])
def test_no_mark_hides_another(data: Data) -> None:
    for lane in lanes(parsed(data)):
        placed = marks(lane)
        for index, (_what, x, y) in enumerate(placed):
            for _other, other_x, other_y in placed[index + 1 :]:
                assert y != other_y or abs(x - other_x) * timeline.NARROWEST / 100 > 16


def test_moments_without_a_time_are_told_but_not_drawn() -> None:
    page = parsed(report({"web-0": host((0, "noticed"), (None, "down"), (9, "back"))}))
    assert [what for what, _x, _y in marks(lanes(page)[0])] == ["noticed", "back"]
    assert rows(page)["web-0"][-1] == ["unknown", "down", "detail of down"]


def vertical(page: Node, kind: str) -> list[float]:
    return [line.percent("x1") for line in page.all("svg", class_="lines")[0].all("line", class_=kind)]


def test_the_approval_is_a_line_through_all_lanes() -> None:
    page = parsed(report())
    approved = next(x for what, x, _y in marks(lanes(page)[0]) if what == "approved")
    assert vertical(page, "approval") == [approved]


@pytest.mark.parametrize(
    ("second", "line", "arrow", "label"),
    [
        (75, 50.0, None, "NotBefore 18:01:15"),
        (200, 94.0, None, "NotBefore 18:03:20"),
        (900, None, "#to-right", "NotBefore 18:15:00, 12 min 30 s after this picture"),
        (86400 * 9, None, "#to-right", "NotBefore 28 Sep 2026 18:00:00, 8 d 23 h after this picture"),
        (-900, None, "#to-left", "NotBefore 17:45:00, 15 min before this picture"),
    ],
)
def test_not_before_is_a_line_or_an_arrow_at_the_edge(
    second: float, line: float | None, arrow: str | None, label: str
) -> None:
    page = parsed(report(events=[event(not_before=iso(second))]))
    arrows = [
        use.attributes["href"] for use in page.all("use", class_="not-before") if "#to-" in use.attributes["href"]
    ]
    assert vertical(page, "not-before") == ([] if line is None else [line])
    assert arrows == ([] if arrow is None else [arrow])
    assert [text.text for text in page.all("text", class_="not-before")] == [label]


def test_a_wrong_clock_does_not_squeeze_the_picture() -> None:
    page = parsed(report({"web-0": host(*LIFE), "web-1": host((-1e9, "noticed"), (1e9, "drained"), (50, "down"))}))
    first, second = lanes(page)
    assert marks(first) == marks(only_lane(*LIFE))
    assert [x for _what, x, _y in marks(second)] == [2.0, pytest.approx(35.33, abs=0.01), 98.0]
    assert "What stands at the left edge is earlier and at the right edge is later" in page.text


def test_days_of_waiting_do_not_squeeze_what_was_done() -> None:
    days = 2 * 86400
    life = [(-days, "noticed"), *LIFE[1:]]
    placed = marks(only_lane(*life))
    assert placed[0][:2] == ("noticed", 2.0)
    assert placed[-1][1] - placed[1][1] > 50


@pytest.mark.parametrize(
    ("last", "labels"),
    [
        (10, ["18:00:00", "18:00:02", "18:00:04"]),
        (150, ["18:00:00", "18:00:30", "18:01:00"]),
        (1500, ["18:00", "18:05", "18:10"]),
        (6 * 3600, ["18:00", "19:00", "20:00"]),
        (20 * 3600, ["18:00", "20 Sep 00:00", "06:00"]),
        (5 * 86400, ["20 Sep", "21 Sep", "22 Sep"]),
    ],
)
def test_the_axis_has_round_times(last: float, labels: list[str]) -> None:
    untimed = event(**dict.fromkeys(("noticed", "approved", "started", "gone", "not_before")))
    data = report({"web-0": host((0, "noticed"), (last / 2, "down"), (last, "back"))}, [untimed], run={})
    axis = parsed(data).all("div", class_="axis")[0]
    ticks = axis.all("text", class_="tick")
    assert [tick.text for tick in ticks][:3] == labels
    assert len(ticks) <= 7
    gaps = [b.percent("x") - a.percent("x") for a, b in itertools.pairwise(ticks)]
    assert min(gaps) * timeline.NARROWEST / 100 > 80


def test_the_legend_explains_every_shape_and_bar() -> None:
    page = parsed(report())
    legend = page.all("ul", class_="legend")[0]
    drawn = {use.attributes["href"] for lane in lanes(page) for use in lane.all("use", class_="mark")}
    assert {use.attributes["href"] for use in legend.all("use")} == drawn
    assert {item.text for item in legend.all("li")} >= {"draining", "down", "restoring", "out of service"}


def test_shapes_differ_without_their_colour() -> None:
    shapes = re.findall(r'<g id="m-\w+">(.*?)</g>', style.SHAPES)
    assert len(shapes) == len(set(shapes)) == len(timeline.MARKS)


# The same for those who cannot see the picture


def test_the_table_tells_the_same_as_the_picture() -> None:
    data = fleet(3)
    told = rows(parsed(data))
    for name, entry in data["hosts"].items():
        expected = [[m["at"][11:19], m["what"], m["detail"]] for m in entry["timeline"]]
        assert told[name] == expected
    assert [row[:2] for row in told["The event"]] == [
        ["18:00:00", "noticed"],
        ["18:00:41", "approved"],
        ["18:00:44", "started"],
        ["18:02:11", "gone"],
        ["18:15:00", "NotBefore"],
    ]


def test_the_table_has_the_date_where_it_matters() -> None:
    told = rows(parsed(report({"web-0": host((-86400, "noticed"), (0, "down"))})))
    assert [row[0] for row in told["web-0"]] == ["18 Sep 2026 18:00:00", "19 Sep 2026 18:00:00"]


def test_the_picture_has_a_name_for_screen_readers() -> None:
    (picture,) = parsed(report()).all("div", class_="lanes")
    assert picture.attributes["role"] == "img"
    assert picture.attributes["aria-label"].startswith("Reboot 1: 1 host from 18:00:00 to 18:02:30 UTC.")


# How it looks


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the style sheet, which begins with those for light and for dark screens."""
    blocks = style.CSS.split("* {", maxsplit=1)[0].split("@media")
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", block)) for block in blocks)
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize(
    ("front", "back"),
    [
        ("ink", "card"),
        ("ink", "page"),
        ("soft", "card"),
        ("approval", "card"),
        ("limit", "card"),
        ("ink", "calm-soft"),
        ("ink", "wait-soft"),
        *((look, f"{look}-soft") for look in ("good", "wait", "bad", "calm")),
        *((f"on-{kind}", kind) for kind in ("draining", "down", "restoring", "scheduled", "started")),
    ],
)
def test_text_has_enough_contrast(mode: str, front: str, back: str) -> None:
    colours = palettes()[mode]
    bright, dim = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5


def test_no_text_is_small() -> None:
    sizes = [int(size) for size in re.findall(r"font(?:-size)?: (\d+)px", style.CSS)]
    assert min(sizes) >= 14
