"""What a session was sent and its peer never got: back where it came from (XEP-0198, section 5).

Rows of a table are their feature's (`lost`); here are stanzas that were nowhere stored. Messages
are routed again, to another session or into store; who asked something is told that it was not
answered; results, errors and presence are over with the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from edge.engine import sessions
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.engine.refusals import log_source
from edge.features.accounts.store import accounts
from edge.features.messages import offline, rules
from edge.features.messages import store as stored
from edge.features.messages.message_routing import Letter, post
from edge.features.messages.rules import MessageType, Outcome, Route
from edge.xmpp import jid, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import CLIENT, clark
from edge.xmpp.stanza import parse_fragment

MESSAGE = clark(CLIENT, "message")
IQ = clark(CLIENT, "iq")


def take_all_back(context: Context, tx: Transaction, stanzas: Iterable[bytes]) -> None:
    """Deal with the stanzas (raw, stamped) of one session, in order, as if it had not been there.

    What is stored for its account came later than these, which the session had first: it is put
    behind them, but for what another session has already.
    """
    line: dict[str, int] = {}
    for stanza in stanzas:
        _take_back(context, tx, stanza, line)
    for account, last in line.items():
        if 0 < last < stored.last_row(tx, account):
            stored.move_to_end(tx, account, last)
        offline.flush_best(context, tx, account)


def _take_back(context: Context, tx: Transaction, stanza: bytes, line: dict[str, int]) -> None:
    """Deal with one; `line` names the last message that was stored for an account before them."""
    tree = parse_fragment(stanza)
    from_, to = tree.get("from"), tree.get("to")
    if from_ is None or to is None:
        return
    if tree.tag == IQ and tree.get("type") in ("get", "set"):
        tell(tx, tree, StanzaError("recipient-unavailable"))
    elif tree.tag == MESSAGE and rules.parse_type(tree.get("type")) is not MessageType.ERROR:
        _route(context, tx, tree, stanza, line)


def refuse(tx: Transaction, stanza: bytes) -> None:
    """Tell who sent a stanza (raw, stamped) that it cannot be kept; nothing is written."""
    tree = parse_fragment(stanza)
    if tree.tag == IQ and tree.get("type") in ("get", "set"):
        tell(tx, tree, StanzaError("recipient-unavailable"))
    elif tree.tag == MESSAGE and rules.parse_type(tree.get("type")) is not MessageType.ERROR:
        tell(tx, tree, StanzaError("resource-constraint", "the gateway's disk has no room"))


def _route(
    context: Context, tx: Transaction, tree: Element, stanza: bytes, line: dict[str, int]
) -> None:
    address, sender = jid.parse(tree.attrib["to"]), tree.attrib["from"]
    kind = rules.parse_type(tree.get("type"))
    exists = accounts.is_active(tx, address.local)
    route = rules.reroute(kind, sessions.of(tx, address.bare), exists=exists)
    delayed = any(
        child.tag == offline.DELAYED and child.get("from") == context.domain for child in tree
    )
    lasting = offline.worth_storing([child.tag for child in tree])
    letter = Letter(stanza, sender, address.local, kind, lasting, delayed, returned=True)
    if address.local not in line:
        line[address.local] = stored.last_row(tx, address.local)
    waits = line[address.local] and lasting and offline.stores_messages(context.xmpp)
    if route.outcome is Outcome.BEST and waits:
        route = Route(Outcome.STORE)  # and not sent before all of them are in line
    refusal = post(context, tx, letter, route)
    if refusal is not None:
        log_source(context, tx, jid.parse(sender).bare, refusal.rule, refusal.figure)
        if refusal.error is not None:
            tell(tx, tree, refusal.error)


def tell(tx: Transaction, tree: Element, error: StanzaError) -> None:
    """Send whoever sent a stanza an error for it, if that session is there still."""
    sender = sessions.at(tx, tree.get("from", ""))
    if sender is None:
        return
    name = "iq" if tree.tag == IQ else "message"
    attrs = {"type": "error", "id": tree.get("id"), "to": sender.full, "from": tree.get("to")}
    tx.send(sender.generation, serialize.tag(name, attrs, serialize.stanza_error(error)))
