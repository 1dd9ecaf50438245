"""A client of a publish-subscribe service (XEP-0060) with queue nodes (XEP-0254).

Requests use slixmpp's XEP-0060 plugin. Each request waits up to `ANSWER_S` seconds for its answer,
or until the session ends. Events are parsed here, because slixmpp does not support the event of an
unlocked item.
"""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from firmware_sim.device.errors import NoAnswer, RequestRefused

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
EVENT: Final = f"{PUBSUB}#event"
QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
SUBSCRIBE_OPTIONS: Final = f"{PUBSUB}#subscribe_options"
PUBLISH_OPTIONS: Final = f"{PUBSUB}#publish-options"

ANSWER_S: Final = 30.0
"""Seconds that a request waits for its answer before NoAnswer; enough for a busy gateway."""

_EVENTS: Final = "pubsub events"
_PLUGINS: Final = ("xep_0004", "xep_0060")


class ItemEventKind(Enum):
    """The kind of change of an item that an event announces."""

    PUBLISHED = "item"
    DELETED = "retract"
    UNLOCKED = "unlock"


class ItemEvent(NamedTuple):
    """A change of an item. `redeliveries` is the number of earlier deliveries of the item.

    `payload` is None if the event contains none. `publisher` is the bare JID of the item's
    publisher, empty if the event does not contain it (XEP-0060, 7.1.2.3).
    """

    kind: ItemEventKind
    node: str
    item: str
    payload: ET.Element | None = None
    redeliveries: int = 0
    publisher: str = ""


_KINDS: Final = {
    f"{{{EVENT}}}item": ItemEventKind.PUBLISHED,
    f"{{{EVENT}}}retract": ItemEventKind.DELETED,
    f"{{{QUEUEING}}}unlock": ItemEventKind.UNLOCKED,
    "{urn:xmpp:queueing:0}unlock": ItemEventKind.UNLOCKED,  # as in the specification's example
}


def parse_item_events(message: ET.Element) -> list[ItemEvent]:
    """Return the changes of items that a message announces; empty if it contains no item events."""
    return [
        ItemEvent(
            kind,
            items.get("node", ""),
            element.get("id", ""),
            next(iter(element), None),
            _redeliveries(message),
            element.get("publisher", ""),
        )
        for items in message.iterfind(f"{{{EVENT}}}event/{{{EVENT}}}items")
        for element in items
        if (kind := _KINDS.get(element.tag)) is not None and element.get("id")
    ]


def _redeliveries(message: ET.Element) -> int:
    """Return the number of earlier deliveries, from the message's element `redelivered`."""
    for element in message:
        if element.tag.endswith("}redelivered"):
            redeliveries = element.get("times", "")
            return (
                int(redeliveries)
                if redeliveries.isdecimal() and len(redeliveries) < len("1000000000")
                else 1
            )
    return 0


class Pubsub:
    """A client of the publish-subscribe service at one address, in one session.

    slixmpp's `client` must not be connected yet. `on_event` is called with each change of an item,
    in order of arrival.
    """

    def __init__(
        self, client: Any, service: str, on_event: Callable[[ItemEvent], None] | None = None
    ) -> None:
        self._client, self._service = client, service
        self._on_event = on_event or (lambda _event: None)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for plugin in _PLUGINS:
            client.register_plugin(plugin)
        events = MatchXPath(f"{{jabber:client}}message/{{{EVENT}}}event")
        client.register_handler(Callback(_EVENTS, events, self._event))

    def end(self) -> None:
        """End all pending requests with NoAnswer, because the session is over."""
        if not self._over.done():
            self._over.set_result(None)

    async def create(self, node: str, options: Mapping[str, str | list[str]]) -> None:
        """Create a node with these options (XEP-0060, 8.1).

        Raises RequestRefused if the service refused the request, and NoAnswer if it is unknown
        whether it has carried it out.
        """
        form = self._form(options, "")
        await self._answer(self._plugin.create_node(self._service, node, config=form))

    async def subscribe(self, node: str, jid: str, options: Mapping[str, str | list[str]]) -> None:
        """Subscribe a JID, with options, to a node or a filter; raises as `create` does."""
        form = self._form(options, SUBSCRIBE_OPTIONS)
        call = self._plugin.subscribe
        await self._answer(call(self._service, node, subscribee=jid, options=form))

    async def unsubscribe(self, node: str, jid: str) -> None:
        """End a JID's subscription to a node or a filter; raises as `create` does."""
        call = self._plugin.unsubscribe
        await self._answer(call(self._service, node, subscribee=jid))

    async def publish(
        self, node: str, item: str, payload: ET.Element, options: Mapping[str, str] | None = None
    ) -> None:
        """Publish an item with this id; raises as `create` does."""
        form = self._form(options, PUBLISH_OPTIONS) if options else None
        call = self._plugin.publish
        await self._answer(call(self._service, node, id=item, payload=payload, options=form))

    async def delete(self, node: str, item: str) -> None:
        """Delete an item (XEP-0060, 7.2; XEP-0254, "Deleting"); raises as `create` does."""
        await self._answer(self._plugin.retract(self._service, node, item))

    async def unlock(self, node: str, item: str) -> None:
        """Return an item to its queue (XEP-0254, "Unlocking"); raises as `create` does."""
        request = self._client.make_iq_set(ito=self._service)
        unlock = ET.Element(f"{{{QUEUEING}}}unlock", {"node": node})
        ET.SubElement(unlock, f"{{{QUEUEING}}}item", {"id": item})
        request["pubsub"].xml.append(unlock)
        await self._answer(request.send())

    @property
    def _plugin(self) -> Any:
        return self._client.plugin["xep_0060"]

    def _form(self, options: Mapping[str, str | list[str]] | Mapping[str, str], type_: str) -> Any:
        form = self._client.plugin["xep_0004"].make_form(ftype="submit")
        if type_:
            form.add_field(var="FORM_TYPE", ftype="hidden", value=type_)
        for name, value in options.items():
            form.add_field(var=name, value=value)
        return form

    async def _answer(self, sent: asyncio.Future[Any]) -> None:
        """Wait for the answer to a request; raise as `create` does."""
        try:
            waits = {sent, self._over}
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(waits, timeout=ANSWER_S, return_when=first)
            if not sent.done():
                raise NoAnswer("the session ended before the answer arrived")
            sent.result()
        except IqError as error:
            raise RequestRefused(str(error.condition), str(error.text)) from error
        except IqTimeout as error:
            raise NoAnswer(f"no answer within {ANSWER_S:g} s") from error
        finally:
            sent.cancel()

    def _event(self, message: Any) -> None:
        for event in parse_item_events(message.xml):
            self._on_event(event)
