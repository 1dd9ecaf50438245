"""`kill -9` of the gateway and of MQTT clients between their steps: exactly once at QoS 2.

A publisher and subscribers with durable sessions are processes that keep their state on disk
(`tests.helpers.mqtt_peer`). In each round one of them, the gateway or one of its front processes is
killed after a number of its steps, and the other clients at whatever they do then. The subscribers
have a topic each, or share it with each other and with a worker by XMPP.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

import pytest

from edge.mqtt.packets import V5, V311
from tests.helpers.gateway import NO_RATE_LIMITS, Gateway, bind_session, kills
from tests.helpers.live_workers import QOS, Worker
from tests.helpers.mqtt_peer import TOPIC, Arguments, State, connect
from tests.helpers.processes import Process, wait_all_ended
from tests.helpers.xmpp import Closed

PUBLISHER: Final = "pump"
MEMBERS: Final = ("ant", "bee")
MOST_STEPS: Final = 50
EACH: Final = 25
"""Messages of a round, at least: the publisher is not done before `MOST_STEPS` steps."""

WAIT_S: Final = 300.0

CLIENT: Final = "client"


class Site:
    """A gateway and its clients, of which some are processes.

    Attributes:
        filters: the filter of each subscriber.
    """

    def __init__(self, folder: Path, version: int, fronts: int, **filters: str) -> None:
        self.folder = folder
        self.version = version
        self.filters = filters
        names = (PUBLISHER, *filters, "worker")
        self.gateway = Gateway(
            folder / "gateway",
            *names,
            processes=fronts,
            require_tls=False,
            auto_create=["#"],
            **NO_RATE_LIMITS,
        )
        self.gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
        self.process = self.gateway.run()
        self.sent = 0

    async def subscribe(self) -> None:
        """Begin the sessions of all clients."""
        for name in (PUBLISHER, *self.filters):
            address = self.process.host_port("mqtt")
            async with await connect(address, name, self.version) as client:
                if name in self.filters:
                    assert await client.subscribe(self.filters[name], qos=2) == (2,)

    def start(self, name: str, victim: int = 0, steps: int | None = None) -> Process:
        messages = self.sent if name == PUBLISHER else None
        address, folder = self.process.host_port("mqtt"), str(self.folder)
        return Arguments(address, folder, name, self.version, messages, victim, steps).start()

    async def run_round(self, chance: random.Random, killers: Sequence[str], what: str) -> None:
        """Let all send and receive until one of `killers` kills itself or processes of the gateway,
        after a number of its own steps."""
        self.sent = max(State(self.folder, PUBLISHER).numbers("sent"), default=-1) + 1 + EACH
        clients = (PUBLISHER, *self.filters)
        killer, kills_client = chance.choice(killers), what == CLIENT
        victim = 0 if kills_client else self.gateway.victim(self.process, what, chance)
        steps = chance.randrange(MOST_STEPS)
        running = {name: self.start(name) for name in clients if name != killer}
        running[killer] = self.start(killer, victim, steps)
        if kills_client:
            assert await asyncio.to_thread(running[killer].wait) == -9, running[killer].stderr
        elif abs(victim) == self.process.pid:
            assert await asyncio.to_thread(self.process.wait) == -9, running[killer].stderr
            self.process = self.gateway.run()
        else:
            await asyncio.to_thread(wait_all_ended, [victim])
        for process in running.values():
            assert not kills_client or process.returncode in (None, 0, -9), process.stderr
            process.close()

    async def finish(self, received: Callable[[], list[int]]) -> None:
        """Let all finish what they have begun."""
        running = [self.start(name) for name in (*self.filters, PUBLISHER)]
        assert await asyncio.to_thread(running[-1].wait) == 0, running[-1].stderr
        async with asyncio.timeout(WAIT_S):
            while len(received()) < self.sent:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        for process in running:
            process.close()

    def received(self, name: str) -> list[int]:
        return State(self.folder, name).numbers("message")


class XmppMember:
    """A worker by XMPP that keeps what it holds when it loses its connection."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[str | None, Element] = {}

    async def work(self, site: Site, filter: str) -> None:
        """Receive items until cancelled; connect again if the gateway is killed."""
        while True:
            with contextlib.suppress(Closed, OSError, KeyError):
                async with await bind_session(site.process, "worker") as client:
                    worker = Worker(client)
                    await worker.appear()
                    await worker.join(2, filter)
                    while True:
                        self._take(worker, await worker.next_delivery())
            await asyncio.sleep(0.05)  # the gateway starts again

    def _take(self, worker: Worker, iq: Element) -> None:
        request = iq[0]
        msg_id = request.get("msgId")
        if request.tag == f"{{{QOS}}}assured":
            self._held[msg_id] = request
            worker.answer(iq, f"<received xmlns='{QOS}' msgId='{msg_id}'/>")
            return
        if msg_id in self._held:
            texts = [text for text in self._held.pop(msg_id).itertext() if text.isdigit()]
            self._state.add(("message", int(texts[0])))
        worker.answer(iq)


@contextlib.asynccontextmanager
async def site_of(folder: Path, version: int, fronts: int, **filters: str) -> AsyncIterator[Site]:
    found = Site(folder, version, fronts, **filters)
    try:
        await found.subscribe()
        yield found
    finally:
        found.process.close()


@pytest.mark.parametrize(
    ("version", "fronts"),
    [
        (V311, 0),
        (V5, 2),
        pytest.param(V311, 2, marks=pytest.mark.long),
        pytest.param(V5, 0, marks=pytest.mark.long),
    ],
)
async def test_kills_lose_and_repeat_no_message_at_qos_2(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int, version: int, fronts: int
) -> None:
    chance = random.Random(seed)
    async with site_of(tmp_path, version, fronts, ant=TOPIC, bee="plant/#") as site:
        for what in kills(fronts, scale(4 if fronts else 2, 50), chance, CLIENT):
            await site.run_round(chance, (PUBLISHER, *MEMBERS), what)
        received = [site.received(name) for name in MEMBERS]
        await site.finish(lambda: min((site.received(name) for name in MEMBERS), key=len))
        assert all(found == sorted(set(found)) for found in received)
        for name in MEMBERS:
            assert site.received(name) == list(range(site.sent))
        assert State(tmp_path, PUBLISHER).numbers("done") == list(range(site.sent))


@pytest.mark.parametrize("fronts", [pytest.param(0, marks=pytest.mark.long), 1])
async def test_kills_lose_and_repeat_no_item_of_a_share(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int, fronts: int
) -> None:
    """Two members by MQTT, which spell the share in both ways, and one by XMPP."""
    chance = random.Random(seed)
    shares = {"ant": "$share/pool/plant/#", "bee": "$share:pool:plant/#"}
    async with site_of(tmp_path, V5, fronts, **shares) as site:
        member = XmppMember(State(tmp_path, "worker"))
        work = asyncio.create_task(member.work(site, shares["bee"]))
        names = (*MEMBERS, "worker")
        for what in kills(fronts, scale(4 if fronts else 2, 50), chance, CLIENT):
            await site.run_round(chance, [PUBLISHER], what)  # a member may get no item
        await site.finish(lambda: [n for name in names for n in site.received(name)])
        work.cancel()
        found = {name: site.received(name) for name in names}
    assert sorted(number for one in found.values() for number in one) == list(range(site.sent))
    assert all(found.values())
