"""CONNECT and the connection's life: what is accepted, granted and refused, by reason codes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from edge.mqtt.codec import encode
from edge.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Property,
    PubAck,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from edge.mqtt.reasons import Reason
from edge.ops.devices import devices
from tests.helpers.gateway import PASSWORD, Gateway, bind_session
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, condition

PING = "<ping xmlns='urn:xmpp:ping'/>"
VERSIONS = pytest.mark.parametrize("version", [V311, V5])
KEPT: dict[int, dict[str, Any]] = {
    V311: {"version": V311, "clean": False},
    V5: {"clean": False, "properties": {Property.SESSION_EXPIRY: 1000}},
}
"""The fields of a CONNECT for a session that is kept, by version."""

LOGIN: dict[str, Any] = {"user_name": "pump1", "password": PASSWORD.encode()}
FIRST = Connect("fw", **LOGIN)

IDENTIFIERS = (
    "a b", " ", "a/b", "/", "pump1@gw.example/fw", "caf\u00e9", "cafe\u0301", "\u212bngstr\u00f6m",
    "\ud55c\uae00", "\U0001f600", "A", "a", "\u00a0", "tab\tand\nline", "<&\"'>", "x" * 65_535,
    "x" * 65_534,
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(
        tmp_path_factory.mktemp("gateway"),
        *("pump1", "meter1", "valve1", "lost1"),
        auto_create=["#"],
        require_tls=False,
        durable_sessions_per_account=3,
        sessions_per_account=30,
        authenticate_delay=0.0,
    )
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False, keep_alive=600)
    return found


async def opened(process: Process, data: bytes, version: int = V5) -> MqttClient:
    """Open a connection and send bytes."""
    client = await MqttClient.open(process, version)
    client.writer.write(data)
    return client


async def expect_end(client: MqttClient, reason: Reason) -> None:
    """Expect a DISCONNECT with a reason by 5.0, and the end of the connection."""
    if client.version == V5:
        packet = await client.receive()
        assert isinstance(packet, Disconnect), packet
        assert packet.reason == reason
    assert await client.receive() is None


async def ask(client: Client, payload: str, to: str = "gw.example") -> None:
    """Ask by XMPP, and expect a result; other elements may come before it."""
    client.send(f"<iq type='get' id='ask' to='{to}'>{payload}</iq>")
    while (element := await client.element()).get("id") != "ask":
        pass
    assert element.get("type") == "result"


# The first packet


@VERSIONS
async def test_a_second_connect_ends_the_connection(process: Process, version: int) -> None:
    async with await MqttClient.connect(process, "pump1", version=version) as client:
        client.send(replace(FIRST, version=version))
        await expect_end(client, Reason.PROTOCOL_ERROR)


async def test_a_second_connect_that_does_not_wait_ends_the_connection(process: Process) -> None:
    async with await opened(process, encode(FIRST, V5) * 2) as client:
        answer = await client.receive()
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.SUCCESS
        await expect_end(client, Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize("packet", [PingReq(), Disconnect(), Publish("a", b"")])
async def test_another_first_packet_is_not_answered(process: Process, packet: Any) -> None:
    async with await opened(process, encode(packet, V5) + encode(FIRST, V5)) as client:
        assert await client.receive() is None


@pytest.mark.parametrize(
    ("change", "version", "reason"),
    [
        ((9, 0x03), V5, Reason.MALFORMED_PACKET),  # the reserved flag
        ((9, 0x03), V311, None),
        ((8, 6), V5, Reason.UNSUPPORTED_PROTOCOL_VERSION),
        ((8, 3), V311, Reason.UNSUPPORTED_PROTOCOL_VERSION),
        ((4, ord("X")), V5, Reason.UNSUPPORTED_PROTOCOL_VERSION),
    ],
)
async def test_an_invalid_connect_is_refused(
    process: Process, change: tuple[int, int], version: int, reason: Reason | None
) -> None:
    data = bytearray(encode(Connect("fw", version), version))
    data[change[0]] = change[1]
    async with await opened(process, bytes(data), version) as client:
        if reason is not None:
            assert await client.receive() == ConnAck(False, reason)
        assert await client.receive() is None


async def test_packets_behind_connect_wait_for_its_answer(process: Process) -> None:
    subscribe = Subscribe(1, (Subscription("early/#"),))
    packets = (FIRST, subscribe, Publish("early/1", b"a", 1, id=2), PingReq())
    data = b"".join(encode(packet, V5) for packet in packets)
    async with await opened(process, data) as client:
        answers = [await client.receive() for _ in range(5)]
    assert isinstance(answers[0], ConnAck)
    assert sorted(map(str, answers[1:])) == sorted(
        map(str, (SubAck(1, (0,)), PubAck(2), Publish("early/1", b"a"), PingResp()))
    )


@pytest.mark.parametrize("size", [81 * 1024, 1 << 27])
async def test_a_connect_that_is_too_large_is_refused_by_its_header(
    process: Process, size: int
) -> None:
    header = bytes((0x10, size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128))
    async with await opened(process, header + bytes((size >> 21,))) as client:
        assert await client.receive() is None


@VERSIONS
async def test_a_packet_that_is_too_large_ends_the_session(process: Process, version: int) -> None:
    async with await MqttClient.connect(process, "pump1", version=version) as client:
        if version == V5:
            assert client.connack.properties[Property.MAXIMUM_PACKET_SIZE] == 65_536
        client.writer.write(b"\x30\x80\x80\x04")  # the header of a PUBLISH
        await expect_end(client, Reason.PACKET_TOO_LARGE)


# The log-in


@pytest.mark.parametrize(
    ("fields", "version", "reason"),
    [
        ({}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({}, V311, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({"user_name": "pump1"}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({"password": b"x"}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({**LOGIN, "password": b"wrong"}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({**LOGIN, "user_name": "pump1@other.example"}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({**LOGIN, "user_name": "@"}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({**LOGIN, "password": b"\xff"}, V5, Reason.BAD_USER_NAME_OR_PASSWORD),
        ({**LOGIN, "client_id": "a\1"}, V5, Reason.CLIENT_IDENTIFIER_NOT_VALID),
        ({**LOGIN, "client_id": "\uffff"}, V311, Reason.CLIENT_IDENTIFIER_NOT_VALID),
        ({**LOGIN, "client_id": "", "clean": False}, V311, Reason.CLIENT_IDENTIFIER_NOT_VALID),
    ],
)
async def test_a_log_in_is_refused(
    process: Process, fields: dict[str, Any], version: int, reason: Reason
) -> None:
    async with await MqttClient.open(process, version) as client:
        connect = replace(Connect("fw", version), **fields)
        assert await client.ask(connect) == ConnAck(False, reason)
        assert await client.receive() is None


async def test_a_user_name_may_have_the_domain(process: Process) -> None:
    async with await MqttClient.connect(process, "pump1@GW.example") as client:
        await client.sync()


# Client identifiers


@pytest.mark.parametrize("fields", [{}, {"clean": False}, {"version": V311}])
async def test_an_identifier_is_assigned(process: Process, fields: dict[str, Any]) -> None:
    async with (
        await MqttClient.connect(process, "pump1", "", **fields) as one,
        await MqttClient.connect(process, "pump1", "", **fields) as two,
    ):
        assigned = [c.connack.properties.get(Property.ASSIGNED_CLIENT_ID) for c in (one, two)]
        assert assigned[0] != assigned[1] or fields == {"version": V311}
        assert all(isinstance(one, str) and one for one in assigned) or "version" in fields
        await one.sync()
        await two.sync()


async def test_identifiers_keep_their_bytes(process: Process, gateway: Gateway) -> None:
    clients = [await MqttClient.connect(process, "valve1", id) for id in IDENTIFIERS]
    olga = await bind_session(process, "valve1", "desk")
    try:
        olga.send("<presence/>")
        for number, client in enumerate(clients):
            assert Property.ASSIGNED_CLIENT_ID not in client.connack.properties
            assert await client.subscribe(f"ids/{number}", qos=2) == (2,)
            await client.publish(f"ids/{number}", b"x", 1)
            assert (await client.take()).topic == f"ids/{number}"
            await client.sync()
        for query in ("disco#items", "disco#info"):
            await ask(
                olga, f"<query xmlns='http://jabber.org/protocol/{query}'/>", "valve1@gw.example"
            )
        shown = gateway.command("device", "show", "valve1")
        assert "cafe\u0301" in shown
        async with await MqttClient.connect(process, "valve1", "cafe\u0301"):
            await expect_end(clients[IDENTIFIERS.index("cafe\u0301")], Reason.SESSION_TAKEN_OVER)
            await clients[IDENTIFIERS.index("caf\u00e9")].sync()
    finally:
        for client in clients:
            await client.close()
        await olga.close()


# Take-over


@VERSIONS
async def test_an_mqtt_session_takes_over_an_xmpp_session(process: Process, version: int) -> None:
    full = "pump1", f"both{version}"
    async with (
        await bind_session(process, *full) as xmpp,
        await MqttClient.connect(process, *full, **KEPT[version]) as mqtt,
    ):
        assert await xmpp.closed() == "conflict"
        assert not mqtt.connack.session_present
        await mqtt.subscribe("both", qos=1)
        await mqtt.publish("both", b"a", 1)
        assert (await mqtt.take()).payload == b"a"


@VERSIONS
async def test_an_xmpp_session_takes_over_an_mqtt_session(process: Process, version: int) -> None:
    full = "pump1", f"either{version}"
    async with await MqttClient.connect(process, *full, **KEPT[version]) as mqtt:
        await mqtt.subscribe("either", qos=1)
        async with await bind_session(process, *full) as xmpp:
            await expect_end(mqtt, Reason.SESSION_TAKEN_OVER)
            await ask(xmpp, PING)
            async with await MqttClient.connect(process, "meter1") as meter:
                await meter.publish("either", b"missed", 1)
            await ask(xmpp, PING)
            async with await MqttClient.connect(process, *full, version=version) as last:
                assert await xmpp.closed() == "conflict"
                assert not last.connack.session_present  # it is clean
                await last.sync()


async def test_stanzas_to_an_mqtt_session_are_refused(process: Process) -> None:
    async with (
        await MqttClient.connect(process, "pump1", "deaf") as mqtt,
        await bind_session(process, "meter1", "asking") as xmpp,
    ):
        to = "to='pump1@gw.example/deaf'"
        xmpp.send(f"<iq type='get' id='a' {to}>{PING}</iq>")
        assert condition(await xmpp.element()) == "service-unavailable"
        xmpp.send(f"<message type='groupchat' id='b' {to}><body>x</body></message>")
        assert condition(await xmpp.element()) == "service-unavailable"
        xmpp.send(f"<message type='chat' id='c' {to}><body>x</body></message>")
        await ask(xmpp, PING)
        await mqtt.sync()
    async with await bind_session(process, "pump1", "desk") as desk:
        desk.send("<presence/>")
        while (found := await desk.element()).get("id") != "c":  # it was stored
            pass
        assert found.tag.endswith("message")


# Kept sessions


async def test_a_disconnect_changes_how_long_a_session_is_kept(process: Process) -> None:
    for expiry, is_kept in ((0, False), (500, True)):
        async with await MqttClient.connect(process, "meter1", "changing", **KEPT[V5]) as client:
            client.send(Disconnect(0, {Property.SESSION_EXPIRY: expiry}))
            assert await client.receive() is None
        async with await MqttClient.connect(process, "meter1", "changing", clean=False) as client:
            assert client.connack.session_present is is_kept


async def test_a_disconnect_cannot_keep_a_session_that_ends(process: Process) -> None:
    async with await MqttClient.connect(process, "meter1", "ending") as client:
        client.send(Disconnect(0, {Property.SESSION_EXPIRY: 1}))
        await expect_end(client, Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize(("asked", "granted"), [(0xFFFF_FFFF, 604_800), (604_800, None)])
async def test_the_longest_time_of_a_kept_session_is_granted(
    process: Process, asked: int, granted: int | None
) -> None:
    kept: dict[str, Any] = {"properties": {Property.SESSION_EXPIRY: asked}}
    async with await MqttClient.connect(process, "meter1", "long", **kept) as client:
        assert client.connack.properties.get(Property.SESSION_EXPIRY) == granted
        client.send(Disconnect(0, {Property.SESSION_EXPIRY: 0}))
        assert await client.receive() is None


@VERSIONS
async def test_a_limit_of_kept_sessions_does_not_count_others(
    process: Process, version: int
) -> None:
    fields = KEPT[version]
    clients = [
        await MqttClient.connect(process, "lost1", f"clean{n}", version=version) for n in range(5)
    ]
    clients += [await MqttClient.connect(process, "lost1", f"{n}", **fields) for n in range(3)]
    kept = Connect("3", user_name="lost1", password=PASSWORD.encode())
    connect = replace(kept, **fields)
    async with await MqttClient.open(process, version) as refused:
        answer = await refused.ask(connect)
        assert isinstance(answer, ConnAck)
        assert answer.reason is (
            Reason.QUOTA_EXCEEDED if version == V5 else Reason.SERVER_UNAVAILABLE
        )
    async with await MqttClient.open(process, version) as refused:  # a clean one that is to be kept
        answer = await refused.ask(replace(connect, client_id="clean0"))
        assert isinstance(answer, ConnAck)
        assert answer.reason is not Reason.SUCCESS
    for client in clients[5:]:
        await client.close()
    for number in range(3):
        fields = {"version": version, "clean": True}
        async with await MqttClient.connect(process, "lost1", str(number), **fields) as client:
            await client.sync()
    for client in clients:
        await client.close()


# Keep alive


@pytest.mark.parametrize(("asked", "granted"), [(0, 600), (601, 600), (600, None), (1, None)])
async def test_the_gateway_sets_the_longest_keep_alive(
    process: Process, asked: int, granted: int | None
) -> None:
    async with await MqttClient.connect(process, "pump1", keep_alive=asked) as client:
        assert client.connack.properties.get(Property.SERVER_KEEP_ALIVE) == granted


@VERSIONS
async def test_a_silent_client_is_lost(process: Process, version: int) -> None:
    will = Will(f"silent/{version}", b"lost", 1)
    async with (
        await MqttClient.connect(process, "meter1", "watch", version=version) as meter,
        await MqttClient.connect(
            process, "pump1", "silent", version=version, keep_alive=1, will=will
        ) as client,
    ):
        await meter.subscribe(will.topic, qos=1)
        await expect_end(client, Reason.KEEP_ALIVE_TIMEOUT)
        assert (await meter.take()).payload == b"lost"


# What the client limits


async def test_a_client_has_its_receive_maximum_unacknowledged(process: Process) -> None:
    limited: dict[str, Any] = {"properties": {Property.RECEIVE_MAXIMUM: 1}}
    async with await MqttClient.connect(process, "meter1", "slow", **limited) as client:
        await client.subscribe("many", qos=1)
        async with await MqttClient.connect(process, "pump1") as pump:
            for payload in (b"1", b"2", b"3"):
                await pump.publish("many", payload, 1)
        for payload in (b"1", b"2", b"3"):
            packet = await client.receive()
            assert isinstance(packet, Publish)
            assert packet.payload == payload
            await client.sync()
            client.send(PubAck(packet.id))


async def test_a_client_may_have_as_many_unreleased_messages_as_granted(process: Process) -> None:
    async with await MqttClient.connect(process, "pump1", "eager") as client:
        most = client.connack.properties[Property.RECEIVE_MAXIMUM]
        for id in range(1, most + 1):
            assert await client.ask(Publish("q2", b"", 2, id=id)) == PubRec(id)
        client.send(Publish("q2", b"", 2, id=most + 1))
        await expect_end(client, Reason.RECEIVE_MAXIMUM_EXCEEDED)


async def test_nothing_larger_than_the_client_accepts_is_sent(process: Process) -> None:
    small: dict[str, Any] = {"properties": {Property.MAXIMUM_PACKET_SIZE: 40}}
    async with (
        await MqttClient.connect(process, "meter1", "small", **small) as client,
        await MqttClient.connect(process, "pump1") as pump,
    ):
        await client.subscribe("sizes", qos=1)
        for size in (30, 10):
            await pump.publish("sizes", bytes(size), 1)
        assert (await client.take()).payload == bytes(10)
        answer = await client.ask(Subscribe(5, (Subscription("a/#/b"),)))
        assert answer == SubAck(5, (Reason.TOPIC_FILTER_INVALID,))
        client.send(Subscribe(6, (Subscription("b"),) * 100))  # its answer is too large
        await client.sync()


async def test_the_connack_is_not_sent_if_it_is_too_large(process: Process) -> None:
    async with await MqttClient.open(process) as client:
        client.send(replace(FIRST, properties={Property.MAXIMUM_PACKET_SIZE: 5}))
        await client.sync()


@pytest.mark.parametrize(("wanted", "is_told"), [(None, True), (1, True), (0, False)])
async def test_a_client_may_refuse_explanations(
    process: Process, wanted: int | None, is_told: bool
) -> None:
    given = {} if wanted is None else {Property.REQUEST_PROBLEM_INFORMATION: wanted}
    async with await MqttClient.connect(process, "meter1", properties=given) as client:
        answer = await client.ask(Subscribe(5, (Subscription("a/#/b"),)))
        assert isinstance(answer, SubAck)
        assert (Property.REASON_STRING in answer.properties) is is_told


async def test_there_is_no_response_information(process: Process) -> None:
    given = {Property.REQUEST_RESPONSE_INFORMATION: 1}
    async with await MqttClient.connect(process, "meter1", properties=given) as client:
        assert Property.RESPONSE_INFORMATION not in client.connack.properties


@pytest.mark.parametrize(("topic", "alias"), [("", 1), ("a", 17), ("x" * 2000, 1)])
async def test_an_alias_that_stands_for_nothing_ends_the_session(
    process: Process, topic: str, alias: int
) -> None:
    async with await MqttClient.connect(process, "pump1", "aliases") as client:
        assert client.connack.properties[Property.TOPIC_ALIAS_MAXIMUM] == 16
        packets = (
            Publish(name, b"", properties={Property.TOPIC_ALIAS: alias}) for name in (topic, "")
        )
        client.writer.write(b"".join(encode(packet, V5) for packet in packets))  # in one read
        await expect_end(client, Reason.TOPIC_ALIAS_INVALID)


# The end by the gateway


@VERSIONS
async def test_a_revoked_device_is_disconnected(
    process: Process, gateway: Gateway, version: int
) -> None:
    name = f"gone{version}"
    devices.add(gateway.folder, name, PASSWORD, trusted=True)
    async with await MqttClient.connect(process, name, version=version) as client:
        gateway.command("device", "revoke", name)
        await expect_end(client, Reason.NOT_AUTHORIZED)


@VERSIONS
async def test_a_publication_after_the_revocation_is_not_answered(
    process: Process, gateway: Gateway, version: int
) -> None:
    """A PUBACK with an error would tell the client to drop the message."""
    name = f"late{version}"
    devices.add(gateway.folder, name, PASSWORD, trusted=True)
    async with await MqttClient.connect(process, name, version=version) as client:
        gateway.command("device", "revoke", name)
        client.writer.write(encode(Publish(f"{name}/a", b"", 1, id=1), version))
        await expect_end(client, Reason.NOT_AUTHORIZED)


@VERSIONS
async def test_a_gateway_that_stops_says_so(tmp_path_factory: Any, version: int) -> None:
    gateway = Gateway(tmp_path_factory.mktemp("stopping"), "pump1")
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    with gateway.run() as process:
        async with await MqttClient.connect(process, "pump1", version=version) as client:
            os.kill(process.pid, signal.SIGTERM)
            await expect_end(client, Reason.SERVER_SHUTTING_DOWN)
        assert process.wait() == 0


@VERSIONS
async def test_limits_before_and_at_the_log_in(tmp_path_factory: Any, version: int) -> None:
    gateway = Gateway(
        tmp_path_factory.mktemp("small"),
        "pump1",
        authenticate_time=1.0,
        sessions_per_account=1,
        unauthenticated_per_address=3,
    )
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    with gateway.run() as process:
        async with await MqttClient.connect(process, "pump1", "one", version=version) as one:
            async with await MqttClient.open(process, version) as two:
                answer = await two.ask(replace(FIRST, client_id="two", version=version))
                assert isinstance(answer, ConnAck)
                assert answer.reason is (
                    Reason.QUOTA_EXCEEDED if version == V5 else Reason.SERVER_UNAVAILABLE
                )
            async with await opened(process, b"\x10\x20\0\4MQ", version) as slow:
                assert await slow.receive() is None  # after `authenticate_time`
            clients = [await MqttClient.open(process, version) for _ in range(4)]
            assert await clients[0].receive() is None
            for client in clients:
                await client.close()
            await one.sync()
