"""Names of nodes as topics: filters that match them, shares of filters, and a tree of many filters.

Levels are parted by "/" and may be empty. `+` stands for one level, `#` for the rest and for its
parent; neither, at the front, matches a first level that begins with "$". What may be subscribed to
by whom is not known here. Source: MQTT 3.1.1, section 4.7; MQTT-234; PROTOCOL decisions on shared
subscriptions (docs/protocol.md).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from edge.features.pubsub.rules.node import MOST_LEVELS, RESERVED

T = TypeVar("T", bound="Hashable")

ONE: Final = "+"
REST: Final = "#"
WILD: Final = (ONE, REST)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class BadFilter(ValueError):
    """A filter, or the syntax of a share, is wrong; the text says how."""


class Filter(NamedTuple):
    """A filter, checked: its levels."""

    levels: tuple[str, ...]

    @property
    def text(self) -> str:
        """The filter as it is written."""
        return "/".join(self.levels)


class Share(NamedTuple):
    """A share: all who name the same share and the same filter."""

    name: str
    filter: Filter

    @property
    def text(self) -> str:
        """The share as MQTT-234 writes it; another syntax for it is the same share."""
        return f"{RESERVED}:{self.name}:{self.filter.text}"


def is_filter(text: str) -> bool:
    """Tell whether a text is meant as a filter, rather than as the name of one node."""
    return ONE in text or REST in text


def is_share(text: str) -> bool:
    """Tell whether a text is meant as a share."""
    return text.startswith((f"{RESERVED}:", f"{RESERVED}/"))


def parse_filter(text: str) -> Filter:
    """Read a filter; one without `+` and `#` matches one name.

    Raises:
        BadFilter: it is none; the error says why.
    """
    if not text:
        raise BadFilter("a filter is not empty")
    if _CONTROL.search(text):
        raise BadFilter("a filter has no control characters")
    levels = tuple(text.split("/"))
    if len(levels) > MOST_LEVELS:
        raise BadFilter(f"a filter has {MOST_LEVELS} levels at most")
    if is_share(text) or text == RESERVED:
        raise BadFilter(f"a filter does not begin with {RESERVED}")
    for place, level in enumerate(levels, 1):
        _check(level, last=place == len(levels))
    return Filter(levels)


def _check(level: str, *, last: bool) -> None:
    if level == REST and not last:
        raise BadFilter("# is the last level of a filter")
    for wild in WILD:
        if wild in level and level != wild:
            raise BadFilter(f"{wild} is a whole level, and {level} is not")


def parse_share(text: str) -> Share | None:
    """Read `$share:NAME:FILTER` or `$share/NAME/FILTER`; `None` if a text is not meant as either.

    Raises:
        BadFilter: it is meant so, and is none; the error says why.
    """
    if not is_share(text):
        return None
    separator = text[len(RESERVED)]
    name, found, rest = text[len(RESERVED) + 1 :].partition(separator)
    if not found:
        raise BadFilter(f"a share is {RESERVED}{separator}NAME{separator}FILTER")
    if not name:
        raise BadFilter("the name of a share is not empty")
    if _CONTROL.search(name) or any(character in name for character in ":/+#"):
        raise BadFilter("the name of a share has no : / + # and no control characters")
    return Share(name, parse_filter(rest))


def matches(filter: Filter, name: str) -> bool:
    """Tell whether a filter matches the name of a node."""
    levels = name.split("/")
    wanted = filter.levels
    if wanted[0] in WILD and levels[0].startswith("$"):
        return False
    if wanted[-1] == REST:
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(levels) == len(wanted) and all(
        want in (ONE, level) for want, level in zip(wanted, levels, strict=True)
    )


class _Branch(Generic[T]):
    """A place in the tree: what has ended here, what has `#` here, and how it goes on."""

    __slots__ = ("here", "named", "one", "rest")

    def __init__(self) -> None:
        self.here: dict[T, None] = {}
        self.rest: dict[T, None] = {}
        self.one: _Branch[T] | None = None
        self.named: dict[str, _Branch[T]] = {}

    def next(self, level: str) -> _Branch[T] | None:
        return self.one if level == ONE else self.named.get(level)

    def grown(self, level: str) -> _Branch[T]:
        found = self.next(level)
        if found is None:
            found = _Branch()
            if level == ONE:
                self.one = found
            else:
                self.named[level] = found
        return found

    def cut(self, level: str) -> None:
        if level == ONE:
            self.one = None
        else:
            del self.named[level]

    @property
    def bare(self) -> bool:
        return not (self.here or self.rest or self.named or self.one)


class Trie(Generic[T]):
    """Filters, each with what was added under it: a name is matched with all of them in one walk.

    The walk goes along the levels of the name, and at each into what names that level and into `+`:
    filters that differ before that are never looked at.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()

    def add(self, filter: Filter, value: T) -> None:
        """Add a value under a filter; again is the same."""
        self._values(self._path(filter)[-1], filter)[value] = None

    def remove(self, filter: Filter, value: T) -> None:
        """Remove a value from under a filter, if it is there, and what led to it alone."""
        path = [self._root]
        named = filter.levels[:-1] if filter.levels[-1] == REST else filter.levels
        for level in named:
            found = path[-1].next(level)
            if found is None:
                return
            path.append(found)
        self._values(path[-1], filter).pop(value, None)
        for level in reversed(named):
            if not path.pop().bare:
                break
            path[-1].cut(level)

    def match(self, name: str) -> list[T]:
        """Return the values under all filters that match a name, each once per filter."""
        levels = name.split("/")
        found: list[T] = []
        front = [self._root]
        if levels[0].startswith("$"):  # which no wildcard at the front matches
            named = self._root.named.get(levels.pop(0))
            front = [] if named is None else [named]
        for level in levels:
            onward = []
            for branch in front:
                found += branch.rest
                if branch.one is not None:
                    onward.append(branch.one)
                if (named := branch.named.get(level)) is not None:
                    onward.append(named)
            front = onward
        for branch in front:
            found += branch.here
            found += branch.rest  # `a/#` matches `a`
        return found

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""
        return self._root.bare

    def _path(self, filter: Filter) -> list[_Branch[T]]:
        path = [self._root]
        for level in filter.levels[:-1] if filter.levels[-1] == REST else filter.levels:
            path.append(path[-1].grown(level))
        return path

    @staticmethod
    def _values(branch: _Branch[T], filter: Filter) -> dict[T, None]:
        return branch.rest if filter.levels[-1] == REST else branch.here
