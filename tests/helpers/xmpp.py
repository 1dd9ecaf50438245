"""A raw XMPP client for tests: it writes bytes and reads elements.

It shares no code with the broker: SCRAM is computed here from RFC 5802, TLS is verified against the
gateway's CA. Every wait has a timeout.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import secrets
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tests.helpers.pull_parser import PullParser

WAIT_S = 15.0
"""Seconds to wait for one answer; enough for two busy cores."""

STREAMS = "{http://etherx.jabber.org/streams}"
SASL = "{urn:ietf:params:xml:ns:xmpp-sasl}"
SM = "{urn:xmpp:sm:3}"
TLS = "{urn:ietf:params:xml:ns:xmpp-tls}"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"
STANZAS = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
STREAM_ERRORS = "{urn:ietf:params:xml:ns:xmpp-streams}"
CLIENT = "{jabber:client}"

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}


class Closed(Exception):
    """The server closed the stream or the connection; `condition` is its stream error's, if any."""

    def __init__(self, condition: str | None) -> None:
        super().__init__(condition)
        self.condition = condition


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.full = ""
        self.more = ""  # further attributes of the streams that it opens
        self.domain = "gw.example"
        """The domain to which streams are opened; `open` changes it."""
        self.stanzas = 0
        """Stanzas that were read since stream management was enabled (XEP-0198)."""
        self._parser = PullParser()
        self._depth = 0
        self._ids = 0
        self._waiting: list[Element] = []

    @classmethod
    async def connect(
        cls, port: int, domain: str = "gw.example", host: str = "127.0.0.1", from_: str = ""
    ) -> Self:
        """Connect, from the address `from_` if it is set, and open a stream."""
        local = (from_, 0) if from_ else None
        client = cls(*await asyncio.open_connection(host, port, local_addr=local))
        client.open(domain)
        return client

    @classmethod
    async def connect_tls(
        cls, port: int, context: ssl.SSLContext, domain: str = "gw.example", host: str = "127.0.0.1"
    ) -> Self:
        """Connect by direct TLS and open a stream."""
        streams = await asyncio.open_connection(host, port, ssl=context, server_hostname=domain)
        client = cls(*streams)
        client.open(domain)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self.writer.wait_closed(), WAIT_S)

    def send(self, data: str | bytes) -> None:
        self.writer.write(data.encode() if isinstance(data, str) else data)

    def open(self, domain: str = "") -> None:
        """Open a stream, to the same domain by default, and start to parse a new stream."""
        self.domain = domain or self.domain
        self._parser = PullParser()
        self._depth = 0
        self.send(
            f"<?xml version='1.0'?><stream:stream to='{self.domain}' version='1.0'{self.more}"
            " xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
        )

    async def element(self) -> Element:
        """Read the next first-level element; raise `Closed` at the end."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if (found := self._complete()) is not None:
                    if found.tag == f"{STREAMS}error":
                        raise Closed(found[0].tag.removeprefix(STREAM_ERRORS))
                    self.stanzas += found.tag.startswith(CLIENT)
                    return found
                try:
                    data = await self.reader.read(65536)
                except (ConnectionError, ssl.SSLError):
                    data = b""
                if not data:
                    raise Closed(None)
                self._parser.feed(data)

    def _complete(self) -> Element | None:
        for event, element in self._parser.read_events():
            self._depth += 1 if event == "start" else -1
            if event == "end" and self._depth == 1:
                self._waiting.append(element)
            if event == "end" and self._depth == 0:
                self._waiting.append(ElementTree.Element("closed"))
        if not self._waiting:
            return None
        found = self._waiting.pop(0)
        if found.tag == "closed":
            raise Closed(None)
        return found

    async def closed(self) -> str | None:
        """Read until the server closes, and close; return the condition of its stream error."""
        try:
            while True:
                await self.element()
        except Closed as end:
            return end.condition
        finally:
            await self.close()

    def cut(self) -> None:
        """Abort the connection without sending pending data or closing the stream."""
        self.writer.transport.abort()

    def pause_reading(self) -> None:
        """Stop reading."""
        self.reader._transport.pause_reading()  # type: ignore[attr-defined]

    async def start_tls(
        self, ca: Path, domain: str = "gw.example", certificate: Path | None = None
    ) -> None:
        """Start TLS, verify the certificate, and open a stream again.

        `certificate` is a folder with the client's own, as `device add --certificate` writes it.
        """
        await self.element()
        self.send(f"<starttls xmlns='{TLS[1:-1]}'/>")
        proceed = await self.element()
        assert proceed.tag == f"{TLS}proceed"
        await self.writer.start_tls(trusted_ca_context(ca, certificate), server_hostname=domain)
        self.open(domain)

    async def authenticate(self, mechanism: str, user: str, password: str) -> str:
        """Log in; return `success`, or the condition of the failure."""
        if mechanism == "EXTERNAL":
            answer = await self._sasl("auth", user.encode(), mechanism)
        elif mechanism == "PLAIN":
            answer = await self._sasl("auth", f"\0{user}\0{password}".encode(), mechanism)
        else:
            answer = await self._scram(mechanism, user, password)
        if answer.tag == f"{SASL}failure":
            return answer[0].tag.removeprefix(SASL)
        self.open()
        await self.element()
        return "success"

    async def _scram(self, mechanism: str, user: str, password: str) -> Element:
        hash_ = HASHES[mechanism]
        bare = f"n={user},r={secrets.token_hex(8)}"
        challenge = await self._sasl("auth", f"n,,{bare}".encode(), mechanism)
        if challenge.tag != f"{SASL}challenge":
            return challenge
        first = base64.b64decode(challenge.text or "").decode()
        attributes = dict(part.split("=", 1) for part in first.split(","))
        salt = base64.b64decode(attributes["s"])
        salted = hashlib.pbkdf2_hmac(hash_, password.encode(), salt, int(attributes["i"]))
        key = hmac.digest(salted, b"Client Key", hash_)
        final = f"c=biws,r={attributes['r']}"
        signed = f"{bare},{first},{final}".encode()
        signature = hmac.digest(hashlib.new(hash_, key).digest(), signed, hash_)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        answer = await self._sasl("response", f"{final},p={proof.decode()}".encode())
        if answer.tag == f"{SASL}success":
            verifier = hmac.digest(hmac.digest(salted, b"Server Key", hash_), signed, hash_)
            assert base64.b64decode(answer.text or "") == b"v=" + base64.b64encode(verifier)
        return answer

    async def _sasl(self, name: str, message: bytes, mechanism: str | None = None) -> Element:
        attribute = f" mechanism='{mechanism}'" if mechanism else ""
        text = base64.b64encode(message).decode() or "="
        self.send(f"<{name} xmlns='{SASL[1:-1]}'{attribute}>{text}</{name}>")
        return await self.element()

    async def bind(self, resource: str) -> str:
        answer = await self.iq(
            "set", f"<bind xmlns='{BIND}'><resource>{resource}</resource></bind>", to=None
        )
        assert answer.get("type") == "result", condition(answer)
        self.full = answer[0][0].text or ""
        return self.full

    async def enable(self, resume: bool = True, max_: int | None = None) -> str:
        """Enable stream management (XEP-0198); return the id for resumption, or ""."""
        attrs = " resume='true'" * resume + (f" max='{max_}'" if max_ is not None else "")
        self.send(f"<enable xmlns='{SM[1:-1]}'{attrs}/>")
        answer = await self.element()
        assert answer.tag == f"{SM}enabled"
        self.stanzas = 0
        return answer.get("id", "")

    async def resume(self, previd: str, h: int) -> Element:
        self.send(f"<resume xmlns='{SM[1:-1]}' previd='{previd}' h='{h}'/>")
        return await self.element()

    async def handled(self) -> int:
        """Return how many stanzas the server has handled; skip elements before its answer."""
        self.send(f"<r xmlns='{SM[1:-1]}'/>")
        while (answer := await self.element()).tag != f"{SM}a":
            pass
        return int(answer.attrib["h"])

    def acknowledge(self, h: int) -> None:
        self.send(f"<a xmlns='{SM[1:-1]}' h='{h}'/>")

    async def stanza(self) -> Element:
        """Read the next stanza; skip elements of stream management."""
        while (found := await self.element()).tag.startswith(SM):
            pass
        return found

    async def iq(self, type_: str, payload: str, to: str | None = "gw.example") -> Element:
        """Send an iq and read its answer, which must be the next element."""
        self._ids += 1
        to_attribute = f" to='{to}'" if to else ""
        self.send(f"<iq type='{type_}' id='q{self._ids}'{to_attribute}>{payload}</iq>")
        answer = await self.element()
        assert answer.get("id") == f"q{self._ids}"
        return answer

    async def assured(self, msg_id: str, message: str) -> str:
        """Offer a message; return `received`, or the condition of the error."""
        offer = f"<assured xmlns='urn:xmpp:qos' msgId='{msg_id}'>{message}</assured>"
        answer = await self.iq("set", offer)
        if answer.get("type") == "error":
            return condition(answer)
        assert answer[0].tag == "{urn:xmpp:qos}received"
        assert answer[0].get("msgId") == msg_id
        return "received"

    async def deliver(self, msg_id: str) -> str:
        """Ask for delivery; return `delivered`, or the condition of the error."""
        answer = await self.iq("set", f"<deliver xmlns='urn:xmpp:qos' msgId='{msg_id}'/>")
        return condition(answer) if answer.get("type") == "error" else "delivered"


@contextlib.asynccontextmanager
async def closed_on_error(
    client: contextlib.AbstractAsyncContextManager[object],
) -> AsyncIterator[None]:
    """Close a client if the block that logs it in raises an error."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        yield
        stack.pop_all()


