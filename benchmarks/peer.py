"""A client's login over blocking sockets: STARTTLS, SCRAM-SHA-256, bind; or MQTT's CONNECT.

Stanzas are not parsed: each is read up to its expected ending.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.payload import DOMAIN, HEADER
from edge.mqtt.codec import PacketParser, encode
from edge.mqtt.packets import V5, ConnAck, Connect, Fault, Packet, PingReq, PingResp

PASSWORD: Final = "benchmark"
"""Password of every device, in the temporary folder of a run."""

RESOURCE: Final = "fw"

ANSWER_TIME: Final = 30.0
"""Seconds for one answer of a login, on a busy machine."""

MAX_ANSWER: Final = 64 * 1024
"""Bytes of one answer of a login."""


class LoginError(Exception):
    """The server refused a login or answered unexpectedly."""


class Target(NamedTuple):
    """A server to log in to: its address, and its CA's certificate if TLS is used."""

    host: str
    port: int
    ca: Path | None = None


def device(number: int) -> str:
    """Return the account name of a client."""
    return f"sensor{number:04d}"


def login(
    target: Target, number: int, tls: ssl.SSLContext | None, source: str = ""
) -> socket.socket:
    """Connect and bind `device(number)`; return a blocking socket; raises `LoginError`.

    `source` is the local address to connect from, if it matters.
    """
    try:
        connection = connect(target, source)
    except OSError as error:
        raise LoginError(f"{device(number)} cannot connect: {error}") from error
    try:
        connection.sendall(HEADER)
        _until(connection, b"</stream:features>")
        if tls is not None:
            connection = _start_tls(connection, tls)
        _authenticate(connection, device(number))
        connection.sendall(HEADER)
        _until(connection, b"</stream:features>")
        _bind(connection)
    except (OSError, LoginError) as error:
        connection.close()
        raise LoginError(f"{device(number)} cannot log in: {error}") from error
    return connection


def ping(connection: socket.socket) -> None:
    """Send the server a ping and wait for the answer (XEP-0199); raises `LoginError`."""
    connection.sendall(b"<iq type='get' id='ping'><ping xmlns='urn:xmpp:ping'/></iq>")
    _until(connection, b"/>")


def login_mqtt(
    target: Target, number: int, tls: ssl.SSLContext | None, client: str = ""
) -> socket.socket:
    """Connect as `device(number)` over MQTT; return a blocking socket; raises `LoginError`.

    `client` is the client identifier, if it is not the device's name.
    """
    connection, name = connect(target), device(number)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname=DOMAIN)
    request = Connect(client or name, user_name=name, password=PASSWORD.encode())
    answer = _ask_mqtt(connection, request)
    if not isinstance(answer, ConnAck) or answer.reason:
        connection.close()
        raise LoginError(f"{name} cannot log in: {answer}")
    return connection


def ping_mqtt(connection: socket.socket) -> None:
    """Send the server a PINGREQ and wait for the PINGRESP; raises `LoginError`."""
    answer = _ask_mqtt(connection, PingReq())
    if not isinstance(answer, PingResp):
        raise LoginError(f"expected a PINGRESP, not {answer}")


def _ask_mqtt(connection: socket.socket, packet: Packet) -> Packet | Fault:
    connection.sendall(encode(packet, V5))
    parser = PacketParser(MAX_ANSWER, V5, from_client=False)
    while data := connection.recv(MAX_ANSWER):
        if found := parser.feed(data):
            return found[0]
    raise LoginError(f"the server closed the connection after {packet}")


def connect(target: Target, source: str = "") -> socket.socket:
    """Connect with TCP_NODELAY."""
    connection = socket.create_connection((target.host, target.port), ANSWER_TIME, (source, 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def trusting(ca: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts this CA alone; all connections can share it."""
    return ssl.create_default_context(cafile=ca)


def _start_tls(connection: socket.socket, context: ssl.SSLContext) -> socket.socket:
    connection.sendall(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    _until(connection, b"/>")
    secure = context.wrap_socket(connection, server_hostname=DOMAIN)
    secure.sendall(HEADER)
    _until(secure, b"</stream:features>")
    return secure


def _authenticate(connection: socket.socket, name: str) -> None:
    nonce = secrets.token_hex(12)
    first = f"n={name},r={nonce}"
    message = base64.b64encode(f"n,,{first}".encode())
    connection.sendall(
        b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-256'>%b</auth>"
        % message
    )
    challenge = _text(_until(connection, b"</challenge>"), b"challenge")
    fields = dict(part.partition("=")[::2] for part in challenge.split(","))
    unproved = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge},{unproved}".encode()
    proof = _proof(base64.b64decode(fields["s"]), int(fields["i"]), signed)
    final = base64.b64encode(f"{unproved},p={proof}".encode())
    connection.sendall(b"<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>%b</response>" % final)
    _until(connection, b"</success>")


def _proof(salt: bytes, iterations: int, signed: bytes) -> str:
    key, stored = _client_keys(salt, iterations)
    signature = hmac.digest(stored, signed, "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


@cache
def _client_keys(salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Derive the keys from the password; cached because all devices of a run have the same salt."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    return key, hashlib.sha256(key).digest()


def _bind(connection: socket.socket) -> None:
    connection.sendall(
        b"<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
        b"<resource>%b</resource></bind></iq>" % RESOURCE.encode()
    )
    answer = _until(connection, b"</iq>")
    if b"type='result'" not in answer:
        raise LoginError(f"the server did not bind a resource: {answer!r}")


def _text(answer: bytes, name: bytes) -> str:
    content = answer.partition(b"<" + name)[2].partition(b">")[2]
    return base64.b64decode(content.partition(b"<")[0]).decode()


def _until(connection: socket.socket, end: bytes) -> bytes:
    answer = b""
    while not answer.endswith(end):
        data = connection.recv(MAX_ANSWER)
        answer += data
        if not data or len(answer) > MAX_ANSWER or answer.endswith(b"</failure>"):
            raise LoginError(f"expected {end!r} at the end of {answer!r}")
    return answer
