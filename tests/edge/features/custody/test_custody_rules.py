"""Classification of custody's requests. The decision tables are compared by tests/docs."""

from __future__ import annotations

from itertools import product

import pytest

from edge.features.custody import rules
from edge.features.custody.rules import Situation

BOTH = (False, True)


def test_each_rule_stands_for_one_situation() -> None:
    by_rule: dict[str, set[Situation]] = {}
    for table in (rules.OFFERED, rules.RELEASED, rules.ACKNOWLEDGED):
        for situation, decision in table.items():
            if decision.rule is not None:
                by_rule.setdefault(decision.rule, set()).add(situation)
    assert by_rule.pop(rules.REPEATED) == {Situation.HELD_SAME, Situation.RELEASED}
    assert all(len(situations) == 1 for situations in by_rule.values())


def first_failing(*checks: tuple[bool, Situation], otherwise: Situation) -> Situation:
    return next((situation for passed, situation in checks if not passed), otherwise)


@pytest.mark.parametrize(
    ("held", "trusted", "destination", "room"),
    list(product([None, b"same", b"other"], BOTH, BOTH, BOTH)),
)
def test_every_offer_is_classified(
    held: bytes | None, trusted: bool, destination: bool, room: bool
) -> None:
    situation = rules.offer(
        held=held, digest=b"same", trusted=trusted, destination=destination, room=room
    )
    assert situation in rules.OFFERED
    if held is not None:  # the offer was accepted before: its answer may have been lost
        expected = Situation.HELD_SAME if held == b"same" else Situation.HELD_OTHER
    else:
        checks = (trusted, Situation.UNTRUSTED), (destination, Situation.NO_DESTINATION)
        expected = first_failing(*checks, (room, Situation.OVER_LIMIT), otherwise=Situation.NEW)
    assert situation is expected


@pytest.mark.parametrize(
    ("trusted", "destination", "readable", "room"), list(product(BOTH, repeat=4))
)
def test_every_acknowledged_message_is_classified(
    trusted: bool, destination: bool, readable: bool, room: bool
) -> None:
    situation = rules.acknowledge(
        trusted=trusted, destination=destination, readable=readable, room=room
    )
    assert situation in rules.ACKNOWLEDGED
    assert situation is first_failing(
        (trusted, Situation.UNTRUSTED),
        (destination, Situation.NO_DESTINATION),
        (room, Situation.OVER_LIMIT),
        (readable, Situation.UNREADABLE),
        otherwise=Situation.NEW,
    )


@pytest.mark.parametrize(("destination", "readable", "room"), list(product(BOTH, repeat=3)))
def test_every_deliver_of_a_held_message_is_classified(
    destination: bool, readable: bool, room: bool
) -> None:
    situation = rules.release(destination=destination, readable=readable, room=room)
    assert situation in rules.RELEASED
    assert situation is first_failing(
        (destination, Situation.HELD_GONE),
        (room, Situation.HELD_NO_ROOM),
        (readable, Situation.UNREADABLE),
        otherwise=Situation.HELD,
    )


def test_a_deliver_without_held_message_is_classified_by_the_released_keys() -> None:
    for elsewhere in BOTH:
        assert rules.missing(released=True, elsewhere=elsewhere) is Situation.RELEASED
    assert rules.missing(released=False, elsewhere=True) is Situation.ELSEWHERE
    assert rules.missing(released=False, elsewhere=False) is Situation.UNKNOWN
    assert {Situation.RELEASED, Situation.ELSEWHERE, Situation.UNKNOWN} <= set(rules.RELEASED)


@pytest.mark.parametrize(("connected", "exclusive"), list(product(BOTH, repeat=2)))
@pytest.mark.parametrize("since", [1.0, 2.0, 3.0])
def test_only_messages_of_earlier_sessions_are_taken_over(
    connected: bool, exclusive: bool, since: float
) -> None:
    found = rules.may_inherit(connected=connected, exclusive=exclusive, since=since, began=2.0)
    assert found is (not connected and not exclusive and since < 3.0)
