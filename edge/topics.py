"""Node names as MQTT topics: names, topic filters, shared subscriptions, and a trie of filters.

Levels are separated by "/" and may be empty. `+` matches one level; `#` matches all remaining
levels, or none: "a/#" matches "a". A wildcard in the first level does not match a name whose first
level begins with "$". Names and filters are compared character by character, without normalisation.
Source: MQTT 5.0, section 4.7; MQTT-234; docs/reference/protocol.md, on shared subscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from itertools import takewhile
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound="Hashable")

MAX_LEVELS: Final = 32
"""Maximum number of levels of a node name or filter; limits the time that matching takes."""

SHARE_PREFIX: Final = "$share"
"""Prefix of the names of shared subscriptions (MQTT-234); no node name may begin with it."""

ONE_LEVEL: Final = "+"
ALL_LEVELS: Final = "#"
WILDCARDS: Final = (ONE_LEVEL, ALL_LEVELS)

RESERVED: Final = ("$SYS", "$fieldpost")
"""The first levels of the names of the gateway's own nodes; no device publishes to them."""

_FORBIDDEN: Final = re.compile(
    "[\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17))
    + "]"
)
"""Control characters and noncharacters, which MQTT advises against (section 1.5.4) and of which XML
cannot contain some, and surrogates. All other code points are permitted, assigned or not."""


class InvalidFilter(ValueError):
    """A topic filter or the name of a share is invalid; the text says why."""


class Share(NamedTuple):
    """A shared subscription: all subscribers that use the same share name and filter."""

    name: str
    filter: str

    @property
    def text(self) -> str:
        """The share as `$share:NAME:FILTER`, or with slashes if its name contains a colon."""
        separator = "/" if ":" in self.name else ":"
        return separator.join((SHARE_PREFIX, *self))


def name_problem(name: str, max_bytes: int) -> str:
    """Return why `name` is not a valid node name; an empty string if it is valid."""
    if not name:
        return "a node name must not be empty"
    if _FORBIDDEN.search(name):
        return "a node name must not contain control characters or noncharacters"
    if len(name.encode()) > max_bytes:
        return f"a node name must have at most {max_bytes} bytes"
    if name.count("/") >= MAX_LEVELS:
        return f"a node name must have at most {MAX_LEVELS} levels"
    if any(wildcard in name for wildcard in WILDCARDS):
        return "a node name must not contain the wildcards + and #"
    if name.startswith(SHARE_PREFIX):
        return f"a node name must not begin with {SHARE_PREFIX}"
    return ""


def is_reserved(name: str) -> bool:
    """Return whether the gateway alone may create a node of this name and publish to it."""
    return name.startswith("$") and name.partition("/")[0] in RESERVED


def is_filter(text: str) -> bool:
    """Return whether a text contains a wildcard and so cannot be a node name."""
    return ONE_LEVEL in text or ALL_LEVELS in text


def is_share(text: str) -> bool:
    """Return whether a text has the prefix of a shared subscription."""
    return text.startswith((f"{SHARE_PREFIX}:", f"{SHARE_PREFIX}/"))


def check_filter(text: str) -> None:
    """Check that a text is a topic filter; a filter without wildcards matches one name.

    Raises:
        InvalidFilter: the text is not a valid filter.
    """
    if not text:
        raise InvalidFilter("a filter must not be empty")
    if _FORBIDDEN.search(text):
        raise InvalidFilter("a filter must not contain control characters or noncharacters")
    levels = text.split("/")
    if len(levels) > MAX_LEVELS:
        raise InvalidFilter(f"a filter must have at most {MAX_LEVELS} levels")
    if is_share(text) or text == SHARE_PREFIX:
        raise InvalidFilter(f"a filter must not begin with {SHARE_PREFIX}")
    for number, level in enumerate(levels, 1):
        _check_level(level, is_last=number == len(levels))


def _check_level(level: str, *, is_last: bool) -> None:
    if level == ALL_LEVELS and not is_last:
        raise InvalidFilter("# must be the last level of a filter")
    for wildcard in WILDCARDS:
        if wildcard in level and level != wildcard:
            raise InvalidFilter(f"{wildcard} must be a whole level, but the level is {level}")


