"""The tables `accounts` and `credentials`: devices and the keys of their passwords.

A revoked device keeps its row, its roster and the messages that wait for it, but loses its
password. If it is restored later, it needs a new password.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import Any, Final, NamedTuple

from edge.credentials import Credentials
from edge.engine.store.database import Transaction
from edge.errors import SetupError


class Account(NamedTuple):
    """A provisioned device; `created`, `revoked` and `seen` are in ms since 1970 UTC.

    `trusted`: false if it was added with `--no-trust`. `password`: whether it has a password.
    `downgrade`: whether it receives plain messages in sessions without QoS support. `seen`: when it
    last had a session; 0 while it has one, `None` if it never had one.
    """

    name: str
    trusted: bool
    created: int
    revoked: int | None
    password: bool
    downgrade: bool
    seen: int | None


class AccountStatus(NamedTuple):
    """The fields of an account that deliveries depend on.

    Attributes:
        row: the number of the account's row.
        is_revoked: whether the account is revoked.
        downgrade: whether it receives plain messages in sessions without QoS support.
    """

    row: int
    is_revoked: bool
    downgrade: bool


class LoginAccount(NamedTuple):
    """The login grant (`login_grant`) of an account, and whether the account is revoked."""

    grant: int
    is_revoked: bool


class PendingMessages(NamedTuple):
    """The numbers of messages that waited for a removed device, by the place where they waited."""

    offline: int
    outbox: int
    held: int

    @property
    def total(self) -> int:
        """Return the sum of `offline`, `outbox` and `held`."""
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
_COLUMNS: Final = """
SELECT a.name, a.trusted, a.created, a.revoked,
    EXISTS (SELECT 1 FROM credentials AS c WHERE c.account = a.id), a.downgrade, a.seen
