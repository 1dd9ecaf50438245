from __future__ import annotations

import asyncio
from typing import Any

from edge.engine.dispatch.outputs import EndReason, Outputs
from edge.engine.store.database import Receipt, Send, SentMessage


class Recorder:
    def __init__(self) -> None:
        self.got: list[object] = []

    def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
        self.got.append((message, receipt))

    def end(self, reason: EndReason) -> None:
        self.got.append(reason)


def test_sends_and_ends_reach_the_receiver_of_their_generation_while_it_is_attached() -> None:
    outputs, first, second = Outputs(), Recorder(), Recorder()
    generations = [outputs.next_generation() for _ in range(3)]
    assert len({0, *generations}) == 4
    row = Receipt("outbox", 7)
    for generation, receiver in zip(generations, (first, second), strict=False):
        outputs.attach(generation, receiver)
    outputs.deliver(Send(generation, (b"a",), row) for generation in generations)
    outputs.end(generations[1], EndReason.SHUTDOWN)
    outputs.end(generations[2], EndReason.SHUTDOWN)
    outputs.detach(generations[0])
    outputs.detach(generations[0])
    outputs.deliver(Send(generation, (b"b",)) for generation in generations)
    assert first.got == [((b"a",), row)]
    assert second.got == [((b"a",), row), EndReason.SHUTDOWN, ((b"b",), None)]


async def test_a_receiver_that_fails_keeps_no_message_from_the_others() -> None:
    class Failing(Recorder):
        def deliver(self, message: SentMessage, receipt: Receipt | None) -> None:
            raise ValueError("out of order")

    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, report: reports.append(report))
    outputs, failing, other = Outputs(), Failing(), Recorder()
    outputs.attach(1, failing)
    outputs.attach(2, other)
    outputs.deliver([Send(1, (b"a",)), Send(2, (b"b",)), Send(1, (b"c",))])
    assert other.got == [((b"b",), None)]
    assert [type(report["exception"]) for report in reports] == [ValueError, ValueError]
