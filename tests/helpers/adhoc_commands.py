"""Ad-hoc commands (XEP-0050) and their answers, for tests with a gateway in the same process."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from edge.xmpp.disco import NODE
from edge.xmpp.namespaces import COMMANDS, DATA_FORMS
from tests.helpers import queue_rows
from tests.helpers.store import DOMAIN, Gateway, Reply

FORM: Final = f"{NODE}:queue"
SERVICE: Final = f"pubsub.{DOMAIN}"
OLGA: Final = "olga@gw.example/desk"
OTHER: Final = "worker@gw.example/a"
X: Final = f"{{{DATA_FORMS}}}"
C: Final = f"{{{COMMANDS}}}"


def add_queue(gateway: Gateway) -> Gateway:
    """Give olga a session and the queue `work`, with items in each state and no member."""
    for name in ("olga", "worker", "pump1"):
        gateway.add(name)
    gateway.add("apart", trusted=False)
    gateway.bind(OLGA)
    gateway.tx(lambda tx: queue_rows.fill(tx, queue_rows.node(tx)))
    return gateway


def command(
    gateway: Gateway, node: str, content: str = "", *, sender: str = OLGA, **attrs: str
) -> Reply:
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in attrs.items())
    reply = gateway.send(
        sender,
        f"<iq type='set' id='c' to='{SERVICE}'><command xmlns='{COMMANDS}' node='{node}'"
        f"{attributes}>{content}</command></iq>",
    )
    assert reply is not None
    assert (reply.attrs["id"], reply.attrs["from"]) == ("c", SERVICE)
    return reply


def payload(reply: Reply) -> Element:
    assert reply.type == "result", reply
    assert reply.payload is not None
    return reply.payload


def begin(gateway: Gateway, node: str, sender: str = OLGA) -> str:
    """Start a command that answers with a form; return its session id."""
    found = payload(command(gateway, node, sender=sender, action="execute"))
    assert found.get("status") == "executing"
    return found.attrib["sessionid"]


def form(**fields: str | list[str]) -> str:
    elements = []
    for var, entry in fields.items():
        values = [entry] if isinstance(entry, str) else entry
        content = "".join(f"<value>{value}</value>" for value in values)
        elements.append(f"<field var='{var}'>{content}</field>")
    return f"<x xmlns='{DATA_FORMS}' type='submit'>{''.join(elements)}</x>"


def note(reply: Reply) -> tuple[str | None, str | None]:
    """Return the type and the text of the note of a completed command."""
    found = payload(reply)
    assert found.get("status") == "completed"
    (element,) = found.findall(f"{C}note")
    return element.get("type"), element.text


def rows(reply: Reply) -> list[dict[str, str]]:
    """Return the rows of the table in the form of a result."""
    x = payload(reply).find(f"{X}x")
    assert x is not None
    return [
        {field.get("var", ""): field.findtext(f"{X}value", "") for field in item}
        for item in x.findall(f"{X}item")
    ]


def fields(reply: Reply) -> dict[str, list[str]]:
    x = payload(reply).find(f"{X}x")
    assert x is not None
    return {
        field.get("var", ""): [value.text or "" for value in field.findall(f"{X}value")]
        for field in x.findall(f"{X}field")
    }
