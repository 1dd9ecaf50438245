from __future__ import annotations

from edge.engine.database import Receipt, Send, SentMessage
from edge.engine.outputs import EndReason, Outputs


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
