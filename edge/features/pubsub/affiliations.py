"""Affiliations: each asks for its own, and owners see and change those of their nodes (XEP-0060,
sections 5.7 and 8.9).

What an affiliation is good for is `rules.affiliation`'s. Changes that are asked for together are
made together, or none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.engine import refusals
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, Work
from edge.features.pubsub import rights, subscribing
from edge.features.pubsub.requests import answering
from edge.features.pubsub.rules import affiliation as rules
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import affiliations
from edge.features.pubsub.store.nodes import Node
from edge.xmpp import jid, pubsub, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, PUBSUB_OWNER, clark
from edge.xmpp.stanza import Stanza


class _Wanted(NamedTuple):
    """What an owner wants somebody to be; `why` says why that cannot be."""

    jid: str
    affiliation: Affiliation | None
    why: str = ""


def own(context: Context, stanza: Stanza) -> Work:
    """Tell somebody what they are, to all nodes or to one (section 5.7)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        found = [(node, what) for _, node, what in affiliations.of_jid(tx, sender.bare)]
        if name is not None:
            node = rights.node(context, tx, name).name
            found = [(one, what) for one, what in found if one == node]
        content = b"".join(
            serialize.tag("affiliation", {"node": node, "affiliation": what.value})
            for node, what in found
        )
        return pubsub.payload(serialize.tag("affiliations", {"node": name}, content))

    return answering(context, stanza, act)


def of_node(context: Context, stanza: Stanza) -> Work:
    """Tell an owner who is affiliated with a node (section 8.9.1)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, name)
        rights.check_owner(context, tx, node, sender)
        return _listed(node.name, affiliations.of_node(tx, node.id).items())

    return answering(context, stanza, act)


def change(context: Context, stanza: Stanza) -> Work:
    """Change affiliations as an owner wants it (section 8.9.2); raises `StanzaError`."""
    element = stanza.children[0].children[0]
    wanted = [_wanted(context, child) for child in element.tree()]
    if not wanted or len({one.jid for one in wanted}) < len(wanted):
        raise pubsub.refusal("bad-request", text="one affiliation for each JID is needed")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = rights.node(context, tx, element.attrs.get("node"))
        rights.check_owner(context, tx, node, sender)
        before = affiliations.of_node(tx, node.id)
        changes = {one.jid: one.affiliation for one in wanted if one.affiliation is not None}
        _check(context, tx, sender, node, wanted, before)
        for bare, affiliation in changes.items():
            affiliations.put(tx, node.id, bare, affiliation)
        subscribing.recheck(context, tx, node)
        return b""

    return answering(context, stanza, act)


def _wanted(context: Context, child: Element) -> _Wanted:
    text, word = child.get("jid", ""), child.get("affiliation")
    if child.tag != clark(PUBSUB_OWNER, "affiliation"):
        raise pubsub.refusal("bad-request", text="affiliations are wanted, and nothing else")
    try:
        affiliation = None if word is None else Affiliation(word)
    except ValueError:
        return _Wanted(text, None, f"{word} is no affiliation")
    try:
        address = jid.parse(text)
    except StanzaError:
        return _Wanted(text, None, f"{text} is no JID")
    if address.resource or not address.local or address.domain != context.domain:
        return _Wanted(text, None, f"{text} is no account of {context.domain}")
    return _Wanted(address.bare, affiliation)


def _check(
    context: Context,
    tx: Transaction,
    sender: Sender,
    node: Node,
    wanted: Iterable[_Wanted],
    before: Mapping[str, Affiliation],
) -> None:
    """Raise `StanzaError` if a change cannot be made: what all are still is told then (8.9.2.4)."""
    changes = {one.jid: one.affiliation for one in wanted if one.affiliation is not None}
    after = {**before, **changes}
    why = next((one.why for one in wanted if one.why), "")
    if not why and not rules.has_owner(after.values()):
        why = "a node has an owner"
    if why:
        still = ((one.jid, before.get(one.jid, Affiliation.NONE)) for one in wanted)
        raise pubsub.refusal("not-acceptable", text=why, instead=_listed(node.name, still))
    limit = context.limits.affiliations
    held = sum(what is not Affiliation.NONE for what in after.values())
    if held > max(limit, len(before)):
        refusals.log(context, tx, sender, "affiliations", limit)
        raise pubsub.refusal("resource-constraint", text=f"{limit} affiliations at most")


def _listed(name: str, found: Iterable[tuple[str, Affiliation]]) -> bytes:
    content = b"".join(
        serialize.tag("affiliation", {"jid": bare, "affiliation": what.value})
        for bare, what in found
    )
    return pubsub.payload(serialize.tag("affiliations", {"node": name}, content), owner=True)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_request("get", clark(PUBSUB, "affiliations"), own)
    hooks.pubsub_request("get", clark(PUBSUB_OWNER, "affiliations"), of_node)
    hooks.pubsub_request("set", clark(PUBSUB_OWNER, "affiliations"), change)
    hooks.advertise_pubsub(
        *(
            f"{PUBSUB}#{name}"
            for name in (
                "retrieve-affiliations",
                "modify-affiliations",
                "member-affiliation",
                "publisher-affiliation",
                "publish-only-affiliation",
                "outcast-affiliation",
            )
        )
    )
