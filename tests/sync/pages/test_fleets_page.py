"""The page of several fleets, made from the report of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sync.common.errors import FleetError
from sync.pages.files import SUMMARY, report_document, report_json, write_report
from sync.pages.fleets import Fleet, check_folder, fleets_page, read_fleet
from sync.reports.shared.report import Problem
from sync.storage.local import LocalStorage
from tests.helpers.pages import Page, checked
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import LANE, NOON, sound_findings

LOSS = [LANE | {"unexplained": 7, "missing": 7}]
LATER = NOON + timedelta(hours=2)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> LocalStorage:
    """The reports of the fleets `north`, without problems, and `south`, with losses."""
    out = tmp_path_factory.mktemp("reports")
    write_report(sound_findings(), LocalStorage(out / "north"))
    south = LocalStorage(out / "south")
    write_report(sound_findings(completeness=LOSS), south, only_problems=True)
    return LocalStorage(out)


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of each row of the page's table, by the fleet's name."""
    found = re.findall(
        r"<tr>(.*?)</tr>", page[page.index("<tbody>") : page.index("</tbody>")], re.S
    )
    cells = [re.sub(r"<[^>]*>", "\n", row).split("\n") for row in found]
    texts = [[cell.strip() for cell in row if cell.strip()] for row in cells]
    return {name: values for name, *values in texts}


def test_the_page_has_the_totals_and_problems_of_each_fleet(reports: LocalStorage) -> None:
    fleets = [read_fleet(reports, name) for name in ("north", "south")]
    page = checked(fleets_page(fleets, LATER))
    assert "1 problem needs attention, in 1 of 2 fleets." in page
    assert list(rows(page)) == ["south", "north", "All fleets"]
    age = ["2025-11-21 12:00:00", "2 h"]
    few = ["0", "0", "0", "0"]
    assert rows(page)["north"] == ["0", "0", *age, "1", "20\u202f000", "10", "0", "0", *few]
    assert rows(page)["south"] == ["1", "0", *age, "1", "20\u202f000", "10", "7", "7", *few]
    assert rows(page)["All fleets"] == ["1", "0", "2", "40\u202f000", "20", "7", "7", *few]
    links = [link for link in Page(page).links if not link.startswith("#")]
    assert set(links) == {"north/index.html", "south/index.html"}
    assert all(reports.exists(link) for link in links)
    section = page[page.index('id="fleet-south"') :]
    assert "Events are missing without explanation" in section
    assert 'id="fleet-north"' not in page


def test_the_summary_is_the_report_without_its_tables(reports: LocalStorage) -> None:
    document = json.loads(report_json(sound_findings(completeness=LOSS)))
    assert document.pop("tables")
    assert json.loads(reports.read(f"south/{SUMMARY}")) == document


def test_problems_of_many_gateways_are_one_line_of_the_page() -> None:
    problems = report_document(sample(8))["problems"]
    fleet = Fleet("north", "", NOON, {}, [Problem(**each) for each in problems] * 50)
    page = checked(fleets_page([fleet], NOON))
    assert page.count('class="tag"') == len(problems)
    assert len(page) < 20_000


def test_fleets_without_problems() -> None:
    notice = Problem("notice", "kind", "gw", "gw", "what", "remedy")
    page = checked(fleets_page([Fleet("a"), Fleet("b")], NOON))
    assert '"verdict good">No problems in 2 fleets.' in page
    page = checked(fleets_page([Fleet("a", problems=[notice])], NOON))
    assert '"verdict notice">No problems in 1 fleet; 1 notice.' in page


def test_an_old_report_is_a_problem(reports: LocalStorage) -> None:
    fleet = read_fleet(reports, "north")
    day = checked(fleets_page([fleet], NOON + timedelta(hours=36)))
    assert "No problems in 1 fleet." in day
    old = checked(fleets_page([fleet], NOON + timedelta(hours=49)))
    assert "1 problem needs attention, in 1 of 1 fleet." in old
    assert "The report is 2 d 1 h old; check the timer that makes it." in old
    assert "north/index.html" in Page(old).links


def spoiled(document: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(document | changes).encode()


@pytest.mark.parametrize(
    ("content", "lack"),
    [
        (lambda _: None, "no report"),
        (lambda _: b"", "damaged"),
        (lambda _: b"[]", "damaged"),
        (lambda _: b"\xff{}", "damaged"),
        (lambda document: spoiled(document, version=2), "another version"),
        (lambda document: spoiled(document, as_of="today"), "damaged"),
        (lambda document: spoiled(document, as_of=None), "damaged"),
        (lambda document: spoiled(document, totals={}), "damaged"),
        (lambda document: spoiled(document, problems=[{}]), "damaged"),
        (lambda document: spoiled(document, problems=["text"]), "damaged"),
        (
            lambda document: spoiled(
                document, problems=[document["problems"][0] | {"weight": "grave"}]
            ),
            "damaged",
        ),
    ],
)
def test_a_fleet_whose_report_cannot_be_read_is_a_problem(
    content: Callable[[dict[str, Any]], bytes | None], lack: str, tmp_path: Path
) -> None:
    data = content(json.loads(report_json(sound_findings(completeness=LOSS))))
    (tmp_path / "north").mkdir()
    if data is not None:
        (tmp_path / "north" / SUMMARY).write_bytes(data)
    fleet = read_fleet(LocalStorage(tmp_path), "north")
    assert lack in fleet.lack
    page = checked(fleets_page([fleet, Fleet("south", "", NOON)], NOON))
    assert "1 problem needs attention, in 1 of 2 fleets." in page
    assert fleet.lack in page
    assert not any("north/" in link for link in Page(page).links)
    assert rows(page)["north"][2:4] == ["unknown", "unknown"]


def test_kinds_of_problems_that_only_a_newer_version_knows_are_shown(tmp_path: Path) -> None:
    document = json.loads(report_json(sound_findings(completeness=LOSS)))
    document["problems"][0] |= {"kind": "<new>", "more": 1}
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / SUMMARY).write_text(json.dumps(document))
    page = checked(fleets_page([read_fleet(LocalStorage(tmp_path), "north")], NOON))
    assert "&lt;new&gt;" in page


def test_times_are_in_the_time_zone(reports: LocalStorage) -> None:
    page = fleets_page([read_fleet(reports, "north")], LATER, ZoneInfo("Asia/Tokyo"))
    assert rows(page)["north"][2].startswith("2025-11-21 21:00:00")
    assert "Times are those of Asia/Tokyo" in page


def test_the_folder_of_a_report_is_refused(reports: LocalStorage) -> None:
    check_folder(reports)
    with pytest.raises(FleetError, match="has the report of one fleet; choose another --out"):
        check_folder(LocalStorage(reports.root / "north"))
