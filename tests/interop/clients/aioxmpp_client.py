"""A device on aioxmpp that executes the commands on its standard input, line by line.

It speaks the lines of `tests/helpers/clients.py`, by aioxmpp's own services where it has them, and
runs under Debian's Python. aioxmpp has SCRAM and PLAIN, and no EXTERNAL. Usage:

    aioxmpp_client.py HOST PORT JID CAFILE starttls|direct MECHANISM
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from datetime import timedelta
from typing import Any

import aioxmpp
from aioxmpp import connector, disco, errors, ping, security_layer, xso

QOS = "urn:xmpp:qos"
LOG = "urn:xmpp:eventlog"
RECONNECT_S = 0.05


class LogText(xso.XSO):  # type: ignore[misc] # aioxmpp has no types
    """The text of an event."""

    TAG = (LOG, "message")
    text = xso.Text(default=None)


class Log(xso.XSO):  # type: ignore[misc]
    """An event (XEP-0337)."""

    TAG = (LOG, "log")
    id_ = xso.Attr("id")
    text = xso.Child([LogText])

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self.id_ = name
        self.text = LogText()
        self.text.text = text


class Embedded(xso.XSO):  # type: ignore[misc]
    """A message within a request."""

    TAG = ("jabber:client", "message")
    log = xso.Child([Log])


@aioxmpp.IQ.as_payload_class
class Assured(xso.XSO):  # type: ignore[misc]
    """The offer of a message that is to be delivered exactly once."""

    TAG = (QOS, "assured")
    msg_id = xso.Attr("msgId")
    message = xso.Child([Embedded])


@aioxmpp.IQ.as_payload_class
class Received(xso.XSO):  # type: ignore[misc]
    """The answer to an offer."""

    TAG = (QOS, "received")
    msg_id = xso.Attr("msgId")


@aioxmpp.IQ.as_payload_class
class Deliver(xso.XSO):  # type: ignore[misc]
    """The order to deliver what was offered."""

    TAG = (QOS, "deliver")
    msg_id = xso.Attr("msgId")


aioxmpp.Message.log = xso.Child([Log])


class OneMechanism(security_layer.PasswordSASLProvider):  # type: ignore[misc]
    """Logs in by one mechanism, and by no other that is offered."""

    def __init__(self, mechanism: str, password: str) -> None:
        async def provide(_jid: object, attempt: int) -> str | None:
            return None if attempt else password

        super().__init__(provide)
        self.mechanism = mechanism

    def _find_supported(self, features: Any, classes: list[Any]) -> tuple[Any, Any]:
        offered = features[security_layer.SASLMechanisms].get_mechanism_list()
        if self.mechanism not in offered:
            return None, None
        for class_ in classes:
            if token := class_.any_supported([self.mechanism]):
                return class_, token
        return None, None


def emit(*words: object) -> None:
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


class Device:
    """One session, and after a cut connection the same one again."""

    def __init__(self, jid: str, peer: Any, layer: Any, mechanism: str) -> None:
        self.client = aioxmpp.Client(
            aioxmpp.JID.fromstr(jid), layer, override_peer=[peer], max_initial_attempts=1
        )
        self.client.backoff_start = timedelta(seconds=RECONNECT_S)
        self.mechanism = mechanism
        self.domain = self.client.local_jid.replace(localpart=None, resource=None)
        self.ended = asyncio.Event()
        self.disco = self.client.summon(disco.DiscoClient)
        messages = self.client.summon(aioxmpp.dispatcher.SimpleMessageDispatcher)
        messages.register_callback(None, None, self._message)
        presences = self.client.summon(aioxmpp.dispatcher.SimplePresenceDispatcher)
        presences.register_callback(None, None, self._presence)
        self.client.on_stream_established.connect(self._established)
        self.client.on_stream_suspended.connect(lambda _error: emit("cut"))
        self.client.on_stream_resumed.connect(lambda: emit("resumed", self.client.local_jid))
        self.client.on_failure.connect(self._failed)
        self.client.on_stopped.connect(self.ended.set)

    def _established(self) -> None:
        if self.client.stream.sm_enabled:
            emit("managed", "resumable" if self.client.stream.sm_resumable else "not-resumable")
        emit("online", self.client.local_jid, self.mechanism)

    def _message(self, message: Any) -> None:
        emit("message", message.from_, message.body.any())

    def _presence(self, presence: Any) -> None:
        emit("presence", presence.from_, presence.type_.value or "available")

    def _failed(self, error: Exception) -> None:
        emit("failed", type(error).__name__, " ".join(str(error).split()))
        self.ended.set()

    async def ping(self) -> None:
        await ping.ping(self.client, self.domain)
        emit("pong")

    async def info(self) -> None:
        info = await self.disco.query_info(self.domain)
        emit("features", *sorted(info.features))

    async def items(self) -> None:
        items = await self.disco.query_items(self.domain)
        emit("items", *sorted(str(item.jid) for item in items.items))

    async def roster(self) -> None:
        query = aioxmpp.IQ(type_=aioxmpp.IQType.GET, payload=aioxmpp.roster.xso.Query())
        answer = await self.client.send(query)
        emit("roster", *sorted(f"{item.jid}:{item.subscription}" for item in answer.items))

    async def presence(self, to: str = "", kind: str = "") -> None:
        stanza = aioxmpp.Presence(type_=aioxmpp.PresenceType(kind or None))
        stanza.to = aioxmpp.JID.fromstr(to) if to else None
        await self.client.send(stanza)

    async def message(self, to: str, *text: str) -> None:
        stanza = aioxmpp.Message(type_=aioxmpp.MessageType.CHAT, to=aioxmpp.JID.fromstr(to))
        stanza.body[None] = " ".join(text)
        self.client.enqueue(stanza)
        emit("sent", to)

    async def log(self, name: str, *text: str) -> None:
        stanza = aioxmpp.Message(type_=aioxmpp.MessageType.NORMAL, to=self.domain)
        stanza.log = Log(name, " ".join(text))
        self.client.enqueue(stanza)

    async def assured(self, msg_id: str, name: str, *text: str) -> None:
        offer = Assured()
        offer.message = Embedded()
        offer.message.log = Log(name, " ".join(text))
        await self._exchange("assured", msg_id, offer)

    async def deliver(self, msg_id: str) -> None:
        await self._exchange("deliver", msg_id, Deliver())

    async def _exchange(self, verb: str, msg_id: str, payload: Any) -> None:
        payload.msg_id = msg_id
        query = aioxmpp.IQ(type_=aioxmpp.IQType.SET, to=self.domain, payload=payload)
        answer = await self.client.send(query)
        emit("answered", verb, msg_id, *([] if answer is None else [answer.TAG[1]]))

    async def quit(self) -> None:
        self.client.stop()


async def run_commands(device: Device, reader: asyncio.StreamReader) -> None:
    while line := await reader.readline():
        verb, *words = line.decode().split()
        try:
            await getattr(device, verb)(*words)
        except errors.XMPPError as error:
            emit("refused", verb, error.condition.value[1])
    device.ended.set()


def layer_of(cafile: str, mechanism: str) -> Any:
    def context() -> Any:
        tls_context = security_layer.default_ssl_context()
        tls_context.load_verify_locations(cafile)
        return tls_context

    password = os.environ["CLIENT_PASSWORD"]
    verifier, one = security_layer.PKIXCertificateVerifier, OneMechanism(mechanism, password)
    return security_layer.SecurityLayer(context, verifier, True, (one,))


async def main(host: str, port: str, jid: str, cafile: str, transport: str, mechanism: str) -> None:
    connectors = {"starttls": connector.STARTTLSConnector, "direct": connector.XMPPOverTLSConnector}
    device = Device(
        jid, (host, int(port), connectors[transport]()), layer_of(cafile, mechanism), mechanism
    )
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    device.client.start()
    commands = asyncio.create_task(run_commands(device, reader))
    await device.ended.wait()
    commands.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    asyncio.run(main(*sys.argv[1:]))