FROM accounts AS a
"""
_LIST: Final = f"{_COLUMNS} ORDER BY a.name"
_FIND: Final = f"{_COLUMNS} WHERE a.name = ?"
_NAMES: Final = "SELECT name FROM accounts ORDER BY name"
_STATUS: Final = "SELECT id, revoked IS NOT NULL, downgrade FROM main.accounts WHERE name = ?"
_LOGIN: Final = "SELECT grant, revoked IS NOT NULL FROM accounts WHERE name = ?"
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

MAX_CACHED: Final = 4096
"""Maximum number of accounts whose status is cached."""

_CACHE: Final = "accounts"


def add(
    tx: Transaction,
    name: str,
    credentials: Iterable[Credentials],
    *,
    trusted: bool,
    downgrade: bool = False,
) -> None:
    """Add a device; raise `SetupError` if the name is taken."""
    row = tx.row(_ADD, (name, trusted, tx.now.wall, downgrade))
    if row is None:
        raise SetupError(f"device {name!r} exists already")
    _insert_credentials(tx, row[0], credentials)
    tx.cache.clear()


def credentials(tx: Transaction, name: str, mechanism: str) -> Credentials | None:
    """Return the keys of a device's password for one SASL mechanism.

    Returns `None` if the device does not exist, is revoked, or has no password, so that a client
    cannot tell these cases apart.
    """
    row = tx.row(_FIND_CREDENTIALS, (name, mechanism))
    return None if row is None else Credentials(*row)


def set_credentials(tx: Transaction, name: str, credentials: Iterable[Credentials]) -> bool:
    """Replace the keys of a device's password.

    Returns `False` if the device does not exist or is revoked. A revoked device gets no keys,
    because they would become valid when the device is restored.
    """
    row = tx.row(_USABLE, (name,))
    if row is None:
        return False
    tx.run(_DROP_CREDENTIALS, (row[0],))
    _insert_credentials(tx, row[0], credentials)
    return True


def find(tx: Transaction, name: str) -> Account | None:
    """Return the device with this name, or `None` if it does not exist."""
    row = tx.row(_FIND, (name,))
    return None if row is None else _account(row)


def list_all(tx: Transaction) -> list[Account]:
    """Return all devices, ordered by name; there is no limit, because operators add devices."""
    return [_account(row) for row in tx.rows(_LIST)]


def list_names(tx: Transaction) -> list[str]:
    """Return the names of all devices in alphabetical order."""
    return [str(row[0]) for row in tx.rows(_NAMES)]


def is_active(tx: Transaction, name: str) -> bool:
    """Return whether a device exists and is not revoked."""
    return tx.row(_USABLE, (name,)) is not None


def status(tx: Transaction, name: str) -> AccountStatus | None:
    """Return the status of an account, or `None` if it does not exist.

    The result is cached across transactions until an account changes.
    """
    cached: dict[str, AccountStatus | None] = tx.cache.setdefault(_CACHE, {})
    if name not in cached:
        row = tx.row(_STATUS, (name,))
        if len(cached) >= MAX_CACHED:
            cached.clear()
        cached[name] = None if row is None else AccountStatus(row[0], bool(row[1]), bool(row[2]))
    return cached[name]


def login_account(tx: Transaction, name: str) -> LoginAccount | None:
    """Return whether an account is revoked, and its `login_grant`; `None` if it does not exist."""
    row = tx.row(_LOGIN, (name,))
    return None if row is None else LoginAccount(row[0], bool(row[1]))


def login_grant(tx: Transaction, name: str) -> int | None:
    """Return the login grant of a device: a random number that each session keeps from its login.

    Returns `None` if the device does not exist or is revoked. A session whose number differs is
    ended. The number changes when the device is revoked, its logins are invalidated
    (`invalidate_logins`), or a new device gets the same name.
    """
    found = login_account(tx, name)
    return None if found is None or found.is_revoked else found.grant


def invalidate_logins(tx: Transaction, name: str) -> None:
    """Invalidate all logins of a device, which ends its sessions."""
    tx.run(_WITHDRAW, (name,))
    tx.cache.clear()


def revoke(tx: Transaction, name: str) -> bool:
    """Revoke a device and delete its password.

    Returns `False` if the device does not exist or was revoked before. Its certificates are revoked
    by `certificates.revoke`.
    """
    row = tx.row(_REVOKE, (tx.now.wall, name))
    if row is None:
        return False
    tx.run(_DROP_CREDENTIALS, (row[0],))
    tx.cache.clear()
    return True


def restore(tx: Transaction, name: str) -> bool:
    """Lift the revocation of a device, which then has no password.

    Returns whether the device was revoked.
    """
    if tx.row(_RESTORE, (name,)) is None:
        return False
    tx.cache.clear()
    return True


def set_downgrade(tx: Transaction, name: str, downgrade: bool) -> bool:
    """Set whether a device receives plain messages in sessions without QoS support.

    Returns whether this changed anything.
    """
    if tx.row(_DOWNGRADE, (downgrade, name)) is None:
        return False
    tx.cache.clear()
    return True


def remove(tx: Transaction, name: str) -> PendingMessages:
    """Delete a device with its password, roster and offline messages.

    Returns the numbers of messages that waited for it. Its outbox messages stay, without an
    account, until the gateway has informed their senders; messages in custody for it stay, too.
    Other accounts keep the device in their rosters until a device gets the same name
    (`roster.remove_from_all`). Certificates are kept; revoke them first.
    """
    pending = PendingMessages(*tx.row(_WAITED, (name,)))
    tx.run(_REMOVE, (name,))
    tx.cache.clear()
    return pending


def _account(row: Any) -> Account:
    name, trusted, created, revoked, password, downgrade, seen = row
    return Account(name, bool(trusted), created, revoked, bool(password), bool(downgrade), seen)


def _insert_credentials(tx: Transaction, account: int, credentials: Iterable[Credentials]) -> None:
    for keys in credentials:
        tx.run(_ADD_CREDENTIALS, (account, *astuple(keys)))
