"""List, execute and cancel ad-hoc commands of the publish-subscribe service (XEP-0050).

A command has one form: it is started, the form is submitted, and the command completes. A command
without a form completes at once. Features register their commands (`service.Commands`). Senders
that are not trusted are refused before a command runs; the command checks all other rights.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.engine.dispatch.addresses import pubsub_service
from edge.engine.dispatch.hooks import Context, Hooks, OffloadedWork, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.adhoc_commands import service
from edge.features.adhoc_commands.service import AdHocCommand, CommandError, FieldType, Reason
from edge.routing.xmpp import XmppHooks, answers
from edge.xmpp import PROTOCOL, disco, forms, serialize
from edge.xmpp import commands as wire
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import COMMANDS, DATA_FORMS, DISCO_ITEMS, clark
from edge.xmpp.stanza import Stanza

_ID_BYTES: Final = 12
_CONDITIONS: Final = {
    Reason.UNKNOWN_ID: ("bad-request", "bad-sessionid"),
    Reason.EXPIRED: ("not-allowed", "session-expired"),
    Reason.INVALID_FORM: ("bad-request", "bad-payload"),
}
_TYPES: Final = {
    FieldType.TEXT: "text-single",
    FieldType.LINES: "text-multi",
    FieldType.BOOLEAN: "boolean",
}


class _Request(NamedTuple):
    """A request about a command; `session` is the id of the started command, `None` to start it."""

    command: AdHocCommand
    action: str
    session: str | None
    form: service.Form | None


def execute(context: Context, stanza: Stanza) -> OffloadedWork:
    """Start, complete or cancel a command (XEP-0050, section 2.4), or raise `StanzaError`.

    The work is offloaded because a command may read many rows.
    """
    request = _read(context, stanza)
    new_id = secrets.token_hex(_ID_BYTES)

    def act(tx: Transaction, sender: Sender) -> bytes:
        return _execute(context, tx, sender, request, new_id)

    return OffloadedWork(lambda: answers.service_work(context, stanza, act))


def _execute(
    context: Context, tx: Transaction, sender: Sender, request: _Request, new_id: str
) -> bytes:
    command, action, session, form = request
    node = _node(command)
    if session is None and not command.fields:
        return _complete(context, tx, sender, command, new_id, {})
    if session is None:
        service.add(tx, new_id, sender.generation, command.name, context.limits.commands)
        content = wire.ONE_STAGE + _form("form", command, command.fields)
        return wire.answer(node, new_id, wire.EXECUTING, content)
    service.check(context, tx, sender, command, session)
    if action == "cancel":
        service.delete(tx, session)
        return wire.answer(node, session, wire.CANCELED)
    if form is None:
        raise CommandError(Reason.INVALID_FORM, "the form is missing")
    answer = _complete(context, tx, sender, command, session, form)
    service.delete(tx, session)
    return answer


def _complete(
    context: Context,
    tx: Transaction,
    sender: Sender,
    command: AdHocCommand,
    session: str,
    form: service.Form,
) -> bytes:
    text, fields, columns, rows, failed = command.act(context, tx, sender, form)
    content = wire.note("error" if failed else "info", text)
    if fields or columns:
        table = forms.table([*map(_field, columns)], wire.limit_rows(rows)) if columns else b""
        content += _form("result", command, fields, table)
    return wire.answer(_node(command), session, wire.COMPLETED, content)


def _node(command: AdHocCommand) -> str:
    return f"{disco.NODE}:{command.name}"


def _form(
    type: str, command: AdHocCommand, fields: Iterable[service.FormField], table: bytes = b""
) -> bytes:
    """Encode a form, whose `FORM_TYPE` is the beginning of the command's node."""
    form_type = _node(command).partition("#")[0]
    return forms.write(type, form_type, map(_field, fields), table)


def _field(field: service.FormField) -> forms.Field:
    values = [value for (value,) in wire.limit_rows((value,) for value in field.values)]
    return forms.Field(field.name, _TYPES[field.type], values, field.required, field.label)


def _read(context: Context, stanza: Stanza) -> _Request:
    request = stanza.children[0]
    command = _find(context, request.attrs.get("node"))
    if command is None:
        raise wire.refusal("item-not-found", text="no command has this node")
    action = request.attrs.get("action", "execute")
    session = request.attrs.get("sessionid")
    if action not in wire.ACTIONS:
        raise wire.refusal("bad-request", "malformed-action", "the action is unknown")
    if action in ("prev", "next") or (session is None and action != "execute"):
        text = "the action is not allowed at this stage of the command"
        raise wire.refusal("bad-request", "bad-action", text)
    return _Request(command, action, session, _read_form(request.tree(), command))


def _find(context: Context, node: str | None) -> AdHocCommand | None:
    return next((command for command in _all(context) if _node(command) == node), None)


def _all(context: Context) -> Iterable[AdHocCommand]:
    return context.hooks.of(service.Commands).by_name.values()


def _read_form(request: Element, command: AdHocCommand) -> service.Form | None:
    """Return the values of the form in a request; a field that the command's form lacks is
    refused."""
    found = request.findall(forms.X)
    if not found or forms.is_cancelled(found[0]):
        return None
    try:
        if len(found) > 1:
            raise StanzaError("bad-request", "exactly one form is expected")
        values = forms.read(found[0])
    except StanzaError as error:
        raise CommandError(Reason.INVALID_FORM, error.text) from None
    if unknown := sorted(values.keys() - {field.name for field in command.fields}):
        text = f"the command's form has no field {unknown[0]}"
        raise CommandError(Reason.INVALID_FORM, text)
    return values


def _stanza_error(error: CommandError) -> StanzaError:
    condition, specific = _CONDITIONS[error.reason]
    return wire.refusal(condition, specific, error.text)


def discover(context: Context, stanza: Stanza) -> Work | None:
    """Answer service discovery about commands (XEP-0050, sections 2.2 and 2.3)."""
    query = stanza.children[0]
    node = query.attrs.get("node")
    namespace = query.name[1:].partition("}")[0]
    command = _find(context, node)
    if node == COMMANDS:
        content = _items(context) if namespace == DISCO_ITEMS else _identity("command-list", None)
    elif command is not None:
        content = b"" if namespace == DISCO_ITEMS else _identity("command-node", command.label)
    else:
        return None
    payload = disco.query(namespace, content, node)
    return answers.service_work(context, stanza, lambda _tx, _sender: payload)


def _items(context: Context) -> bytes:
    service_jid = pubsub_service(context.domain)
    return b"".join(
        serialize.tag("item", {"jid": service_jid, "node": _node(command), "name": command.label})
        for command in _all(context)
    )


def _identity(type: str, name: str | None) -> bytes:
    identity = {"category": "automation", "type": type}
    if name is not None:
        identity["name"] = name
    features = (COMMANDS, DATA_FORMS) if type == "command-node" else (COMMANDS,)
    return disco.describe(identity, features)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    xmpp.add(xmpp.pubsub_iqs, ("set", clark(COMMANDS, "command")), execute)
    xmpp.pubsub_disco.append(discover)
    xmpp.advertise_pubsub(COMMANDS)
    hooks.error_mapping(PROTOCOL, CommandError, _stanza_error)
