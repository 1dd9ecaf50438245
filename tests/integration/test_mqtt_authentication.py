"""Log-in by SCRAM in AUTH packets, and again in a session (MQTT 5.0, section 4.12)."""

from __future__ import annotations

from pathlib import Path

import pytest
from scramp import ScramClient

from edge.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Properties,
    Property,
)
from edge.mqtt.reasons import Reason
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process

METHODS = ("SCRAM-SHA-256", "SCRAM-SHA-1")
REFUSED = ConnAck(False, Reason.BAD_USER_NAME_OR_PASSWORD)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    found = Gateway(
        tmp_path_factory.mktemp("gateway"),
        "pump1",
        "meter1",
        authenticate_delay=0.0,
        authenticate_failures=1000,
    )
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    return found


class Scram:
    """The client's side of an exchange."""

    def __init__(self, user: str, password: str = PASSWORD, method: str = METHODS[0]) -> None:
        self.method = method
        self._client = ScramClient([method], user, password)

    def properties(self, data: str) -> Properties:
        return {
            Property.AUTHENTICATION_METHOD: self.method,
            Property.AUTHENTICATION_DATA: data.encode(),
        }

    def first(self) -> Properties:
        return self.properties(self._client.get_client_first())

    def prove(self, packet: object) -> Auth:
        """Return the answer to the gateway's challenge."""
        assert isinstance(packet, Auth), packet
        assert packet.reason == Reason.CONTINUE_AUTHENTICATION
        assert packet.properties[Property.AUTHENTICATION_METHOD] == self.method
        self._client.set_server_first(packet.properties[Property.AUTHENTICATION_DATA].decode())
        proof = self._client.get_client_final()
        return Auth(Reason.CONTINUE_AUTHENTICATION, self.properties(proof))

    def verify(self, packet: object) -> None:
        """Check that the gateway knows the password, too."""
        assert isinstance(packet, ConnAck | Auth), packet
        assert packet.reason == Reason.SUCCESS
        assert packet.properties[Property.AUTHENTICATION_METHOD] == self.method
        self._client.set_server_final(packet.properties[Property.AUTHENTICATION_DATA].decode())


async def log_in(client: MqttClient, scram: Scram, user_name: str | None = None) -> object:
    """Log in by all steps; return the last answer."""
    connect = Connect("fw", user_name=user_name, properties=scram.first())
    challenge = await client.ask(connect)
    return await client.ask(scram.prove(challenge))


async def authenticate_again(client: MqttClient, scram: Scram) -> object:
    challenge = await client.ask(Auth(Reason.REAUTHENTICATE, scram.first()))
    return await client.ask(scram.prove(challenge))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("user_name", [None, "pump1", f"pump1@{DOMAIN}"])
async def test_a_device_logs_in_by_scram(
    process: Process, method: str, user_name: str | None
) -> None:
    scram = Scram("pump1", method=method)
    async with await MqttClient.open(process) as client:
        scram.verify(await log_in(client, scram, user_name))
        assert await client.ask(PingReq()) == PingResp()


@pytest.mark.parametrize(
    ("user", "password", "user_name", "reason"),
    [
        ("pump1", "wrong", None, "wrong password"),
        ("nobody", PASSWORD, None, "unknown account"),
    ],
)
async def test_a_wrong_proof_is_refused_and_logged(
    process: Process, user: str, password: str, user_name: str | None, reason: str
) -> None:
    async with await MqttClient.open(process) as client:
        assert await log_in(client, Scram(user, password), user_name) == REFUSED
        assert await client.receive() is None
    fields = f"account={user}, mechanism=SCRAM-SHA-256, protocol=mqtt, version=5.0"
    process.wait_for_stderr(f"limit authentication: {reason} (source=127.0.0.1, value=1, {fields})")


@pytest.mark.parametrize(
    ("data", "user_name"),
    [
        (None, None),
        (b"", None),
        (b"n=pump1,r=abc", None),
        (b"p=tls-exporter,,n=pump1,r=abc", None),
        (b"n,a=meter1,n=pump1,r=abc", None),
        (b"n,,n=a b,r=abc", None),
        (b"n,,n=pump1,r=abc", "meter1"),
    ],
)
async def test_an_invalid_first_message_is_refused(
    process: Process, data: bytes | None, user_name: str | None
) -> None:
    properties = {Property.AUTHENTICATION_METHOD: METHODS[0], Property.AUTHENTICATION_DATA: data}
    given = {key: value for key, value in properties.items() if value is not None}
    async with await MqttClient.open(process) as client:
        packet = Connect("fw", user_name=user_name, properties=given)
        assert await client.ask(packet) == REFUSED
        assert await client.receive() is None


