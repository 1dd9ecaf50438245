"""Handle requests about affiliations (XEP-0060, sections 5.7 and 8.9)."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from edge import jid
from edge.engine.dispatch.hooks import Context, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.service import nodes
from edge.features.pubsub.service.nodes import AffiliationChange
from edge.routing.xmpp import answers
from edge.xmpp import pubsub, serialize
from edge.xmpp.namespaces import PUBSUB_OWNER, clark
from edge.xmpp.stanza import Stanza


def get_own(context: Context, stanza: Stanza) -> Work:
    """Answer with the sender's affiliations to all nodes, or to the given node (section 5.7)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = nodes.own_affiliations(tx, sender, name)
        content = b"".join(
            serialize.tag("affiliation", {"node": node, "affiliation": affiliation.value})
            for node, affiliation in found
        )
        return pubsub.payload(serialize.tag("affiliations", {"node": name}, content))

    return answers.service_work(context, stanza, act)


def get_of_node(context: Context, stanza: Stanza) -> Work:
    """Answer with the affiliations of a node, if the sender is an owner (section 8.9.1)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = nodes.affiliations_of_node(tx, sender, name)
        return affiliations_element(name or "", found)

    return answers.service_work(context, stanza, act)


def set_(context: Context, stanza: Stanza) -> Work:
    """Change affiliations of a node for an owner (section 8.9.2); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    changes = [_read_change(context, child) for child in element.tree()]
    if not changes or len({one.jid for one in changes}) < len(changes):
        raise pubsub.refusal("bad-request", text="name at least one JID, and each only once")

    def act(tx: Transaction, sender: Sender) -> None:
        nodes.set_affiliations(context, tx, sender, element.attrs.get("node"), changes)

    return answers.service_work(context, stanza, act)


def _read_change(context: Context, child: Element) -> AffiliationChange:
    text, value = child.get("jid", ""), child.get("affiliation")
    if child.tag != clark(PUBSUB_OWNER, "affiliation"):
        raise pubsub.refusal("bad-request", text="only <affiliation/> elements are expected")
    try:
        affiliation = None if value is None else Affiliation(value)
    except ValueError:
        return AffiliationChange(text, None, f"{value} is not an affiliation")
    try:
        address = jid.parse(text)
    except jid.JidError:
        return AffiliationChange(text, None, f"{text} is not a JID")
    if address.resource or not address.local or address.domain != context.domain:
        return AffiliationChange(text, None, f"{text} is not an account of {context.domain}")
    return AffiliationChange(address.bare, affiliation)


def affiliations_element(name: str, found: Mapping[str, Affiliation]) -> bytes:
    """Encode affiliations of a node, by bare JID."""
    content = b"".join(
        serialize.tag("affiliation", {"jid": bare, "affiliation": affiliation.value})
        for bare, affiliation in found.items()
    )
    return pubsub.payload(serialize.tag("affiliations", {"node": name}, content), owner=True)
