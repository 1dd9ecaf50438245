"""The receiver's half of `urn:xmpp:qos` as a slixmpp plugin: parse requests and write answers.

The plugin announces the feature by service discovery, and calls `on_incoming` with each request and
each plain message. Input that cannot be parsed is passed on as malformed; no input raises an
exception. Specification: the quality of service ProtoXEP, sections 2 and 3, and "To and from
attributes".
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final
from xml.sax.saxutils import quoteattr

from slixmpp.plugins.base import BasePlugin, register_plugin
from slixmpp.stanza import Iq, Message
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher.base import MatcherBase

from firmware_sim.device import capabilities, messages
from firmware_sim.device.errors import MessageRefused
from firmware_sim.device.qos_sender_plugin import NAMESPACES, StanzaText, Step
from firmware_sim.device.receiver_rules import Reply

if TYPE_CHECKING:
    from slixmpp.xmlstream.stanzabase import StanzaBase

RECEIVER: Final = "urn:xmpp:qos receiver"
"""The plugin's name in slixmpp."""

MSG_ID_BYTES: Final = 256
"""Maximum bytes of one msgId: the same as a gateway's limit."""

_STEPS: Final = {f"{{{name}}}{step.value}": step for name in NAMESPACES for step in Step}
_MESSAGE_NAMESPACES: Final = (
    messages.CLIENT,
    *NAMESPACES,
)  # an embedded message may inherit its namespace
_ERRORS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"


@dataclass(frozen=True, slots=True)
class IncomingStanza:
    """An incoming request, or a plain message (then `step` is None).

    `text` is the `<message/>`, with `from` and `to` of the enclosing stanza. `malformed` is empty,
    or says why the stanza is invalid; then only `id`, `sender` and `step` are set.
    """

    step: Step | None
    id: str
    sender: str
    namespace: str = ""
    msg_id: str = ""
    text: str = ""
    malformed: str = ""

    def answer(self, reply: Reply) -> str:
        """Format the iq that answers the request, in the request's namespace."""
        to = f" to={quoteattr(self.sender)}" if self.sender else ""
        head = f"id={quoteattr(self.id)}{to}"
        if reply.error is not None:
            kind, condition = reply.error
            text = f"<text xmlns='{_ERRORS}'>{self.malformed}</text>" if self.malformed else ""
            inner = f"<error type='{kind}'><{condition} xmlns='{_ERRORS}'/>{text}</error>"
            return f"<iq type='error' {head}>{inner}</iq>"
        if reply is Reply.RECEIVED:
            named = f"xmlns='{self.namespace}' msgId={quoteattr(self.msg_id)}"
            return f"<iq type='result' {head}><received {named}/></iq>"
        return f"<iq type='result' {head}/>"


class _Requests(MatcherBase):
    def match(self, xml: StanzaBase) -> bool:
        return isinstance(xml, Iq) and xml["type"] == "set" and _step(xml.xml) is not None


class _Messages(MatcherBase):
    def match(self, xml: StanzaBase) -> bool:
        return isinstance(xml, Message)