async def test_another_method_is_refused(process: Process) -> None:
    async with await MqttClient.open(process) as client:
        packet = Connect("fw", properties={Property.AUTHENTICATION_METHOD: "GS2-KRB5"})
        assert await client.ask(packet) == ConnAck(False, Reason.BAD_AUTHENTICATION_METHOD)


async def test_only_auth_may_be_sent_before_the_log_in_ends(process: Process) -> None:
    async with await MqttClient.open(process) as client:
        assert isinstance(await client.ask(Connect("fw", properties=Scram("pump1").first())), Auth)
        answer = await client.ask(PingReq())
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.PROTOCOL_ERROR
    scram = Scram("pump1")
    async with await MqttClient.open(process) as client:
        challenge = await client.ask(Connect("fw", properties=scram.first()))
        other = dict(scram.prove(challenge).properties) | {
            Property.AUTHENTICATION_METHOD: METHODS[1]
        }
        answer = await client.ask(Auth(Reason.CONTINUE_AUTHENTICATION, other))
        assert isinstance(answer, ConnAck)
        assert answer.reason is Reason.PROTOCOL_ERROR
    async with await MqttClient.open(process) as client:
        assert isinstance(await client.ask(Connect("fw", properties=Scram("pump1").first())), Auth)
        assert await client.ask(Disconnect()) is None


async def test_a_device_authenticates_again_in_its_session(process: Process) -> None:
    async with await MqttClient.open(process) as client:
        await log_in(client, Scram("pump1"))
        for _ in range(2):
            scram = Scram("pump1")
            challenge = await client.ask(Auth(Reason.REAUTHENTICATE, scram.first()))
            assert await client.ask(PingReq()) == PingResp()  # other packets continue
            scram.verify(await client.ask(scram.prove(challenge)))
        assert await client.ask(PingReq()) == PingResp()


@pytest.mark.parametrize(("user", "password"), [("pump1", "wrong"), ("meter1", PASSWORD)])
async def test_a_session_ends_if_its_device_fails_to_authenticate_again(
    process: Process, user: str, password: str
) -> None:
    async with await MqttClient.open(process) as client:
        await log_in(client, Scram("pump1"))
        scram = Scram(user, password)
        answer = await client.ask(Auth(Reason.REAUTHENTICATE, scram.first()))
        if isinstance(answer, Auth):
            answer = await client.ask(scram.prove(answer))
        assert answer == Disconnect(Reason.NOT_AUTHORIZED)
        assert await client.receive() is None


@pytest.mark.parametrize("method", [None, *METHODS])
async def test_an_unexpected_auth_ends_the_session(process: Process, method: str | None) -> None:
    scram = Scram("pump1", method=METHODS[1])
    async with await MqttClient.open(process) as client:
        if method is None:
            packet = Connect("fw", user_name="pump1", password=PASSWORD.encode())
            assert isinstance(await client.ask(packet), ConnAck)
        else:
            await log_in(client, Scram("pump1", method=METHODS[0]))
        code = Reason.CONTINUE_AUTHENTICATION if method == METHODS[0] else Reason.REAUTHENTICATE
        properties = dict(scram.first())
        properties[Property.AUTHENTICATION_METHOD] = method or METHODS[0]
        answer = await client.ask(Auth(code, properties))
        assert isinstance(answer, Disconnect)
        assert answer.reason == Reason.PROTOCOL_ERROR


async def test_failed_proofs_count_towards_the_throttle(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "pump1", authenticate_delay=0.0, authenticate_failures=3)
    gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
    with gateway.run() as process:
        for _ in range(3):
            async with await MqttClient.open(process) as client:
                assert await log_in(client, Scram("pump1", "wrong")) == REFUSED
        async with await MqttClient.open(process) as client:
            assert await client.ask(Connect("fw", properties=Scram("pump1").first())) == REFUSED
        process.wait_for_stderr("limit authentication_limit: too many failed logins")
