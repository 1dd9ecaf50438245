"""Result Set Management (XEP-0059): which part of a long list is asked for, and which is told.

Lists are asked for, or told, by the ids of what stands in them. Where a list comes from is not
known here; `page` cuts one that is at hand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import RSM, clark

PAGE: Final = 100
"""Entries of a page where nobody asks for fewer: some 30 KiB."""

SET: Final = clark(RSM, "set")


class Request(NamedTuple):
    """Which page is asked for: of `max` entries at most, `after` or `before` an id, or from a place
    on (`start`, from 0). An empty `before` asks for the last page."""

    max: int = PAGE
    after: str | None = None
    before: str | None = None
    start: int | None = None


class Page(NamedTuple):
    """A part of a list: its ids, the place of the first, and how many there are in all."""

    ids: Sequence[str]
    start: int
    total: int

    @property
    def whole(self) -> bool:
        """Whether it is all of the list."""
        return len(self.ids) == self.total


def read(query: Element, most: int = PAGE) -> Request | None:
    """Return which page a query asks for, `None` if it does not say; `most` entries at most.

    Raises:
        StanzaError: `bad-request`: it asks for what cannot be.
    """
    found = query.find(SET)
    if found is None:
        return None
    size, index = _number(found, "max"), _number(found, "index")
    after, before = (found.findtext(clark(RSM, name)) for name in ("after", "before"))
    if sum(given is not None for given in (index, after, before)) > 1:
        raise StanzaError("bad-request", "a page is after, before, or at an index")
    return Request(most if size is None else min(size, most), after or None, before, index)


def _number(found: Element, name: str) -> int | None:
    text = found.findtext(clark(RSM, name))
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise StanzaError("bad-request", f"{name} is a number")
    return int(text)


def page(request: Request | None, ids: Sequence[str]) -> Page:
    """Cut the page that is asked for out of all ids, which are sorted.

    A page may begin after an id that is not there any more.
    """
    asked = request or Request()
    if asked.before:
        end = bisect_left(ids, asked.before)
        start = max(0, end - asked.max)
    elif asked.before is not None:
        end = len(ids)
        start = max(0, end - asked.max)
    else:
        start = asked.start or 0
        if asked.after is not None:
            start = bisect_right(ids, asked.after)
        end = start + asked.max
    return Page(ids[start:end], start, len(ids))


def write(page: Page) -> bytes:
    """Tell which part of a list an answer has (XEP-0059, section 2.2)."""
    content = b""
    if page.ids:
        first, last = serialize.escape(page.ids[0]), serialize.escape(page.ids[-1])
        content = serialize.tag("first", {"index": str(page.start)}, first)
        content += serialize.tag("last", content=last)
    content += serialize.tag("count", content=b"%d" % page.total)
    return serialize.tag("set", content=content, xmlns=RSM)
