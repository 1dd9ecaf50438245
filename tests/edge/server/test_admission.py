from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from edge.config.limits import Limits
from edge.engine.dispatch.outputs import EndReason
from edge.engine.store.database import Receipt, SentMessage
from edge.server.admission import Admission

LIMITS = replace(Limits(), sessions=4, sessions_per_account=2, sessions_per_address=3)
GENERATIONS = count(1)


class Session:
    """A session of no particular protocol, which leaves the admission when it ends."""

    def __init__(self, admission: Admission, full: str, source: str = "192.0.2.1") -> None:
        self._admission = admission
        self.generation = next(GENERATIONS)
        self.full = full
        self.bare = full.partition("/")[0]
        self.source = source
        self.unacknowledged_bytes = 0
        self.ends: list[EndReason] = []

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        raise AssertionError

    def end(self, reason: EndReason) -> None:
        self.ends.append(reason)
        self._admission.remove(self)


@pytest.fixture
def admission() -> Admission:
    return Admission(LIMITS)


def admit(admission: Admission, full: str, source: str = "192.0.2.1") -> tuple[Session, str]:
    """Admit a session; return it, and the name of the limit that prevents it or ""."""
    session = Session(admission, full, source)
    exceeded = admission.admit(session)
    return session, "" if exceeded is None else exceeded.name


def test_each_limit_refuses_a_session(admission: Admission) -> None:
    assert [admit(admission, f"a@x/{number}")[1] for number in range(3)] == [
        "", "", "sessions_per_account",
    ]  # fmt: skip
    assert [admit(admission, f"{name}@x/1")[1] for name in "bc"] == ["", "sessions_per_address"]
    assert [admit(admission, f"{name}@x/1", "192.0.2.2")[1] for name in "cd"] == ["", "sessions"]
    assert (admission.session_count, admission.largest_groups()) == (4, (2, 3))


def test_a_detached_session_makes_room(admission: Admission) -> None:
    first, second = admit(admission, "a@x/1")[0], admit(admission, "a@x/2")[0]
    for session in (second, first):
        admission.mark_detached(session)
    admission.mark_attached(first)
    admission.mark_detached(first)
    assert admit(admission, "a@x/3")[1] == ""
    assert (first.ends, second.ends) == ([], [EndReason.EVICTED])
    admission.mark_attached(first)
    assert admit(admission, "a@x/4")[1] == "sessions_per_account"


def test_a_session_takes_the_place_of_one_with_its_address(admission: Admission) -> None:
    first, other = admit(admission, "a@x/1")[0], admit(admission, "a@x/2")[0]
    successor, refused = admit(admission, "a@x/1")
    assert refused == ""
    admission.replace_others(successor)
    assert (first.ends, other.ends, successor.ends) == ([EndReason.REPLACED], [], [])
    assert admission.count_of_account("a@x") == 2


def test_a_session_moves_to_an_address_with_room(admission: Admission) -> None:
    for name in "abc":
        admit(admission, f"{name}@x/1")
    moving, _ = admit(admission, "d@x/1", "192.0.2.2")
    assert not admission.move(moving, "192.0.2.1")
    assert admission.move(moving, "192.0.2.3")
    assert (moving.source, admission.largest_groups()) == ("192.0.2.3", (1, 3))
    moving.end(EndReason.SHUTDOWN)
    assert admission.move(moving, "192.0.2.4"), "an ended session counts nowhere"
    assert admission.session_count == 3


def test_the_largest_session_is_ended(admission: Admission) -> None:
    sessions = [admit(admission, f"{name}@x/1")[0] for name in "abc"]
    for session, size in zip(sessions, (1, 3, 2), strict=True):
        session.unacknowledged_bytes = size
    assert admission.end_largest() == "b@x"
    assert [session.ends for session in sessions] == [[], [EndReason.MEMORY], []]
