"""The report's pages in a browser: on any screen, in print, without scripts or requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sync.pages.files import write_report
from sync.pages.fleets import FIGURES, Fleet, fleets_page
from sync.pages.overview import LISTED, find_problems
from sync.pages.page import fleet_page
from sync.storage.local import LocalStorage
from tests.browser.chromium import DESKTOP, PAPER_PX, PHONE, Browser, Scheme, chromium, missing
from tests.helpers.sample_findings import sample
from tests.helpers.sound_findings import GATEWAY, LANE, NOON, sound_findings

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")

PAGES = ("index.html", "gateways/gw-005.example.html")
OVERFLOWING = """
    const wide = document.documentElement.clientWidth;
    return [...document.querySelectorAll("body *")]
      .filter(each => !each.closest(".scroll, svg, .skip"))
      .filter(each => each.getBoundingClientRect().right > wide + 0.5)
      .map(each => each.outerHTML.slice(0, 100));
"""
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def fits(browser: Browser) -> bool:
    return (browser.evaluate(WIDER), browser.evaluate(OVERFLOWING)) == (0, [])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(sample(8), LocalStorage(folder))
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.parametrize(("screen", "scheme"), [(PHONE, "light"), (DESKTOP, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen_and_makes_no_requests(
    browser: Browser, report: Path, name: str, screen: tuple[int, int], scheme: Scheme
) -> None:
    browser.open(report / name, screen, scheme)
    assert browser.console_messages() == []
    assert browser.requested_urls() == [(report / name).as_uri()]
    assert fits(browser)
    assert browser.evaluate("return document.body.innerText").count("UTC") > 3
    paper = browser.evaluate("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in re.findall(r"\d+", paper))
    assert (brightness > 600) is (scheme == "light")
    drawn = browser.evaluate("return getComputedStyle(document.querySelector('svg text')).fill")
    assert (sum(int(part) for part in re.findall(r"\d+", drawn)) < 400) is (scheme == "light")


@pytest.mark.parametrize("name", PAGES)
def test_closed_details_can_be_opened(browser: Browser, report: Path, name: str) -> None:
    browser.open(report / name, PHONE)
    assert browser.evaluate("return document.querySelectorAll('details:not([open])').length") > 4
    closed = browser.evaluate(
        """
        const all = [...document.querySelectorAll("details")];
        for (const each of all) if (!each.open) each.querySelector("summary").click();
        return all.filter(each => !each.open || each.clientHeight < 60).length;
        """
    )
    assert closed == 0
    assert fits(browser)
    assert browser.console_messages() == []


def test_links_between_pages(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    browser.follow("gw-002.example")
    assert browser.evaluate("return document.title") == "gw-002.example: Fieldpost"
    browser.follow("Next: gw-003.example")
    assert browser.evaluate("return document.title") == "gw-003.example: Fieldpost"
    browser.follow("The fleet")
    assert browser.evaluate("return document.title") == "Fieldpost: the fleet"
    for name in PAGES:
        browser.open(report / name)
        broken = browser.evaluate(
            "return [...document.links].map(each => each.getAttribute('href'))"
            ".filter(to => to[0] == '#' && !document.getElementById(to.slice(1)))"
        )
        assert broken == []
        links = browser.evaluate("return [...document.links].map(each => each.pathname)")
        assert [link for link in links if not Path(link).is_file()] == []
    assert browser.console_messages() == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_printed(browser: Browser, report: Path, name: str) -> None:
    browser.open(report / name, (PAPER_PX, 700), "dark", media="print")
    layout = browser.evaluate(
        """
        const tables = [...document.querySelectorAll("table")];
        const links = [...document.querySelectorAll("a.page")];
        return {
          hidden: tables.filter(each => !each.checkVisibility()).length,
          cut: [...document.querySelectorAll(".scroll")]
            .filter(each => each.scrollWidth > each.clientWidth + 1)
            .map(each => each.innerText.slice(0, 60)),
          silent: links.filter(
            each => !getComputedStyle(each, "::after").content.includes("(")
          ).length,
          nav: document.querySelector("nav").getBoundingClientRect().height,
          paper: getComputedStyle(document.body).backgroundColor,
        };
        """
    )
    assert layout == {"hidden": 0, "cut": [], "silent": 0, "nav": 0, "paper": "rgb(255, 255, 255)"}
    assert browser.evaluate(WIDER) == 0
    sheet = browser.pdf()
    assert sheet.startswith(b"%PDF-")
    assert 2 < len(re.findall(rb"/Type\s*/Page\b", sheet)) < 40
    assert browser.console_messages() == []


@pytest.mark.parametrize("name", PAGES)
def test_plots_and_tables_are_accessible_to_screen_readers(
    browser: Browser, report: Path, name: str
) -> None:
    browser.open(report / name)
    nodes = browser.accessible_nodes()
    drawn = [node for node in nodes if node["role"] == "image"]
    plots = browser.evaluate("return document.querySelectorAll('svg').length")
    assert len(drawn) == plots > 4
    assert all(len(node["name"]) > 20 for node in drawn)
    tables = [node["name"] for node in nodes if node["role"] == "table"]
    assert tables
    assert all(tables)
    assert sum(node["role"] in {"banner", "main", "contentinfo"} for node in nodes) == 3


def test_many_gateways_and_long_names_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    names = [f"gw-{at:03d}.{'far-away.' * (at % 5)}example" for at in range(100)]
    names[3] = "g" * 63 + ".example"
    found = sound_findings(
        availability=[GATEWAY | {"gateway": name, "state": "silent"} for name in names],
        completeness=[LANE | {"gateway": name, "unexplained": 9} for name in names[:40]],
        stretches=[],
    )
    page = tmp_path / "index.html"
    page.write_text(fleet_page(found), encoding="utf-8")
    browser.open(page, PHONE)
    assert fits(browser)
    assert browser.evaluate("return document.querySelectorAll('.overview tbody tr').length") == 101


def test_the_page_of_many_fleets_fits_a_phone_and_paper(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    totals = dict.fromkeys(FIGURES, 1_234_567)
    problems = find_problems(sample(8))
    names = [f"fleet-{at:02d}.{'far-away.' * (at % 5)}example" for at in range(20)]
    fleets = [Fleet(name, "", NOON, totals, problems) for name in names]
    page.write_text(fleets_page(fleets, NOON), encoding="utf-8")
    for screen in (PHONE, DESKTOP):
        browser.open(page, screen)
        assert fits(browser)
    browser.open(page, (PAPER_PX, 700), media="print")
    assert browser.evaluate(WIDER) == 0
    assert browser.console_messages() == []


def test_the_list_of_a_large_fleet_fits_a_phone_and_paper(browser: Browser, tmp_path: Path) -> None:
    names = [f"gw-{at:03d}.{'far-away.' * (at % 5)}example" for at in range(LISTED + 1)]
    names[-1] = first = "g" * 63 + ".example"
    known = [GATEWAY | {"gateway": name} for name in names]
    write_report(
        sound_findings(availability=known, stretches=[]), LocalStorage(tmp_path), only_problems=True
    )
    browser.open(tmp_path / "index.html", PHONE)
    assert fits(browser)
    browser.follow(first)
    assert browser.evaluate("return document.querySelectorAll('.overview tbody tr').length") == 500
    assert fits(browser)
    browser.open(tmp_path / "gateways-1.html", (PAPER_PX, 700), media="print")
    assert browser.evaluate(WIDER) == 0
    assert browser.console_messages() == []
