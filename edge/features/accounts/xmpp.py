"""Change of password by the device itself (XEP-0077, section 3.3), and nothing else of it.

Devices are provisioned by the operator: nobody registers here, before log-in or after, and nobody
cancels. A device that logs in by certificate alone gets no password this way: that it has none is
the operator's choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edge import credentials
from edge.credentials import Credentials, PasswordError
from edge.engine import access, refusals
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context, Hooks, OffloadedWork, Work
from edge.engine.refusal_log import CHANGED
from edge.features.accounts.store import accounts, relations
from edge.xmpp import jid, replies, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import REGISTER, clark
from edge.xmpp.stanza import Stanza

USERNAME: Final = clark(REGISTER, "username")
PASSWORD: Final = clark(REGISTER, "password")
REMOVE: Final = clark(REGISTER, "remove")


class _Wish(NamedTuple):
    """Whose password is to be which."""

    username: str
    password: str


def fields(_context: Context, stanza: Stanza) -> Work:
    """Answer which account is registered, and what a change of its password takes."""

    def work(_tx: Transaction, sender: Sender) -> bytes:
        name = serialize.tag("username", content=serialize.escape(sender.account))
        content = serialize.tag("registered") + name + serialize.tag("password")
        payload = serialize.tag("query", content=content, xmlns=REGISTER)
        attrs = stanza.attrs
        return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"), payload)

    return work


def change(context: Context, stanza: Stanza) -> OffloadedWork:
    """Change the sender's password; its keys are made beside the event loop."""
    wish = _read(stanza)

    def prepare() -> Work:
        try:
            keys = credentials.derive(wish.password)
        except PasswordError as error:
            refused = StanzaError("not-acceptable", str(error))
            return lambda _tx, sender: _error(stanza, sender, refused)
        return _changing(context, stanza, wish.username, keys)

    return OffloadedWork(prepare)


def _changing(context: Context, stanza: Stanza, name: str, keys: Iterable[Credentials]) -> Work:
    def work(tx: Transaction, sender: Sender) -> bytes:
        relation = relations.find_relation(tx, sender, name)
        account = accounts.find(tx, sender.account)
        has_one = account is not None and account.password
        if not access.may_change_password(sender, relation, password=has_one):
            refusals.log(context, tx, sender, "password")
            return _error(stanza, sender, StanzaError("not-allowed"))
        accounts.set_credentials(tx, name, keys)
        refusals.log(context, tx, sender, CHANGED)
        attrs = stanza.attrs
        return serialize.iq_result(attrs["id"], sender.full, attrs.get("to"))

    return work


def _read(stanza: Stanza) -> _Wish:
    query = stanza.children[0]
    names = [child.name for child in query.children]
    if REMOVE in names:
        raise StanzaError("not-allowed", "the operator removes devices")
    if sorted(names) != [PASSWORD, USERNAME]:
        raise StanzaError("bad-request", "a username and a password are expected")
    tree = query.tree()
    password = tree.findtext(PASSWORD, "")
    if not password:
        raise StanzaError("bad-request", "the password is empty")
    return _Wish(jid.prepare_local(tree.findtext(USERNAME, "")), password)


def _error(stanza: Stanza, sender: Sender, error: StanzaError) -> bytes:
    return replies.iq_error(stanza, error, to=sender.full, from_=stanza.attrs.get("to"))


_GET: Final = ("get", clark(REGISTER, "query"))
_SET: Final = ("set", clark(REGISTER, "query"))

NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.server_iq(*_GET, fields)
    hooks.server_iq(*_SET, change)
    hooks.own_account_iq(*_GET, fields)
    hooks.own_account_iq(*_SET, change)
    hooks.advertise(REGISTER)
