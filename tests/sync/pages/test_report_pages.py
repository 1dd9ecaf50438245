"""The report's pages and files: what is on them, for whom, and that they are sound."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape
from sync.pages.by_gateway import by_gateway, page_name
from sync.pages.layout import LAYOUTS
from sync.pages.summary import totals

from sync.pages import page as pages
from sync.pages.files import report_document, table_csv
from sync.pages.page import breakable, coded, fleet_page, gateway_pages, write_report
from sync.pages.sections import FLEET_ROWS, of_fleet
from sync.reports.shared.collect import Findings
from sync.reports.shared.findings import finite
from tests.helpers.pages import Page, checked
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import BEGIN, DELIVERY, GATEWAY, LANE, NOON, whole

FLEET = sample(8)
THREE = ("gw-004.example", "gw-005.example", "gw-006.example")


def few(found: Findings) -> Findings:
    """Leave three gateways in a fleet: each page takes a third of a second to draw."""
    rows: dict[str, Any] = {
        name: [row for row in each if row.get("gateway", THREE[0]) in THREE]
        for name, each in vars(found).items()
        if isinstance(each, list)
    }
    rows |= {"refusals": found.refusals[:1], "quarantine": found.quarantine[:1]}
    return replace(found, **rows)


@pytest.fixture(scope="module")
def each() -> dict[str, str]:
    """The pages of three gateways of `FLEET`, drawn once."""
    return dict(gateway_pages(few(FLEET)))


def only_page(found: Findings) -> str:
    [(_, text)] = gateway_pages(found)
    return checked(text)


def test_a_fleet_with_which_all_is_well() -> None:
    page = checked(fleet_page(whole()))
    assert "All events are accounted for." in page
    assert "20\u2009000" in page
    assert "99.99 %" in page
    assert page.count("<svg") == 3
    assert page == fleet_page(whole())
    assert 'href="gateways/gw.example.html"' in page


def test_the_page_of_a_gateway_with_which_all_is_well() -> None:
    page = only_page(whole())
    assert "<h1>gw.example</h1>" in page
    assert "All events are accounted for." in page
    assert "2025-11-21 12:00:00 UTC" in page
    assert 'href="../index.html"' in page
    assert "totals" not in page


def test_before_anything_has_arrived() -> None:
    page = checked(fleet_page(Findings(as_of=NOON)))
    assert page.count("Nothing has arrived yet.") == 1 + len(LAYOUTS)
    assert "<svg" not in page
    assert list(gateway_pages(Findings(as_of=NOON))) == []
    assert report_document(Findings(as_of=NOON))["totals"]["events"] == 0


def test_every_page_of_a_fleet_is_sound_and_leads_to_the_others(each: dict[str, str]) -> None:
    fleet = checked(fleet_page(FLEET))
    names = {f"{name}.html" for name in THREE}
    assert set(each) == names
    links = set(Page(fleet).links)
    assert {f"gateways/{name}" for name in names} <= links
    others = {link for link in links if not link.startswith(("#", "gateways/"))}
    assert others == {"report.json"}
    for text in each.values():
        outside = {link for link in Page(checked(text)).links if not link.startswith("#")}
        assert outside <= names | {"../index.html", "../report.json"}
    assert 'rel="prev"' not in each["gw-004.example.html"]
    assert 'rel="next"' not in each["gw-006.example.html"]
    assert each["gw-005.example.html"].count('rel="') == 2


def test_the_same_rows_give_the_same_bytes(each: dict[str, str]) -> None:
    name, text = next(gateway_pages(few(sample(8))))
    assert each[name] == text


def test_a_page_of_a_gateway_tells_of_it_alone(each: dict[str, str]) -> None:
    text = each["gw-005.example.html"]
    assert "jobs/print" in text
    told = text[text.index("<main") :]
    assert not re.search(r"gw-00[^5]", told)
    own = by_gateway(FLEET)["gw-005.example"]
    assert own.refusals[0]["source"] == "label7@gw-005.example"
    assert own.versions == own.totals == own.quarantine == []
    assert [row["reason"] for row in by_gateway(FLEET)["gw-004.example"].quarantine] == ["fork"]


def test_a_gateway_that_is_known_by_a_refusal_alone_has_a_page() -> None:
    row = FLEET.refusals[0] | {"which": "gw-9.example, gw-8.example"}
    found = Findings(as_of=NOON, refusals=[row])
    assert list(by_gateway(found)) == ["gw-8.example", "gw-9.example"]
    assert [name for name, _ in gateway_pages(found)] == ["gw-8.example.html", "gw-9.example.html"]
    assert "gw-8.example" in checked(fleet_page(found))


def test_what_was_asked_for_is_said() -> None:
    page = checked(fleet_page(replace(whole(), since=NOON.date())))
    assert "of the days since 2025-11-21" in page
    document = report_document(replace(whole(), since=NOON.date(), gateways=("gw.example",)))
    assert (document["since"], document["gateways"]) == (NOON.date(), ("gw.example",))


def test_what_is_wrong_comes_first_on_the_page() -> None:
    lanes = [LANE | {"declared": 5}, LANE | {"lane": "system", "unexplained": 3}]
    found = whole(completeness=lanes, refused={"bad": 4, "fork": 1})
    page = checked(fleet_page(found))
    assert "2 things are wrong." in page
    assert page.index("nothing says why: 3") < page.index("said so: 5") < page.index("<svg")
    assert page.index("4 files could not") < page.index("said so: 5")
    own = only_page(found)
    assert own.index("nothing says why: 3") < own.index("said so: 5") < own.index("<svg")
    assert "4 files" not in own


def test_a_fleet_with_many_problems_has_a_page_still() -> None:
    many = pages.SHOWN + pages.FOLDED + 30
    lanes = [LANE | {"epoch": f"{at:026d}", "unexplained": 1} for at in range(many)]
    page = checked(fleet_page(whole(completeness=lanes)))
    assert f"{many} things are wrong." in page
    assert f"{pages.FOLDED} more" in page
    assert "And 30 more" in page
    assert page.count("nothing says why: 1") == pages.SHOWN + pages.FOLDED


def test_a_long_table_shows_what_needs_a_look_and_names_the_file_with_the_rest() -> None:
    lanes = [LANE | {"epoch": f"{at:026d}"} for at in range(FLEET_ROWS + 7)]
    lanes[-1] |= {"unexplained": 1}
    [section] = [each for each in of_fleet(whole(completeness=lanes)) if each.name[:4] == "comp"]
    assert section.rows[0] == lanes[-1]
    assert section.rows[1:] == lanes[: FLEET_ROWS - 1]
    assert section.left == 7
    assert f"{FLEET_ROWS} of {FLEET_ROWS + 7} rows" in section.caption
    page = checked(fleet_page(whole(completeness=lanes)))
    assert '7 more rows: the rest is in <a class="page" href="completeness.csv">' in page


def test_hundreds_of_gateways_are_listed_with_the_wrong_ones_first() -> None:
    known = [GATEWAY | {"gateway": f"gw-{at:04d}"} for at in range(300)]
    known[250] |= {"state": "silent"}
    known[251] |= {"outages": 1, "outage_s": 9.0}
    page = checked(fleet_page(whole(availability=known, stretches=[])))
    listed = re.findall(r'<th scope="row"><a class="page" href="gateways/([\w-]+)', page)
    assert listed[:4] == ["gw-0250", "gw-0251", "gw-0000", "gw-0001"]
    assert len(listed) == 301  # and gw.example, of which lanes and deliveries are known
    assert "241 more gateways" in page


def test_totals_are_sums_over_the_fleet() -> None:
    lanes = [LANE | {"unexplained": 1}, LANE | {"unexplained": 2, "lane": "system"}]
    volume = [
        {"lane": "logs", "kind": "log", "events": 5},
        {"lane": "system", "kind": "limit", "events": 2},
        {"lane": "system", "kind": "system", "events": 3},
    ]
    sums = totals(whole(completeness=lanes, totals=volume, refused={"bad": 4}))
    assert sums["events"] == 10
    assert sums["lanes"] == {"logs": {"log": 5}, "system": {"limit": 2, "system": 3}}
    assert (sums["unexplained"], sums["expected"], sums["bad_segments"]) == (3, 40_000, 4)


EVIL = '<script>alert("1")</script>\'&`<b>`'


def test_text_from_outside_is_text_on_every_page() -> None:
    """Each text of each row is hostile, names of gateways too; times and numbers stay."""
    hostile: dict[str, Any] = {}
    for name, rows in vars(FLEET).items():
        if isinstance(rows, list):
            hostile[name] = [
                {key: _spoiled(key, value) for key, value in row.items()} for row in rows[:1]
            ]
    found = replace(FLEET, **hostile)
    text = checked(fleet_page(found))
    assert "<script" not in text
    assert "<b>`" not in text
    assert text.count("&lt;script&gt;") > 30
    for name, page in gateway_pages(found):
        assert re.fullmatch(r"_[0-9a-f]{32}\.html|gw-004.example.html", name)  # by a path
        assert "<script" not in checked(page)


def _spoiled(key: str, value: Any, evil: str = EVIL) -> Any:
    """Spoil a text, but for the words that are the reports' own."""
    own = key in {"state", "lane", "what", "kind", "qos"}
    return f"{value}{evil}" if isinstance(value, str) and not own else value


