"""The operator's requests over the control socket to change something or to listen to nodes.

A listener gets each item that is published to a node whose name matches one of its filters, after
the publication is committed. A listener has no subscription and no session, and a listener that
reads too slowly is disconnected, so it delays no other work.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from edge import topics
from edge.engine.dispatch.hooks import Context
from edge.engine.dispatch.outputs import EndReason, Outputs
from edge.engine.rules.access import Sender
from edge.engine.store.database import Receipt, SentMessage, Transaction
from edge.engine.store.group_commit import Store
from edge.errors import StoreError
from edge.features.pubsub.service.publishing import ITEM_PUBLISHED, NewItem
from edge.features.pubsub.service.queries import Node
from edge.ops.gateway import operator
from edge.ops.gateway.operator_requests import Answer, ItemReport, Listen, Request, RequestRefused
from edge.ops.store_remedies import store_remedy

MAX_LISTENERS: Final = 4
"""Maximum concurrent listeners: half of the control socket's connections, so that the other half is
free for other commands."""

MAX_UNREAD_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes that a listener can leave unread; with more, it is disconnected: some thousand
items."""

_LISTENING: Final = msgspec.json.encode(Answer()) + b"\n"


class ListenedItem(NamedTuple):
    """A published item as listeners get it; `publisher` is a full JID."""

    node: str
    id: str
    publisher: str
    payload: bytes
    content_type: str


def read_listen(line: bytes) -> Listen | None:
    """Return the request to listen that a line contains, or `None` if it is another request."""
    try:
        return msgspec.json.decode(line, type=Listen) if line.startswith(b"{") else None
    except msgspec.DecodeError:
        return None


class ItemListener:
    """An operator's connection that gets published items (see `deliver`) until it is removed."""

    def __init__(
        self,
        requests: OperatorRequests,
        generation: int,
        filters: tuple[str, ...],
        transport: asyncio.Transport,
    ) -> None:
        self._requests = requests
        self._generation = generation
        self.filters = filters
        self._transport = transport

    def deliver(self, message: SentMessage, _receipt: Receipt | None) -> None:
        """Send an item, or disconnect if more than `MAX_UNREAD_BYTES` are unread."""
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._transport.abort()
        elif isinstance(message, ListenedItem):
            node, id, publisher, payload, content_type = message
            report = ItemReport(node, id, publisher, payload, content_type=content_type)
            self._transport.write(msgspec.json.encode(Answer(item=report)) + b"\n")

    def end(self, _reason: EndReason) -> None:
        """Disconnect."""
        self._transport.abort()

    def remove(self) -> None:
        """Remove this listener, so that it receives no more items."""
        self._requests.remove(self._generation)


class OperatorRequests:
    """Performs the operator's requests, and sends published items to listeners.

    Args:
        folder: the gateway's folder, which errors of the database name.
        context: the gateway's context; listeners are registered with its hooks.
        outputs: pass the published items to listeners after the commit.
    """

    def __init__(self, folder: Path, context: Context, store: Store, outputs: Outputs) -> None:
        self._folder = folder
        self._context = context
        self._store = store
        self._outputs = outputs
        self._listeners: dict[int, ItemListener] = {}
        context.hooks.on(ITEM_PUBLISHED, self._on_published)

    async def answer(self, line: bytes) -> bytes:
        """Perform a request; return the line that answers it."""
        try:
            request = msgspec.json.decode(line, type=Request)
            assert not isinstance(request, Listen)  # noqa: S101 - `listen` takes these
            answer = await self._store.run(lambda tx: operator.perform(self._context, tx, request))
        except msgspec.DecodeError:
            answer = Answer("unknown request")
        except StoreError as error:
            answer = Answer(f"{error}; {store_remedy(error, self._folder)}")
        return msgspec.json.encode(answer) + b"\n"

    def listen(self, request: Listen, transport: asyncio.Transport) -> ItemListener | None:
        """Begin to send published items to `transport`; if refused, send an error and close."""
        try:
            filters = operator.check_listen(self._context, request)
            if len(self._listeners) >= MAX_LISTENERS:
                raise RequestRefused(f"{MAX_LISTENERS} commands listen already; stop one of them")
        except RequestRefused as error:
            transport.write(msgspec.json.encode(Answer(str(error))) + b"\n")
            transport.close()
            return None
        generation = self._outputs.next_generation()
        listener = ItemListener(self, generation, filters, transport)
        self._outputs.attach(generation, listener)
        self._listeners[generation] = listener
        transport.write(_LISTENING)
        return listener

    def remove(self, generation: int) -> None:
        """Stop sending published items to the listener with this generation."""
        self._listeners.pop(generation, None)
        self._outputs.detach(generation)

    def _on_published(
        self,
        _context: Context,
        tx: Transaction,
        node: Node,
        sender: Sender,
        item: NewItem,
        *_: object,
    ) -> None:
        for generation, listener in list(self._listeners.items()):  # maybe on another thread
            if topics.matches_any(listener.filters, node.name):
                content = item.payload, item.attributes.content_type
                tx.send(generation, ListenedItem(node.name, item.id, sender.full, *content))
