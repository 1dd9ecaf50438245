"""A plain message as a micro benchmark: parsed, routed, sent to a session, and acknowledged there.

Pairs of devices send at the same time, and the changes of `GROUP` messages are written together, as
those of a group of units are. If the senders have stream management, the messages are stored until
their recipients have acknowledged them.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from benchmarks import commands
from benchmarks.relay_steps import GROUP, PAIRS, SENDER, Device
from edge.engine.dispatch.encoding import encode
from edge.engine.sessions.session_lifecycle import SessionLifecycle
from edge.engine.store.database import Send, Transaction
from edge.routing.xmpp.router import Router
from edge.xmpp import PROTOCOL

_MESSAGE: Final = (
    b"<message type='chat' id='m%d' to='%b'><body>The valve is open; the pump stops in 30 s."
    b"</body></message>"
)


class PlainMessages:
    """Pairs of devices, of which one sends to the account of the other.

    Args:
        acknowledged: whether the senders have stream management.
    """

    def __init__(self, tx: Transaction, router: Router, *, acknowledged: bool) -> None:
        self._acknowledged = acknowledged
        self._context = router.context
        self._lifecycle = SessionLifecycle(router.context)
        self._numbers = count()
        self._sent: list[Send] = []
        self._senders = []
        self._recipients = []
        for number in range(PAIRS):
            sender = Device(router, f"sender{number}", SENDER + number)
            recipient = Device(router, f"recipient{number}", SENDER + PAIRS + number)
            for device in (sender, recipient):
                device.bind(tx)
            recipient.do(tx, commands.PRESENCE)
            self._senders.append(sender)
            self._recipients.append(recipient.bare.encode())
        tx.take_sends()

    def send(self, tx: Transaction) -> int:
        """Send one message; after `GROUP` of them, acknowledge them. Return the bytes sent."""
        number = next(self._numbers)
        pair = number % PAIRS
        message = _MESSAGE % (number, self._recipients[pair])
        if self._senders[pair].process(tx, message, acknowledged=self._acknowledged):
            raise RuntimeError("the gateway refused a message")
        sends = tx.take_sends()
        self._sent += sends
        if number % GROUP == GROUP - 1:
            self._acknowledge(tx)
        return sum(len(encode(self._context, PROTOCOL, send.message)) for send in sends)

    def _acknowledge(self, tx: Transaction) -> None:
        tx.run_before_commit()
        for send in self._sent:
            if send.receipt is not None:
                self._lifecycle.acknowledge(tx, send.generation, [send.receipt])
        self._sent.clear()
        tx.run_before_commit()
