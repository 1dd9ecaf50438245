"""A publisher that sends items by iq (XEP-0060, 7.1) and repeats each until the service accepts it.

    async with Publisher("p1@gw.example/p", password, ca_file=...) as publisher:
        tries = await publisher.publish("jobs", "job-17", payload)

If a request gets no answer, it is repeated with the same item id. If the first request had arrived,
and a worker has already deleted the item, the item is worked on twice; `tries` above 1 shows that
this is possible. To publish exactly once, send an assured message to the node's address (see
`device`). The publisher stores nothing: after a restart, the caller must repeat publications that
were not accepted.
"""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from slixmpp.jid import JID

from firmware_sim.device.connection import endpoint
from firmware_sim.device.errors import NoAnswer, RequestRefused
from firmware_sim.device.limits import ReconnectPolicy
from firmware_sim.device.pubsub import Pubsub
from firmware_sim.device.sessions import PubsubClient

_RECONNECT: Final = ReconnectPolicy()
_FULL: Final = "resource-constraint"
_EXISTS: Final = "conflict"
_RETRY_S: Final = 0.5  # seconds between attempts while the queue is full


class Publisher(PubsubClient):
    """A publisher of items, for an `async with` block. Arguments are as for `Worker`."""

    def __init__(
        self,
        jid: str,
        password: str = "",
        *,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        ca_file: Path | str,
        host: str = "",
        port: int = 5222,
        direct_tls: bool = False,
        service: str = "",
        reconnect: ReconnectPolicy = _RECONNECT,
    ) -> None:
        parsed = JID(jid)
        place = endpoint(parsed, password, certificate, key, host, port, ca_file, direct_tls)
        super().__init__(parsed, place, service, reconnect)
        self._connected = asyncio.Event()
        self.last_wait = ""
        """The text of the error if the queue is full and the item is published again, else ""."""

    async def __aenter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Begin to connect, without waiting for a session."""
        self._begin_to_connect()

    async def close(self) -> None:
        """Close the session and stop connecting."""
        await self._disconnect(orderly=True)

    async def publish(
        self, node: str, item: str, payload: ET.Element, options: Mapping[str, str] | None = None
    ) -> int:
        """Publish an item; repeat the request until it is answered and the queue is not full.

        `options` are publish options (XEP-0060, 7.1.5), such as `pubsub#queue_priority`. Returns
        the maximum number of times that the item was published: 1 if all answers arrived. Raises
        RequestRefused if the service refused the item, but not because of a full queue.
        """
        tries = 0
        while True:
            pubsub = await self.service()
            try:
                await pubsub.publish(node, item, payload, options)
            except NoAnswer:
                tries += 1
            except RequestRefused as refused:
                if refused.condition == _EXISTS and tries:
                    return tries  # an earlier attempt arrived, and a worker has the item
                if refused.condition != _FULL:
                    raise
                self.last_wait = f"wait/{refused}"
                self._notify_changed()
                await asyncio.sleep(_RETRY_S)
            else:
                self.last_wait = ""
                return tries + 1

    async def service(self) -> Pubsub:
        """Wait for a session; return its client of the publish-subscribe service."""
        await self._connected.wait()
        assert self._pubsub is not None  # noqa: S101 - there is a session
        return self._pubsub

    async def _run_session(self, _pubsub: Pubsub) -> None:
        self._connected.set()
        try:
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            self._connected.clear()
