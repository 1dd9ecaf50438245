"""Messages that the event log sends, for each protocol to encode.

mypyc does not compile this module, because a compiled class no longer has the types of its fields,
by which `encoding.unpack` reads a stored message.
"""

from __future__ import annotations

from typing import NamedTuple

from edge.engine.store.events import NewEvent


class EventNotification(NamedTuple):
    """A notification of an event, for the account `to`; `time` is in ms since 1970 UTC."""

    to: str
    id: str
    event: NewEvent
    time: int
