"""Names as topics: filters, shares, and the tree of filters."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.features.pubsub.rules import topic
from edge.features.pubsub.rules.node import MOST_LEVELS
from edge.features.pubsub.rules.topic import (
    BadFilter,
    Share,
    Trie,
    matches,
    parse_filter,
    parse_share,
)

MATCHES: Final = (
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
)
MISSES: Final = (
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
)


@pytest.mark.parametrize(("filter", "name"), MATCHES)
def test_a_filter_matches(filter: str, name: str) -> None:
    assert matches(parse_filter(filter), name)


@pytest.mark.parametrize(("filter", "name"), MISSES)
def test_a_filter_does_not_match(filter: str, name: str) -> None:
    assert not matches(parse_filter(filter), name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not empty"),
        ("a/\x00", "control"),
        ("a/\n", "control"),
        ("a+/b", "whole level"),
        ("a/b#", "whole level"),
        ("++", "whole level"),
        ("a/#/b", "last level"),
        ("#/", "last level"),
        ("$share", "begin"),
        ("$share/x", "begin"),
        ("$share:x", "begin"),
        ("/" * MOST_LEVELS, "levels"),
    ],
)
def test_a_bad_filter_is_told_why(text: str, why: str) -> None:
    with pytest.raises(BadFilter, match=why):
        parse_filter(text)


def test_a_filter_has_so_many_levels_at_most() -> None:
    assert len(parse_filter("/" * (MOST_LEVELS - 1)).levels) == MOST_LEVELS


def test_what_is_no_share_is_none() -> None:
    assert [parse_share(text) for text in ("a", "$shared:a:b", "a/$share/b/c")] == [None] * 3


@pytest.mark.parametrize("text", ["$share:tellers:a/+/#", "$share/tellers/a/+/#"])
def test_both_syntaxes_are_the_same_share(text: str) -> None:
    share = parse_share(text)
    assert share == Share("tellers", parse_filter("a/+/#"))
    assert share.text == "$share:tellers:a/+/#"
    assert topic.is_share(text)


def test_a_filter_in_a_share_may_have_what_parts_the_other_syntax() -> None:
    assert parse_share("$share:n:/a:b") == Share("n", parse_filter("/a:b"))
    assert parse_share("$share/n/a:b/c") == Share("n", parse_filter("a:b/c"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("$share:a", "NAME:FILTER"),
        ("$share/a", "NAME/FILTER"),
        ("$share::a", "not empty"),
        ("$share//a", "not empty"),
        ("$share:a/b:c", "no :"),
        ("$share/a:b/c", "no :"),
        ("$share/a+/c", "no :"),
        ("$share:a#:c", "no :"),
        ("$share:a\t:c", "no :"),
        ("$share:a:", "not empty"),
        ("$share:a:$share:b:c", "begin"),
        ("$share:a:b/#/c", "last"),
    ],
)
def test_a_bad_share_is_told_why(text: str, why: str) -> None:
    with pytest.raises(BadFilter, match=why):
        parse_share(text)


def test_a_filter_is_told_from_a_name() -> None:
    assert [topic.is_filter(text) for text in ("a/b", "a/+", "a/#", "a#")] == [
        False, True, True, True,
    ]  # fmt: skip


def test_the_tree_finds_all_that_match_and_no_other() -> None:
    for wanted in (MATCHES, MISSES):
        for _filter, name in wanted:
            trie: Trie[str] = Trie()
            filters = {filter for filter, _name in (*MATCHES, *MISSES)}
            for filter in filters:
                trie.add(parse_filter(filter), filter)
            told = {filter for filter in filters if matches(parse_filter(filter), name)}
            assert sorted(trie.match(name)) == sorted(told)


def test_one_value_is_found_once_under_each_filter() -> None:
    trie: Trie[int] = Trie()
    for filter in ("a/+", "a/+", "a/#"):
        trie.add(parse_filter(filter), 1)
    assert trie.match("a/b") == [1, 1]


def test_what_is_removed_leaves_nothing() -> None:
    trie: Trie[int] = Trie()
    filters = [parse_filter(text) for text in ("a/b", "a/+/c", "a/#", "#", "+", "a/b/#")]
    for number, filter in enumerate(filters):
        trie.add(filter, number)
    for number, filter in enumerate(filters):
        assert not trie.empty
        trie.remove(filter, 100)
        trie.remove(filter, number)
        assert number not in trie.match("a/b")
    trie.remove(filters[0], 0)
    trie.remove(parse_filter("x/y"), 0)
    assert trie.empty


def test_removing_one_leaves_its_neighbours() -> None:
    trie: Trie[int] = Trie()
    trie.add(parse_filter("a/b/c"), 1)
    trie.add(parse_filter("a/b"), 2)
    trie.remove(parse_filter("a/b/c"), 1)
    assert trie.match("a/b") == [2]
    assert trie.match("a/b/c") == []


_LEVELS = st.sampled_from(["a", "b", "$c", ""])
_NAMES = st.lists(_LEVELS, min_size=1, max_size=4).map("/".join)
_FILTERS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "$c", "", "+"]), max_size=4),
    st.sampled_from(["#", "+", "a", ""]),
).map(lambda parts: "/".join([*parts[0], parts[1]]) or "+")


@given(st.lists(st.tuples(_FILTERS, st.booleans()), max_size=12), _NAMES)
def test_the_tree_agrees_with_the_rule(steps: list[tuple[str, bool]], name: str) -> None:
    trie: Trie[str] = Trie()
    there: set[str] = set()
    for text, added in steps:
        if added:
            trie.add(parse_filter(text), text)
            there.add(text)
        else:
            trie.remove(parse_filter(text), text)
            there.discard(text)
    assert sorted(trie.match(name)) == sorted(t for t in there if matches(parse_filter(t), name))
    for text in there:
        trie.remove(parse_filter(text), text)
    assert trie.empty
