"""Subscribe each session of a device to nodes, filters and shares."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from firmware_sim.device.errors import NoAnswer, RequestRefused
from firmware_sim.device.pubsub import Pubsub

_log = logging.getLogger(__name__)

_OPTIONS: Final = {"pubsub#expire": "presence"}  # the subscription ends with its session


class Subscriptions:
    """The subscriptions of a full JID to nodes, filters and shares (`$share:NAME:FILTER`)."""

    def __init__(self, jid: str, service: str, targets: Sequence[str]) -> None:
        self._jid, self._service, self._targets = jid, service, targets
        self._task: asyncio.Task[None] | None = None
        self._subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def prepare(self, client: Any) -> None:
        """Register a handler that subscribes when the session of a slixmpp client starts."""
        pubsub = Pubsub(client, self._service)

        def start(_event: object) -> None:
            self._task = asyncio.create_task(self._subscribe(pubsub))

        client.add_event_handler("session_start", start)

    async def subscribed(self) -> None:
        """Wait until a session has subscribed to all targets for the first time.

        Raises RequestRefused if the service refused a subscription.
        """
        await asyncio.shield(self._subscribed)

    def end(self) -> None:
        """Cancel the request in progress, and all tasks that wait in `subscribed`."""
        if self._task is not None:
            self._task.cancel()
        if self._subscribed.done():
            self._subscribed.exception()  # it is not reported if nobody waited
        self._subscribed.cancel()

    async def _subscribe(self, pubsub: Pubsub) -> None:
        try:
            for target in self._targets:
                await pubsub.subscribe(target, self._jid, _OPTIONS)
        except NoAnswer:
            return  # the next session repeats it
        except RequestRefused as error:
            if not self._subscribed.done():
                self._subscribed.set_exception(error)
            else:
                _log.warning("the service refused a subscription: %s", error)
            return
        if not self._subscribed.done():
            self._subscribed.set_result(None)