def trusted_ca_context(
    ca: Path, certificate: Path | None = None, alpn: tuple[str, ...] = ()
) -> ssl.SSLContext:
    """Make a context that trusts only one CA, with the client's own certificate if there is one.

    It is as strict with every Python as the default of Python 3.13 and newer.
    """
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if certificate is not None:
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def authenticated(port: int, ca: Path, user: str, password: str) -> Client:
    """Connect, start TLS, and log in by SCRAM-SHA-256."""
    client = await Client.connect(port)
    async with closed_on_error(client):
        await client.start_tls(ca)
        await client.element()
        assert await client.authenticate("SCRAM-SHA-256", user, password) == "success"
    return client


async def log_in(port: int, ca: Path, user: str, password: str, resource: str = "fw") -> Client:
    client = await authenticated(port, ca, user, password)
    async with closed_on_error(client):
        await client.bind(resource)
    return client


def condition(answer: Element) -> str:
    error = answer.find(f"{CLIENT}error")
    assert error is not None
    return error[0].tag.removeprefix(STANZAS)


def log_message(number: int, name: str = "Entered") -> str:
    """Write a message with a log event that carries a number."""
    return (
        "<message xmlns='jabber:client'><log xmlns='urn:xmpp:eventlog'"
        f" id='{name}'><message>{name}.</message><tag name='n' value='{number}'/></log></message>"
    )
