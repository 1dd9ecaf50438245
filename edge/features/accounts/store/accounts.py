"""Provisioned devices and what their passwords are checked against.

A revoked device keeps its row, its roster and what waits for it, and loses its password: what
brings it back later gives it a new secret and never the old one. Certificates are in
`certificates`; who may do what is decided in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edge.credentials import Credentials
from edge.engine.database import Transaction
from edge.errors import SetupError


class Account(NamedTuple):
    """A provisioned device; `created` and `revoked` in ms since 1970 UTC.

    `password` tells whether it has one, `downgrade` whether it gets plain messages where it knows
    no quality of service.
    """

    name: str
    trusted: bool
    created: int
    revoked: int | None
    password: bool
    downgrade: bool


class PendingMessages(NamedTuple):
    """How many messages waited for a device that is removed, and where."""

    offline: int
    outbox: int
    held: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.offline + self.outbox + self.held


_ADD: Final = """
INSERT INTO accounts (name, trusted, created, downgrade, grant) VALUES (?, ?, ?, ?, random())
ON CONFLICT (name) DO NOTHING RETURNING id
"""
_ADD_CREDENTIALS: Final = """
INSERT INTO credentials (account, mechanism, salt, iterations, stored_key, server_key)
VALUES (?, ?, ?, ?, ?, ?)
"""
_DROP_CREDENTIALS: Final = "DELETE FROM credentials WHERE account = ?"
_FIND_CREDENTIALS: Final = """
SELECT c.mechanism, c.salt, c.iterations, c.stored_key, c.server_key
FROM credentials AS c JOIN accounts AS a ON a.id = c.account
WHERE a.name = ? AND a.revoked IS NULL AND c.mechanism = ?
"""
_LIST: Final = """
SELECT a.name, a.trusted, a.created, a.revoked,
    EXISTS (SELECT 1 FROM credentials AS c WHERE c.account = a.id), a.downgrade
FROM accounts AS a ORDER BY a.name
"""
_FIND: Final = """
SELECT a.name, a.trusted, a.created, a.revoked,
    EXISTS (SELECT 1 FROM credentials AS c WHERE c.account = a.id), a.downgrade
FROM accounts AS a WHERE a.name = ?
"""
_NAMES: Final = "SELECT name FROM accounts ORDER BY name"
_GRANT: Final = "SELECT grant FROM accounts WHERE name = ? AND revoked IS NULL"
_WITHDRAW: Final = "UPDATE accounts SET grant = random() WHERE name = ?"
_USABLE: Final = "SELECT id FROM accounts WHERE name = ? AND revoked IS NULL"
_REVOKE: Final = """
UPDATE accounts SET revoked = ?, grant = random() WHERE name = ? AND revoked IS NULL RETURNING id
"""
_RESTORE: Final = """
UPDATE accounts SET revoked = NULL WHERE name = ? AND revoked IS NOT NULL RETURNING id
"""
_DOWNGRADE: Final = """
UPDATE accounts SET downgrade = ?1 WHERE name = ?2 AND downgrade <> ?1 RETURNING id
"""
_WAITED: Final = """
SELECT
    (SELECT count(*) FROM offline AS o JOIN accounts AS a ON a.id = o.account WHERE a.name = ?1),
    (SELECT count(*) FROM outbox AS o JOIN accounts AS a ON a.id = o.account WHERE a.name = ?1),
    (SELECT count(*) FROM held AS h WHERE h.recipient = ?1)
