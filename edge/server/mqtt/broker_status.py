"""Publish figures of the gateway to `$SYS/broker/...`, where monitors of mosquitto expect them, and
its status to `$fieldpost/status`.

The figures are read only while somebody subscribes to them, except for those of the load averages,
and nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec

from edge import content_types
from edge.engine.dispatch.outputs import EndReason
from edge.engine.sessions import durable_sessions
from edge.engine.store.database import Receipt, SentMessage, Transaction
from edge.errors import StoreError
from edge.features.pubsub.service import live_topics
from edge.features.pubsub.service.live_topics import Value
from edge.features.pubsub.store.subscriptions import Subscription
from edge.mqtt import PROTOCOL
from edge.ops.checks import health
from edge.ops.checks.health import Health
from edge.ops.gateway import status as gateway_status
from edge.ops.gateway.control import ProcessStatus
from edge.ops.gateway.status import Status, StoredStatus
from edge.server.mqtt.traffic import LoadAverages, Traffic
from edge.server.server_context import ServerContext

SYS: Final = "$SYS/broker/"

STATUS: Final = "$fieldpost/status"
"""The topic of the status: the JSON object that `fieldpost status --json` prints."""


class _State(NamedTuple):
    """Sources of the figures; `away` is the number of durable sessions without a connection."""

    status: Status
    stored: StoredStatus
    traffic: Traffic
    away: int

    @property
    def connected(self) -> int:
        """The number of connected sessions of MQTT, by all transports."""
        counts = self.status.protocols.items()
        return sum(count for name, count in counts if name.split()[0] == PROTOCOL)

    def used(self, limit: str) -> int:
        return self.stored.used[limit].value


_FIGURES: Final[dict[str, Callable[[_State], object]]] = {
    "version": lambda now: f"fieldpost {now.status.version}",
    "uptime": lambda now: f"{now.status.uptime or 0:.0f} seconds",
    "clients/connected": lambda now: now.connected,
    "clients/disconnected": lambda now: now.away,
    "clients/total": lambda now: now.connected + now.away,
    "clients/maximum": lambda now: now.traffic.most_sessions,
    "messages/received": lambda now: now.traffic.received,
    "messages/sent": lambda now: now.traffic.sent,
    "messages/stored": lambda now: (
        now.used("items") + now.stored.waiting.outbox + now.stored.waiting.queued
    ),
    "publish/messages/received": lambda now: now.traffic.publications_received,
    "publish/messages/sent": lambda now: now.traffic.publications_sent,
    "bytes/received": lambda now: now.traffic.bytes_received,
    "bytes/sent": lambda now: now.traffic.bytes_sent,
    "subscriptions/count": lambda now: now.used("subscriptions"),
    "retained messages/count": lambda now: now.used("items"),
}
"""The figures by the end of their topics."""

LOAD: Final = SYS + "load/"


class _Subscribed(NamedTuple):
    """Notice of a new subscription; with its number, if it gets the present figures."""

    subscription: int | None


class BrokerStatus:
    """Publishes the figures: at once to a new subscription, and to all every `[mqtt] sys_interval`.

    Args:
        traffic: the counts of all connections of MQTT.
        process_status: returns the state of the process.
        check_health: judges the gateway, except for the limits.

    Attributes:
        due: the event loop's time at which figures are published next; `None` while there are no
            subscriptions to them.
    """

    def __init__(
        self,
        context: ServerContext,
        traffic: Traffic,
        process_status: Callable[[], ProcessStatus],
        check_health: Callable[[], Awaitable[Health]],
    ) -> None:
        self._context = context
        self._traffic = traffic
        self._averages = LoadAverages(traffic, context.loop.time())
        self._topics = (
            *(SYS + name for name in _FIGURES),
            *(LOAD + name for name in self._averages.values),
            STATUS,
        )
        self._process_status = process_status
        self._check_health = check_health
        self.due: float | None = context.loop.time()  # durable subscriptions may be there already
        self._new: set[int] = set()
        self._has_new = asyncio.Event()
        self._generation = context.outputs.next_generation()
        context.outputs.attach(self._generation, self)
        context.engine.hooks.on(live_topics.SUBSCRIBED, self._on_subscribed)

    def _on_subscribed(
        self, tx: Transaction, subscription: Subscription, wants_values: bool
    ) -> None:
        tx.send(self._generation, _Subscribed(subscription.id if wants_values else None))

    def deliver(self, message: SentMessage, _receipt: Receipt | None) -> None:
        """Note a new subscription, after the commit."""
        if isinstance(message, _Subscribed):
            if message.subscription is not None:
                self._new.add(message.subscription)
            self._has_new.set()

    def end(self, _reason: EndReason) -> None:
        """Do nothing: there is no session that could end."""

    async def run(self) -> None:
        """Publish until the task is cancelled."""
        averaging = asyncio.create_task(self._average())
        try:
            await self._publish_all()
        finally:
            averaging.cancel()

    async def _average(self) -> None:
        """Keep the load averages, also while nobody subscribes to them."""
        while True:
            await asyncio.sleep(self._context.settings.mqtt.sys_interval)
            self._averages.update(self._context.loop.time())

    async def _publish_all(self) -> None:
        loop, interval = asyncio.get_running_loop(), self._context.settings.mqtt.sys_interval
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self.due):
                    await self._has_new.wait()
            self._has_new.clear()
            new, self._new = self._new, set()
            if not new and self.due is not None and loop.time() < self.due:
                continue
            try:
                has_subscriptions = await self._publish(new or None)
            except StoreError:  # such as a busy store: the next figures come later
                has_subscriptions = True
            if not has_subscriptions:
                self.due = None
            elif not new or self.due is None:
                self.due = loop.time() + interval

    async def _publish(self, only: Collection[int] | None) -> bool:
        """Publish the figures; return whether there are subscriptions to them."""
        context = self._context
        store = context.store
        topics = await store.run(partial(live_topics.find_subscribed, names=self._topics))
        if topics:
            values = await self._read(topics)
            await store.run(lambda tx: live_topics.publish(context.engine, tx, values, only))
        return bool(topics)

    async def _read(self, topics: Collection[str]) -> dict[str, Value]:
        context = self._context
        stored, away = await context.store.read(_read_stored)
        status = gateway_status.combine(context.settings, stored, self._process_status())
        state = _State(status, stored, self._traffic, away)
        values = {
            SYS + name: Value(str(figure(state)).encode())
            for name, figure in _FIGURES.items()
            if SYS + name in topics
        }
        for name, average in self._averages.values.items():
            if LOAD + name in topics:
                values[LOAD + name] = Value(f"{average:.2f}".encode())
        if STATUS in topics:
            judged = health.with_limits(await self._check_health(), status)
            payload = msgspec.json.encode(health.status_object(status, judged))
            values[STATUS] = Value(payload, content_types.JSON)
        return values


def _read_stored(tx: Transaction) -> tuple[StoredStatus, int]:
    return gateway_status.read_stored(tx), durable_sessions.count_away(tx)
