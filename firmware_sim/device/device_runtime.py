"""The parts of a running device: its files, and the loops that send and receive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import OutboxLimits, Policy
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.received import Receiving
from firmware_sim.device.receiver_loop import Porter
from firmware_sim.device.sender_loop import Courier, Moment


class Desk:
    """The outbox with its sender loop and, if the device receives, the inbox with its receiver
    loop."""

    def __init__(self, outbox: Outbox, courier: Courier) -> None:
        self.outbox = outbox
        self.courier = courier
        self.inbox: Inbox | None = None
        self.porter: Porter | None = None

    @classmethod
    def open(
        cls,
        jid: str,
        path: Path,
        limits: OutboxLimits,
        policy: Policy,
        observe: Callable[[Moment, int], None],
    ) -> Self:
        """Open a device's outbox; the arguments are those of `Device`.

        Raises:
            OutboxError: the outbox cannot be opened.
        """
        outbox = Outbox.open(path, jid, limits)
        return cls(outbox, Courier(outbox, policy, observe))

    def receive(self, jid: str, receiving: Receiving) -> None:
        """Open the inbox. If its disk fails later, sending stops too.

        Raises:
            InboxError: the inbox cannot be opened; the outbox is closed again.
        """
        try:
            path = Path(receiving.path)
            self.inbox = Inbox.open(path, jid, receiving.limits, receiving.schema)
        except BaseException:
            self.courier.stop()
            self.close()
            raise
        self.porter = Porter(self.inbox, receiving, self.courier.stop)

    def stop(self) -> None:
        """Stop both loops; pending calls raise `DeviceStopped`."""
        if self.porter is not None:
            self.porter.stop()
        self.courier.stop()

    def close(self) -> None:
        """Close the files."""
        self.outbox.close()
        if self.inbox is not None:
            self.inbox.close()
