"""A device on slixmpp that executes the commands on its standard input, line by line.

It speaks the lines of `tests/helpers/clients.py`, by slixmpp's own plugins where it has them.
Usage:

    slixmpp_client.py HOST PORT JID CAFILE starttls|direct MECHANISM [CERTIFICATE KEY]
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from functools import partial
from typing import Any

from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError
from slixmpp.xmlstream import ET

QOS = "urn:xmpp:qos"
LOG = "urn:xmpp:eventlog"
WAIT_S = 20


def emit(*words: object) -> None:
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


class Device:
    """One session, and after a cut connection the same one again."""

    def __init__(self, jid: str, cafile: str, transport: str, mechanism: str) -> None:
        password = os.environ["CLIENT_PASSWORD"]
        context = ssl.create_default_context(cafile=cafile)
        self.xmpp: Any = ClientXMPP(jid, password, sasl_mech=mechanism, ssl_context=context)
        self.domain = self.xmpp.requested_jid.domain
        self.xmpp.enable_direct_tls = transport == "direct"
        self.xmpp.enable_starttls = transport == "starttls"
        self.xmpp.enable_plaintext = False
        self.xmpp.auto_authorize = None
        self.xmpp.auto_subscribe = False
        self.online = self.ending = False
        self.ended = asyncio.Event()
        for plugin in ("xep_0030", "xep_0198", "xep_0199"):
            self.xmpp.register_plugin(plugin)
        self.plugin: Any = self.xmpp.plugin
        self._handle_events()

    def _handle_events(self) -> None:
        on = self.xmpp.add_event_handler
        on("session_start", self._started)
        on("sm_enabled", self._managed)
        on("session_resumed", lambda _: emit("resumed", self.xmpp.boundjid))
        on("message", self._message)
        for kind in ("available", "unavailable", "subscribe", "subscribed", "unsubscribed"):
            on(f"presence_{kind}", self._presence)
        for event in ("failed_all_auth", "ssl_invalid_chain", "stream_error"):
            on(event, partial(self._failed, event))
        on("connection_failed", self._not_connected)
        on("disconnected", self._disconnected)

    def _started(self, _event: object) -> None:
        self.online = True
        emit("online", self.xmpp.boundjid, self.plugin["feature_mechanisms"].mech.name)

    def _managed(self, _enabled: object) -> None:
        emit("managed", "resumable" if self.plugin["xep_0198"].sm_id else "not-resumable")

    def _message(self, message: Any) -> None:
        emit("message", message["from"], message["body"])

    def _presence(self, presence: Any) -> None:
        emit("presence", presence["from"], presence.xml.get("type", "available"))

    def _failed(self, event: str, error: Any) -> None:
        emit("failed", event, " ".join(str(error).split()))
        self.ending = True
        self.xmpp.abort()

    def _not_connected(self, error: Any) -> None:
        if isinstance(error, ssl.SSLError):  # by direct TLS; else it tries again
            self._failed("connection_failed", error)
            self.ended.set()

    async def _disconnected(self, error: object) -> None:
        if self.online and not self.ending:
            emit("cut")
            self.xmpp.connect(*self.xmpp.custom_address)
            return
        if not self.ending:
            emit("failed", "disconnected", error)
        self.ended.set()

    async def ping(self) -> None:
        await self.plugin["xep_0199"].send_ping(self.domain, timeout=WAIT_S)
        emit("pong")

    async def info(self) -> None:
        info = await self.plugin["xep_0030"].get_info(jid=self.domain, timeout=WAIT_S)
        emit("features", *sorted(info["disco_info"]["features"]))

    async def items(self) -> None:
        items = await self.plugin["xep_0030"].get_items(jid=self.domain, timeout=WAIT_S)
        emit("items", *sorted(str(jid) for jid, _node, _name in items["disco_items"]["items"]))

    async def roster(self) -> None:
        iq = self.xmpp.make_iq_get()  # not get_roster: it would request only changes
        iq.enable("roster")
        answer = await iq.send(timeout=WAIT_S)
        items = answer["roster"]["items"].items()
        emit("roster", *sorted(f"{jid}:{item['subscription']}" for jid, item in items))

    async def presence(self, to: str = "", kind: str = "") -> None:
        self.xmpp.send_presence(pto=to or None, ptype=kind or None)

    async def message(self, to: str, *text: str) -> None:
        self.xmpp.send_message(mto=to, mbody=" ".join(text), mtype="chat")
        emit("sent", to)

    async def log(self, name: str, *text: str) -> None:
        message = self.xmpp.make_message(mto=self.domain, mtype="normal")
        message.append(_log(name, " ".join(text)))
        message.send()

    async def assured(self, msg_id: str, name: str, *text: str) -> None:
        message = ET.Element("{jabber:client}message")
        message.append(_log(name, " ".join(text)))
        await self._exchange("assured", msg_id, message)

    async def deliver(self, msg_id: str) -> None:
        await self._exchange("deliver", msg_id)

    async def _exchange(self, verb: str, msg_id: str, *content: Any) -> None:
        iq = self.xmpp.make_iq_set(ito=self.domain)
        payload = ET.Element(f"{{{QOS}}}{verb}", msgId=msg_id)
        payload.extend(content)
        iq.append(payload)
        result = await iq.send(timeout=WAIT_S)
        emit("answered", verb, msg_id, *(child.tag.rpartition("}")[2] for child in result.xml))

    async def quit(self) -> None:
        self.ending = True
        await self.xmpp.disconnect()


def _log(name: str, text: str) -> Any:
    log = ET.Element(f"{{{LOG}}}log", id=name)
    ET.SubElement(log, f"{{{LOG}}}message").text = text
    return log


async def run_commands(device: Device, reader: asyncio.StreamReader) -> None:
    while line := await reader.readline():
        verb, *words = line.decode().split()
        try:
            await getattr(device, verb)(*words)
        except IqError as error:
            emit("refused", verb, error.condition)
    device.ended.set()


async def main(host: str, port: str, jid: str, cafile: str, transport: str, *words: str) -> None:
    mechanism, *credentials = words
    device = Device(jid, cafile, transport, mechanism)
    if credentials:
        device.xmpp.certfile, device.xmpp.keyfile = credentials
        device.xmpp.credentials["authzid"] = b""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    device.xmpp.connect(host, int(port))
    commands = asyncio.create_task(run_commands(device, reader))
    await device.ended.wait()
    commands.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