def parse_share(text: str) -> Share | None:
    """Parse `$share:NAME:FILTER` or `$share/NAME/FILTER`; return `None` if the prefix is missing.

    Raises:
        InvalidFilter: the text has the prefix but the rest is invalid.
    """
    if not is_share(text):
        return None
    separator = text[len(SHARE_PREFIX)]
    name, found, rest = text[len(SHARE_PREFIX) + 1 :].partition(separator)
    if not found:
        raise InvalidFilter(f"a share must be {SHARE_PREFIX}{separator}NAME{separator}FILTER")
    if not name:
        raise InvalidFilter("the name of a share must not be empty")
    if _FORBIDDEN.search(name) or any(character in name for character in "/+#"):
        raise InvalidFilter(
            "the name of a share must not contain / + # or control characters or noncharacters"
        )
    check_filter(rest)
    return Share(name, rest)


def matches(filter: str, name: str) -> bool:
    """Return whether a valid filter matches the name of a node; for a valid filter in place of the
    name, whether it matches every name that this filter matches."""
    levels, wanted = name.split("/"), filter.split("/")
    if wanted[0] in WILDCARDS and levels[0].startswith("$"):
        return False
    if levels[-1] == ALL_LEVELS:
        if wanted[-1] != ALL_LEVELS:
            return False
        levels = levels[:-1] or [ONE_LEVEL]  # `#` matches the same names as `+/#`
    if wanted[-1] == ALL_LEVELS:
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(levels) == len(wanted) and all(
        want in (ONE_LEVEL, level) for want, level in zip(wanted, levels, strict=True)
    )


def fixed_levels(filter: str) -> list[str]:
    """Return the levels of a filter before its first wildcard."""
    return list(takewhile(lambda level: level not in WILDCARDS, filter.split("/")))


def matches_any(filters: Iterable[str], name: str) -> bool:
    """Return whether at least one of several valid filters matches the name of a node."""
    return any(matches(filter, name) for filter in filters)


class _Branch(Generic[T]):
    """A node of the trie, reached by the levels of a filter.

    `exact` has the values of filters that end here, `subtree` those of filters whose next level is
    `#`. `children` are the branches of the next level; the branch of `+` matches any level.
    """

    __slots__ = ("children", "exact", "subtree")

    def __init__(self) -> None:
        self.exact: dict[T, None] = {}
        self.subtree: dict[T, None] = {}
        self.children: dict[str, _Branch[T]] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.exact or self.subtree or self.children)

    def values(self, filter: str) -> dict[T, None]:
        return self.subtree if filter.endswith(ALL_LEVELS) else self.exact


class Trie(Generic[T]):
    """Mapping from topic filters to values, searched by node name.

    A search visits only the branches that match the levels of the name: at each level the branch of
    the literal level and the branch of `+`.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()

    def add(self, filter: str, value: T) -> None:
        """Add a value to a filter; nothing changes if the filter has the value already."""
        branch = self._root
        for level in _levels_before_all(filter):
            branch = branch.children.setdefault(level, _Branch())
        branch.values(filter)[value] = None

    def remove(self, filter: str, value: T) -> None:
        """Remove a value from a filter, if present, and the branches that become empty."""
        path = [self._root]
        levels = _levels_before_all(filter)
        for level in levels:
            found = path[-1].children.get(level)
            if found is None:
                return
            path.append(found)
        path[-1].values(filter).pop(value, None)
        for level in reversed(levels):
            if not path.pop().is_empty:
                break
            del path[-1].children[level]

    def match(self, name: str) -> list[T]:
        """Return the values of all filters that match a name; a value can occur several times."""
        levels = name.split("/")
        found: list[T] = []
        front = [self._root]
        if levels[0].startswith("$"):  # a wildcard in the first level does not match it
            child = self._root.children.get(levels.pop(0))
            front = [] if child is None else [child]
        for level in levels:
            following = []
            for branch in front:
                if branch.subtree:
                    found += branch.subtree
                children = branch.children
                if (any_level := children.get(ONE_LEVEL)) is not None:
                    following.append(any_level)
                if (this_level := children.get(level)) is not None:
                    following.append(this_level)
            front = following
        for branch in front:
            found += branch.exact
            found += branch.subtree  # `a/#` matches `a`
        return found

    @property
    def is_empty(self) -> bool:
        """Return whether the trie has no values."""
        return self._root.is_empty


def _levels_before_all(filter: str) -> list[str]:
    levels = filter.split("/")
    return levels[:-1] if levels[-1] == ALL_LEVELS else levels
