"""A device against a scripted server over real TLS: steps, errors and lost connections."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.device import BACKLOG, Device
from firmware_sim.device.errors import DeviceStopped, MessageRefused, OutboxError, OutboxFull
from firmware_sim.device.limits import OutboxLimits, ReconnectPolicy, SendPolicy
from firmware_sim.device.receive_options import ReceivedMessage, ReceiveOptions
from firmware_sim.device.sender_loop import DeliveryStep
from firmware_sim.device.sender_rules import State
from tests.helpers.scripted_peer import Certificate, ScriptedPeer, Stanza, accept
from tests.helpers.talk import MESSAGE, QOS, error_of, wait_online

JID, OTHER = "pump1@gw.example/fw", "valve1@gw.example/fw"
POLICY = SendPolicy(retry_base=0.2, retry_cap=1.0, jitter=0, max_attempts=3)
RECONNECT = ReconnectPolicy(base=0.02, cap=0.1, timeout=5.0)
Make = Callable[..., Device]


@pytest.fixture
async def peer(certificate: Certificate) -> AsyncIterator[ScriptedPeer]:
    async with ScriptedPeer(certificate).running() as running:
        yield running


@pytest.fixture
def make(tmp_path: Path, certificate: Certificate, peer: ScriptedPeer) -> Make:
    def device(**options: Any) -> Device:
        settings: dict[str, Any] = {
            "outbox_path": tmp_path / "outbox",
            "ca_file": certificate.ca_file,
            "host": "127.0.0.1",
            "port": peer.port,
            "policy": POLICY,
            "reconnect": RECONNECT,
        }
        return Device(JID, "secret", **{**settings, **options})

    return device


@pytest.fixture
async def device(make: Make) -> AsyncIterator[Device]:
    async with make() as started:
        yield started


async def test_assured_message_is_offered_and_released(peer: ScriptedPeer, make: Make) -> None:
    moments: list[tuple[DeliveryStep, int]] = []
    async with make(observe=lambda m, n: moments.append((m, n))) as device:
        assert await device.send_log("Entered", "One <more> & 'he' \"left\"") == 1
        await device.flush(10)
        (record,) = device.delivered()
        assert device.counts()[State.DONE] == 1
    assert peer.steps() == [("assured", "1"), ("deliver", "1")]
    assert peer.requests[0].namespace == "urn:xmpp:qos"
    assert peer.requests[0].id != peer.requests[1].id
    (message,) = peer.requests[0].payload
    assert message.tag == "{jabber:client}message"
    assert message[0].get("id") == "Entered"
    assert message[0][0].text == "One <more> & 'he' \"left\""
    assert record.state is State.DONE
    assert [moment for moment, _ in moments] == list(DeliveryStep)


async def test_acknowledged_message_takes_one_step(peer: ScriptedPeer, device: Device) -> None:
    await device.send_reading("temperature", 21.5, unit="K", qos=1, to="pump2@gw.example")
    await device.flush(10)
    assert peer.steps() == [("acknowledged", "")]
    field = peer.requests[0].payload[0][0][0][0][0]
    found = (field.get("name"), field.get("value"), field.get("unit"))
    assert found == ("temperature", "21.5", "K")


@pytest.mark.parametrize("namespace", ["", "urn:ieee:iot:qos:1.0", "jabber:client"])
async def test_received_is_accepted_in_any_namespace(
    peer: ScriptedPeer, device: Device, namespace: str
) -> None:
    def script(stanza: Stanza) -> str:
        return stanza.received(namespace) if stanza.step == "assured" else stanza.result()

    peer.script = script
    await device.send("<message><body>hello</body></message>")
    await device.flush(10)
    assert device.counts()[State.DONE] == 1


async def test_answer_with_another_msg_id_or_sender_is_ignored(
    peer: ScriptedPeer, device: Device
) -> None:
    def script(stanza: Stanza) -> str:
        if stanza.step != "assured":
            return stanza.result()
        if len(peer.requests) == 1:
            return stanza.result("<received xmlns='urn:xmpp:qos' msgId='other'/>")
        if len(peer.requests) == 2:
            return stanza.received().replace("from='gw.example'", "from='evil@gw.example'")
        return stanza.received()

    peer.script = script
    await device.send("<message/>")
    await device.flush(10)
    assert peer.steps() == [("assured", "1")] * 3 + [("deliver", "1")]
    assert len({stanza.id for stanza in peer.requests[:3]}) == 1


@pytest.mark.parametrize(
    ("step", "kind", "condition", "end"),
    [
        ("assured", "cancel", "not-allowed", State.FAILED),
        ("assured", "cancel", "conflict", State.FAILED),
        ("assured", "auth", "forbidden", State.FAILED),
        ("assured", "modify", "bad-request", State.FAILED),
        ("assured", "wait", "resource-constraint", State.FAILED),
        ("deliver", "cancel", "item-not-found", State.IN_DOUBT),
        ("deliver", "wait", "resource-constraint", State.IN_DOUBT),
    ],
)
async def test_state_after_each_error(
    peer: ScriptedPeer, device: Device, step: str, kind: str, condition: str, end: State
) -> None:
    def script(stanza: Stanza) -> str:
        return stanza.error(kind, condition) if stanza.step == step else accept(stanza)

    peer.script = script
    await device.send("<message/>", label="mine")
    await device.flush(10)
    (record,) = device.records(end)
    assert (record.reason, record.label) == (f"{kind}/{condition}", "mine")
    attempts = 3 if kind == "wait" else 1
    assert [name for name, _ in peer.steps()].count(step) == attempts


async def test_silent_connection_is_replaced(peer: ScriptedPeer, make: Make) -> None:
    peer.script = lambda stanza: accept(stanza) if peer.sessions > 1 else ""
    async with make(policy=SendPolicy(retry_base=0.2, jitter=0, silence=0.3)) as device:
        await device.send("<message/>")
        await device.flush(10)
        assert device.sessions == 2


@pytest.mark.parametrize("step", ["assured", "deliver"])
async def test_device_continues_after_a_lost_connection(
    peer: ScriptedPeer, device: Device, step: str
) -> None:
    def script(stanza: Stanza) -> str:
        if stanza.step == step and peer.sessions == 1:
            peer.drop()
            return ""
        return accept(stanza)

    peer.script = script
    await device.send("<message/>")
    await device.flush(10)
    assert device.sessions == 2
    steps = ["assured", "deliver"]
    index = steps.index(step)
    assert [name for name, _ in peer.steps()] == [*steps[: index + 1], *steps[index:]]
    ids = [stanza.id for stanza in peer.requests if stanza.step == step]
    assert len(ids) == 2
    assert len(set(ids)) == 1


async def test_messages_are_stored_without_a_server(certificate: Certificate, make: Make) -> None:
    peer = ScriptedPeer(certificate).reserve()
    async with make(port=peer.port) as device:
        await device.send("<message/>")
        with pytest.raises(TimeoutError):
            await device.flush(0.2)
        assert not device.online
        assert "111" in device.last_error or "onnect" in device.last_error
        async with peer.running():
            await device.flush(10)
    assert peer.steps() == [("assured", "1"), ("deliver", "1")]


async def test_certificate_must_name_the_domain(make: Make, tmp_path: Path) -> None:
    other = Certificate.make(tmp_path, "other.example")
    async with ScriptedPeer(other).running() as peer:
        async with make(port=peer.port, ca_file=other.ca_file) as device:
            await _until_error(device)
            assert "gw.example" in device.last_error
        async with make(port=peer.port) as device:
            await _until_error(device)
            assert "certificate" in device.last_error
    assert peer.sessions == 0


async def test_password_is_not_sent_without_tls(peer: ScriptedPeer, make: Make) -> None:
    peer.tls = False
    async with make() as device:
        await _until_error(device)
        assert not device.online
    assert peer.sessions == 0
    assert b"auth" not in peer.plain


@pytest.mark.parametrize(("step", "error"), [("handshake", "handshake"), ("login", "password")])
async def test_failed_negotiation_is_retried(
    peer: ScriptedPeer, make: Make, step: str, error: str
) -> None:
    setattr(peer, step, False)
    async with make(reconnect=ReconnectPolicy(base=0.02, cap=0.1, timeout=60)) as device:
        await device.send("<message/>")
        await _until_error(device)
        assert error in device.last_error
        setattr(peer, step, True)
        await device.flush(10)


async def test_stream_lost_while_binding_leaves_no_task(
    certificate: Certificate, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = asyncio.all_tasks()
    async with ScriptedPeer(certificate, bind=False).running() as peer, make(port=peer.port) as it:
        await _until_error(it)
        peer.bind = True
        await it.send("<message/>")
        await it.flush(10)
    gc.collect()
    assert asyncio.all_tasks() <= tasks
    assert "destroyed" not in caplog.text


async def test_silent_server_times_out_and_close_does_not_wait(make: Make) -> None:
    writers: list[asyncio.StreamWriter] = []
    called = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        called.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with make(port=port, reconnect=ReconnectPolicy(base=0.02, timeout=0.2)) as device:
        await _until_error(device)
        assert device.last_error == "no session within 0.2 s"
    called.clear()
    async with make(port=port, reconnect=ReconnectPolicy(timeout=600)) as device:
        await called.wait()
        assert not device.online
    server.close()
    for writer in writers:
        writer.transport.abort()


async def test_full_outbox_raises_until_space_is_free(certificate: Certificate, make: Make) -> None:
    peer = ScriptedPeer(certificate).reserve()
    async with make(port=peer.port, limits=OutboxLimits(messages=2)) as device:
        first = await asyncio.gather(
            *(device.send("<message/>") for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in first] == [int, int, OutboxFull]
        async with peer.running():
            await device.flush(10)
            assert await device.send("<message/>") == 3


async def test_disk_failure_stops_the_device_and_a_restart_continues(make: Make) -> None:
    device = make()
    await device.start()
    await device.send("<message/>")
    await device.flush(10)
    assert device._runtime is not None
    device._runtime.outbox._db.execute("PRAGMA max_page_count=8")
    body = f"<message><body>{'x' * 30_000}</body></message>"
    results = await asyncio.gather(device.send(body), device.flush(10), return_exceptions=True)
    assert [type(result) for result in results] == [OutboxError, OutboxError]
    assert not device.online
    with pytest.raises(OutboxError):
        await device.send("<message/>")
    await device.close()
    async with make() as device:
        assert await device.send("<message/>") == 2
        await device.flush(10)
    with pytest.raises(DeviceStopped):
        device.delivered()


async def test_cancelled_call_is_harmless(device: Device) -> None:
    call = asyncio.ensure_future(device.send("<message/>"))
    await asyncio.sleep(0)
    call.cancel()
    assert await device.send("<message/>") == 2
    await device.flush(10)
    assert device.counts()[State.DONE] == 2


@pytest.mark.parametrize(
    ("features", "supported"),
    [
        ("<feature var='urn:xmpp:qos'/>", True),
        ("<feature var='urn:nf:iot:qos:1.0'/>", True),
        ("<feature var='urn:xmpp:ping'/>", False),
        ("", False),
        ("error", False),
        ("silence", False),
    ],
)
async def test_support_is_discovered(peer: ScriptedPeer, features: str, supported: bool) -> None:
    def script(stanza: Stanza) -> str:
        if features == "silence":
            return ""
        if features == "error":
            return stanza.error("cancel", "service-unavailable")
        query = "http://jabber.org/protocol/disco#info"
        return stanza.result(f"<query xmlns='{query}'>{features}</query>")

    peer.script = script
    endpoint = Endpoint(JID, "secret", "127.0.0.1", peer.port, peer.certificate.ca_file)
    connection = Connection(endpoint)
    await connection.open(10)
    assert await connection.qos.supported("gw.example", timeout=0.3) is supported
    await connection.close()


async def test_stopped_device_raises(make: Make) -> None:
    device = make()
    with pytest.raises(DeviceStopped):
        await device.send("<message/>")
    with pytest.raises(DeviceStopped):
        device.counts()
    await device.start()
    waiting = asyncio.gather(device.send("<message/>"), device.flush(), return_exceptions=True)
    await asyncio.sleep(0)
    await device.close()
    assert {type(result) for result in await waiting} <= {int, DeviceStopped}
    with pytest.raises(DeviceStopped):
        await device.flush()
    with pytest.raises(MessageRefused):
        await device.send("<presence/>")


async def test_sending_device_sends_no_presence(peer: ScriptedPeer, device: Device) -> None:
    await device.send("<message/>")
    await device.flush(10)
    assert peer.others == []
    offer = f"<acknowledged xmlns='{QOS}'>{MESSAGE}</acknowledged>"
    peer.send_xml(f"<iq type='set' id='q' from='{OTHER}' to='{JID}'>{offer}</iq>")
    await peer.wait_until(lambda: bool(peer.replies))
    assert error_of(peer.replies[0]) == "cancel/feature-not-implemented"
    with pytest.raises(DeviceStopped, match="has no inbox"):
        _ = device.inbox


CHUNK = 32
"""Messages of 8 KiB that a device may have read already when it stops reading."""


async def test_unread_messages_stop_the_reading(
    peer: ScriptedPeer, make: Make, tmp_path: Path
) -> None:
    """Unread messages stay with the peer and are received later in order."""
    count, backlog = 2 * BACKLOG, 0
    full = asyncio.Event()

    def delivered(_message: ReceivedMessage) -> None:
        nonlocal backlog
        backlog += 1
        if backlog == BACKLOG:
            full.set()

    receive = ReceiveOptions(tmp_path / "inbox", afterwards=delivered)
    async with make(receive=receive) as device, asyncio.timeout(30):
        await wait_online(device)
        text = "x" * 8192
        for number in range(count):
            peer.send_xml(f"<message from='{OTHER}' id='{number}'><body>{text}</body></message>")
        await full.wait()
        for _ in range(count):  # enough to read all of them
            await asyncio.sleep(0)
        assert BACKLOG <= backlog <= BACKLOG + CHUNK
        received = device.messages()
        ids = []
        for _ in range(count):
            ids.append(int((await anext(received)).id))
            backlog -= 1
            assert backlog <= BACKLOG + CHUNK
    assert ids == list(range(count))


async def _until_error(device: Device) -> None:
    async with asyncio.timeout(10):
        while not device.last_error:
            await device.changed()
