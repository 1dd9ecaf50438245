"""Who may do what at a node: the node, what somebody is to it, and the error that refuses them.

The rights themselves are `rules.affiliation`'s. Whether somebody may use the service at all is
settled before (`requests.answering`). Source: XEP-0060, sections 4.1, 4.5, 6.1.3, 6.5.9 and 7.1.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context
from edge.features.presence.rules.roster import FIELDS
from edge.features.presence.store import roster
from edge.features.pubsub.rules import affiliation as rules
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import affiliations, nodes
from edge.features.pubsub.store.nodes import Node
from edge.xmpp import pubsub
from edge.xmpp.errors import StanzaError

_SEES: Final = ("from", "both")
"""A subscription by which a contact sees the presence of a roster's owner."""


def node(_context: Context, tx: Transaction, name: str | None) -> Node:
    """Return the node of a name; raises `StanzaError` if there is none, or no name is given."""
    if not name:
        raise pubsub.refusal("bad-request", "nodeid-required")
    found = nodes.get(tx, name)
    if found is None:
        raise pubsub.refusal("item-not-found", text="there is no such node")
    return found


def affiliation(tx: Transaction, node: Node, bare: str) -> Affiliation:
    """Return what a bare JID is to a node."""
    return affiliations.get(tx, node.id, bare)


def may_subscribe(context: Context, tx: Transaction, node: Node, bare: str) -> bool:
    """Tell whether a bare JID may subscribe to a node."""
    found = affiliation(tx, node, bare)
    return _allowed(context, tx, node, bare, found)


def admits(context: Context, tx: Transaction, node: Node) -> Callable[[str], bool]:
    """Return what tells of bare JIDs, one after another, whether each may subscribe to a node: its
    affiliations are read once."""
    known = affiliations.of_node(tx, node.id)

    def admitted(bare: str) -> bool:
        return _allowed(context, tx, node, bare, known.get(bare, Affiliation.NONE))

    return admitted


def sees(context: Context, tx: Transaction, node: Node, bare: str, found: Affiliation) -> bool:
    """Tell whether a node is listed to a bare JID, which is `found` to it."""
    model = node.config.access_model
    knows = _asks_rosters(node, found) and _knows(context, tx, node, bare)
    return rules.may_discover(found, model, in_roster=knows)


def check_subscribe(context: Context, tx: Transaction, node: Node, sender: Sender) -> None:
    """Raise the error that refuses a subscription, if one does (section 6.1.3)."""
    found = affiliation(tx, node, sender.bare)
    if not _allowed(context, tx, node, sender.bare, found):
        raise _refused(node, found)


def check_retrieve(context: Context, tx: Transaction, node: Node, sender: Sender) -> None:
    """Raise the error that refuses a node's items, if one does (section 6.5.9): the same."""
    check_subscribe(context, tx, node, sender)


def check_publish(_context: Context, tx: Transaction, node: Node, sender: Sender) -> None:
    """Raise the error that refuses a publication, if one does (section 7.1.3.1)."""
    found, model = affiliation(tx, node, sender.bare), node.config.publish_model
    subscribed = model == "subscribers" and nodes.has_subscriber(tx, node.id, sender.account)
    if not rules.may_publish(found, model, subscribed=subscribed):
        raise pubsub.refusal("forbidden")


def check_owner(_context: Context, tx: Transaction, node: Node, sender: Sender) -> None:
    """Raise the error for who is no owner of a node, if the sender is none (section 8)."""
    if not rules.may_configure(affiliation(tx, node, sender.bare)):
        raise pubsub.refusal("forbidden")


def _allowed(context: Context, tx: Transaction, node: Node, bare: str, found: Affiliation) -> bool:
    model = node.config.access_model
    knows = _asks_rosters(node, found) and _knows(context, tx, node, bare)
    return rules.may_subscribe(found, model, in_roster=knows)


def _asks_rosters(node: Node, found: Affiliation) -> bool:
    return found is Affiliation.NONE and node.config.access_model in ("presence", "roster")


def _knows(context: Context, tx: Transaction, node: Node, bare: str) -> bool:
    """Tell whether an owner's roster has somebody as the access model wants it."""
    groups = set(node.config.roster_groups_allowed)
    for owner in affiliations.owners(tx, node.id):
        local, _at, domain = owner.rpartition("@")
        account = roster.account_id(tx, local) if domain == context.domain else None
        if account is None:
            continue
        contact = roster.find(tx, account, bare)
        if node.config.access_model == "roster":
            known = contact.listed and not groups.isdisjoint(contact.groups)
        else:
            known = FIELDS[contact.state].subscription in _SEES
        if known:
            return True
    return False


def _refused(node: Node, found: Affiliation) -> StanzaError:
    model = node.config.access_model
    if found in (Affiliation.OUTCAST, Affiliation.PUBLISH_ONLY):
        return pubsub.refusal("forbidden")
    if model == "presence":
        return pubsub.refusal("not-authorized", "presence-subscription-required")
    if model == "roster":
        return pubsub.refusal("not-authorized", "not-in-roster-group")
    return pubsub.refusal("not-allowed", "closed-node")
