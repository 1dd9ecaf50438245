"""Lists of messages that arrive in any pieces, and bytes that are no such lists."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.server.link.batches import BUFFER_BYTES, MAX_BATCH, Batches
from edge.server.link.messages import (
    MAX_MESSAGES,
    Lost,
    Received,
    decode_from_front,
    encode,
)

KIB = 1024


class Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self.batches = batches
        self.written: list[bytes] = []
        self.is_aborted = False
        batches.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True


class Receiver:
    """The side that receives lists."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.sizes: list[int] = []
        self.faults: list[Exception | None] = []
        self.batches = Batches(self._take, lambda _is_paused: None, self.faults.append)
        self.transport = Transport(self.batches)

    def _take(self, data: memoryview) -> None:
        self.sizes.append(len(data))
        self.received += decode_from_front(data)

    def feed(self, data: bytes, cuts: list[int]) -> None:
        """Receive bytes as a socket does: at most `cuts` at a time."""
        view, number = memoryview(data), 0
        while view and not self.transport.is_aborted:
            buffer = self.batches.get_buffer(-1)
            assert BUFFER_BYTES - 4 <= len(buffer) + self.batches._filled <= MAX_BATCH + 4
            size = min(len(buffer), len(view), cuts[number % len(cuts)])
            assert size > 0
            buffer[:size] = view[:size]
            view = view[size:]
            self.batches.buffer_updated(size)
            number += 1


async def sent(lists: list[list[Any]]) -> list[bytes]:
    """Send lists of messages, each in one turn of the event loop; return what is written."""
    sender = Batches(lambda _data: None, lambda _is_paused: None, lambda _error: None)
    transport = Transport(sender)
    for messages in lists:
        for message in messages:
            sender.send(message)
        await asyncio.sleep(0)
    return transport.written


SIZES = st.sampled_from([0, 1, 300, 64 * KIB, 260 * KIB, 3000 * KIB])
LISTS = st.lists(st.lists(SIZES, max_size=5), max_size=4)
CUTS = st.lists(st.sampled_from([1, 3, 4, 5, 1000, 256 * KIB, 1 << 20]), min_size=1, max_size=6)


@given(LISTS, CUTS)
def test_messages_arrive_in_order_whatever_the_pieces(
    lists: list[list[int]], cuts: list[int]
) -> None:
    numbers = iter(range(1000))
    messages = [
        [Received(next(numbers), bytes(size), size, False, 0) for size in sizes] for sizes in lists
    ]

    async def run() -> Receiver:
        receiver = Receiver()
        receiver.feed(b"".join(await sent(messages)), [*cuts, 256 * KIB])
        return receiver

    receiver = asyncio.run(run())
    assert receiver.received == [message for each in messages for message in each]
    assert max(receiver.sizes, default=0) <= MAX_BATCH
    assert len(receiver.sizes) >= sum(map(bool, messages))


def test_a_list_has_few_messages() -> None:
    messages = [Lost(number) for number in range(3 * MAX_MESSAGES)]

    async def run() -> Receiver:
        receiver = Receiver()
        receiver.feed(b"".join(await sent([messages])), [1 << 20])
        return receiver

    receiver = asyncio.run(run())
    assert receiver.received == messages
    with pytest.raises(msgspec.ValidationError):
        decode_from_front(encode(messages))


async def test_a_full_list_is_written_before_the_turn_ends() -> None:
    sender = Batches(lambda _data: None, lambda _is_paused: None, lambda _error: None)
    transport = Transport(sender)
    for number in range(MAX_MESSAGES + 1):
        sender.send(Lost(number))
    assert len(transport.written) == 1
    await asyncio.sleep(0)
    assert len(transport.written) == 2


@given(st.binary(min_size=4, max_size=200), CUTS)
def test_other_bytes_end_the_link_with_a_fault(garbage: bytes, cuts: list[int]) -> None:
    async def run() -> Receiver:
        receiver = Receiver()
        receiver.feed(garbage, cuts)
        if receiver.transport.is_aborted:
            receiver.batches.connection_lost(None)
        return receiver

    receiver = asyncio.run(run())
    announced = int.from_bytes(garbage[:4])
    if announced > MAX_BATCH:
        assert not receiver.sizes
        assert receiver.transport.is_aborted
    if receiver.transport.is_aborted:
        assert isinstance(receiver.faults[0], Exception)
    else:
        assert announced > len(garbage) - 4 or receiver.sizes
