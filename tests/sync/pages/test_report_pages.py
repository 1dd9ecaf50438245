"""The report's pages and files: their content, their links, and that they are valid."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import obstore
import pytest
from markupsafe import escape
from matplotlib.figure import Figure
from obstore.store import from_url

from sync.pages import page as pages
from sync.pages.files import report_document, write_report
from sync.pages.overview import totals
from sync.pages.page import breakable, explained, fleet_page, page_name
from sync.pages.sections import FLEET_ROWS, sections_of
from sync.pages.table_csv import table_csv
from sync.reports.lag import TABLE as LAG
from sync.reports.shared.by_gateway import by_gateway
from sync.reports.shared.findings import Findings
from sync.reports.shared.registry import REPORTS
from sync.storage.local import LocalStorage
from sync.storage.locations import open_storage
from tests.helpers.object_store import BUCKET, FaultyProxy
from tests.helpers.pages import Page, checked, checked_gateway_pages, gateway_pages
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import GATEWAY, LANE, NOON, findings, sound_findings

FLEET = sample(8)
THREE = ("gw-004.example", "gw-005.example", "gw-006.example")


def few_gateways(found: Findings, gateways: tuple[str, ...] = THREE) -> Findings:
    """Keep three gateways of a fleet: each page takes a third of a second to draw."""
    tables = {
        name: [row for row in rows if row.get("gateway", gateways[0]) in gateways]
        for name, rows in found.tables.items()
    }
    tables |= {name: found[name][:1] for name in ("refusals", "quarantine")}
    return replace(found, tables=tables)


@pytest.fixture(scope="module")
def three_pages() -> dict[str, str]:
    """The pages of three gateways of `FLEET`."""
    return gateway_pages(few_gateways(FLEET))


def test_the_page_of_a_fleet_without_problems() -> None:
    page = checked(fleet_page(sound_findings()))
    assert "All events are accounted for." in page
    assert "20\u202f000" in page
    assert "99.99 %" in page
    assert "1 of 1 gateway is running now; the fleet ran 100.00 % of the time." in page
    assert page.count("<svg") == 3
    assert page == fleet_page(sound_findings())
    assert 'href="gateways/gw.example.html"' in page


def test_the_page_of_a_gateway_without_problems() -> None:
    [page] = checked_gateway_pages(sound_findings())
    assert "<h1>gw.example</h1>" in page
    assert "All events are accounted for." in page
    assert "2025-11-21 12:00:00 UTC" in page
    assert 'href="../index.html"' in page
    assert 'id="totals"' not in page


def test_pages_without_data_say_that_nothing_has_arrived() -> None:
    page = checked(fleet_page(findings()))
    assert page.count("Nothing has arrived yet.") == 1 + len(REPORTS)
    assert "<svg" not in page
    assert gateway_pages(findings()) == {}
    assert report_document(findings())["totals"]["events"] == 0


def test_every_page_is_valid_and_links_to_the_others(three_pages: dict[str, str]) -> None:
    fleet = checked(fleet_page(FLEET))
    names = {f"{name}.html" for name in THREE}
    assert set(three_pages) == names
    links = set(Page(fleet).links)
    assert {f"gateways/{name}" for name in names} <= links
    others = {link for link in links if not link.startswith(("#", "gateways/"))}
    files = {f"{report.name}.{form}" for report in REPORTS for form in ("csv", "json")}
    assert others == {"report.json", *files}
    for text in three_pages.values():
        outside = {link for link in Page(checked(text)).links if not link.startswith("#")}
        assert outside <= names | {"../index.html", "../report.json"} | {f"../{it}" for it in files}
        assert {"../availability.csv", "../availability.json"} <= outside
    assert 'rel="prev"' not in three_pages["gw-004.example.html"]
    assert 'rel="next"' not in three_pages["gw-006.example.html"]
    assert three_pages["gw-005.example.html"].count('rel="') == 2


def test_a_gateways_page_shows_only_that_gateway(three_pages: dict[str, str]) -> None:
    text = three_pages["gw-005.example.html"]
    assert "jobs/print" in text
    assert not re.search(r"gw-00[^5]", text[text.index("<main") :])
    own = by_gateway(FLEET)["gw-005.example"]
    assert own["refusals"][0]["source"] == "label7@gw-005.example"
    assert own["versions"] == own["totals"] == own["quarantine"] == own["files_by_fate"] == []
    assert [row["reason"] for row in by_gateway(FLEET)["gw-004.example"]["quarantine"]] == ["fork"]


def test_a_gateway_known_only_from_a_refusal_has_a_page() -> None:
    row = FLEET["refusals"][0] | {"which": "gw-9.example, gw-8.example"}
    found = findings(refusals=[row])
    assert list(by_gateway(found)) == ["gw-8.example", "gw-9.example"]
    assert list(gateway_pages(found)) == ["gw-8.example.html", "gw-9.example.html"]
    assert "gw-8.example" in checked(fleet_page(found))


def test_the_report_states_its_period_and_gateways() -> None:
    page = checked(fleet_page(replace(sound_findings(), since=NOON.date())))
    assert "for the days since 2025-11-21" in page
    document = report_document(
        replace(sound_findings(), since=NOON.date(), gateways=("gw.example",))
    )
    assert (document["since"], document["gateways"]) == (NOON.date(), ("gw.example",))


def test_problems_come_first_on_the_page() -> None:
    lanes = [LANE | {"declared": 5}, LANE | {"lane": "system", "unexplained": 3}]
    files = [{"fate": outcome, "files": number} for outcome, number in (("bad", 4), ("fork", 1))]
    found = sound_findings(completeness=lanes, files_by_fate=files)
    page = checked(fleet_page(found))
    assert "2 problems need attention; 1 notice." in page
    assert page.index("explanation: 3") < page.index("as dropped: 5") < page.index("<svg")
    assert page.index("Invalid files: 4.") < page.index("as dropped: 5")
    [own] = checked_gateway_pages(found)
    assert own.index("explanation: 3") < own.index("as dropped: 5") < own.index("<svg")
    assert "Invalid files" not in own


def test_a_page_lists_a_limited_number_of_problems() -> None:
    many = pages.SHOWN + pages.FOLDED + 30
    lanes = [LANE | {"epoch": f"{at:026d}", "unexplained": 1} for at in range(many)]
    page = checked(fleet_page(sound_findings(completeness=lanes)))
    assert f"{many} problems need attention." in page
    assert f"{pages.FOLDED} more" in page
    assert '30 more are in <a class="page" href="summary.json">' in page
    assert page.count("explanation: 1") == pages.SHOWN + pages.FOLDED


def test_a_long_table_shows_conspicuous_rows_first_and_links_to_the_csv() -> None:
    lanes = [LANE | {"epoch": f"{at:026d}"} for at in range(FLEET_ROWS + 7)]
    lanes[-1] |= {"unexplained": 1}
    sections = {each.name: each for each in sections_of(sound_findings(completeness=lanes), {})}
    section = sections["completeness"]
    assert section.rows == [lanes[-1], *lanes[: FLEET_ROWS - 1]]
    assert section.left == 7
    assert f"{FLEET_ROWS} of {FLEET_ROWS + 7} rows" in section.caption
    page = checked(fleet_page(sound_findings(completeness=lanes)))
    assert '7 more rows are in <a class="page" href="completeness.csv">' in page


def test_hundreds_of_gateways_are_listed_with_problems_first() -> None:
    known = [GATEWAY | {"gateway": f"gw-{at:04d}"} for at in range(300)]
    known[250] |= {"state": "silent"}
    known[251] |= {"outages": 1, "outage_s": 9.0}
    page = checked(fleet_page(sound_findings(availability=known, stretches=[])))
    listed = re.findall(r'<th scope="row"><a class="page" href="gateways/([\w-]+)', page)
    assert listed[:4] == ["gw-0250", "gw-0251", "gw-0000", "gw-0001"]
    assert len(listed) == 301  # and gw.example, which other tables name
    assert "241 more gateways" in page


def test_totals_are_sums_over_the_fleet() -> None:
    lanes = [LANE | {"unexplained": 1}, LANE | {"unexplained": 2, "lane": "system"}]
    volume = [
        {"lane": "logs", "kind": "log", "events": 5},
        {"lane": "system", "kind": "limit", "events": 2},
        {"lane": "system", "kind": "system", "events": 3},
    ]
    bad = [{"fate": "bad", "files": 4}]
    sums = totals(sound_findings(completeness=lanes, totals=volume, files_by_fate=bad))
    assert sums["events"] == 10
    assert sums["lanes"] == {"logs": {"log": 5}, "system": {"limit": 2, "system": 3}}
    assert (sums["unexplained"], sums["expected"], sums["bad_segments"]) == (3, 40_000, 4)


EVIL = '<script>alert("1")</script>\'&`<b>`'


def test_hostile_text_is_escaped_on_every_page() -> None:
    hostile = {
        name: [{key: _spoiled(key, value) for key, value in row.items()} for row in rows[:1]]
        for name, rows in FLEET.tables.items()
    }
    found = replace(FLEET, tables=hostile)
    text = checked(fleet_page(found))
    assert "<script" not in text
    assert "<b>`" not in text
    assert text.count("&lt;script&gt;") > 30
    for name, page in gateway_pages(found).items():
        assert re.fullmatch(r"_[0-9a-f]{32}\.html|gw-004.example.html", name)  # by a path
        assert "<script" not in checked(page)


def _spoiled(key: str, value: Any, evil: str = EVIL) -> Any:
    """Make a text hostile, except for the codes that the reports choose."""
    own = key in {"state", "lane", "what", "kind", "qos"}
    return f"{value}{evil}" if isinstance(value, str) and not own else value


@pytest.mark.parametrize("evil", ["{", "{0.real}", "水位", "_\x00\x1b[2J\x85\u2028\u202e\u2066"])
def test_hostile_names_are_escaped_on_every_page(evil: str) -> None:
    named = {name: FLEET[name][:1] for name in ("queues", "queue_depths", "sensors")}
    named["notices"] = [FLEET["notices"][0] | {"kind": "message", "name": "odd"}]
    rows: dict[str, Any] = {
        name: [
            {key: value if key == "gateway" else _spoiled(key, value, evil) for key, value in row}
            for row in (one.items() for one in each)
        ]
        for name, each in named.items()
    }
    found = findings(**rows)
    texts = [fleet_page(found), *gateway_pages(found).values()]
    for text in texts:
        assert escape(evil).translate(pages._CONTROLS) in checked(text)
        assert all(each.isprintable() or each in "\n\u202f\xa0" for each in text)


@pytest.mark.parametrize(
    "gateway", ["../index", "a/b", "", ".hidden", "GW.example", "a" * 300, "gw\n.example"]
)
def test_the_file_name_of_a_gateways_page_is_safe(gateway: str) -> None:
    assert page_name("gw-1.example") == "gw-1.example.html"
    assert re.fullmatch(r"_[0-9a-f]{32}\.html", page_name(gateway))


def test_texts_are_escaped_and_their_commands_and_terms_are_marked_up() -> None:
    markup = explained("run `fieldpost <x>` & see")
    assert markup == "run <code>fieldpost &lt;x&gt;</code> &amp; see"
    assert re.fullmatch(
        r'two <abbr title="A sequence [^"<>]+">lanes</abbr> of `?<code>lane</code>',
        explained("two lanes of `lane`"),
    )
    assert explained("planes") == "planes"
    assert breakable("gw.<b>.example") == "gw.<wbr>&lt;b&gt;.<wbr>example"


def test_a_report_is_written_as_html_json_and_csv(tmp_path: Path) -> None:
    out = tmp_path / "out" / "here"
    for _ in range(2):
        write_report(sound_findings(), LocalStorage(out, public=True))
    assert {path.name for path in out.iterdir()} == {
        "index.html",
        "report.json",
        "summary.json",
        "gateways",
        *(f"{report.name}.{form}" for report in REPORTS for form in ("csv", "json")),
    }
    assert [path.name for path in (out / "gateways").iterdir()] == ["gw.example.html"]
    document = json.loads((out / "report.json").read_text())
    assert (document["version"], document["totals"]["events"]) == (1, 20_000)
    rows = document["tables"]["completeness"]
    assert rows[0]["since"] == "2025-11-21T12:00:00+00:00"
    with (out / "completeness.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["unexplained"], row["since"]) == ("0", "2025-11-21T12:00:00+00:00")
    own_file = json.loads((out / "completeness.json").read_text())
    scope = {name: document[name] for name in ("version", "as_of", "since", "gateways")}
    assert own_file == scope | {"rows": rows}
    [report] = [each for each in REPORTS if each.name == "completeness"]
    assert list(row) == [column.name for column in report.table.columns]
    with (out / "quarantine.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == []


@pytest.fixture
def drawn_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    save = Figure.savefig

    def record(figure: Figure, *target: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *target, **options)

    monkeypatch.setattr(Figure, "savefig", record)
    return figures


def test_only_plots_whose_values_have_changed_are_drawn_again(
    tmp_path: Path, drawn_figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_redrawn(found: Findings) -> int:
        drawn_figures.clear()
        write_report(found, LocalStorage(tmp_path))
        return len(drawn_figures)

    found, index = few_gateways(FLEET, THREE[:1]), tmp_path / "index.html"
    every = count_redrawn(found)
    assert every > 10
    later = replace(found, as_of=found.as_of + timedelta(hours=1))
    assert count_redrawn(later) == 0
    first, *others = later["clock_offsets"]
    offsets = [first | {"skew_s": 1.5}, *others]
    changed = replace(later, tables={**later.tables, "clock_offsets": offsets})
    assert count_redrawn(changed) == 1
    index.write_text(index.read_text().replace("</desc>", " damaged</desc>", 1))
    assert count_redrawn(changed) == 1
    elsewhere = replace(changed, zone=ZoneInfo("Asia/Kathmandu"))
    assert 1 < count_redrawn(elsewhere) < every
    for name, page in gateway_pages(elsewhere).items():
        assert (tmp_path / "gateways" / name).read_text() == page
    assert index.read_text() == fleet_page(elsewhere)
    monkeypatch.setattr("sync.pages.plot_cache._program", lambda: "another version")
    assert count_redrawn(elsewhere) == every


def test_a_report_in_a_failing_store_is_that_on_a_disk(proxy: FaultyProxy, tmp_path: Path) -> None:
    found = few_gateways(FLEET, THREE[:1])
    write_report(found, LocalStorage(tmp_path))
    store = open_storage(f"s3://{BUCKET}/report")
    proxy.share, proxy.kinds = 0.2, ("500", "503", "lost", "503 after")
    write_report(found, store)
    assert proxy.faults
    proxy.share = 0.0
    written = {file.path: store.read(file.path) for file in store.files()}
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}
    for name, kind in (("index.html", "text/html"), ("clocks.csv", "text/csv")):
        attributes = obstore.get(from_url(f"s3://{BUCKET}/report"), name).attributes
        assert attributes["Content-Type"] == f"{kind}; charset=utf-8"


def test_problems_are_in_the_json_document() -> None:
    [problem] = report_document(sound_findings(completeness=[LANE | {"unexplained": 7}]))[
        "problems"
    ]
    assert list(problem) == ["weight", "kind", "gateway", "where", "what", "remedy"]
    assert (problem["kind"], problem["gateway"]) == ("unexplained", "gw.example")


def test_infinity_and_nan_are_replaced() -> None:
    row = {"gateway": "gw", "high": math.inf, "low": -math.inf, "mean": math.nan, "at": 1.0}
    [finite] = findings(sensor_series=[row]).finite()["sensor_series"]
    most = sys.float_info.max
    assert finite == {"gateway": "gw", "high": most, "low": -most, "mean": None, "at": 1.0}
    assert sound_findings().finite() == sound_findings()


def test_values_that_json_cannot_express_are_refused(tmp_path: Path) -> None:
    row = {"lane": "logs", "kind": "log", "events": 1, "extra": {1}}
    with pytest.raises(TypeError, match="value of type set"):
        write_report(sound_findings(totals=[row]), LocalStorage(tmp_path))
    assert not (tmp_path / "report.json").exists()


def test_flags_are_words_in_csv() -> None:
    row = {column.name: 1 for column in LAG.columns} | {"gateway": "gw", "clock": False}
    assert "gw,not synchronised,1" in table_csv(LAG, [row])
