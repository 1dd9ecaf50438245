"""Ad-hoc commands (XEP-0050) at the publish-subscribe service, and those of queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

import pytest

from edge.config.limits import Limits
from edge.engine.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.store import affiliations
from edge.features.queues.store import queue_items, queues
from edge.features.queues.xmpp.commands import TABLE_CHARACTERS
from edge.xmpp.namespaces import COMMANDS, DATA_FORMS, DISCO_INFO, DISCO_ITEMS
from tests.helpers import queue_rows
from tests.helpers.people import make_available
from tests.helpers.queue_rows import FIRST
from tests.helpers.store import STANZAS, Gateway, Reply, new_database, read_element

SERVICE: Final = "pubsub.gw.example"
OLGA: Final = "olga@gw.example/desk"
OTHER: Final = "worker@gw.example/a"
FORM: Final = "urn:x-fieldpost:queue"
NODES: Final = [f"{FORM}#{name}" for name in ("show", "unlock", "requeue", "purge")]
X: Final = f"{{{DATA_FORMS}}}"
C: Final = f"{{{COMMANDS}}}"

Build = Callable[..., Gateway]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    made: list[Gateway] = []

    def build(**limits: float) -> Gateway:
        gateway = Gateway(new_database(tmp_path), Limits(**limits))  # type: ignore[arg-type]
        made.append(gateway)
        for name in ("olga", "worker", "pump1"):
            gateway.add(name)
        gateway.add("apart", trusted=False)
        gateway.bind(OLGA)
        return gateway

    yield build
    for gateway in made:
        gateway.close()


@pytest.fixture
def gateway(build: Build) -> Gateway:
    """A gateway with olga's queue `work`, which has items in each state and no member."""
    made = build()
    made.tx(lambda tx: queue_rows.fill(tx, queue_rows.node(tx)))
    return made


def command(
    gateway: Gateway, node: str, content: str = "", *, sender: str = OLGA, **attrs: str
) -> Reply:
    """Send a command with these attributes."""
    written = "".join(f" {name}={quoteattr(value)}" for name, value in attrs.items())
    reply = gateway.send(
        sender,
        f"<iq type='set' id='c' to='{SERVICE}'><command xmlns='{COMMANDS}' node='{node}'{written}>"
        f"{content}</command></iq>",
    )
    assert reply is not None
    assert (reply.attrs["id"], reply.attrs["from"]) == ("c", SERVICE)
    return reply


def payload(reply: Reply) -> Element:
    assert reply.type == "result", reply
    assert reply.payload is not None
    return reply.payload


def begin(gateway: Gateway, node: str, sender: str = OLGA) -> str:
    found = payload(command(gateway, node, sender=sender, action="execute"))
    assert found.get("status") == "executing"
    return found.attrib["sessionid"]


def form(**fields: str | list[str]) -> str:
    written = []
    for var, given in fields.items():
        values = [given] if isinstance(given, str) else given
        content = "".join(f"<value>{value}</value>" for value in values)
        written.append(f"<field var='{var}'>{content}</field>")
    return f"<x xmlns='{DATA_FORMS}' type='submit'>{''.join(written)}</x>"


def do(gateway: Gateway, name: str, **fields: str | list[str]) -> Reply:
    """Start a command of queues as olga and complete it with a form."""
    return do_as(OLGA, gateway, name, **fields)


def do_as(sender: str, gateway: Gateway, name: str, **fields: str | list[str]) -> Reply:
    """Start and complete a command as another account."""
    session = begin(gateway, f"{FORM}#{name}", sender)
    filled = form(FORM_TYPE=[FORM], **fields)
    return command(gateway, f"{FORM}#{name}", filled, sender=sender, sessionid=session)


def note(reply: Reply) -> tuple[str | None, str | None]:
    found = payload(reply)
    assert found.get("status") == "completed"
    (note_element,) = found.findall(f"{C}note")
    return note_element.get("type"), note_element.text


def query(gateway: Gateway, namespace: str, node: str) -> Element:
    reply = gateway.send(
        OLGA,
        f"<iq type='get' id='d' to='{SERVICE}'><query xmlns='{namespace}' node='{node}'/></iq>",
    )
    assert reply is not None
    return payload(reply)


# Commands in general


