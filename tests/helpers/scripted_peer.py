"""A scripted XMPP server for tests of the device: it sends only the answers that a test specifies.

It implements what slixmpp needs to bind over STARTTLS with SASL PLAIN, on a real socket, with its
own certificate. It stores nothing and checks nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import struct
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.helpers.pki import make_pki
from tests.helpers.pull_parser import PullParser

DOMAIN = "gw.example"
_STREAMS = "http://etherx.jabber.org/streams"
_HEADER = (
    f"<stream:stream xmlns='jabber:client' xmlns:stream='{_STREAMS}' from='{DOMAIN}' id='s'"
    " version='1.0'>"
)
_STARTTLS = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>"
_SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
_PLAIN = f"<mechanisms xmlns='{_SASL}'><mechanism>PLAIN</mechanism></mechanisms>"
_UNSAFE = _PLAIN.replace("</mechanisms>", "<mechanism>SCRAM-SHA-1</mechanism></mechanisms>")
_BIND_NS = "urn:ietf:params:xml:ns:xmpp-bind"
_BIND = f"<bind xmlns='{_BIND_NS}'/>"


@dataclass(frozen=True)
class Certificate:
    """A CA's file, and a server's context with a certificate for a name."""

    ca_file: Path
    context: ssl.SSLContext

    @classmethod
    def make(cls, folder: Path, name: str = DOMAIN) -> Self:
        return cls(folder / "ca.pem", make_pki(folder, name).server)


class Stanza:
    """An iq from the device: its id, its step, its msgId, and the possible answers."""

    def __init__(self, element: ET.Element, full_jid: str) -> None:
        self.id = element.get("id", "")
        self.source = full_jid
        payload = element[0]
        self.namespace, _, self.step = payload.tag.removeprefix("{").rpartition("}")
        self.msg_id = payload.get("msgId", "")
        self.payload = payload
        self._head = f"id='{self.id}' from='{element.get('to') or DOMAIN}' to='{full_jid}'"

    def result(self, content: str = "") -> str:
        return f"<iq type='result' {self._head}>{content}</iq>"

    def received(self, namespace: str = "urn:xmpp:qos") -> str:
        return self.result(f"<received xmlns='{namespace}' msgId='{self.msg_id}'/>")

    def error(self, kind: str, condition: str) -> str:
        namespace = "urn:ietf:params:xml:ns:xmpp-stanzas"
        inner = f"<error type='{kind}'><{condition} xmlns='{namespace}'/></error>"
        return f"<iq type='error' {self._head}>{inner}</iq>"


def accept(stanza: Stanza) -> str:
    """Answer as a receiver that accepts everything."""
    return stanza.received() if stanza.step == "assured" else stanza.result()


@dataclass
class ScriptedPeer:
    """The server. `script` returns the answer to each iq with QoS; an empty one is not sent."""

    certificate: Certificate
    script: Callable[[Stanza], str] = accept
    login: bool = True
    tls: bool = True
    bind: bool = True
    handshake: bool = True
    requests: list[Stanza] = field(default_factory=list)
    replies: list[ET.Element] = field(default_factory=list)
    others: list[ET.Element] = field(default_factory=list)
    port: int = 0
    sessions: int = 0
    plain: bytes = b""
    _reserved: socket.socket | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Listen on a free port of loopback until the block ends."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Event()
        sock = self._reserved or self._bind()
        self._reserved = None
        server = await asyncio.start_server(self._serve, sock=sock)
        try:
            yield self
        finally:
            server.close()
            self.drop()
            while self._writers:
                self._changed.clear()
                await asyncio.wait_for(self._changed.wait(), 5)

    def reserve(self) -> Self:
        """Bind a port without listening; connections are refused until `running`."""
        self._reserved = self._bind()
        return self

    def _bind(self) -> socket.socket:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        return sock

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def send_xml(self, text: str) -> None:
        for writer in self._writers:
            writer.write(text.encode())

    def steps(self) -> list[tuple[str, str]]:
        """Return the received steps, each with the last part of its msgId."""
        return [(stanza.step, stanza.msg_id.rpartition("-")[2]) for stanza in self.requests]

    async def wait_until(self, is_true: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until a condition is true; check it after each stanza."""
        async with asyncio.timeout(seconds):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            user = await self._negotiate(reader, writer)
            self.sessions += 1
            self._changed.set()
            await self._converse(f"{user}@{DOMAIN}", reader, writer)
        except (ConnectionError, EOFError, ET.ParseError, ssl.SSLError):
            pass  # the device or the test closed the connection
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self._changed.set()

    async def _negotiate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        await _read_header(reader)
        features = _STARTTLS if self.tls else _UNSAFE
        writer.write(f"{_HEADER}<stream:features>{features}</stream:features>".encode())
        self.plain = await reader.readuntil(b">")
        if not self.tls:
            raise EOFError
        writer.write(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
        if not self.handshake:
            await reader.readexactly(1)  # the handshake has begun
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise EOFError
        await writer.start_tls(self.certificate.context)
        await _read_header(reader)
        writer.write(f"{_HEADER}<stream:features>{_PLAIN}</stream:features>".encode())
        auth = ET.fromstring(await reader.readuntil(b"</auth>"))  # noqa: S314 - from our own device
        _, user, _ = base64.b64decode(auth.text or "").decode().split("\0")
        if not self.login:
            writer.write(f"<failure xmlns='{_SASL}'><not-authorized/></failure>".encode())
            await writer.drain()
            raise EOFError
        writer.write(f"<success xmlns='{_SASL}'/>".encode())
        await _read_header(reader)
        writer.write(f"{_HEADER}<stream:features>{_BIND}</stream:features>".encode())
        return user

    async def _converse(
        self, jid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        parser = PullParser()
        parser.feed("<stream xmlns='jabber:client'>")
        depth = 0
        while data := await reader.read(65536):
            parser.feed(data)
            for event, element in parser.read_events():
                depth += 1 if event == "start" else -1
                if event == "end" and depth == 1:
                    if element.find(f"{{{_BIND_NS}}}bind") is not None:
                        jid = f"{jid}/{element[0][0].text}"
                    writer.write(self._answer(element, jid).encode())
        await writer.drain()

    def _answer(self, element: Any, full_jid: str) -> str:
        if element.tag != "{jabber:client}iq":
            self.others.append(element)
            self._changed.set()
            return ""
        if element.get("type") not in ("set", "get"):
            self.replies.append(element)
            self._changed.set()
            return ""
        if element[0].tag.endswith("}bind"):
            if not self.bind:
                self.drop()
                return ""
            content = f"<bind xmlns='{_BIND_NS}'><jid>{full_jid}</jid></bind>"
            return f"<iq type='result' id='{element.get('id')}'>{content}</iq>"
        stanza = Stanza(element, full_jid)
        self.requests.append(stanza)
        self._changed.set()
        return self.script(stanza)


async def _read_header(reader: asyncio.StreamReader) -> None:
    data = b""
    while b"<stream:stream" not in data:
        data += await reader.readuntil(b">")
