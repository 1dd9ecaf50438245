"""The sender's half of `urn:xmpp:qos` as a slixmpp plugin: send requests and match their answers.

The caller chooses the request's id and msgId. The plugin matches answers by (from, to, id), and
calls `on_answer` with an `Answer`. It calls `on_returned` with each error message about a message
that was answered before. The plugin announces no feature; without the receiver's plugin,
slixmpp answers a peer's offer with `feature-not-implemented`. To use the plugin in another slixmpp
client, import this module and call `client.register_plugin("urn:xmpp:qos")`. Specification: the
quality of service ProtoXEP, sections 2.2, 2.3 and 3.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final
from xml.sax.saxutils import quoteattr

from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.jid import JID
from slixmpp.plugins.base import BasePlugin, register_plugin
from slixmpp.stanza import Iq, Message
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher.base import MatcherBase

if TYPE_CHECKING:
    from slixmpp.xmlstream.stanzabase import StanzaBase

NAMESPACE: Final = "urn:xmpp:qos"
NAMESPACES: Final = (NAMESPACE, "urn:nf:iot:qos:1.0", "urn:ieee:iot:qos:1.0")
"""All namespaces of quality of service that peers can announce; requests use the first."""


_RETURNED: Final = f"{NAMESPACE} returned"
_MARKS: Final = frozenset(
    f"{{{name}}}{level}" for name in NAMESPACES for level in ("assured", "acknowledged")
)


class StanzaText(str):
    """The text of a complete stanza, which stream management (XEP-0198) must count."""

    __slots__ = ()


class Step(Enum):
    """The requests of quality of service; the values are the names of their elements."""

    ASSURED = "assured"
    ACKNOWLEDGED = "acknowledged"
    DELIVER = "deliver"


class Outcome(Enum):
    """The kind of an answer: `<received/>`, an empty result, or an error."""

    RECEIVED = "received"
    RESULT = "result"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the protocol `urn:xmpp:qos`, such as `assured` or `deliver`.

    `message` is the text of a `<message/>` with its namespaces declared. It is sent unchanged, so
    that retransmissions are identical. `deliver` has no message, and `acknowledged` no `msg_id`.
    """

    step: Step
    id: str
    to: str
    msg_id: str = ""
    message: str = ""

    def text(self) -> str:
        """Format the request as an iq."""
        step = self.step.value
        named = "" if self.step is Step.ACKNOWLEDGED else f" msgId={quoteattr(self.msg_id)}"
        head = f"<iq type='set' id={quoteattr(self.id)} to={quoteattr(self.to)}>"
        return f"{head}<{step} xmlns='{NAMESPACE}'{named}>{self.message}</{step}></iq>"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request; the last three fields describe an error (RFC 6120, 8.3)."""

    request: Request
    outcome: Outcome
    error_type: str = ""
    condition: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """An error message about a message that was answered before: it was not delivered.

    `id` is the id of the message, `msg_id` the msgId of an assured one. `in_doubt` is whether the
    message may have been delivered nevertheless.
    """

    sender: str
    id: str
    msg_id: str
    text: str
    in_doubt: bool


class _Errors(MatcherBase):
    def match(self, xml: StanzaBase) -> bool:
        return isinstance(xml, Message) and xml["type"] == "error" and _mark(xml.xml) is not None


class _Expected(MatcherBase):
    def __init__(self, plugin: SenderPlugin) -> None:
        super().__init__(None)
        self._plugin = plugin

    def match(self, xml: StanzaBase) -> bool:
        return isinstance(xml, Iq) and self._plugin.expects(xml)


class SenderPlugin(BasePlugin):
    """A slixmpp plugin that sends requests and calls `on_answer` with each `Answer`, in order."""

    name = NAMESPACE
    description = "Quality of Service (sender)"
    dependencies: ClassVar[set[str]] = {"xep_0030"}

    def plugin_init(self) -> None:
        """Register with the stream; called by slixmpp."""
        self._expected: dict[str, Request] = {}
        self.on_answer: Callable[[Answer], None] = _ignore
        self.on_returned: Callable[[Returned], None] = _ignore
        self.xmpp.register_handler(Callback(_RETURNED, _Errors(None), self._returned))
        handler = Callback(NAMESPACE, _Expected(self), self._answered)
        self.xmpp.register_handler(handler)

    def plugin_end(self) -> None:
        """Unregister from the stream; called by slixmpp."""
        self.xmpp.remove_handler(NAMESPACE)
        self.xmpp.remove_handler(_RETURNED)
        self._expected.clear()

    def send(self, request: Request) -> None:
        """Send a request without slixmpp's outgoing filters, and expect its answer."""
        self._expected[request.id] = request
        self.xmpp.send(StanzaText(request.text()))

    def forget(self, id_: str) -> None:
        """Stop expecting the answer to the request with this id; a late answer is ignored."""
        self._expected.pop(id_, None)

    def forget_all(self) -> None:
        """Stop expecting any answers, because the session is over."""
        self._expected.clear()
        self.on_answer = self.on_returned = _ignore

    async def supported(self, jid: str, timeout: float = 30.0) -> bool:  # noqa: ASYNC109
        """Return whether an entity announces the feature by service discovery (XEP-0030).

        If there is no answer within `timeout` seconds, the result is False.
        """
        discovery: Any = self.xmpp.plugin["xep_0030"]
        try:
            info = await discovery.get_info(jid=JID(jid), timeout=timeout, cached=False)
        except (IqError, IqTimeout):
            return False
        return any(feature in NAMESPACES for feature in info["disco_info"]["features"])

    def expects(self, iq: Iq) -> bool:
        """Return whether an iq is the answer to a pending request: its (from, to, id) match."""
        request = self._expected.get(iq["id"])
        if request is None or iq["type"] not in ("result", "error"):
            return False
        return self._is_from(request, iq["from"]) and self._is_for_us(iq["to"])

    def _is_from(self, request: Request, sender: JID) -> bool:
        # An answer without `from` is the account's own (RFC 6120, 8.1.2.1).
        expected = JID(request.to)
        return bool(sender == expected if str(sender) else expected == JID(self.xmpp.boundjid.bare))

    def _is_for_us(self, recipient: JID) -> bool:
        return not str(recipient) or recipient == self.xmpp.boundjid

    def _returned(self, message: Any) -> None:
        mark, error = _mark(message.xml), message["error"]
        if mark is not None:
            text = f"{error['type']}/{error['condition']}: {error['text']}".rstrip(": ")
            in_doubt = error["text"].startswith("in doubt")
            msg_id = mark.get("msgId", "")
            self.on_returned(Returned(str(message["from"]), message["id"], msg_id, text, in_doubt))

    def _answered(self, iq: Any) -> None:
        request = self._expected.pop(iq["id"])
        self.on_answer(_read(request, iq))


def _read(request: Request, iq: Any) -> Answer:
    if iq["type"] == "error":
        error = iq["error"]
        return Answer(request, Outcome.ERROR, error["type"], error["condition"], error["text"])
    if request.step is Step.ASSURED and any(_receives(child, request) for child in iq.xml):
        return Answer(request, Outcome.RECEIVED)
    return Answer(request, Outcome.RESULT)


def _receives(child: ET.Element, request: Request) -> bool:
    # Accept any namespace, because the specification's examples and schema differ.
    return child.tag.rpartition("}")[2] == "received" and child.get("msgId") == request.msg_id


def _mark(message: ET.Element) -> ET.Element | None:
    """Return the element of an error message that says at which level the message was sent."""
    return next((child for child in message if child.tag in _MARKS), None)


def _ignore(answer: object) -> None:
    """Ignore an answer or a returned message."""


register_plugin(SenderPlugin)