"""
_REMOVE: Final = "DELETE FROM accounts WHERE name = ?"


def add(
    tx: Transaction,
    name: str,
    credentials: Iterable[Credentials],
    *,
    trusted: bool,
    downgrade: bool = False,
) -> None:
    """Provision a device; raises `SetupError` if there is one of that name."""
    row = tx.row(_ADD, (name, trusted, tx.now.wall, downgrade))
    if row is None:
        raise SetupError(f"device {name!r} exists already")
    _keep(tx, row[0], credentials)


def credentials(tx: Transaction, name: str, mechanism: str) -> Credentials | None:
    """Return the keys of a device for one mechanism.

    `None` if there is no such device, and so too if it is revoked or has no password: who tries to
    log in cannot tell these apart.
    """
    row = tx.row(_FIND_CREDENTIALS, (name, mechanism))
    return None if row is None else Credentials(*row)


def set_credentials(tx: Transaction, name: str, credentials: Iterable[Credentials]) -> bool:
    """Replace the keys of a device; tells whether there is such a device and it is not revoked.

    A revoked one gets none: they would be good again when its revocation is lifted.
    """
    row = tx.row(_USABLE, (name,))
    if row is None:
        return False
    tx.run(_DROP_CREDENTIALS, (row[0],))
    _keep(tx, row[0], credentials)
    return True


def find(tx: Transaction, name: str) -> Account | None:
    """Return a device, or `None` if there is none of that name."""
    row = tx.row(_FIND, (name,))
    return None if row is None else _account(*row)


def list_all(tx: Transaction) -> list[Account]:
    """Return all devices by name: as many as an operator has added."""
    return [_account(*row) for row in tx.rows(_LIST)]


def list_names(tx: Transaction) -> list[str]:
    """Return the names of all devices, in order."""
    return [str(row[0]) for row in tx.rows(_NAMES)]


def is_active(tx: Transaction, name: str) -> bool:
    """Tell whether there is a device of that name and it is not revoked."""
    return tx.row(_USABLE, (name,)) is not None


def login_grant(tx: Transaction, name: str) -> int | None:
    """Return what a log-in to a device is good for, or `None` if there is no such device, or it is
    revoked.

    It is another one after a revocation that was lifted, and after the device was removed and
    another got its name: a session of before must not live on.
    """
    row = tx.row(_GRANT, (name,))
    return None if row is None else int(row[0])


def invalidate_logins(tx: Transaction, name: str) -> None:
    """Have all log-ins to a device until now count no more: the sessions that came of them end."""
    tx.run(_WITHDRAW, (name,))
    tx.known.clear()


def revoke(tx: Transaction, name: str) -> bool:
    """Refuse a device from now on and forget its password; tells whether this changed anything.

    Its certificates are revoked by `certificates.revoke`.
    """
    row = tx.row(_REVOKE, (tx.now.wall, name))
    if row is None:
        return False
    tx.run(_DROP_CREDENTIALS, (row[0],))
    tx.known.clear()
    return True


def restore(tx: Transaction, name: str) -> bool:
    """Lift the revocation of a device; tells whether there was one. It has no password then."""
    if tx.row(_RESTORE, (name,)) is None:
        return False
    tx.known.clear()
    return True


def set_downgrade(tx: Transaction, name: str, downgrade: bool) -> bool:
    """Let a device that knows no quality of service get plain messages, or let them wait.

    Tells whether this changed anything.
    """
    if tx.row(_DOWNGRADE, (downgrade, name)) is None:
        return False
    tx.known.clear()
    return True


def remove(tx: Transaction, name: str) -> PendingMessages:
    """Forget a device, its password, its roster and what waits for it.

    Others have it in their rosters still, until another gets its name (`roster.strike_out`): those
    who saw it are told that it is gone. Returns what waited for it: what was in its outbox stays
    there without an account, until the gateway has told the senders; what is held stays held. Its
    certificates stay; revoke them first.
    """
    waited = PendingMessages(*tx.row(_WAITED, (name,)))
    tx.run(_REMOVE, (name,))
    tx.known.clear()
    return waited


def _account(
    name: str, trusted: int, created: int, revoked: int | None, password: int, downgrade: int
) -> Account:
    return Account(name, bool(trusted), created, revoked, bool(password), bool(downgrade))


def _keep(tx: Transaction, account: int, credentials: Iterable[Credentials]) -> None:
    for keys in credentials:
        tx.run(
            _ADD_CREDENTIALS,
            (
                account,
                keys.mechanism,
                keys.salt,
                keys.iterations,
                keys.stored_key,
                keys.server_key,
            ),
        )
