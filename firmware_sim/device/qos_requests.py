"""The quality of service of `urn:xmpp:qos` as a slixmpp plugin: its requests, and their answers.

A request goes out with an id and a msgId of the caller's choice, and its answer comes back as an
`Answer`, found by (from, to, id). The plugin keeps nothing on disk, repeats nothing and times
nothing: `courier` does. It is the sender's half alone; so it announces no feature, and an offer
from a peer gets slixmpp's `feature-not-implemented`.

Use it on a client of your own by `client.register_plugin("urn:xmpp:qos")` once this module is
imported. Specification: the quality of service ProtoXEP, sections 2.2, 2.3 and 3.
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
from slixmpp.stanza import Iq
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher.base import MatcherBase

if TYPE_CHECKING:
    from slixmpp.xmlstream.stanzabase import StanzaBase

NAMESPACE: Final = "urn:xmpp:qos"
NAMESPACES: Final = (NAMESPACE, "urn:nf:iot:qos:1.0", "urn:ieee:iot:qos:1.0")
"""Where the same elements are known; a peer that announces any of them is answered in the first."""


class Step(Enum):
    """Which request it is; the value is the element's name."""

    ASSURED = "assured"
    ACKNOWLEDGED = "acknowledged"
    DELIVER = "deliver"


class Outcome(Enum):
    """What an answer says."""

    RECEIVED = "received"
    RESULT = "result"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the exchange.

    `message` is the text of a `<message/>` that declares its own namespaces; it is sent as it is,
    so that a repetition is the same to the byte. `deliver` has none, `acknowledged` no `msg_id`.
    """

    step: Step
    id: str
    to: str
    msg_id: str = ""
    message: str = ""

    def text(self) -> str:
        """Write the iq."""
        step = self.step.value
        named = "" if self.step is Step.ACKNOWLEDGED else f" msgId={quoteattr(self.msg_id)}"
        head = f"<iq type='set' id={quoteattr(self.id)} to={quoteattr(self.to)}>"
        return f"{head}<{step} xmlns='{NAMESPACE}'{named}>{self.message}</{step}></iq>"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request; the three last are those of an error (RFC 6120, 8.3)."""

    request: Request
    outcome: Outcome
    error_type: str = ""
    condition: str = ""
    text: str = ""


class _Expected(MatcherBase):
    """Matches the answer to a request that waits for one: its id, whom it is from and for whom."""

    def __init__(self, plugin: QualityOfService) -> None:
        super().__init__(None)
        self._plugin = plugin

    def match(self, xml: StanzaBase) -> bool:
        return isinstance(xml, Iq) and self._plugin.expects(xml)


class QualityOfService(BasePlugin):
    """The plugin. `on_answer` is called with each `Answer`, in the order in which they come."""

    name = NAMESPACE
    description = "Quality of Service (sender)"
    dependencies: ClassVar[set[str]] = {"xep_0030"}

    def plugin_init(self) -> None:
        """Register with the stream; slixmpp calls it."""
        self._expected: dict[str, Request] = {}
        self.on_answer: Callable[[Answer], None] = _ignore
        handler = Callback(NAMESPACE, _Expected(self), self._answered)
        self.xmpp.register_handler(handler)

    def plugin_end(self) -> None:
        """Leave the stream; slixmpp calls it."""
        self.xmpp.remove_handler(NAMESPACE)
        self._expected.clear()

    def send(self, request: Request) -> None:
        """Send a request and expect its answer. It is written as it is: no outgoing filter runs."""
        self._expected[request.id] = request
        self.xmpp.send(request.text())

    def forget(self, id_: str) -> None:
        """Stop expecting the answer to that request."""
        self._expected.pop(id_, None)

    def forget_all(self) -> None:
        """Expect nothing, and tell nobody: the session is over."""
        self._expected.clear()
        self.on_answer = _ignore

    async def supported(self, jid: str, timeout: float = 30.0) -> bool:  # noqa: ASYNC109
        """Ask an entity by service discovery (XEP-0030) whether it takes such messages.

        Args:
            jid: whom to ask.
            timeout: seconds to wait for the answer; none in time is a no.
        """
        discovery: Any = self.xmpp.plugin["xep_0030"]
        try:
            info = await discovery.get_info(jid=JID(jid), timeout=timeout, cached=False)
        except (IqError, IqTimeout):
            return False
        return any(feature in NAMESPACES for feature in info["disco_info"]["features"])

    def expects(self, iq: Iq) -> bool:
        """Tell whether that iq answers a request by (from, to, id)."""
        request = self._expected.get(iq["id"])
        if request is None or iq["type"] not in ("result", "error"):
            return False
        return self._is_from(request, iq["from"]) and self._is_for_us(iq["to"])

    def _is_from(self, request: Request, sender: JID) -> bool:
        # Without a `from`, it is the account itself that answers (RFC 6120, 8.1.2.1).
        asked = JID(request.to)
        return bool(sender == asked if str(sender) else asked == JID(self.xmpp.boundjid.bare))

    def _is_for_us(self, recipient: JID) -> bool:
        return not str(recipient) or recipient == self.xmpp.boundjid

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
    # In any namespace: the specification's examples and its schema differ in this.
    return child.tag.rpartition("}")[2] == "received" and child.get("msgId") == request.msg_id


def _ignore(answer: Answer) -> None:
    """Take an answer that nobody asked to see."""


register_plugin(QualityOfService)
