"""Handle requests to create, configure, purge and delete nodes (XEP-0060, sections 8.1 to 8.5)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from edge.engine.dispatch.hooks import Context, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.node_config import DEFAULT, NodeConfig
from edge.features.pubsub.service import access, nodes
from edge.features.pubsub.xmpp import forms
from edge.routing.xmpp import answers
from edge.xmpp import pubsub, serialize
from edge.xmpp.namespaces import PUBSUB_OWNER, clark
from edge.xmpp.stanza import Child, Stanza

INSTANT_NAME_BYTES: Final = 10


def create(context: Context, stanza: Stanza) -> Work:
    """Create a node, with a configuration if the request has one (section 8.1)."""
    element, *following = stanza.children[0].children
    requested = element.attrs.get("node")
    name = secrets.token_hex(INSTANT_NAME_BYTES) if requested is None else requested
    config = _read_configuration(context, following)
    nodes.check_name(context, name)

    def act(tx: Transaction, sender: Sender) -> bytes:
        nodes.create_for(context, tx, sender, name, config)
        return b"" if requested else pubsub.payload(serialize.tag("create", {"node": name}))

    return answers.service_work(context, stanza, act)


def _read_configuration(context: Context, following: Sequence[Child]) -> NodeConfig:
    if not following:
        return DEFAULT
    (configure,) = following
    if "node" in configure.attrs:
        text = "<configure/> after <create/> must not have the attribute node"
        raise pubsub.refusal("bad-request", text=text)
    return nodes.apply_options(context, DEFAULT, forms.read_configure(configure) or {})


def get_configuration(context: Context, stanza: Stanza) -> Work:
    """Answer with the configuration of a node, if the sender is an owner (section 8.2.1)."""
    name = stanza.children[0].children[0].attrs.get("node")

    def act(tx: Transaction, sender: Sender) -> bytes:
        node = access.get_owned_node(tx, sender, name)
        form = forms.node_config_form(node.config)
        return pubsub.payload(serialize.tag("configure", {"node": node.name}, form), owner=True)

    return answers.service_work(context, stanza, act)


def get_default(context: Context, stanza: Stanza) -> Work:
    """Answer with the default configuration of nodes (section 8.3)."""
    content = serialize.tag("default", content=forms.node_config_form(DEFAULT))
    payload = pubsub.payload(content, owner=True)
    return answers.service_work(context, stanza, lambda _tx, _sender: payload)


def configure(context: Context, stanza: Stanza) -> Work:
    """Change the configuration of a node for an owner (section 8.2.4)."""
    element = stanza.children[0].children[0]
    name, values = element.attrs.get("node"), forms.read_configure(element)
    return answers.service_work(
        context, stanza, lambda tx, sender: nodes.configure(context, tx, sender, name, values)
    )


def delete(context: Context, stanza: Stanza) -> Work:
    """Delete a node for an owner (section 8.4)."""
    element = stanza.children[0].children[0]
    name, redirect = element.attrs.get("node"), _read_redirect(element)
    return answers.service_work(
        context, stanza, lambda tx, sender: nodes.delete(context, tx, sender, name, redirect)
    )


def _read_redirect(element: Child) -> str:
    found = list(element.tree())
    if not found:
        return ""
    uri = found[0].get("uri")
    if len(found) > 1 or found[0].tag != clark(PUBSUB_OWNER, "redirect") or not uri:
        raise pubsub.refusal("bad-request", text="one <redirect/> with a URI is expected")
    return uri


def purge(context: Context, stanza: Stanza) -> Work:
    """Delete all items of a node for an owner (section 8.5)."""
    name = stanza.children[0].children[0].attrs.get("node")
    return answers.service_work(
        context, stanza, lambda tx, sender: nodes.purge(context, tx, sender, name)
    )