@pytest.mark.parametrize("evil", ["{", "{0.real}", "水位", "_\x00\x1b[2J\x85\u2028\u202e\u2066"])
def test_no_name_from_outside_stops_the_report_or_steers_who_reads_it(evil: str) -> None:
    named = {name: getattr(FLEET, name)[:1] for name in ("queues", "queue_depths", "sensors")}
    named["notices"] = [FLEET.notices[0] | {"kind": "message", "name": "odd"}]
    rows: dict[str, Any] = {
        name: [
            {key: value if key == "gateway" else _spoiled(key, value, evil) for key, value in row}
            for row in (one.items() for one in each)
        ]
        for name, each in named.items()
    }
    found = Findings(as_of=NOON, **rows)
    texts = [fleet_page(found), *(page for _, page in gateway_pages(found))]
    for text in texts:
        assert escape(evil).translate(pages._STEERING) in checked(text)
        assert all(each.isprintable() or each in "\n\u2009\xa0" for each in text)


@pytest.mark.parametrize(
    ("gateway", "safe"),
    [
        ("gw-1.example", True),
        ("../index", False),
        ("a/b", False),
        ("", False),
        (".hidden", False),
        ("GW.example", False),
        ("a" * 300, False),
        ("gw\n.example", False),
    ],
)
def test_the_page_of_a_gateway_lies_in_its_folder_whatever_its_name(
    gateway: str, *, safe: bool
) -> None:
    name = page_name(gateway)
    assert (name == f"{gateway}.html") is safe
    assert re.fullmatch(r"[a-z0-9_.-]{1,255}", name)
    assert not name.startswith(".")


