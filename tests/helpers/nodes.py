"""Requests of publish-subscribe on `store.Gateway`: nodes made and configured, answers read."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from edge.xmpp.namespaces import DATA_FORMS, PUBSUB, PUBSUB_ERRORS, PUBSUB_EVENT, PUBSUB_OWNER
from tests.helpers.people import PUMP
from tests.helpers.store import DOMAIN, Gateway, Reply, read_element

SERVICE: Final = f"pubsub.{DOMAIN}"
OWNER: Final = PUBSUB_OWNER
EVENT: Final = f"{{{PUBSUB_EVENT}}}"

_VALUE: Final = f"{{{DATA_FORMS}}}value"


def request(
    gateway: Gateway,
    content: str,
    *,
    ns: str = PUBSUB,
    type: str = "set",
    sender: str = PUMP,
) -> Reply:
    """Send a request to the service, and return what it answers."""
    reply = gateway.send(
        sender,
        f"<iq type='{type}' id='q' to='{SERVICE}'><pubsub xmlns='{ns}'>{content}</pubsub></iq>",
    )
    assert reply is not None
    assert (reply.attrs["id"], reply.attrs["to"], reply.attrs["from"]) == ("q", sender, SERVICE)
    return reply


def form(kind: str = "node_config", /, **options: str | list[str]) -> str:
    """Fill in a form of publish-subscribe."""
    fields: list[tuple[str, str | list[str]]] = [("FORM_TYPE", f"{PUBSUB}#{kind}")]
    fields += [(f"pubsub#{name}", given) for name, given in options.items()]
    written = []
    for var, given in fields:
        values = [given] if isinstance(given, str) else given
        content = "".join(f"<value>{value}</value>" for value in values)
        written.append(f"<field var='{var}'>{content}</field>")
    return f"<x xmlns='{DATA_FORMS}' type='submit'>{''.join(written)}</x>"


def create(gateway: Gateway, node: str, *, sender: str = PUMP, **options: str | list[str]) -> None:
    """Make a node."""
    configure = f"<configure>{form(**options)}</configure>" if options else ""
    reply = request(gateway, f"<create node='{node}'/>{configure}", sender=sender)
    assert reply.type == "result", reply


def affiliate(gateway: Gateway, node: str, *, sender: str = PUMP, **accounts: str) -> Reply:
    """Change what accounts, by name, are to a node."""
    changes = "".join(
        f"<affiliation jid='{name}@{DOMAIN}' affiliation='{what}'/>"
        for name, what in accounts.items()
    )
    content = f"<affiliations node='{node}'>{changes}</affiliations>"
    return request(gateway, content, ns=OWNER, sender=sender)


def refused(reply: Reply) -> str:
    """Return how a request was refused, as `type/condition`."""
    assert reply.error is not None, reply
    return "/".join(reply.error)


def specific(gateway: Gateway, content: str, **given: str) -> tuple[str, str]:
    """Send a request that is refused; returns how, and the condition of publish-subscribe."""
    sender, type = given.get("sender", PUMP), given.get("type", "set")
    xml = (
        f"<iq type='{type}' id='q' to='{SERVICE}'>"
        f"<pubsub xmlns='{given.get('ns', PUBSUB)}'>{content}</pubsub></iq>"
    )
    answer = read_element(gateway.tx(gateway.work(sender, xml)))
    error = answer.find("{jabber:client}error")
    assert error is not None
    condition = error[0].tag.partition("}")[2]
    found = [child for child in error if child.tag.startswith(f"{{{PUBSUB_ERRORS}}}")]
    named = found[0].tag.partition("}")[2] if found else ""
    return f"{error.get('type')}/{condition}", named


def values(form: Element | None) -> dict[str, list[str | None]]:
    """Read a form, to fill in or to look at."""
    assert form is not None
    return {
        field.get("var", ""): [value.text for value in field.iterfind(_VALUE)] for field in form
    }
