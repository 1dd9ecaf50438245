"""In-band change of a device's own password (XEP-0077, section 3.3).

Registration and cancellation are refused because operators provision devices.
"""

from __future__ import annotations

from typing import Final

from edge import credentials, jid
from edge.credentials import PasswordError
from edge.engine.dispatch.hooks import Context, Hooks, OffloadedWork, Work
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.accounts import service
from edge.features.accounts.service import AccountError, Reason
from edge.routing.xmpp import Handler, XmppHooks, answers
from edge.xmpp import PROTOCOL, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import REGISTER, clark
from edge.xmpp.stanza import Stanza

_QUERY: Final = clark(REGISTER, "query")
_USERNAME: Final = clark(REGISTER, "username")
_PASSWORD: Final = clark(REGISTER, "password")
_REMOVE: Final = clark(REGISTER, "remove")

_CONDITIONS: Final = {Reason.NOT_ALLOWED: "not-allowed"}


def get_fields(_context: Context, stanza: Stanza) -> Work:
    """Answer with the registered account and the form fields for a change of its password."""

    def work(_tx: Transaction, sender: Sender) -> bytes:
        name = serialize.tag("username", content=serialize.escape(sender.account))
        content = serialize.tag("registered") + name + serialize.tag("password")
        payload = serialize.tag("query", content=content, xmlns=REGISTER)
        return answers.result(stanza, sender, payload)

    return work


def change_password(context: Context, stanza: Stanza) -> OffloadedWork:
    """Change the sender's password; its keys are derived in another thread."""
    username, password = _read(stanza)

    def prepare() -> Work:
        try:
            keys = credentials.derive(password)
        except PasswordError as error:
            invalid = StanzaError("not-acceptable", str(error))
            return lambda _tx, sender: answers.error(context, stanza, sender, invalid)

        def work(tx: Transaction, sender: Sender) -> bytes:
            try:
                service.change_password(context, tx, sender, username, keys)
            except AccountError as error:
                return answers.error(context, stanza, sender, error)
            return answers.result(stanza, sender)

        return work

    return OffloadedWork(prepare)


def _read(stanza: Stanza) -> tuple[str, str]:
    """Return the username and the new password."""
    query = stanza.children[0]
    names = [child.name for child in query.children]
    if _REMOVE in names:
        raise StanzaError("not-allowed", "only the operator can remove a device")
    if sorted(names) != [_PASSWORD, _USERNAME]:
        raise StanzaError("bad-request", "send a username and a password")
    tree = query.tree()
    password = tree.findtext(_PASSWORD, "")
    if not password:
        raise StanzaError("bad-request", "the password is empty")
    return jid.prepare_local(tree.findtext(_USERNAME, "")), password


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    xmpp = hooks.of(XmppHooks)
    handlers: dict[str, Handler] = {"get": get_fields, "set": change_password}
    for type_, handler in handlers.items():
        xmpp.add(xmpp.server_iqs, (type_, _QUERY), handler)
        xmpp.add(xmpp.own_account_iqs, (type_, _QUERY), handler)
    xmpp.advertise(REGISTER)
    hooks.error_mapping(
        PROTOCOL, AccountError, lambda error: StanzaError(_CONDITIONS[error.reason])
    )
