"""The parts of a running device: its files, and the loops that send and receive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import OutboxLimits, SendPolicy
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.receive_options import ReceiveOptions
from firmware_sim.device.receiver_loop import ReceiverLoop
from firmware_sim.device.sender_loop import Progress, SenderLoop


class Runtime:
    """The outbox with its sender loop and, if the device receives, the inbox with its receiver
    loop."""

    def __init__(self, outbox: Outbox, sender: SenderLoop) -> None:
        self.outbox = outbox
        self.sender = sender
        self.inbox: Inbox | None = None
        self.receiver: ReceiverLoop | None = None

    @classmethod
    def open(
        cls,
        jid: str,
        path: Path,
        limits: OutboxLimits,
        policy: SendPolicy,
        observe: Callable[[Progress, int], None],
    ) -> Self:
        """Open a device's outbox; the arguments are those of `Device`.

        Raises:
            OutboxError: the outbox cannot be opened.
        """
        outbox = Outbox.open(path, jid, limits)
        return cls(outbox, SenderLoop(outbox, policy, observe))

    def receive(self, jid: str, receiving: ReceiveOptions) -> None:
        """Open the inbox. If its disk fails later, sending stops too.

        Raises:
            InboxError: the inbox cannot be opened; the outbox is closed again.
        """
        try:
            path = Path(receiving.path)
            self.inbox = Inbox.open(path, jid, receiving.limits, receiving.schema)
        except BaseException:
            self.sender.stop()
            self.close()
            raise
        self.receiver = ReceiverLoop(self.inbox, receiving, self.sender.stop)

    def stop(self) -> None:
        """Stop both loops; pending calls raise `DeviceStopped`."""
        if self.receiver is not None:
            self.receiver.stop()
        self.sender.stop()

    def close(self) -> None:
        """Close the files."""
        self.outbox.close()
        if self.inbox is not None:
            self.inbox.close()
