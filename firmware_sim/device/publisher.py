"""A publisher of items by iq (XEP-0060, 7.1), who repeats until the service has taken each.

    async with Publisher("p1@gw.example/p", password, ca_file=...) as publisher:
        tries = await publisher.publish("jobs", "job-17", payload)

An iq has no memory: what was not answered may have been published, and is published again, under
the same id. A queue may have had it done meanwhile; then it is done twice. `tries` says so. Who
must publish exactly once sends an assured message to the node's address (`device`).

It keeps nothing: what was not taken when it stops is the caller's to repeat.
"""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from slixmpp.jid import JID

from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.errors import RequestRefused, Unanswered
from firmware_sim.device.limits import Reconnect
from firmware_sim.device.pubsub import Pubsub
from firmware_sim.device.sessions import Sessions

_RECONNECT: Final = Reconnect()
_FULL: Final = "resource-constraint"
_THERE: Final = "conflict"
_FULL_S: Final = 0.5  # seconds until a full queue is tried again


class Publisher:
    """A publisher, from `start` to `close`, or in a `with`; its arguments are those of `Worker`."""

    def __init__(
        self,
        jid: str,
        password: str,
        *,
        ca_file: Path | str,
        host: str = "",
        port: int = 5222,
        service: str = "",
        reconnect: Reconnect = _RECONNECT,
    ) -> None:
        parsed = JID(jid)
        self._service = service or f"pubsub.{parsed.domain}"
        dial = host or str(parsed.domain)
        endpoint = Endpoint(str(parsed), password, dial, port, Path(ca_file))
        self._sessions = Sessions(endpoint, self._prepare, self._hold, reconnect)
        self._pubsub: Pubsub | None = None
        self._there = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to connect."""
        self._sessions.start()

    async def close(self) -> None:
        """Stop in order."""
        await self._sessions.close()

    async def publish(
        self, node: str, item: str, payload: ET.Element, options: Mapping[str, str] | None = None
    ) -> int:
        """Publish an item, as often as it takes until the service answers that it has it.

        Args:
            node: its name.
            item: the item's id.
            payload: its content.
            options: of the publication (XEP-0060, 7.1.5), such as `pubsub#queue_priority`.

        Returns:
            How often it may have been published: 1 if nothing was left without an answer.

        Raises:
            RequestRefused: the service will not have it.
        """
        tries = 0
        while True:
            pubsub = await self.service()
            try:
                await pubsub.publish(node, item, payload, options)
            except Unanswered:
                tries += 1
            except RequestRefused as refused:
                if refused.condition == _THERE and tries:
                    return tries  # it is being worked on
                if refused.condition != _FULL:
                    raise
                await asyncio.sleep(_FULL_S)
            else:
                return tries + 1

    async def service(self) -> Pubsub:
        """Give the service, in the session that there is, or the next one."""
        await self._there.wait()
        assert self._pubsub is not None  # noqa: S101 - there is a session
        return self._pubsub

    @property
    def last_error(self) -> str:
        """Why it last failed to connect, or lost its session."""
        return self._sessions.last_error

    def _prepare(self, client: Any) -> None:
        self._pubsub = Pubsub(client, self._service)

    async def _hold(self, connection: Connection) -> None:
        pubsub = self._pubsub
        assert pubsub is not None  # noqa: S101 - `_prepare` made it
        self._there.set()
        try:
            await asyncio.shield(connection.lost)
        finally:
            self._there.clear()
            pubsub.end()