def test_commands_are_listed(gateway: Gateway) -> None:
    found = query(gateway, DISCO_ITEMS, COMMANDS)
    assert found.get("node") == COMMANDS
    assert [(item.get("jid"), item.get("node")) for item in found] == [(SERVICE, n) for n in NODES]
    assert all(item.get("name") for item in found)
    about = query(gateway, DISCO_INFO, COMMANDS)
    assert (about[0].get("category"), about[0].get("type")) == ("automation", "command-list")


def test_command_is_described(gateway: Gateway) -> None:
    identity, *features = query(gateway, DISCO_INFO, NODES[0])
    assert dict(identity.attrib) == {
        "category": "automation",
        "type": "command-node",
        "name": "Show a queue",
    }
    assert [feature.get("var") for feature in features] == [COMMANDS, DATA_FORMS]
    assert len(query(gateway, DISCO_ITEMS, NODES[0])) == 0


def test_command_starts_with_its_form(gateway: Gateway) -> None:
    found = payload(command(gateway, NODES[0]))
    assert (found.tag, found.get("node"), found.get("status")) == (
        f"{C}command",
        NODES[0],
        "executing",
    )
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
    assert again.error == ("modify", "bad-request")


def test_command_is_cancelled(gateway: Gateway) -> None:
    session = begin(gateway, NODES[3])
    found = payload(command(gateway, NODES[3], sessionid=session, action="cancel"))
    assert (found.get("sessionid"), found.get("status")) == (session, "canceled")
    filled = form(node="work", sure="1")
    assert command(gateway, NODES[3], filled, sessionid=session).type == "error"


def refused(gateway: Gateway, xml: str, sender: str = OLGA) -> tuple[tuple[str, str], str]:
    """Send a command; return the error and its condition of XEP-0050."""
    request = f"<iq type='set' id='c' to='{SERVICE}'>{xml}</iq>"
    answer = read_element(gateway.tx(gateway.work(sender, request)))
    repeated, error = answer
    assert repeated.tag == f"{C}command"  # which clients find their session by
    condition = next(child.tag for child in error if child.tag.startswith(f"{{{STANZAS}}}"))
    (specific,) = (child.tag for child in error if child.tag.startswith(C))
    kind = error.get("type", "")
    return (kind, condition.removeprefix(f"{{{STANZAS}}}")), specific.removeprefix(C)


def written(content: str = "", **attrs: str) -> str:
    given = {"node": NODES[0]} | attrs
    text = "".join(f" {name}='{value}'" for name, value in given.items())
    return f"<command xmlns='{COMMANDS}'{text}>{content}</command>"


@pytest.mark.parametrize(
    ("attrs", "error", "condition"),
    [
        ({"action": "dance"}, ("modify", "bad-request"), "malformed-action"),
        ({"action": "prev"}, ("modify", "bad-request"), "bad-action"),
        ({"action": "next"}, ("modify", "bad-request"), "bad-action"),
        ({"action": "complete"}, ("modify", "bad-request"), "bad-action"),
        ({"action": "cancel"}, ("modify", "bad-request"), "bad-action"),
        ({"sessionid": "none"}, ("modify", "bad-request"), "bad-sessionid"),
        ({"sessionid": "x" * 65}, ("modify", "bad-request"), "bad-sessionid"),
    ],
)
def test_invalid_request_is_refused(
    gateway: Gateway, attrs: dict[str, str], error: tuple[str, str], condition: str
) -> None:
    assert refused(gateway, written(**attrs)) == (error, condition)


def test_unknown_command_is_refused(gateway: Gateway) -> None:
    reply = command(gateway, "dance")
    assert reply.error == ("cancel", "item-not-found")
    assert reply.payload is not None
    assert reply.payload.get("node") == "dance"


