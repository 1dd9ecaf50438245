from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware_sim.device.errors import MessageRefused, OutboxError, OutboxFull
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import Level, Message, State

JID = "pump1@gw.example/fw"


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox.open(tmp_path / "box", JID) as opened:
        yield opened


def add(outbox: Outbox, *bodies: str) -> list[Message]:
    with outbox.transaction():
        return [outbox.add("gw.example", Level.ASSURED, body) for body in bodies]


def end(outbox: Outbox, message: Message, state: State, reason: str = "") -> None:
    with outbox.transaction():
        outbox.save(
            message.state, Message(message.number, message.level, message.size, state), reason
        )


def test_stored_messages_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "box"
    with Outbox.open(path, JID) as outbox:
        first, second = add(outbox, "<a/>", "<bb/>")
        identity = outbox.id
        with outbox.transaction():
            outbox.save(State.QUEUED, Message(1, Level.ASSURED, 4, State.OFFERED, 2, 1))
    with Outbox.open(path, JID) as outbox:
        assert outbox.id == identity
        assert outbox.in_flight() == [Message(1, Level.ASSURED, 4, State.OFFERED, 2, 1)]
        assert outbox.queued(0, 10) == [second]
        assert outbox.queued(2, 10) == []
        assert outbox.envelope(first.number) == ("gw.example", "<a/>")
        assert (outbox.live, outbox.live_bytes) == (2, 9)


def test_outboxes_have_distinct_message_ids(tmp_path: Path) -> None:
    with Outbox.open(tmp_path / "a", JID) as one, Outbox.open(tmp_path / "b", JID) as other:
        assert one.id != other.id


def test_outbox_limits_messages_and_bytes(tmp_path: Path) -> None:
    limits = OutboxLimits(messages=2, bytes=10, message_bytes=8)
    with Outbox.open(tmp_path / "box", JID, limits) as outbox:
        with pytest.raises(MessageRefused, match="9 bytes; the limit is 8"):
            add(outbox, "123456789")
        (first,) = add(outbox, "1234567")
        with pytest.raises(OutboxFull, match="10 bytes"):
            add(outbox, "1234")
        add(outbox, "123")
        with pytest.raises(OutboxFull, match="2 messages"):
            add(outbox, "")
        end(outbox, first, State.DONE)
        assert outbox.live_bytes == 3
        add(outbox, "1")


def test_limit_counts_messages_about_to_be_added(tmp_path: Path) -> None:
    with Outbox.open(tmp_path / "box", JID, OutboxLimits(messages=2, bytes=10)) as outbox:
        outbox.check(1, "", more=1)
        with pytest.raises(OutboxFull):
            outbox.check(1, "", more=2)
        with pytest.raises(OutboxFull):
            outbox.check(1, "", more_bytes=10)
        with pytest.raises(MessageRefused, match="label"):
            outbox.check(1, "x" * 257)


def test_error_rolls_back_the_transaction(tmp_path: Path) -> None:
    with Outbox.open(tmp_path / "box", JID, OutboxLimits(messages=2)) as outbox:
        with pytest.raises(OutboxFull):
            add(outbox, "1", "2", "3")
        assert (outbox.live, outbox.live_bytes) == (0, 0)
        assert outbox.queued(0, 10) == []
        assert [message.number for message in add(outbox, "1")] == [1]


def test_disk_failure_raises_outbox_error(outbox: Outbox) -> None:
    outbox._db.execute("PRAGMA max_page_count=8")
    with pytest.raises(OutboxError, match="full"):
        add(outbox, *["x" * 4000] * 50)
    assert outbox.live == 0


def test_old_ended_messages_are_only_counted(tmp_path: Path) -> None:
    path = tmp_path / "box"
    limits = OutboxLimits(keep_done=2, keep_failed=1)
    with Outbox.open(path, JID, limits) as outbox:
        messages = add(outbox, *[f"<m{n}/>" for n in range(6)])
        for message in messages[:4]:
            end(outbox, message, State.DONE)
        for message in messages[4:]:
            end(outbox, message, State.IN_DOUBT, "cancel/item-not-found")
    with Outbox.open(path, JID, limits) as outbox:
        counts = outbox.counts()
        assert (counts[State.DONE], counts[State.IN_DOUBT]) == (4, 2)
        assert [record.number for record in outbox.records(State.DONE)] == [3, 4]
        (doubtful,) = outbox.records(State.IN_DOUBT)
        assert (doubtful.number, doubtful.reason) == (6, "cancel/item-not-found")
        assert doubtful.ended_ms is not None
        assert outbox.envelope(6).body == "<m5/>"
        assert outbox.envelope(3).body is None
        assert outbox.live == 0


def test_records_span_several_pages(outbox: Outbox) -> None:
    add(outbox, *["<m/>"] * 300)
    assert [record.number for record in outbox.records(State.QUEUED)] == list(range(1, 301))