class ReceiverPlugin(BasePlugin):
    """A slixmpp plugin that calls `on_incoming` with itself and each `IncomingStanza`, in order."""

    name = RECEIVER
    description = "Quality of Service (receiver)"
    dependencies: ClassVar[set[str]] = {"xep_0030"}

    def plugin_init(self) -> None:
        """Register with the stream; called by slixmpp."""
        self.on_incoming: Callable[[ReceiverPlugin, IncomingStanza], None] = _ignore
        self.xmpp.register_handler(Callback(f"{RECEIVER} iq", _Requests(None), self._request))
        self.xmpp.register_handler(Callback(f"{RECEIVER} message", _Messages(None), self._message))

    def session_bind(self, _jid: object) -> None:
        """Announce the feature by service discovery; called by slixmpp when the JID is bound."""
        discovery: Any = self.xmpp.plugin["xep_0030"]
        discovery.add_identity(category="client", itype="bot")
        for namespace in NAMESPACES:
            discovery.add_feature(namespace)

    def plugin_end(self) -> None:
        """Unregister from the stream; called by slixmpp."""
        for kind in ("iq", "message"):
            self.xmpp.remove_handler(f"{RECEIVER} {kind}")
        for namespace in NAMESPACES:
            self.xmpp.plugin["xep_0030"].del_feature(feature=namespace)
        self.on_incoming = _ignore

    def announce(self, priority: int) -> None:
        """Send presence with entity capabilities (XEP-0115), and answer queries for their hash."""
        static: Any = self.xmpp.plugin["xep_0030"].static
        info = static.get_node()["info"]
        identities = {
            (category, type_, lang or "", name or "")
            for category, type_, lang, name in info["identities"]
        }
        ver = capabilities.verification(identities, info["features"])
        node = static.get_node(None, f"{capabilities.NODE}#{ver}")["info"]
        for category, type_, lang, name in identities:
            node.add_identity(category, type_, name or None, lang or None)
        for feature in info["features"]:
            node.add_feature(feature)
        self.xmpp.send(StanzaText(capabilities.presence(ver, priority)))

    def answer(self, text: str) -> None:
        """Send an answer, given as XML text."""
        self.xmpp.send(StanzaText(text))

    @property
    def unsent(self) -> int:
        """Return the number of bytes in the connection's write buffer."""
        transport: Any = self.xmpp.transport
        return 0 if transport is None else int(transport.get_write_buffer_size())

    def _request(self, iq: Any) -> None:
        self.on_incoming(self, read_request(iq.xml, str(self.xmpp.boundjid)))

    def _message(self, message: Any) -> None:
        self.on_incoming(self, read_message(message.xml))


def read_request(iq: ET.Element, own: str) -> IncomingStanza:
    """Parse an iq whose first child is `assured`, `acknowledged` or `deliver`.

    `own` is the device's full JID, the recipient of the embedded message if the iq has no `to`.
    """
    step, sender = _step(iq), iq.get("from", "")
    payload = iq[0]
    namespace, msg_id = payload.tag[1:].partition("}")[0], payload.get("msgId", "")
    base = IncomingStanza(step, iq.get("id", ""), sender)
    if step is not Step.ACKNOWLEDGED and not 0 < len(msg_id.encode()) <= MSG_ID_BYTES:
        return replace(base, malformed=f"msgId must have 1 to {MSG_ID_BYTES} bytes")
    if step is Step.DELIVER:
        return replace(base, namespace=namespace, msg_id=msg_id)
    if len(payload) != 1 or payload[0].tag not in {
        f"{{{place}}}message" for place in _MESSAGE_NAMESPACES
    }:
        return replace(base, malformed="exactly one embedded message is required")
    message = _own(payload[0], namespace)
    message.set("from", sender)
    message.set("to", iq.get("to") or own)
    try:
        text = messages.write(message)
    except MessageRefused as error:
        return replace(base, malformed=str(error))
    return replace(base, namespace=namespace, msg_id=msg_id, text=text)


def read_message(message: ET.Element) -> IncomingStanza:
    """Parse a plain message (level 0)."""
    base = IncomingStanza(None, message.get("id", ""), message.get("from", ""))
    message.tail = None
    try:
        return replace(base, text=messages.write(message))
    except MessageRefused as error:
        return replace(base, malformed=str(error))


def _step(iq: ET.Element) -> Step | None:
    return _STEPS.get(iq[0].tag) if len(iq) else None


def _own(message: ET.Element, namespace: str) -> ET.Element:
    """Put those elements that inherited the request's namespace into `jabber:client`."""
    message.tail = None
    if message.tag != f"{{{messages.CLIENT}}}message":
        for element in message.iter():
            if element.tag.startswith(f"{{{namespace}}}"):
                element.tag = f"{{{messages.CLIENT}}}{element.tag.rpartition('}')[2]}"
    return message


def _ignore(_receiver: ReceiverPlugin, _incoming: IncomingStanza) -> None:
    """Ignore the stanza."""


register_plugin(ReceiverPlugin)