def test_commands_in_a_text_are_set_as_such_and_the_rest_is_text() -> None:
    assert coded("run `fieldpost <x>` & see") == "run <code>fieldpost &lt;x&gt;</code> &amp; see"
    assert breakable("gw.<b>.example") == "gw.<wbr>&lt;b&gt;.<wbr>example"


def test_the_files_of_a_report(tmp_path: Path) -> None:
    page = write_report(whole(), tmp_path / "out" / "here")
    write_report(whole(), tmp_path / "out" / "here")
    assert {path.name for path in page.parent.iterdir()} == {
        "index.html",
        "report.json",
        "gateways",
        *(f"{layout.name}.csv" for layout in LAYOUTS),
    }
    assert [path.name for path in (page.parent / "gateways").iterdir()] == ["gw.example.html"]
    document = json.loads((page.parent / "report.json").read_text())
    assert document["version"] == 1
    assert document["totals"]["events"] == 20_000
    assert document["tables"]["completeness"][0]["since"] == "2025-11-21T12:00:00+00:00"
    with (page.parent / "completeness.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert row["unexplained"] == "0"
    assert row["since"] == "2025-11-21T12:00:00+00:00"
    [layout] = [each for each in LAYOUTS if each.name == "completeness"]
    assert list(row) == [column.name for column in layout.columns]
    with (page.parent / "quarantine.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == []


def test_problems_say_in_json_of_which_kind_and_gateway_they_are() -> None:
    [told] = report_document(whole(completeness=[LANE | {"unexplained": 7}]))["problems"]
    assert list(told) == ["weight", "kind", "gateway", "where", "what", "remedy"]
    assert (told["kind"], told["gateway"]) == ("unexplained", "gw.example")


def test_a_figure_that_is_none_is_the_largest_or_nothing() -> None:
    row = {"gateway": "gw", "high": math.inf, "low": -math.inf, "mean": math.nan, "at": 1.0}
    [told] = finite(Findings(as_of=NOON, sensor_series=[row])).sensor_series
    most = sys.float_info.max
    assert told == {"gateway": "gw", "high": most, "low": -most, "mean": None, "at": 1.0}
    assert finite(whole()) == whole()


def test_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    row = {"lane": "logs", "kind": "log", "events": 1, "extra": {1}}
    with pytest.raises(TypeError, match="set has no place in a report"):
        write_report(whole(totals=[row]), tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_a_clock_is_told_in_words_in_csv() -> None:
    [layout] = [each for each in LAYOUTS if each.name == "lag"]
    row = {column.name: 1 for column in layout.columns} | {"gateway": "gw", "clock": False}
    assert "gw,not synchronised,1" in table_csv(layout, [row])


def test_rows_that_are_drawn_alone_are_on_the_page_of_their_gateway() -> None:
    stretch = {"gateway": "gw-2.example", "begin": BEGIN, "end": BEGIN + 1, "state": "outage"}
    found = Findings(as_of=NOON, stretches=[stretch], delivery=[DELIVERY])
    assert list(by_gateway(found)) == ["gw-2.example", "gw.example"]
