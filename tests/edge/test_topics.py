"""Node names, topic filters, shares, and the trie of filters."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge import topics
from edge.topics import InvalidFilter, Share, Trie

MATCHES: Final = [
    ("a/b/c", "a/b/c"),
    ("a/+/c", "a/b/c"),
    ("a/b/+", "a/b/c"),
    ("+/+/+", "a/b/c"),
    ("a/+", "a/"),
    ("+/b", "/b"),
    ("+/+", "/"),
    ("#", "a"),
    ("#", "a/b/c"),
    ("#", ""),
    ("a/#", "a"),
    ("a/#", "a/"),
    ("a/#", "a/b/c"),
    ("a/+/#", "a/b"),
    ("+/#", "a"),
    ("$sys/#", "$sys"),
    ("$sys/+", "$sys/a"),
    ("$sys/+/b", "$sys/a/b"),
    ("a/+", "a/$b"),
    ("a/#", "a/$b/c"),
    ("/" * (topics.MAX_LEVELS - 1), "/" * (topics.MAX_LEVELS - 1)),
]
MISSES: Final = [
    ("a/b", "a/b/c"),
    ("a/b/c", "a/b"),
    ("a", "A"),
    ("a", "/a"),
    ("a/+", "a"),
    ("a/+", "a/b/c"),
    ("+", "/a"),
    ("a/+/#", "a"),
    ("a/b/#", "a"),
    ("a/#", "ab"),
    ("#", "$sys"),
    ("#", "$sys/a"),
    ("+", "$sys"),
    ("+/a", "$sys/a"),
    ("+/#", "$sys/a"),
]


@pytest.mark.parametrize(
    ("filter", "name", "matching"),
    [*((*one, True) for one in MATCHES), *((*one, False) for one in MISSES)],
)
def test_a_filter_matches(filter: str, name: str, matching: bool) -> None:
    topics.check_filter(filter)
    assert topics.matches(filter, name) is matching


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "plant/boiler1/temp",
        "//",
        "$SYS/x",
        "urn:xmpp:x",
        "naïve/ß",
        " a b ",
        "x" * 64,
        "/" * 31,
        "\ufeffa",  # the byte order mark is a character as others
        "\u0378\ue000\U000e0001",  # unassigned, for private use, a format character
    ],
)
def test_valid_node_names(name: str) -> None:
    assert topics.name_problem(name, 64) == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        ("x" * 65, "64 bytes"),
        ("ß" * 33, "64 bytes"),
        ("/" * 32, "32 levels"),
        ("a/+/b", "wildcards"),
        ("a/#", "wildcards"),
        ("c+", "wildcards"),
        ("$share:crew:a", "share"),
        ("$share/crew/a", "share"),
        ("a\u0000b", "control"),
        ("a\u0085b", "control"),
        ("a\ufffeb", "noncharacters"),
        ("\ufdd0", "noncharacters"),
        ("\U0010ffff", "noncharacters"),
        ("\ud800", "noncharacters"),
    ],
)
def test_invalid_node_names(name: str, problem: str) -> None:
    assert problem in topics.name_problem(name, 64)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must not be empty"),
        ("a/\x00", "control"),
        ("a/\n", "control"),
        ("a/\uffff", "noncharacters"),
        ("a+/b", "whole level"),
        ("a/b#", "whole level"),
        ("++", "whole level"),
        ("a/#/b", "last level"),
        ("#/", "last level"),
        ("$share", "must not begin"),
        ("$share/x", "must not begin"),
        ("$share:x", "must not begin"),
        ("/" * topics.MAX_LEVELS, "levels"),
    ],
)
def test_invalid_filters(text: str, problem: str) -> None:
    with pytest.raises(InvalidFilter, match=problem):
        topics.check_filter(text)


def test_a_text_without_the_prefix_is_not_a_share() -> None:
    assert [topics.parse_share(text) for text in ("a", "$shared:a:b", "a/$share/b/c")] == [None] * 3


@pytest.mark.parametrize("text", ["$share:tellers:a/+/#", "$share/tellers/a/+/#"])
def test_both_syntaxes_are_the_same_share(text: str) -> None:
    share = topics.parse_share(text)
    assert share == Share("tellers", "a/+/#")
    assert share.text == "$share:tellers:a/+/#"
    assert topics.is_share(text)


def test_a_share_with_a_colon_in_its_name_is_written_with_slashes() -> None:
    share = topics.parse_share("$share/a:b/c:d/+")
    assert share == Share("a:b", "c:d/+")
    assert topics.parse_share(share.text) == share


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("$SYS", True),
        ("$SYS/broker/uptime", True),
        ("$fieldpost/status", True),
        ("$SYSTEM/a", False),
        ("$sys/a", False),
        ("a/$SYS", False),
        ("$", False),
    ],
)
def test_names_that_are_reserved_for_the_gateway(name: str, reserved: bool) -> None:
    assert topics.is_reserved(name) is reserved


def test_a_filter_in_a_share_may_contain_the_other_separator() -> None:
    assert topics.parse_share("$share:n:/a:b") == Share("n", "/a:b")
    assert topics.parse_share("$share/n/a:b/c") == Share("n", "a:b/c")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("$share:a", "NAME:FILTER"),
        ("$share/a", "NAME/FILTER"),
        ("$share::a", "must not be empty"),
        ("$share//a", "must not be empty"),
        ("$share:a/b:c", "must not contain"),
        ("$share/a+/c", "must not contain"),
        ("$share:a#:c", "must not contain"),
        ("$share:a\t:c", "must not contain"),
        ("$share:a:", "must not be empty"),
        ("$share:a:$share:b:c", "must not begin"),
        ("$share:a:b/#/c", "last"),
    ],
)
def test_invalid_shares(text: str, problem: str) -> None:
    with pytest.raises(InvalidFilter, match=problem):
        topics.parse_share(text)


def test_a_text_with_a_wildcard_is_a_filter() -> None:
    assert not topics.is_filter("a/b")
    assert all(topics.is_filter(text) for text in ("a/+", "a/#", "a#"))


def test_the_trie_finds_each_matching_filter_once() -> None:
    filters = {filter for filter, _name in MATCHES + MISSES}
    trie: Trie[str] = Trie()
    for filter in [*filters, *filters]:
        trie.add(filter, filter)
    for _filter, name in MATCHES + MISSES:
        matching = [filter for filter in filters if topics.matches(filter, name)]
        assert sorted(trie.match(name)) == sorted(matching)


_LEVELS = st.sampled_from(["a", "b", "$c", ""])
_NAMES = st.lists(_LEVELS, min_size=1, max_size=4).map("/".join)
_FILTERS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "$c", "", "+"]), max_size=4),
    st.sampled_from(["#", "+", "a", ""]),
).map(lambda parts: "/".join([*parts[0], parts[1]]) or "+")


_SHORT_FILTERS = _FILTERS.filter(lambda filter: filter.count("/") < 3)
_SHORT_NAMES: Final = [
    "/".join(levels) for n in range(1, 5) for levels in product(["a", "b", "$c", "", "z"], repeat=n)
]
"""Names that tell apart all filters of up to three levels: "z" is in no filter."""


@settings(max_examples=4 * settings().max_examples)
@given(_SHORT_FILTERS, _SHORT_FILTERS)
@example("#", "+/#")
@example("+/#", "#")
@example("a/#", "a")
@example("a/+/#", "a/#")
@example("#", "$c/#")
def test_a_filter_matches_a_filter_if_it_matches_all_its_names(filter: str, other: str) -> None:
    names = [name for name in _SHORT_NAMES if topics.matches(other, name)]
    expected = all(topics.matches(filter, name) for name in names)
    assert topics.matches(filter, other) is expected


@given(st.lists(st.tuples(_FILTERS, st.booleans()), max_size=12), _NAMES)
def test_the_trie_agrees_with_matches(steps: list[tuple[str, bool]], name: str) -> None:
    trie: Trie[str] = Trie()
    present: set[str] = set()
    for text, added in steps:
        if added:
            trie.add(text, text)
            present.add(text)
        else:
            trie.remove(text, text)
            present.discard(text)
    assert sorted(trie.match(name)) == sorted(t for t in present if topics.matches(t, name))
    for text in present:
        trie.remove(text, text)
    assert trie.is_empty
