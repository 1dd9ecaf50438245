"""What a session was sent and its peer never got: back where it came from (XEP-0198, section 5).

Rows of a table are their feature's (`lost`); here are stanzas that were nowhere stored. Messages
are routed again, to another session or into store; who asked something is told that it was not
answered; results, errors and presence are over with the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.handlers import offline
from edge.handlers.post import Letter, post
from edge.handlers.refusals import log_source
from edge.rules import routing
from edge.rules.routing import Kind
from edge.store import accounts, sessions
from edge.wire import jid, serialize
from edge.wire.errors import StanzaError
from edge.wire.namespaces import CLIENT, clark
from edge.wire.stanza import parse_fragment

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from edge.handlers.feature import House
    from edge.store.database import Transaction

_MESSAGE = clark(CLIENT, "message")
_IQ = clark(CLIENT, "iq")


def take_back(house: House, tx: Transaction, stanza: bytes) -> None:
    """Deal with one stanza (raw, stamped) as if its recipient had not been there."""
    tree = parse_fragment(stanza)
    from_, to = tree.get("from"), tree.get("to")
    if from_ is None or to is None:
        return
    if tree.tag == _IQ and tree.get("type") in ("get", "set"):
        _tell(tx, tree, StanzaError("recipient-unavailable"))
    elif tree.tag == _MESSAGE and routing.kind(tree.get("type")) is not Kind.ERROR:
        _route(house, tx, tree, stanza)


def refuse(tx: Transaction, stanza: bytes) -> None:
    """Tell who sent a stanza (raw, stamped) that it cannot be kept; nothing is written."""
    tree = parse_fragment(stanza)
    if tree.tag == _IQ and tree.get("type") in ("get", "set"):
        _tell(tx, tree, StanzaError("recipient-unavailable"))
    elif tree.tag == _MESSAGE and routing.kind(tree.get("type")) is not Kind.ERROR:
        _tell(tx, tree, StanzaError("resource-constraint", "the gateway's disk has no room"))


def _route(house: House, tx: Transaction, tree: Element, stanza: bytes) -> None:
    address, sender = jid.parse(tree.attrib["to"]), tree.attrib["from"]
    kind = routing.kind(tree.get("type"))
    exists = accounts.usable(tx, address.local)
    route = routing.returned(kind, sessions.of(tx, address.bare), exists=exists)
    delayed = any(
        child.tag == offline.DELAYED and child.get("from") == house.domain for child in tree
    )
    lasting = offline.worth_storing([child.tag for child in tree])
    refusal = post(house, tx, Letter(stanza, sender, address.local, kind, lasting, delayed), route)
    if refusal is not None:
        log_source(house, tx, jid.parse(sender).bare, refusal.rule, refusal.figure)
        if refusal.error is not None:
            _tell(tx, tree, refusal.error)


def _tell(tx: Transaction, tree: Element, error: StanzaError) -> None:
    """Send whoever sent a stanza an error for it, if that session is there still."""
    sender = sessions.at(tx, tree.get("from", ""))
    if sender is None:
        return
    name = "iq" if tree.tag == _IQ else "message"
    attrs = {"type": "error", "id": tree.get("id"), "to": sender.full, "from": tree.get("to")}
    tx.send(sender.generation, serialize.tag(name, attrs, serialize.stanza_error(error)))
