"""Tests of custody's decision tables against the protocol, written out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from edge.features.custody import rules
from edge.features.custody.rules import Answer, Decision, Effect, Reason, Situation
from edge.features.custody.xmpp import CONDITIONS
from edge.xmpp.errors import STANZA_CONDITIONS

# Request, state, reply, effect, is an event logged: docs/reference/state-machines.md.
TABLE = [
    ("assured", "not held, trusted, allowed, within limits", "received", "hold", False),
    ("assured", "held, same body", "received", "none", True),
    ("assured", "held, another body", "cancel/conflict", "none", True),
    ("assured", "not trusted", "cancel/not-allowed", "none", True),
    ("assured", "destination does not exist or is forbidden", "its error", "none", True),
    ("assured", "over a limit", "wait/resource-constraint", "none", True),
    ("deliver", "held", "empty", "deliver", False),
    ("deliver", "held, no room at the destination", "wait/resource-constraint", "none", True),
    (
        "deliver",
        "held, destination no longer exists or is forbidden",
        "its error",
        "dead letter",
        True,
    ),
    ("deliver", "destination cannot read the content", "empty", "dead letter", True),
    ("deliver", "released before", "empty", "none", True),
    (
        "deliver",
        "held for or released by another connected session of the account",
        "wait/unexpected-request",
        "none",
        True,
    ),
    ("deliver", "unknown or expired", "cancel/item-not-found", "none", True),
    # "Receiving, acknowledged": the same limits and trust, delivered before the answer.
    ("acknowledged", "not held, trusted, allowed, within limits", "empty", "deliver", False),
    ("acknowledged", "not trusted", "cancel/not-allowed", "none", True),
    ("acknowledged", "destination does not exist or is forbidden", "its error", "none", True),
    ("acknowledged", "over a limit", "wait/resource-constraint", "none", True),
    ("acknowledged", "destination cannot read the content", "empty", "dead letter", True),
]

TABLES: dict[str, Mapping[Situation, Decision]] = {
    "assured": rules.OFFERED,
    "deliver": rules.RELEASED,
    "acknowledged": rules.ACKNOWLEDGED,
}

REPLIES = {
    Answer.RECEIVED: "received",
    Answer.EMPTY: "empty",
    Answer.DESTINATION_ERROR: "its error",
}
EFFECTS = {
    Effect.NONE: "none",
    Effect.HOLD: "hold",
    Effect.DELIVER: "deliver",
    Effect.DEAD_LETTER: "dead letter",
}


def stanza_error(reason: Reason) -> str:
    condition = CONDITIONS[reason]
    return f"{STANZA_CONDITIONS[condition]}/{condition}"


def written(request: str, situation: Situation, decision: Decision) -> tuple[object, ...]:
    answer = decision.answer
    reply = stanza_error(answer) if isinstance(answer, Reason) else REPLIES[answer]
    return request, situation.value, reply, EFFECTS[decision.effect], decision.rule is not None


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}: {row[1]}")
def test_each_decision_is_that_of_the_protocol(row: tuple[str, str, str, str, bool]) -> None:
    situation = Situation(row[1])
    assert written(row[0], situation, TABLES[row[0]][situation]) == row


def test_there_are_no_other_decisions() -> None:
    rows = {
        written(request, situation, decision)
        for request, table in TABLES.items()
        for situation, decision in table.items()
    }
    assert rows == set(TABLE)


def test_each_rule_stands_for_one_situation() -> None:
    by_rule: dict[str, set[Situation]] = {}
    for table in TABLES.values():
        for situation, decision in table.items():
            if decision.rule is not None:
                by_rule.setdefault(decision.rule, set()).add(situation)
    assert by_rule.pop(rules.REPEATED) == {Situation.HELD_SAME, Situation.RELEASED}
    assert all(len(situations) == 1 for situations in by_rule.values())


@pytest.mark.parametrize(
    ("held", "trusted", "destination", "room"),
    list(product([None, b"same", b"other"], *[[False, True]] * 3)),
)
def test_every_offer_is_classified(
    held: bytes | None, trusted: bool, destination: bool, room: bool
) -> None:
    situation = rules.offer(
        held=held, digest=b"same", trusted=trusted, destination=destination, room=room
    )
    if held is not None:  # the offer was accepted before: its answer may have been lost
        expected = Situation.HELD_SAME if held == b"same" else Situation.HELD_OTHER
    elif not trusted:
        expected = Situation.UNTRUSTED
    elif not destination:
        expected = Situation.NO_DESTINATION
    else:
        expected = Situation.NEW if room else Situation.OVER_LIMIT
    assert situation is expected
    assert situation in rules.OFFERED


@pytest.mark.parametrize(
    ("trusted", "destination", "readable", "room"), list(product([False, True], repeat=4))
)
def test_every_acknowledged_message_is_classified(
    trusted: bool, destination: bool, readable: bool, room: bool
) -> None:
    situation = rules.acknowledge(
        trusted=trusted, destination=destination, readable=readable, room=room
    )
    failing = [
        found
        for fine, found in (
            (trusted, Situation.UNTRUSTED),
            (destination, Situation.NO_DESTINATION),
            (room, Situation.OVER_LIMIT),
            (readable, Situation.UNREADABLE),
        )
        if not fine
    ]
    assert situation is (failing[0] if failing else Situation.NEW)
    assert situation in rules.ACKNOWLEDGED


@pytest.mark.parametrize(
    ("destination", "readable", "room"), list(product([False, True], repeat=3))
)
def test_every_deliver_of_a_held_message_is_classified(
    destination: bool, readable: bool, room: bool
) -> None:
    situation = rules.release(destination=destination, readable=readable, room=room)
    failing = [
        found
        for fine, found in (
            (destination, Situation.HELD_GONE),
            (room, Situation.HELD_NO_ROOM),
            (readable, Situation.UNREADABLE),
        )
        if not fine
    ]
    assert situation is (failing[0] if failing else Situation.HELD)
    assert situation in rules.RELEASED


def test_a_deliver_without_held_message_is_classified_by_the_released_keys() -> None:
    for elsewhere in (False, True):
        assert rules.missing(released=True, elsewhere=elsewhere) is Situation.RELEASED
    assert rules.missing(released=False, elsewhere=True) is Situation.ELSEWHERE
    assert rules.missing(released=False, elsewhere=False) is Situation.UNKNOWN
    assert {Situation.RELEASED, Situation.ELSEWHERE, Situation.UNKNOWN} <= set(rules.RELEASED)


@pytest.mark.parametrize(("connected", "exclusive"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("since", [1.0, 2.0, 3.0])
def test_only_messages_of_earlier_sessions_are_taken_over(
    connected: bool, exclusive: bool, since: float
) -> None:
    found = rules.may_inherit(connected=connected, exclusive=exclusive, since=since, began=2.0)
    assert found is (not connected and not exclusive and since < 3.0)
