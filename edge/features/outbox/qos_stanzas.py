"""The stanzas by which a message is handed on to a device, and what its answers mean.

The iq is from the original sender, or from the service where a node sent it, and for the device's
session; its id and the msgId are the gateway's own, and the same each time. `<received/>` is taken
in any namespace. Nothing here is sent or decided. Source: XEP QoS, "Use Cases".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine import iq_ids
from edge.engine.addresses import pubsub_service
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.eventlog.store import epochs
from edge.features.outbox.rules import Input, State
from edge.features.outbox.store import outbox
from edge.features.outbox.store.outbox import OutboxRow
from edge.xmpp import serialize
from edge.xmpp.errors import STANZA_CONDITIONS, STANZA_TYPES, StanzaError
from edge.xmpp.namespaces import CLIENT, QOS, QOS_ALL, STANZA_ERRORS, clark
from edge.xmpp.stanza import Child, Stanza, parse_fragment, stamped, stamped_with

ASSURED: Final = "a"
ACKNOWLEDGED: Final = "k"
DELIVER: Final = "d"
KINDS: Final = (ASSURED, ACKNOWLEDGED, DELIVER)
"""The kinds of the ids of these iqs (`asking`)."""

TEXT: Final = 200
"""Characters kept of what a device says of an error."""

_ERROR: Final = clark(CLIENT, "error")
_CONDITIONS: Final = {clark(STANZA_ERRORS, name): name for name in STANZA_CONDITIONS}
_START: Final = b"<message"


class Answer(NamedTuple):
    """What an answer is to the exchange, and the error that it tells."""

    event: Input
    error: StanzaError | None = None


def kind(row: OutboxRow) -> str | None:
    """Return the kind of the iq that a message is waiting for the answer of, if it is."""
    if row.state in (State.OFFERED.value, State.REPEATED.value):
        return ASSURED if row.qos == 2 else ACKNOWLEDGED
    return DELIVER if row.state == State.RELEASED.value else None


def author(context: Context, row: OutboxRow) -> str:
    """Return whom a message is from on the wire: the full JID of its sender; where that is a node,
    the publish-subscribe service (XEP-0060, section 7.1.2)."""
    service = pubsub_service(context.domain)
    return service if row.sender.startswith(f"{service}/") else row.sender


def _recipient(context: Context, row: OutboxRow) -> str:
    return row.only_session or f"{row.recipient}@{context.domain}"


def request(context: Context, tx: Transaction, row: OutboxRow, full: str, namespace: str) -> bytes:
    """Write the iq of a message's step, for the session `full` that takes this namespace."""
    epoch, asked, from_ = (
        epochs.epoch_of_row(tx, row.row),
        kind(row) or DELIVER,
        author(context, row),
    )
    msg_id = f"{epoch}-{row.row}"
    if asked == DELIVER:
        payload = serialize.tag("deliver", {"msgId": msg_id}, xmlns=namespace or QOS)
    else:  # with a prefix, since the message is in the default namespace
        name = "assured" if asked == ASSURED else "acknowledged"
        attrs = {"xmlns:qos": namespace, "msgId": msg_id if asked == ASSURED else None}
        content = stamped(outbox.body(tx, row.row), from_, _recipient(context, row))
        payload = serialize.tag(f"qos:{name}", attrs, content)
    return serialize.iq_set(iq_ids.make(epoch, asked, row.row), full, from_, payload)


def plain(context: Context, tx: Transaction, row: OutboxRow) -> bytes:
    """Write a message as a plain stanza, with the time at which it came (XEP-0203)."""
    came = tx.now.wall - max(0, round((tx.now.service - row.since) * 1000))
    body = as_stanza(outbox.body(tx, row.row))
    delay = serialize.delay(context.domain, came)
    return stamped_with(body, author(context, row), delay, _recipient(context, row))


def as_stanza(body: bytes) -> bytes:
    """Return a message as a stanza: where it is in a namespace of quality of service, as what it
    was embedded in, it is meant to be in that of clients."""
    from xml.etree import ElementTree  # imported late: trees are built on cold paths alone

    tree = parse_fragment(body)
    if tree.tag == clark(CLIENT, "message") and body.startswith(_START):
        return body
    for element in tree.iter():
        namespace, _, name = element.tag[1:].partition("}")
        if namespace in QOS_ALL:
            element.tag = clark(CLIENT, name)
    return ElementTree.tostring(tree)


def read(stanza: Stanza, asked: str, msg_id: str) -> Answer:
    """Read the answer to an iq of some kind, of the message `msg_id`."""
    if stanza.attrs.get("type") == "error":
        error = _error(stanza)
        return Answer(Input.WAIT_ERROR if error.type == "wait" else Input.FINAL_ERROR, error)
    if asked != ASSURED:
        return Answer(Input.RESULT)
    payload = stanza.payload
    told = (
        None if payload is None else (payload.name.rpartition("}")[2], payload.attrs.get("msgId"))
    )
    if told == ("received", msg_id):
        return Answer(Input.RECEIVED)
    text = "the device answered the offer without <received/>"
    return Answer(Input.FINAL_ERROR, StanzaError("undefined-condition", text))


def _error(stanza: Stanza) -> StanzaError:
    found = next((child for child in stanza.children if child.name == _ERROR), None)
    if found is None:
        return StanzaError("undefined-condition", "the device told an error and not which")
    names = (_CONDITIONS.get(child.name) for child in found.children)
    condition = next((name for name in names if name is not None), "undefined-condition")
    type_ = found.attrs.get("type", "")
    return StanzaError(condition, _text(found), type=type_ if type_ in STANZA_TYPES else None)


def _text(error: Child) -> str:
    name = clark(STANZA_ERRORS, "text")
    found = next((child for child in error.children if child.name == name), None)
    return "" if found is None else (found.tree().text or "")[:TEXT]
