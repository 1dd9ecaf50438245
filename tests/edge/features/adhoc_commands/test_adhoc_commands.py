"""Ad-hoc commands (XEP-0050) of the publish-subscribe service: how every command behaves.

The commands of queues are the examples.
"""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.adhoc_commands.service import AdHocCommand, CommandResult, Commands, Form
from edge.xmpp.disco import NODE
from edge.xmpp.namespaces import COMMANDS, DATA_FORMS, DISCO_INFO, DISCO_ITEMS
from tests.helpers.adhoc_commands import (
    FORM,
    OLGA,
    OTHER,
    SERVICE,
    C,
    X,
    add_queue,
    begin,
    command,
    form,
    note,
    payload,
)
from tests.helpers.store import STANZAS, Gateway, MakeGateway, read_element

NODES: Final = [f"{FORM}#{name}" for name in ("show", "unlock", "requeue", "purge")]

BAD_REQUEST: Final = ("modify", "bad-request")


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Gateway:
    return add_queue(make_gateway(Limits(commands=2)))


def query(gateway: Gateway, namespace: str, node: str) -> Element:
    content = f"<query xmlns='{namespace}' node='{node}'/>"
    return payload(gateway.ask(OLGA, f"<iq type='get' id='d' to='{SERVICE}'>{content}</iq>"))


def test_commands_are_listed(gateway: Gateway) -> None:
    found = query(gateway, DISCO_ITEMS, COMMANDS)
    assert found.get("node") == COMMANDS
    assert {item.get("node") for item in found} == {*NODES}
    assert {item.get("jid") for item in found} == {SERVICE}
    assert all(item.get("name") for item in found)
    info = query(gateway, DISCO_INFO, COMMANDS)
    assert (info[0].get("category"), info[0].get("type")) == ("automation", "command-list")


def test_command_is_described(gateway: Gateway) -> None:
    identity, *features = query(gateway, DISCO_INFO, NODES[0])
    expected = {"category": "automation", "type": "command-node", "name": "Show a queue"}
    assert identity.attrib == expected
    assert [feature.get("var") for feature in features] == [COMMANDS, DATA_FORMS]
    assert len(query(gateway, DISCO_ITEMS, NODES[0])) == 0


def test_command_starts_with_its_form(gateway: Gateway) -> None:
    found = payload(command(gateway, NODES[0]))
    assert (found.tag, found.get("node")) == (f"{C}command", NODES[0])
    assert found.get("status") == "executing"
    actions, x = found
    assert (actions.tag, actions.get("execute")) == (f"{C}actions", "complete")
    assert [action.tag for action in actions] == [f"{C}complete"]
    assert (x.tag, x.get("type")) == (f"{X}x", "form")
    assert [field.get("var") for field in x] == ["FORM_TYPE", "node", "item"]
    assert [field.find(f"{X}required") is not None for field in x] == [False, True, False]


@pytest.mark.parametrize("action", [{}, {"action": "execute"}, {"action": "complete"}])
def test_command_completes(gateway: Gateway, action: dict[str, str]) -> None:
    session = begin(gateway, NODES[0])
    reply = command(gateway, NODES[0], form(node="work"), sessionid=session, **action)
    found = payload(reply)
    assert (found.get("sessionid"), found.get("status")) == (session, "completed")
    again = command(gateway, NODES[0], form(node="work"), sessionid=session)
    assert again.error == BAD_REQUEST


def test_command_without_a_form_completes_at_once(gateway: Gateway) -> None:
    def act(_context: Context, _tx: Transaction, sender: Sender, fields: Form) -> CommandResult:
        return CommandResult(f"for {sender.full} with {len(fields)} fields")

    count = AdHocCommand("example#count", "Count", (), act)
    gateway.router.context.hooks.of(Commands).register(count)
    node = f"{NODE}:{count.name}"
    reply = command(gateway, node)
    assert note(reply) == ("info", f"for {OLGA} with 0 fields")
    assert gateway.count("SELECT count(*) FROM temp.commands") == 0
    session = payload(reply).get("sessionid", "")
    again = command_xml(node=node, sessionid=session)
    assert refusal(gateway, again) == (BAD_REQUEST, "bad-sessionid")


def test_command_is_cancelled(gateway: Gateway) -> None:
    session = begin(gateway, NODES[3])
    found = payload(command(gateway, NODES[3], sessionid=session, action="cancel"))
    assert (found.get("sessionid"), found.get("status")) == (session, "canceled")
    filled = form(node="work", sure="1")
    assert command(gateway, NODES[3], filled, sessionid=session).type == "error"