def test_started_command_belongs_to_its_session_and_node(gateway: Gateway) -> None:
    session = begin(gateway, NODES[0])
    bad = ("modify", "bad-request"), "bad-sessionid"
    assert refused(gateway, written(node=NODES[1], sessionid=session)) == bad
    gateway.bind(OTHER)
    assert refused(gateway, written(sessionid=session), OTHER) == bad
    gateway.end(OLGA)
    gateway.bind(OLGA)
    assert refused(gateway, written(sessionid=session)) == bad
    assert gateway.count("SELECT count(*) FROM temp.commands") == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        f"<x xmlns='{DATA_FORMS}' type='cancel'/>",
        f"<x xmlns='{DATA_FORMS}' type='form'/>",
        form(),
        form(node=["work", "work"]),
        f"<x xmlns='{DATA_FORMS}' type='submit'><field><value>work</value></field></x>",
    ],
)
def test_missing_form_is_refused(gateway: Gateway, content: str) -> None:
    session = begin(gateway, NODES[0])
    found = refused(gateway, written(content, sessionid=session))
    assert found == (("modify", "bad-request"), "bad-payload")
    filled = command(gateway, NODES[0], form(node="work"), sessionid=session)
    assert payload(filled).get("status") == "completed"  # it may be mended


def test_old_command_is_expired(gateway: Gateway) -> None:
    session = begin(gateway, NODES[0])
    gateway.clock.service += 600.0
    assert refused(gateway, written(sessionid=session))[1] == "bad-payload"
    gateway.clock.service += 0.5
    found = refused(gateway, written(form(node="work"), sessionid=session))
    assert found == (("cancel", "not-allowed"), "session-expired")


def test_started_commands_are_limited(build: Build) -> None:
    gateway = build(commands=2)
    ids = [begin(gateway, NODES[0]) for _ in range(3)]
    assert gateway.count("SELECT count(*) FROM temp.commands") == 2
    conditions = [refused(gateway, written(sessionid=id))[1] for id in ids]
    assert conditions == ["bad-sessionid", "bad-payload", "bad-payload"]


def test_untrusted_sender_may_execute_nothing(gateway: Gateway) -> None:
    apart = "apart@gw.example/x"
    gateway.bind(apart)
    assert command(gateway, NODES[0], sender=apart).error == ("auth", "forbidden")


# The commands of queues


def rows(reply: Reply) -> list[dict[str, str]]:
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


def test_owner_sees_the_state_of_a_queue(gateway: Gateway) -> None:
    reply = do(gateway, "show", node="work")
    assert note(reply) == ("info", "5 items: 2 ready, 1 locked, 1 delayed, 1 dead")
    assert fields(reply) == {
        "FORM_TYPE": [FORM],
        "node": ["work"],
        "policy": ["least-loaded"],
        "items": ["5"],
        "bytes": [str(gateway.count("SELECT bytes FROM queues"))],
        "ready": ["2"],
        "locked": ["1"],
        "delayed": ["1"],
        "dead": ["1"],
        "members": ["0"],
        "attending": [],
    }
    assert [(row["item"], row["state"], row["why"], row["before"]) for row in rows(reply)] == [
        ("held", "locked", "locked", "0"),
        ("one", "ready", "no_member", "0"),
        ("two", "ready", "no_member", "1"),
        ("late", "delayed", "delayed", "0"),
        ("bad", "dead", "dead", "0"),
    ]
    assert [row["holder"] for row in rows(reply)] == [FIRST, "", "", "", ""]
    assert rows(reply)[2]["sentence"] == "the queue has no subscribers; 1 before it in the queue"


def test_item_is_shown_with_connected_members(gateway: Gateway) -> None:
    def join(tx: Transaction) -> None:
        queue = queues.get(tx, 1)
        assert queue is not None
        for jid in ("worker@gw.example", "pump1@gw.example/fw"):
            queue_rows.join(tx, queue, jid, takes=3)

    gateway.tx(join)
    reply = do(gateway, "show", node="work", item="two")
    assert [row["sentence"] for row in rows(reply)] == [
        "no subscriber is connected: worker@gw.example, pump1@gw.example/fw;"
        " 1 before it in the queue"
    ]
    make_available(gateway, OTHER)
    attending = fields(do(gateway, "show", node="work"))["attending"]
    assert attending[0].startswith("worker@gw.example: has ")
    assert attending[0].endswith(f" of 3; {OTHER}")
    assert attending[1] == "pump1@gw.example/fw: has 0 of 3; not connected"
    assert note(do(gateway, "show", node="work", item="nix")) == (
        "error",
        "there is no item 'nix' in work",
    )


