"""A strict parser for pages of the report."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

from sync.pages.page import gateway_page, page_name, with_page
from sync.reports.shared.by_gateway import by_gateway
from sync.reports.shared.findings import Findings

VOID = {"img", "link", "meta", "br", "hr", "input", "wbr"}
RUN = {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
"""Elements that run code, fetch resources or submit data; a report must not have any."""


class Page(HTMLParser):
    """A page: all elements must be closed, and none may run or fetch anything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.named: set[str] = set()
        self.links: list[str] = []
        self.headings: list[int] = []
        self.landmarks: Counter[str] = Counter()
        self.tables = self.captions = self.drawings = 0
        self.feed(text)
        self.close()
        assert self.open == []
        assert "url(http" not in text
        assert "@import" not in text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        assert tag not in RUN
        attributes = {name: value or "" for name, value in attrs}
        assert not any(name.startswith("on") for name in attributes)
        assert not {"src", "srcset", "action"} & set(attributes)
        if "id" in attributes:
            self.ids[attributes["id"]] += 1
        self.named |= set(attributes.get("aria-labelledby", "").split())
        if "href" in attributes:
            assert tag == "a"
            self.links.append(attributes["href"])
        assert attributes.get("xlink:href", "#").startswith("#")
        self._element(tag, attributes)

    def _element(self, tag: str, attributes: dict[str, str]) -> None:
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag in {"header", "nav", "main", "footer"}:
            self.landmarks[tag] += 1
        if tag == "th":
            assert attributes["scope"] in {"row", "col"}
        if tag == "svg":
            assert attributes["role"] == "img"
        self.tables += tag == "table"
        self.captions += tag == "caption"
        self.drawings += tag == "svg"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def gateway_pages(found: Findings, *, only_problems: bool = False) -> dict[str, str]:
    """Draw the page of each gateway; return them by file name, sorted by gateway."""
    own, gateways = by_gateway(found), with_page(found, only_problems=only_problems)
    return {page_name(each): gateway_page(own[each], each, gateways) for each in gateways}


def checked_gateway_pages(found: Findings) -> list[str]:
    """Return the valid pages of all gateways."""
    return [checked(text) for text in gateway_pages(found).values()]


def checked(text: str) -> str:
    """Return the page if it is valid and usable with a screen reader."""
    page = Page(text)
    assert set(page.ids.values()) <= {1}
    assert page.named <= set(page.ids)
    inner = {link[1:] for link in page.links if link.startswith("#")}
    assert inner <= set(page.ids)
    assert page.captions == page.tables
    assert page.headings[:2] == [1, 2]
    assert page.headings.count(1) == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(below <= above + 1 for above, below in steps)
    assert {name: page.landmarks[name] for name in ("header", "main", "footer")} == {
        "header": 1,
        "main": 1,
        "footer": 1,
    }
    return text