def refusal(gateway: Gateway, xml: str, sender: str = OLGA) -> tuple[tuple[str, str], str]:
    """Send a command; return the error and its condition of XEP-0050."""
    request = f"<iq type='set' id='c' to='{SERVICE}'>{xml}</iq>"
    answer = read_element(gateway.tx(gateway.work(sender, request)))
    repeated, error = answer
    assert repeated.tag == f"{C}command"  # clients find their session by it
    condition = next(child.tag for child in error if child.tag.startswith(f"{{{STANZAS}}}"))
    (specific,) = (child.tag for child in error if child.tag.startswith(C))
    kind = error.get("type", "")
    return (kind, condition.removeprefix(f"{{{STANZAS}}}")), specific.removeprefix(C)


def command_xml(content: str = "", **attrs: str) -> str:
    attributes = {"node": NODES[0]} | attrs
    text = "".join(f" {name}='{value}'" for name, value in attributes.items())
    return f"<command xmlns='{COMMANDS}'{text}>{content}</command>"


@pytest.mark.parametrize(
    ("attrs", "condition"),
    [
        ({"action": "dance"}, "malformed-action"),
        ({"action": "prev"}, "bad-action"),
        ({"action": "next"}, "bad-action"),
        ({"action": "complete"}, "bad-action"),
        ({"action": "cancel"}, "bad-action"),
        ({"sessionid": "none"}, "bad-sessionid"),
        ({"sessionid": "x" * 65}, "bad-sessionid"),
    ],
)
def test_invalid_request(gateway: Gateway, attrs: dict[str, str], condition: str) -> None:
    assert refusal(gateway, command_xml(**attrs)) == (BAD_REQUEST, condition)


def test_unknown_command_is_refused(gateway: Gateway) -> None:
    reply = command(gateway, "dance")
    assert reply.error == ("cancel", "item-not-found")
    assert reply.content.get("node") == "dance"


def test_started_command_belongs_to_its_session_and_node(gateway: Gateway) -> None:
    session = begin(gateway, NODES[0])
    bad = BAD_REQUEST, "bad-sessionid"
    assert refusal(gateway, command_xml(node=NODES[1], sessionid=session)) == bad
    gateway.bind(OTHER)
    assert refusal(gateway, command_xml(sessionid=session), OTHER) == bad
    gateway.end(OLGA)
    gateway.bind(OLGA)
    assert refusal(gateway, command_xml(sessionid=session)) == bad
    assert gateway.count("SELECT count(*) FROM temp.commands") == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        f"<x xmlns='{DATA_FORMS}' type='cancel'/>",
        f"<x xmlns='{DATA_FORMS}' type='form'/>",
        form(),
        form(node=["work", "work"]),
        form(node="work", other="1"),
        form(node="work") * 2,
        form(node="work").replace(" var='node'", ""),
    ],
)
def test_missing_form_is_refused(gateway: Gateway, content: str) -> None:
    session = begin(gateway, NODES[0])
    found = refusal(gateway, command_xml(content, sessionid=session))
    assert found == (BAD_REQUEST, "bad-payload")
    filled = command(gateway, NODES[0], form(node="work"), sessionid=session)
    assert payload(filled).get("status") == "completed"  # the form can be corrected


def test_old_command_is_expired(gateway: Gateway) -> None:
    session = begin(gateway, NODES[0])
    gateway.clock.service += 600.0
    assert refusal(gateway, command_xml(sessionid=session))[1] == "bad-payload"
    gateway.clock.service += 0.5
    found = refusal(gateway, command_xml(form(node="work"), sessionid=session))
    assert found == (("cancel", "not-allowed"), "session-expired")


def test_started_commands_are_limited(gateway: Gateway) -> None:
    ids = [begin(gateway, NODES[0]) for _ in range(3)]
    assert gateway.count("SELECT count(*) FROM temp.commands") == 2
    conditions = [refusal(gateway, command_xml(sessionid=id))[1] for id in ids]
    assert conditions == ["bad-sessionid", *["bad-payload"] * 2]


def test_untrusted_sender_may_not_execute_commands(gateway: Gateway) -> None:
    apart = "apart@gw.example/x"
    gateway.bind(apart)
    assert command(gateway, NODES[0], sender=apart).error == ("auth", "forbidden")
