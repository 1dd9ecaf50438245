"""The sealer: due lanes, the chain of digests, an unavailable store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from sync.segment import Dropped, Event, SegmentHeader, decode
from sync.uplink.batcher import BatchLimits
from sync.uplink.interfaces import BacklogUnavailable, Draft
from sync.uplink.sealer import Sealer
from sync.uplink.wakeup import Wakeup
from tests.helpers.backlog import FixedState, Notices, SqliteBacklog
from tests.helpers.manual_time import ManualTime, Sleep, in_background
from tests.helpers.segments import START, logs, readings

SPACING = 0.25
BAD = [event._replace(qos=9) for event in logs(10)]


class SealerSetup:
    """A sealer with its backlog, clock and notices."""

    def __init__(self, backlog: SqliteBacklog, limits: BatchLimits, firmware: str) -> None:
        self.backlog = backlog
        self.now = 0.0
        self.time = ManualTime()
        self.notices = Notices(backlog)
        self.sealed = 0
        self.sealer = Sealer(
            backlog.gateway,
            backlog,
            FixedState(firmware),
            limits,
            clock=lambda: self.now,
            on_sealed=self.count,
            send_notice=self.notices.record,
            wakeup=Wakeup(self.time.sleep),
        )

    def count(self) -> None:
        self.sealed += 1

    async def wait(self) -> Sleep:
        """Pass the pause between two checks; return the wait that follows."""
        sleep = await self.time.next_sleep()
        assert sleep.seconds == SPACING
        sleep.end()
        return await self.time.next_sleep()

    def headers(self) -> list[SegmentHeader]:
        return [decode(data).header for data in self.backlog.data()]

    def ranges(self) -> list[tuple[str, int, int]]:
        return [(head.lane, head.first_seq, head.last_seq) for head in self.headers()]


@pytest.fixture
def backlog() -> Iterator[SqliteBacklog]:
    backlog = SqliteBacklog()
    yield backlog
    backlog.close()


@contextlib.asynccontextmanager
async def running(
    backlog: SqliteBacklog, limits: BatchLimits | None = None, firmware: str = "Linux 6.6"
) -> AsyncIterator[SealerSetup]:
    usual = BatchLimits(events=10, seconds=60, bytes=100_000)
    setup = SealerSetup(backlog, limits or usual, firmware)
    async with in_background(setup.sealer.run()):
        yield setup


async def test_full_lane_is_sealed_and_the_rest_waits(backlog: SqliteBacklog) -> None:
    backlog.write("readings", readings(25), since=-20.0)
    backlog.write("logs", logs(3), since=-30.0)
    async with running(backlog) as setup:
        assert (await setup.wait()).seconds == 30
        assert setup.ranges() == [("readings", 1, 10), ("readings", 11, 20)]
        assert (setup.sealed, backlog.unsealed()) == (2, 8)
        assert setup.notices.all == []


async def test_lane_is_sealed_by_age(backlog: SqliteBacklog) -> None:
    backlog.write("logs", logs(3), since=10.0)
    async with running(backlog) as setup:
        setup.now = 20.0
        sleep = await setup.wait()
        assert sleep.seconds == 50
        setup.now += sleep.seconds
        sleep.end()
        await backlog.wait_for_states([(1, "waiting")])
        assert setup.ranges() == [("logs", 1, 3)]


async def test_urgent_events_are_sealed_early_if_idle(backlog: SqliteBacklog) -> None:
    backlog.write("logs", logs(10))
    backlog.write("readings", readings(3))
    backlog.urgent["readings"] = -5.0
    async with running(backlog) as setup:
        sleep = await setup.wait()
        assert sleep.seconds == 5
        setup.now = 5.0
        sleep.end()
        sleep = await setup.wait()
        assert sleep.seconds == 10, "the logs wait to be sent"
        assert setup.ranges() == [("logs", 1, 10)]
        waiting = await backlog.next_waiting()
        assert waiting is not None
        await backlog.acknowledge(waiting.digest)
        setup.now = 15.0
        sleep.end()
        assert (await setup.wait()).seconds == 60
        assert setup.ranges() == [("logs", 1, 10), ("readings", 1, 3)]


async def test_wakeup_causes_a_check(backlog: SqliteBacklog) -> None:
    async with running(backlog) as setup:
        assert (await setup.wait()).seconds == 60
        backlog.write("logs", logs(10))
        setup.sealer.wake()
        await backlog.wait_for_states([(1, "waiting")])


async def test_headers_have_the_chain_and_the_gateway_state(backlog: SqliteBacklog) -> None:
    backlog.dropped = (Dropped(1, 4, "backlog-full"),)
    events = logs(25)
    backlog.write("logs", events)
    async with running(backlog, firmware="x" * 500) as setup:
        assert (await setup.wait()).seconds == 60
        assert await setup.sealer.flush() == 1
        heads = setup.headers()
        segments = [decode(data) for data in backlog.data()]
        digests = [segment.digest for segment in segments]
        assert [head.previous for head in heads] == [bytes(32), *digests[:-1]]
        assert [event for segment in segments for event in segment.events] == events
        for head in heads:
            assert head.gateway == backlog.gateway
            assert (head.boot, head.sealed_at, head.service_seconds) == ("boot-1", START, 1.5)
            assert (head.clock, head.software, head.disk_used) == (True, "0.1.0", 4_096)
            assert head.firmware == "x" * 128
            assert head.dropped == backlog.dropped


async def test_lane_is_sealed_by_size(backlog: SqliteBacklog) -> None:
    backlog.write("logs", [event._replace(text="x" * 1_000) for event in logs(9)])
    async with running(backlog, BatchLimits(events=100, seconds=60, bytes=5_000)) as setup:
        await setup.wait()
        assert setup.ranges()[0] == ("logs", 1, 4)
        assert backlog.unsealed() < 5


async def test_unencodable_event_blocks_its_own_lane_only(backlog: SqliteBacklog) -> None:
    backlog.write("logs", BAD)
    backlog.write("readings", readings(10))
    async with running(backlog) as setup:
        sleep = await setup.wait()
        assert setup.ranges() == [("readings", 1, 10)]
        assert setup.notices.names() == ["lane-stuck"]
        assert "the lane logs cannot be sealed: a quality of service" in setup.notices.all[0].text
        assert sleep.seconds == 60
        setup.now += 60
        sleep.end()
        sleep = await setup.wait()
        assert setup.notices.names() == ["lane-stuck"]
        assert backlog.unsealed() == 10
        backlog.write("system", [Event(1, START, True, "system")], since=setup.now)
        setup.now += 59
        sleep.end()
        assert (await setup.wait()).seconds == 1


async def test_blocked_lane_that_became_empty_is_skipped(backlog: SqliteBacklog) -> None:
    backlog.write("logs", BAD)
    async with running(backlog) as setup:
        sleep = await setup.wait()
        backlog.clear()
        setup.now += sleep.seconds + 1
        sleep.end()
        assert (await setup.wait()).seconds == 60


async def test_blocked_lane_continues_and_is_reported_again(backlog: SqliteBacklog) -> None:
    backlog.dropped = (Dropped(2, 1, "wrong"),)
    backlog.write("logs", logs(10))
    async with running(backlog) as setup:
        sleep = await setup.wait()
        backlog.dropped = ()
        setup.now += sleep.seconds
        sleep.end()
        await backlog.wait_for_states([(1, "waiting")])
        sleep = await setup.wait()
        assert sleep.seconds == 60
        backlog.write("logs", BAD)
        sleep.end()
        await setup.wait()
        assert setup.notices.names() == ["lane-stuck"] * 2


async def test_unavailable_store_is_reported_once_and_retried(backlog: SqliteBacklog) -> None:
    backlog.write("logs", logs(10))
    backlog.full = True
    async with running(backlog) as setup:
        for _ in range(3):
            sleep = await setup.wait()
            assert sleep.seconds == 5
            sleep.end()
        with pytest.raises(BacklogUnavailable):
            await setup.sealer.flush()
        sleep = await setup.wait()
        assert setup.notices.all == []
        backlog.full = False
        sleep.end()
        await backlog.wait_for_states([(1, "waiting")])
        await setup.wait()
        assert setup.notices.names() == ["store-unavailable"]
        assert setup.notices.all[0].text == "the disk is full"
        backlog.full = True
        setup.sealer.wake()
        sleep = await setup.wait()
        backlog.full = False
        sleep.end()
        await setup.wait()
        assert setup.notices.names() == ["store-unavailable"] * 2


class MovingBacklog(SqliteBacklog):
    """A backlog in which another process seals between draft and seal."""

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        draft = await super().draft(lane, max_events, max_bytes)
        return draft and draft._replace(previous=b"\x01" * 32)


async def test_refused_draft_is_retried() -> None:
    backlog = MovingBacklog()
    backlog.write("logs", logs(10))
    async with running(backlog) as setup:
        assert (await setup.wait()).seconds == 0
        assert (setup.sealed, backlog.unsealed(), setup.notices.all) == (0, 10, [])
    backlog.close()


class OvertakenBacklog(SqliteBacklog):
    """A backlog whose lane becomes empty before the draft."""

    async def draft(self, lane: str, max_events: int, max_bytes: int) -> Draft | None:
        return None


async def test_empty_draft_seals_nothing() -> None:
    backlog = OvertakenBacklog()
    backlog.write("logs", logs(10))
    async with running(backlog) as setup:
        await setup.wait()
        assert await setup.sealer.flush() == 0
        assert backlog.data() == []
    backlog.close()


async def test_flush_seals_every_lane(backlog: SqliteBacklog) -> None:
    backlog.write("readings", readings(15))
    backlog.write("logs", logs(1))
    setup = SealerSetup(backlog, BatchLimits(events=10), "f")
    assert await setup.sealer.flush() == 3
    assert setup.ranges() == [("readings", 1, 10), ("readings", 11, 15), ("logs", 1, 1)]
    assert backlog.unsealed() == 0
    assert await setup.sealer.flush() == 0
    assert setup.sealed == 3


async def test_sealer_stops_promptly(backlog: SqliteBacklog) -> None:
    async with running(backlog) as setup:
        await setup.time.next_sleep()
    async with running(backlog) as setup:
        await setup.wait()
    assert asyncio.all_tasks() == {asyncio.current_task()}
