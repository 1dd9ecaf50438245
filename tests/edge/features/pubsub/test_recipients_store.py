"""Which changes of topic filters leave the cached recipients of a node as they are."""

from __future__ import annotations

import pytest

from edge.engine.store.database import Transaction
from edge.features.pubsub.store import recipients
from edge.features.pubsub.store.recipients import CHANGES, FilterChange, Matching, Readers
from tests.helpers.store import Clock

ONCE = "meter@gw.example/fw once"
FOUND = ["a recipient"]


@pytest.fixture
def tx() -> Transaction:
    """A transaction with cached recipients of the node `a/1`, one of them by subscription 5."""
    found = Transaction(None, Clock()(), {})
    recipients.keep(
        found, 1, "a/1", Readers((), {}), Matching((), {ONCE: 5}, 4 * CHANGES), FOUND, 1
    )
    return found


@pytest.mark.parametrize(
    ("change", "makes_no_difference"),
    [
        (FilterChange(9, "a/+", ONCE, begins=True), True),  # a later one of the bundle
        (FilterChange(3, "a/+", ONCE, begins=True), False),
        (FilterChange(3, "b/+", ONCE, begins=True), True),
        (FilterChange(9, "a/+", "another", begins=True), False),
        (FilterChange(9, "b/+", "another", begins=True), True),
        (FilterChange(9, "a/+", "", begins=True), False),
        (FilterChange(9, "b/+", "", begins=True), True),
        (FilterChange(5, "a/+", ONCE, begins=False), False),
        (FilterChange(9, "a/+", ONCE, begins=False), True),
        (FilterChange(4, "a/+", "", begins=False), False),
        (FilterChange(4, "b/+", "", begins=False), True),
    ],
)
def test_recipients_are_found_again_if_a_change_of_filters_makes_a_difference(
    tx: Transaction, change: FilterChange, makes_no_difference: bool
) -> None:
    recipients.note_filter_change(tx, change)
    expected = FOUND if makes_no_difference else None
    assert [recipients.get(tx, "a/1") for _ in range(2)] == [expected] * 2
    assert recipients.readers(tx, "a/1") is not None


def test_recipients_are_found_again_after_many_changes(tx: Transaction) -> None:
    change = FilterChange(9, "b/+", "", begins=True)
    for _ in range(2):  # those that were looked at do not count
        for _ in range(CHANGES):
            recipients.note_filter_change(tx, change)
        assert recipients.get(tx, "a/1") == FOUND
    for _ in range(CHANGES + 1):
        recipients.note_filter_change(tx, change)
    assert recipients.get(tx, "a/1") is None


def test_recipients_among_few_filters_are_found_again_after_few_changes(tx: Transaction) -> None:
    """That takes less time than to look at the changes."""
    recipients.keep(tx, 2, "a/2", Readers((), {}), Matching((), {}, 1), FOUND, 1)
    for _ in range(5):
        assert recipients.get(tx, "a/2") == FOUND
        recipients.note_filter_change(tx, FilterChange(9, "b/+", "", begins=True))
    for _ in range(4):
        recipients.note_filter_change(tx, FilterChange(9, "b/+", "", begins=True))
    assert recipients.get(tx, "a/2") is None
