"""Routing of messages: Table 1 of RFC 6121, transcribed by hand, and the choice of sessions."""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import pytest

from edge.features.messages import rules
from edge.features.messages.rules import Address, Availability, MessageType, Outcome, Route


class Session(NamedTuple):
    full: str
    available: bool = True
    priority: int = 0
    detached: bool = False
    generation: int = 1

    @property
    def accepts(self) -> bool:
        return self.available and self.priority >= 0

    @property
    def rank(self) -> int:
        return self.priority


FULL: Final = "pump1@gw.example/fw"
OTHER: Final = "pump1@gw.example/other"
ELSEWHERE: Final = "pump1@gw.example/elsewhere"

# RFC 6121, section 8.5.4: A all non-negative, D deliver, E error, M most available, O offline or
# error, S silently ignored or (by the sections' text, which may answer an error as well) refused;
# I must be ignored, by section 8.5.2.2. A full JID of a session without presence: section 8.5.3.1.
TABLE_1: Final = """
account does not exist
    bare            S S E S
    full            S S S S
account exists, but no active resources
    bare            O O E I
    full match      D D D D
    full no match   S O S S
1+ negative resources but zero non-negative resources
    bare            O O E I
    full match      D D D D
    full no match   S O S S
1 non-negative resource
    bare            D D E D
    full match      D D D D
    full no match   S D S S
1+ non-negative resources
    bare            M M E A
    full match      D D D D
    full no match   S M S S
"""

ALLOWED: Final = {
    "A": {Outcome.ALL},
    "D": {Outcome.DELIVER, Outcome.BEST, Outcome.ALL},
    "E": {Outcome.REFUSE},
    "I": {Outcome.IGNORE},
    "M": {Outcome.BEST},
    "O": {Outcome.STORE},
    "S": {Outcome.REFUSE, Outcome.IGNORE},
}

SITUATIONS: Final[dict[str, tuple[bool, list[Session]]]] = {
    "account does not exist": (False, []),
    "account exists, but no active resources": (True, [Session(FULL, available=False)]),
    "1+ negative resources but zero non-negative resources": (
        True,
        [Session(FULL, priority=-1), Session(OTHER, priority=-128)],
    ),
    "1 non-negative resource": (
        True,
        [Session(FULL, priority=1), Session(OTHER, priority=-1), Session("x", False, 5)],
    ),
    "1+ non-negative resources": (True, [Session(FULL), Session(OTHER)]),
}

TYPES: Final = (MessageType.NORMAL, MessageType.CHAT, MessageType.GROUPCHAT, MessageType.HEADLINE)


def cells() -> list[tuple[str, str, MessageType, str]]:
    found, situation = [], ""
    for line in TABLE_1.strip().splitlines():
        if not line.startswith(" "):
            situation = line
            continue
        columns = line.split()
        marks, address = columns[-4:], " ".join(columns[:-4])
        found += [(situation, address, kind, mark) for kind, mark in zip(TYPES, marks, strict=True)]
    assert len(found) == 14 * 4
    return found


@pytest.mark.parametrize(("situation", "address", "kind", "mark"), cells())
def test_messages_are_routed_as_in_table_1(
    situation: str, address: str, kind: MessageType, mark: str
) -> None:
    exists, sessions = SITUATIONS[situation]
    full = {"bare": None, "full": FULL, "full match": FULL, "full no match": ELSEWHERE}[address]
    route = rules.route(kind, sessions, full, exists=exists)
    assert route.outcome in ALLOWED[mark]
    reached = {"D": [FULL], "M": [FULL], "A": [FULL, OTHER]}.get(mark, [])
    assert [session.full for session in route.sessions] == reached


@pytest.mark.parametrize("situation", SITUATIONS)
def test_error_goes_to_its_session_or_nowhere(situation: str) -> None:
    exists, sessions = SITUATIONS[situation]
    for full in (None, ELSEWHERE):
        found = rules.route(MessageType.ERROR, sessions, full, exists=exists)
        assert found == Route(Outcome.IGNORE)
    matched = rules.route(MessageType.ERROR, sessions, FULL, exists=exists)
    assert matched.outcome is (Outcome.DELIVER if sessions else Outcome.IGNORE)


def test_table_is_complete() -> None:
    assert set(rules.TABLE) == set(product(Address, Availability, MessageType))


@pytest.mark.parametrize("kind", MessageType)
def test_unreachable_account_equals_a_missing_one(kind: MessageType) -> None:
    sessions = [Session(FULL), Session(OTHER)]
    for full in (None, FULL, ELSEWHERE):
        missing = rules.route(kind, [], full, exists=False)
        assert rules.route(kind, sessions, full, exists=False) == missing


@pytest.mark.parametrize(
    ("sessions", "chosen"),
    [
        ([], None),
        ([Session("a", False, 9)], None),
        ([Session("a", priority=-1)], None),
        ([Session("a"), Session("b")], "a"),
        ([Session("a"), Session("b", priority=1)], "b"),
        ([Session("a", priority=9, detached=True), Session("b")], "b"),
        ([Session("a", detached=True), Session("b", priority=-1)], "a"),
        ([Session("a", detached=True), Session("b", priority=1, detached=True)], "b"),
    ],
)
def test_best_session_is_chosen(sessions: list[Session], chosen: str | None) -> None:
    found = rules.best_session(sessions)
    assert (found and found.full) == chosen


@pytest.mark.parametrize(
    ("kind", "outcomes"),
    [
        (MessageType.NORMAL, [Outcome.REFUSE, Outcome.STORE, Outcome.BEST]),
        (MessageType.CHAT, [Outcome.REFUSE, Outcome.STORE, Outcome.BEST]),
        (MessageType.GROUPCHAT, [Outcome.REFUSE] * 3),
        (MessageType.HEADLINE, [Outcome.IGNORE] * 3),
        (MessageType.ERROR, [Outcome.IGNORE] * 3),
    ],
)
def test_rerouted_message_is_routed_to_the_account(
    kind: MessageType, outcomes: list[Outcome]
) -> None:
    missing = rules.reroute(kind, [], exists=False)
    unavailable = rules.reroute(kind, [Session(FULL, priority=-1)], exists=True)
    available = rules.reroute(kind, [Session(OTHER)], exists=True)
    assert [route.outcome for route in (missing, unavailable, available)] == outcomes


def test_missing_and_unknown_types_are_normal() -> None:
    assert [rules.parse_type(kind.value) for kind in MessageType] == list(MessageType)
    assert {rules.parse_type(type_) for type_ in (None, "", "urgent")} == {MessageType.NORMAL}
