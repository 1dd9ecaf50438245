from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware_sim.device.errors import InboxError
from firmware_sim.device.inbox import Inbox, InboxCounter, Key
from firmware_sim.device.limits import InboxLimits
from firmware_sim.device.receiver_rules import State

JID = "valve1@gw.example/fw"
A, B = Key("a@gw.example/x", "1"), Key("b@gw.example/x", "1")


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with Inbox.open(tmp_path / "in", JID) as opened:
        yield opened


def hold(inbox: Inbox, *keys: Key, body: str = "<m/>") -> list[bool]:
    """Hold each message that fits, in a commit of its own; return which ones fitted."""
    found = []
    for key in keys:
        with inbox.transaction():
            found.append(inbox.has_room(key, body))
            if found[-1]:
                inbox.hold(key, body)
    return found


def release(inbox: Inbox, key: Key) -> str:
    with inbox.transaction():
        return inbox.release(key)


def test_held_and_released_messages_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "in"
    with Inbox.open(path, JID) as inbox:
        assert inbox.find(A) == (State.UNKNOWN, None)
        hold(inbox, A, B, body="<m>é</m>")
        assert release(inbox, B) == "<m>é</m>"
    with Inbox.open(path, JID) as inbox:
        assert inbox.find(A) == (State.HELD, "<m>é</m>")
        assert inbox.find(B) == (State.RELEASED, None)
        assert inbox.held() == (1, len("<m>é</m>".encode()) + len(A.sender) + len(A.msg_id))
        hold(inbox, B)
        assert inbox.find(B) == (State.HELD, "<m/>")
        assert release(inbox, B) == "<m/>"


def test_key_contains_the_full_jid(inbox: Inbox) -> None:
    hold(inbox, A)
    assert inbox.find(Key("a@gw.example/y", "1")) == (State.UNKNOWN, None)


SIZE = 4 + len(A.sender) + 1


@pytest.mark.parametrize(
    "limits",
    [
        InboxLimits(source_messages=2),
        InboxLimits(source_bytes=2 * SIZE),
        InboxLimits(source_bytes=3 * SIZE - 1),
    ],
)
def test_limit_of_one_source(tmp_path: Path, limits: InboxLimits) -> None:
    keys = [Key("a@gw.example/x", "1"), Key("a@gw.example/y", "1"), Key("a@gw.example/z", "1")]
    with Inbox.open(tmp_path / "in", JID, limits) as inbox:
        assert hold(inbox, *keys) == [True, True, False]
        assert hold(inbox, B) == [True]
        release(inbox, keys[0])
        assert hold(inbox, keys[2]) == [True]


@pytest.mark.parametrize("limits", [InboxLimits(messages=2), InboxLimits(bytes=3 * SIZE - 1)])
def test_limit_of_all_sources(tmp_path: Path, limits: InboxLimits) -> None:
    keys = [Key(f"{name}@gw.example/x", "1") for name in "abc"]
    with Inbox.open(tmp_path / "in", JID, limits) as inbox:
        assert hold(inbox, *keys) == [True, True, False]
        release(inbox, keys[1])
        assert hold(inbox, keys[2]) == [True]


def test_unreleased_message_is_dropped_only_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("firmware_sim.device.inbox.time.monotonic", lambda: now)
    limits = InboxLimits(messages=1, held_s=100)
    with Inbox.open(tmp_path / "in", JID, limits) as inbox:
        now += 10
        hold(inbox, A)
        now += 99
        assert hold(inbox, B) == [False]
    now = 5.0  # the machine was started again: its clock begins anew, the inbox's goes on
    with Inbox.open(tmp_path / "in", JID, limits) as inbox:
        assert hold(inbox, B) == [False]
        now += 2
        assert inbox.find(A)[0] is State.HELD
        assert hold(inbox, B) == [True]
        assert inbox.find(A)[0] is State.UNKNOWN
        assert inbox.counts()[InboxCounter.EXPIRED] == 1


def test_number_of_remembered_keys_is_limited(tmp_path: Path) -> None:
    limits = InboxLimits(keep_source=2, keep=3)
    keys = [Key(f"{name}@gw.example/x", str(n)) for name in "ab" for n in range(3)]
    with Inbox.open(tmp_path / "in", JID, limits) as inbox:
        for key in keys:
            hold(inbox, key)
            release(inbox, key)
        known = [inbox.find(key)[0] is State.RELEASED for key in keys]
        assert known == [False, False, True, False, True, True]


def test_failed_attempt_is_rolled_back_within_the_transaction(tmp_path: Path) -> None:
    schema = "CREATE TABLE mine (what TEXT) STRICT"
    with Inbox.open(tmp_path / "in", JID, schema=schema) as inbox:

        def fail() -> None:
            with inbox.attempt():
                inbox.release(A)
                inbox.database.execute("INSERT INTO mine VALUES ('no')")
                raise ZeroDivisionError

        with inbox.transaction():
            inbox.hold(A, "<m/>")
            with pytest.raises(ZeroDivisionError):
                fail()
            with inbox.attempt():
                inbox.database.execute("INSERT INTO mine VALUES ('yes')")
        assert inbox.find(A)[0] is State.HELD
        assert inbox.database.execute("SELECT what FROM mine").fetchall() == [("yes",)]


@pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK"])
def test_application_that_ends_the_transaction_raises(tmp_path: Path, how: str) -> None:
    with (
        Inbox.open(tmp_path / "in", JID) as inbox,
        pytest.raises(InboxError, match="ended the transaction"),
        inbox.transaction(),
        inbox.attempt(),
    ):
        inbox.database.execute(how)


def test_failed_transaction_is_rolled_back(inbox: Inbox) -> None:

    def fail() -> None:
        with inbox.transaction():
            inbox.hold(A, "<m/>")
            inbox.count(InboxCounter.REFUSED)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inbox.find(A)[0] is State.UNKNOWN
    assert set(inbox.counts().values()) == {0}


def test_disk_failure_raises_inbox_error(inbox: Inbox) -> None:
    inbox.database.execute("PRAGMA max_page_count=1")
    with pytest.raises(InboxError, match="full"), inbox.transaction():
        inbox.hold(A, "x" * 100_000)
    assert inbox.held() == (0, 0)


def test_closed_inbox_raises(tmp_path: Path) -> None:
    inbox = Inbox.open(tmp_path / "in", JID)
    inbox.close()
    for read in (inbox.counts, inbox.held):
        with pytest.raises(InboxError, match="closed"):
            read()
