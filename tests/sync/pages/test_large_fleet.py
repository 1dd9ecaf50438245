"""The report of a large fleet (10,000 gateways in long tests): bounded pages that list each one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from sync.pages.files import write_report
from sync.pages.overview import LISTED, SHOWN, find_problems
from sync.pages.page import fleet_page, list_pages
from sync.reports.shared.findings import Findings
from sync.storage.local import LocalStorage
from tests.helpers.pages import Page, checked, gateway_pages
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import GATEWAY, sound_findings

LONG = os.environ.get("FIELDPOST_TEST_LONG") == "1"

GATEWAYS = 10_000 if LONG else 2_000
SAMPLE = sample(9)
SOUND = "gw-009.example"
"""The gateway of `SAMPLE` that has no problem and no notice."""

NOTICED = "gw-008.example"
"""A gateway of `SAMPLE` with notices alone."""

TROUBLED = tuple(f"gw-00{at}.example" for at in (1, 2, 3, 4, 5, 6))
"""Gateways of `SAMPLE` with problems."""


def copied(models: Iterable[str]) -> Findings:
    """Return a fleet whose gateways are copies of these gateways of `SAMPLE`, without series."""
    own: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    tables = {name: list(SAMPLE[name]) for name in ("totals", "files_by_fate", "versions")}
    for table, rows in SAMPLE.tables.items():
        for row in rows:
            if "gateway" in row and not {"at", "begin"} & set(row):
                own.setdefault(row["gateway"], []).append((table, row))
    for at, model in enumerate(models):
        for table, row in own[model]:
            tables.setdefault(table, []).append(row | {"gateway": f"gw-{at:05d}.example"})
    return replace(SAMPLE, tables=tables)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The fleet's page and the list pages of a fleet in which one gateway of 20 has problems."""
    found = copied(SOUND if at % 20 else TROUBLED[at // 20 % 6] for at in range(GATEWAYS))
    lists = dict(list_pages(found, only_problems=True))
    return {"index.html": fleet_page(found, only_problems=True)} | lists


def size_kb(page: str) -> float:
    return len(checked(page).encode()) / 1000


def names_in_list(page: str) -> list[str]:
    text = page.replace("<wbr>", "")
    return re.findall(r'<th scope="row">(?:<a [^>]*>)?(gw-\d+\.example)', text)


def parts_of(index: str) -> list[list[str]]:
    """Return file, first and last name, and the counts of each list page from the fleet's page."""
    table = index[index.index('id="by-name"') :].replace("<wbr>", "")
    rows = re.findall(r"<tr>\s*<th scope=\"row\">.*?</tr>", table[: table.index("</table>")], re.S)
    return [re.findall(r'(?<=href=")[^"]+|(?<=>)[^<>\s]+(?=</)', row) for row in rows]


def test_each_gateway_is_on_the_list_page_that_encloses_its_name(pages: dict[str, str]) -> None:
    parts = parts_of(pages["index.html"])
    assert [name for name, *_ in parts] == [name for name in pages if name != "index.html"]
    listed = [names_in_list(pages[name]) for name, *_ in parts]
    assert [[names[0], names[-1]] for names in listed] == [part[1:3] for part in parts]
    assert list(chain(*listed)) == [f"gw-{at:05d}.example" for at in range(GATEWAYS)]
    top, _ = pages["index.html"].split('id="by-name"')
    assert len(names_in_list(top[top.index('id="gateways"') :])) == SHOWN


def test_the_fleets_page_counts_what_each_list_page_has(pages: dict[str, str]) -> None:
    parts = parts_of(pages["index.html"])
    assert {(gateways, wrong) for *_, gateways, wrong, _, _ in parts} == {("500", "25")}
    silent = [pages[name].count('state-wrong">silent') for name, *_ in parts]
    assert [int(part[-1]) for part in parts] == silent
    assert sum(silent) > GATEWAYS // 200


def test_list_pages_link_to_their_neighbours_and_to_pages_of_gateways_with_problems(
    pages: dict[str, str],
) -> None:
    first, second, *_, last = (pages[name] for name, *_ in parts_of(pages["index.html"]))
    assert Page(first).links[1:3] == ["index.html", "gateways-2.html"]
    assert Page(second).links[1:4] == ["index.html", "gateways-1.html", "gateways-3.html"]
    assert "Next" not in last
    linked = {link for link in Page(first).links if link.startswith("gateways/")}
    assert linked == {f"gateways/gw-{at:05d}.example.html" for at in range(0, LISTED, 20)}


def test_the_pages_of_a_large_fleet_have_a_bounded_size(pages: dict[str, str]) -> None:
    index, *lists = pages.values()
    assert len(lists) == GATEWAYS // LISTED
    assert size_kb(index) < 900
    assert max(map(size_kb, lists)) < 250
    worst = copied(TROUBLED[at % 6] for at in range(GATEWAYS))
    assert size_kb(fleet_page(worst)) < 1_500
    assert size_kb(next(list_pages(worst))[1]) < 300


def test_500_gateways_are_on_one_page_and_501_are_not() -> None:
    known = [GATEWAY | {"gateway": f"gw-{at:04d}"} for at in range(LISTED)]
    found = sound_findings(availability=known[1:], stretches=[])  # and gw.example
    assert list(list_pages(found)) == []
    assert f"{LISTED - SHOWN} more gateways" in fleet_page(found)
    found = sound_findings(availability=known, stretches=[])
    assert [name for name, _ in list_pages(found)] == ["gateways-1.html", "gateways-2.html"]
    page = checked(fleet_page(found))
    assert "more gateways" not in page
    assert "501 gateways on 2 pages." in page


def test_only_gateways_with_problems_get_a_page(tmp_path: Path) -> None:
    found = copied((SOUND, NOTICED, TROUBLED[0]))
    write_report(found, LocalStorage(tmp_path), only_problems=True)
    assert [path.name for path in (tmp_path / "gateways").iterdir()] == ["gw-00002.example.html"]
    page = checked((tmp_path / "index.html").read_text())
    assert names_in_list(page)[:3] == [f"gw-{at:05d}.example" for at in (2, 1, 0)]
    links = [link for link in Page(page).links if link.startswith("gateways/")]
    assert set(links) == {"gateways/gw-00002.example.html"}
    [notice] = [each for each in find_problems(found) if each.kind == "sensor_flat"]
    assert notice.gateway == "gw-00001.example"
    assert re.search(r"<li>gw-00001\.example, ", page)


def test_pages_link_to_the_neighbours_that_have_a_page() -> None:
    found = copied((TROUBLED[0], SOUND, TROUBLED[2]))
    pages = gateway_pages(found, only_problems=True)
    assert list(pages) == ["gw-00000.example.html", "gw-00002.example.html"]
    assert "gw-00002.example.html" in Page(pages["gw-00000.example.html"]).links


def test_a_large_report_is_written_with_its_list_pages(tmp_path: Path) -> None:
    known = [GATEWAY | {"gateway": f"gw-{at:04d}"} for at in range(LISTED + 1)]
    write_report(
        sound_findings(availability=known, stretches=[]), LocalStorage(tmp_path), only_problems=True
    )
    index = (tmp_path / "index.html").read_text()
    links = {link for link in Page(index).links if not link.startswith("#")}
    assert {"gateways-1.html", "gateways-2.html"} <= links
    assert [link for link in links if not (tmp_path / link).is_file()] == []