def test_long_answer_is_truncated(gateway: Gateway) -> None:
    def more(tx: Transaction) -> None:
        queue = queues.of_node(tx, 1)
        assert queue is not None
        for number in range(10):
            name = f"{number}{'x' * 3000}"
            queue_items.enqueue(tx, queue, "work", name, queue_rows.PUBLISHER, b"", priority=9)

    gateway.tx(more)
    note_element = rows(do(gateway, "show", node="work"))
    assert 1 < len(note_element) < 10
    assert sum(len(row["item"]) for row in note_element) < TABLE_CHARACTERS


@pytest.mark.parametrize("name", ["show", "unlock", "requeue", "purge"])
def test_only_an_owner_may_use_commands(gateway: Gateway, name: str) -> None:
    gateway.tx(lambda tx: affiliations.put(tx, 1, "worker@gw.example", Affiliation.PUBLISHER))
    gateway.bind(OTHER)
    filled: dict[str, str | list[str]] = {"node": "work", "item": "held", "all": "1", "sure": "1"}
    assert do_as(OTHER, gateway, name, **filled).error == ("auth", "forbidden")
    missing = do(gateway, name, **(filled | {"node": "nix"}))
    assert missing.error == ("cancel", "item-not-found")
    assert gateway.tx(queue_rows.states)["held"] == "locked"


def test_node_without_a_queue_is_refused(gateway: Gateway) -> None:
    gateway.tx(lambda tx: tx.run("DELETE FROM queues"))
    assert do(gateway, "show", node="work").error == ("modify", "bad-request")


def test_owner_unlocks_an_item(gateway: Gateway) -> None:
    assert note(do(gateway, "unlock", node="work", item="held")) == ("info", "held is unlocked")
    assert gateway.due is not None
    assert gateway.due <= gateway.clock.service
    gateway.run_timers()
    assert gateway.tx(queue_rows.states)["held"] == "ready"
    (event,) = gateway.events("system", "unlocked")
    assert (event.kind, event.source, event.topic) == ("queue", "olga@gw.example", "work")
    assert event.tags == {"item": "held", "holder": FIRST}


@pytest.mark.parametrize(
    ("item", "why"),
    [("nix", "there is no item 'nix' in work"), ("one", "item 'one' is not locked, but ready")],
)
def test_unlocked_item_cannot_be_unlocked(gateway: Gateway, item: str, why: str) -> None:
    assert note(do(gateway, "unlock", node="work", item=item)) == ("error", why)
    assert gateway.events("system", "unlocked") == []


def test_unlock_needs_an_item(gateway: Gateway) -> None:
    assert do(gateway, "unlock", node="work").error == ("modify", "bad-request")


@pytest.mark.parametrize("given", [{"items": ["bad", "bad"]}, {"all": "1"}, {"all": "true"}])
def test_owner_requeues_dead_items(gateway: Gateway, given: dict[str, str | list[str]]) -> None:
    reply = do(gateway, "requeue", node="work", **given)
    assert note(reply) == ("info", "1 requeued, 0 still dead")
    assert gateway.tx(queue_rows.states)["bad"] == "ready"
    (event,) = gateway.events("system", "requeued")
    assert (event.value, event.text) == (1.0, "by the owner")


@pytest.mark.parametrize("given", [{}, {"items": ["bad"], "all": "1"}, {"all": "0"}])
def test_requeue_needs_a_selection(gateway: Gateway, given: dict[str, str | list[str]]) -> None:
    assert do(gateway, "requeue", node="work", **given).error == ("modify", "bad-request")
    assert gateway.tx(queue_rows.states)["bad"] == "dead"


def test_named_items_are_requeued_all_or_none(gateway: Gateway) -> None:
    reply = do(gateway, "requeue", node="work", items=["bad", "one"])
    assert note(reply) == ("error", "item 'one' is not dead, but ready")
    assert gateway.tx(queue_rows.states)["bad"] == "dead"
    assert gateway.events("system", "requeued") == []


def test_owner_purges_a_queue(gateway: Gateway) -> None:
    assert do(gateway, "purge", node="work").error == ("modify", "bad-request")
    assert do(gateway, "purge", node="work", sure="0").error == ("modify", "bad-request")
    assert len(gateway.tx(queue_rows.states)) == 5
    assert note(do(gateway, "purge", node="work", sure="1")) == ("info", "5 deleted, 0 left")
    assert gateway.tx(queue_rows.states) == {}
    (event,) = gateway.events("system", "purged")
    assert (event.value, event.level, event.source) == (5.0, "Warning", "olga@gw.example")
