"""Result set management (XEP-0059): reading of page requests, selection of a page, and its XML."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import RSM, clark

PAGE: Final = 100
"""Default and maximum number of entries in a page; so many take some 30 KiB."""

SET: Final = clark(RSM, "set")


class Request(NamedTuple):
    """A request for a page.

    Attributes:
        max: maximum number of entries.
        after: the id before the first entry.
        before: the id after the last entry; "" requests the last page.
        start: index of the first entry, from 0.
    """

    max: int = PAGE
    after: str | None = None
    before: str | None = None
    start: int | None = None


class Page(NamedTuple):
    """A part of a list: its ids, the index of the first, and the length of the whole list."""

    ids: Sequence[str]
    start: int
    total: int

    @property
    def whole(self) -> bool:
        """Return whether the page is the whole list."""
        return len(self.ids) == self.total


def read(query: Element) -> Request | None:
    """Return the page request in a query, limited to `PAGE` entries; None if there is none.

    Raises:
        StanzaError: `bad-request`: the request is malformed or contradicts itself.
    """
    found = query.find(SET)
    if found is None:
        return None
    size, index = _number(found, "max"), _number(found, "index")
    after, before = (found.findtext(clark(RSM, name)) for name in ("after", "before"))
    if sum(position is not None for position in (index, after, before)) > 1:
        raise StanzaError("bad-request", "a page request must not combine after, before and index")
    return Request(PAGE if size is None else min(size, PAGE), after or None, before, index)


def _number(found: Element, name: str) -> int | None:
    text = found.findtext(clark(RSM, name))
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise StanzaError("bad-request", f"{name} must be a number of at most 9 digits")
    return int(text)


def page(request: Request | None, ids: Sequence[str]) -> Page:
    """Return the requested page of the sorted `ids`, by default the first; the request can name an
    id that was removed."""
    requested = request or Request()
    if requested.before:
        end = bisect_left(ids, requested.before)
        start = max(0, end - requested.max)
    elif requested.before is not None:
        end = len(ids)
        start = max(0, end - requested.max)
    else:
        start = requested.start or 0
        if requested.after is not None:
            start = bisect_right(ids, requested.after)
        end = start + requested.max
    return Page(ids[start:end], start, len(ids))


def write(page: Page) -> bytes:
    """Build the `<set/>` that describes a page in an answer (XEP-0059, section 2.2)."""
    content = b""
    if page.ids:
        first, last = serialize.escape(page.ids[0]), serialize.escape(page.ids[-1])
        content = serialize.tag("first", {"index": str(page.start)}, first)
        content += serialize.tag("last", content=last)
    content += serialize.tag("count", content=b"%d" % page.total)
    return serialize.tag("set", content=content, xmlns=RSM)
