"""Ad-hoc commands of the publish-subscribe service (XEP-0050): listed, executed, cancelled.

A command has one form: it is begun, filled in, and done. Features name theirs (`Feature.commands`);
what one does, and who may have it done, is theirs too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.engine import answers
from edge.engine.access import Sender
from edge.engine.addresses import pubsub_service
from edge.engine.database import Transaction
from edge.engine.hooks import AdHocCommand, Context, Hooks, OffloadedWork, Work
from edge.features.admin_commands import store
from edge.xmpp import commands as wire
from edge.xmpp import forms, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import COMMANDS, DATA_FORMS, DISCO_ITEMS, clark
from edge.xmpp.stanza import Stanza

ID_BYTES: Final = 12
"""Of chance in the id of a command that was begun."""

ID_LETTERS: Final = 64
"""Letters of an id that is looked for; ours have 24."""


class _Asked(NamedTuple):
    """What a request asks for: of which command, in which session, and its form."""

    command: AdHocCommand
    action: str
    session: str | None
    form: Mapping[str, list[str]] | None


def execute(context: Context, stanza: Stanza) -> OffloadedWork:
    """Begin, complete or cancel a command (XEP-0050, section 2.4); raises `StanzaError`.

    What a command looks at may be much: a session has one at a time.
    """
    asked = _read(context, stanza)
    fresh = secrets.token_hex(ID_BYTES)

    def act(tx: Transaction, sender: Sender) -> bytes:
        if asked.session is None:
            return _begin(context, tx, sender, asked.command, fresh)
        _check(context, tx, sender, asked, asked.session)
        if asked.action == "cancel":
            store.delete(tx, asked.session)
            return wire.answer(asked.command.node, asked.session, wire.CANCELED)
        return _complete(context, tx, sender, asked, asked.session)

    return OffloadedWork(lambda: answers.service_work(context, stanza, act))


def listed(context: Context, stanza: Stanza) -> Work | None:
    """Answer a question of service discovery that is about commands (section 2.2 to 2.3).

    Returns `None` for one that is about something else.
    """
    query = stanza.children[0]
    node = query.attrs.get("node")
    namespace = query.name[1:].partition("}")[0]
    if node == COMMANDS:
        content = _items(context) if namespace == DISCO_ITEMS else _described("command-list", None)
    elif node is not None and node in context.hooks.adhoc_commands:
        name = context.hooks.adhoc_commands[node].name
        content = b"" if namespace == DISCO_ITEMS else _described("command-node", name)
    else:
        return None
    payload = serialize.tag("query", {"node": node}, content, xmlns=namespace)
    return answers.service_work(context, stanza, lambda _tx, _sender: payload)


def _read(context: Context, stanza: Stanza) -> _Asked:
    request = stanza.children[0]
    command = context.hooks.adhoc_commands.get(request.attrs.get("node", ""))
    if command is None:
        raise wire.refusal("item-not-found", text="there is no such command")
    action = request.attrs.get("action", "execute")
    session = request.attrs.get("sessionid")
    if action not in wire.ACTIONS:
        raise wire.refusal("bad-request", "malformed-action", "no such action")
    if action in ("prev", "next") or (session is None and action != "execute"):
        raise wire.refusal("bad-request", "bad-action", "the command has one form")
    return _Asked(command, action, session, _form(request.tree()))


def _begin(
    context: Context, tx: Transaction, sender: Sender, command: AdHocCommand, id: str
) -> bytes:
    store.add(tx, id, sender.generation, command.node, context.limits.commands)
    return wire.answer(command.node, id, wire.EXECUTING, wire.ONE_STAGE + command.form)


def _check(context: Context, tx: Transaction, sender: Sender, asked: _Asked, session: str) -> None:
    """Raise `StanzaError` unless the sender has begun this command, not too long ago."""
    begun = None
    if len(session) <= ID_LETTERS:
        begun = store.find(tx, session, sender.generation)
    if begun is None or begun.node != asked.command.node:
        raise wire.refusal("bad-request", "bad-sessionid", "no such command was begun")
    if tx.now.service - begun.since > context.limits.command_time:
        raise wire.refusal("not-allowed", "session-expired", "it was begun too long ago")


def _complete(
    context: Context, tx: Transaction, sender: Sender, asked: _Asked, session: str
) -> bytes:
    if asked.form is None:
        raise wire.refusal("bad-request", "bad-payload", "the form is not there")
    outcome = asked.command.act(context, tx, sender, asked.form)
    store.delete(tx, session)
    note = wire.note("error" if outcome.failed else "info", outcome.text)
    return wire.answer(asked.command.node, session, wire.COMPLETED, note + outcome.form)


def _form(request: Element) -> dict[str, list[str]] | None:
    """Read the form that was filled in, if there is one."""
    form = request.find(clark(DATA_FORMS, "x"))
    if form is None or forms.is_cancelled(form):
        return None
    try:
        return forms.read(form)
    except StanzaError as error:
        raise wire.refusal("bad-request", "bad-payload", error.text) from None


def _items(context: Context) -> bytes:
    service = pubsub_service(context.domain)
    return b"".join(
        serialize.tag("item", {"jid": service, "node": command.node, "name": command.name})
        for command in context.hooks.adhoc_commands.values()
    )


def _described(type: str, name: str | None) -> bytes:
    identity = {"category": "automation", "type": type, "name": name}
    features = (COMMANDS, DATA_FORMS) if type == "command-node" else (COMMANDS,)
    listed = b"".join(serialize.tag("feature", {"var": feature}) for feature in features)
    return serialize.tag("identity", identity) + listed


def leaves(_context: Context, tx: Transaction, sender: Sender) -> None:
    """Forget what a session has begun that is over."""
    store.delete_all(tx, sender.generation)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.pubsub_iq("set", clark(COMMANDS, "command"), execute)
    hooks.advertise_pubsub(COMMANDS)
    hooks.on_session_end(leaves)
