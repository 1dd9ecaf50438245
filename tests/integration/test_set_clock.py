"""A gateway and a centre whose wall clocks are set back and forth by years while devices send.

Both run with libfaketime. Nothing expires, is lost or is repeated, and what a wrong clock prevents,
such as TLS with a certificate that is not valid, works again once the clock is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edge.mqtt.packets import Property
from sync.common.enrolment import Enrolment, write_enrolment
from sync.common.fleet_folder import FleetFolder
from sync.segment import Event, decode, digest_of
from tests.helpers import set_clock
from tests.helpers.fleet import GATEWAY, HOST, client, identity, landed, make_fleet, segment
from tests.helpers.gateway import Gateway, bind_session
from tests.helpers.live_workers import Worker, present
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process, free_port, start
from tests.helpers.pubsub import element, form, options
from tests.helpers.set_clock import SetClock
from tests.helpers.shared_subscriptions import item_id
from tests.helpers.xmpp import log_message

YEARS: Final = (3, -20, 25, 0)
"""Offsets from the true time to which the clocks are set, one after the other."""

HOUR: Final = 3600
WORK: Final = "work"


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[SetClock]:
    if set_clock.library() is None:
        pytest.skip("no libfaketime (make interop-packages)")
    yield SetClock(tmp_path / "clock")
    set_clock.remove_leftovers()


class Site:
    """A gateway and a centre with the same clock."""

    def __init__(self, folder: Path, clock: SetClock) -> None:
        self.clock = clock
        names = ("pump", "absent", "worker", "sensor", "screen")
        options: dict[str, Any] = {"auto_create": ["t/#"], "segment_age": 0.5, "recent_bytes": 0}
        self.gateway = Gateway(
            folder / "gateway", *names, require_tls=False, enrolment="centre.json", **options
        )
        self.gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
        self.fleet, self._port = FleetFolder(folder / "fleet"), free_port()
        self.tokens = make_fleet(self.fleet.root)
        url, ca = f"https://{HOST}:{self._port}", (self.fleet.pki / "ca.pem").read_text()
        enrolment = Enrolment(GATEWAY, url, self.tokens[GATEWAY], ca)
        write_enrolment(self.gateway.folder / "centre.json", enrolment)

    def run(self) -> Process:
        """Start the gateway."""
        return start("fieldpost", "run", "--dir", self.gateway.folder, env=self.clock.environment)

    def serve(self) -> Process:
        """Start the receiver."""
        words = ("--dir", self.fleet.root, "--listen", f"{HOST}:{self._port}")
        return start("fieldpost-fleet", "serve", *words, env=self.clock.environment)

    def log(self) -> dict[str, list[Event]]:
        """Return the log at the centre, by lane; check that it has no gap and no fork."""
        lanes: dict[str, list[Event]] = {}
        ends: dict[str, bytes] = {}
        segments = landed(self.fleet)
        assert len({name.epoch for name in segments}) == 1
        for name in sorted(segments, key=lambda name: name.first_seq):
            found = decode(segments[name])
            assert found.header.previous == ends.get(name.lane, bytes(32))
            ends[name.lane] = digest_of(segments[name])
            lanes.setdefault(name.lane, []).extend(found.events)
        for events in lanes.values():
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return lanes


async def send_all(process: Process, years: int) -> None:
    """Send messages over XMPP and MQTT, and leave one in custody."""
    async with await bind_session(process, "pump") as pump:
        assert await pump.assured(f"{years}", log_message(years)) == "received"
        assert await pump.deliver(f"{years}") == "delivered"
        assert await pump.assured(f"{years} held", log_message(years, "held")) == "received"
    async with await MqttClient.connect(process, "sensor") as sensor:
        for qos in (1, 2):
            properties = {Property.MESSAGE_EXPIRY: HOUR}
            payload = f"{years} {qos}".encode()
            await sensor.publish(f"t/{years}/{qos}", payload, qos, 1, properties=properties)


async def test_setting_the_clocks_by_years_loses_and_repeats_nothing(
    tmp_path: Path, clock: SetClock, scale: Callable[[int, int], int]
) -> None:
    site = Site(tmp_path, clock)
    keep = {Property.SESSION_EXPIRY: HOUR}
    with site.serve(), site.run() as process:
        screen = await MqttClient.connect(process, "screen", clean=False, properties=keep)
        assert await screen.subscribe("t/#", qos=2) == (2,)
        await screen.close()
        async with present(process, "worker") as (worker,):
            await take_lease(worker)
            for years in YEARS:
                clock.set(years)
                await send_all(process, years)
            await worker.expect_nothing()  # the item's lease has not ended
            await worker.ask(element("retract", element("item", id="job"), node=WORK))
        process.kill9()
    for years in YEARS[-scale(2, len(YEARS)) :]:
        clock.set(years)
        with site.serve(), site.run() as process:
            assert process.terminate() == 0
    with site.serve(), site.run() as process:
        async with await bind_session(process, "pump") as pump:
            for years in YEARS:
                assert await pump.deliver(f"{years} held") == "delivered"
        screen = await MqttClient.connect(process, "screen", clean=False, properties=keep)
        assert screen.connack.session_present
        taken = [(await screen.take()).payload.decode() for _ in range(2 * len(YEARS))]
        assert taken == [f"{years} {qos}" for years in YEARS for qos in (1, 2)]
        await screen.sync()
        await screen.close()
        assert process.terminate() == 0
    check_log(site)


async def take_lease(worker: Worker) -> None:
    """Get an item of a queue, and keep it locked."""
    config = form("node_config", {"queueing": "1", "publish_model": "open"})
    await worker.ask(element("create", node=WORK) + element("configure", config))
    join = element("subscribe", node=WORK, jid=worker.client.full)
    await worker.ask(join + options(queue_requests="1"))
    content = element("item", "<v xmlns='urn:v'/>", id="job")
    await worker.ask(element("publish", content, node=WORK))
    assert item_id(await worker.client.stanza()) == "job"


def check_log(site: Site) -> None:
    lanes = site.log()
    found = Counter((event.tags or {})["n"] for event in lanes["logs"])
    assert found == {str(years): 2 for years in YEARS}
    times = [event.time for event in lanes["logs"]]
    assert min(times) < max(times) - 44 * 365 * 86_400_000
    assert not list(site.fleet.aside.rglob("*.seg"))
    assert list(site.gateway.events()) == [], "all is at the centre"


async def test_a_centre_that_starts_with_a_wrong_clock_receives_once_it_is_right(
    tmp_path: Path, clock: SetClock
) -> None:
    """It renews its certificate at the start."""
    site, data = Site(tmp_path, clock), segment()
    for years in (3, -20, 15, 0):
        clock.set(years)
        with site.serve() as receiver:
            assert receiver.terminate() == 0
    with site.serve() as receiver:
        ca = site.fleet.pki / "ca.pem"
        async with client(receiver.host_port("https"), site.tokens, ca) as connected:
            assert (await connected.put(data)).status == 201
    assert landed(site.fleet) == {identity(): data}
