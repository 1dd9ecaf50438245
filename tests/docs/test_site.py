"""The documentation's site, as `make docs` builds it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.helpers.documentation_site import ROOT, build_site, missing

if missing():
    pytest.skip(missing(), allow_module_level=True)

SPEC = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
assert SPEC is not None
assert SPEC.loader is not None
SITE_PAGES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SITE_PAGES)

BLOCKS = {"blockquote", "h1", "h2", "h3", "h4", "img", "li", "pre", "tr"}
LOADING = {
    "data": {"object"},
    "href": {"image", "link", "use"},
    "poster": {"video"},
    "src": {"audio", "embed", "iframe", "img", "input", "script", "source", "track", "video"},
    "srcset": {"img", "source"},
}
"""Attributes whose address a browser loads without being asked, and their elements."""


class Html(HTMLParser):
    """A page: what it loads and links to, and the number of blocks by kind in its article."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: set[str] = set()
        self.links: set[str] = set()
        self.classes: set[str] = set()
        self.blocks: Counter[str] = Counter()
        self._in_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.loads |= {value for name, value in values.items() if tag in LOADING.get(name, ())}
        self.classes |= set(values.get("class", "").split())
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        self._in_article |= tag == "article"
        if self._in_article and tag in BLOCKS:
            self.blocks[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._in_article = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    """The pages by their paths in the site."""
    return {path.relative_to(site): Html(path.read_text("utf-8")) for path in site.rglob("*.html")}


def is_external(address: str) -> bool:
    """Return whether an address is of another host."""
    return bool(urlsplit(address).netloc)


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        assert page.loads, path
        assert not {address for address in page.loads if is_external(address)}, path
        assert "mermaid" not in page.classes, "the theme would load a script for it"
    sheets = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert sheets
    loaded = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", "".join(sheets))
    assert not [address for address in loaded if is_external(address)]


def test_every_link_leads_to_a_file_of_the_site(site: Path, pages: dict[Path, Html]) -> None:
    missing = [
        (str(path), link)
        for path, page in pages.items()
        for link in page.links
        if path.name != "404.html" and not urlsplit(link).scheme
        if not (site / path.parent / unquote(urlsplit(link).path)).exists()
    ]
    assert not missing


def test_every_page_of_docs_is_in_the_navigation() -> None:
    named = re.findall(r"[\w/.-]+\.md", json.dumps(SITE_PAGES.navigation()))
    docs = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert docs - set(named) == {"docs/README.md"}, "name the page in docs/README.md"
    assert named[:2] == ["README.md", "docs/tutorial.md"]


def test_the_site_shows_the_same_blocks_as_github(pages: dict[Path, Html]) -> None:
    github = MarkdownIt("gfm-like", {"linkify": False})
    compared = 0
    for path, page in pages.items():
        source = ROOT / path.with_suffix(".md")
        source = source.with_name("README.md") if source.name == "index.md" else source
        if source.is_file():
            text = SITE_PAGES.DIAGRAM.sub(SITE_PAGES.table, source.read_text("utf-8"))
            expected = Html(f"<article>{github.render(text)}</article>").blocks
            assert page.blocks == expected, f"{source}: a blank line or an indentation is missing"
            compared += 1
    assert compared > 100


def test_the_search_finds_pages_by_their_text(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    [found] = [each for each in index["docs"] if each["location"] == "docs/tutorial.html"]
    assert "gateway" in found["text"]
