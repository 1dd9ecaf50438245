"""Provisioned devices and what their passwords are checked against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge.credentials import Credentials
from edge.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge.store.database import Transaction

_ADD: Final = """
INSERT INTO accounts (name, trusted, created) VALUES (?, ?, ?)
ON CONFLICT (name) DO NOTHING RETURNING id
"""
_ADD_CREDENTIALS: Final = """
INSERT INTO credentials (account, mechanism, salt, iterations, stored_key, server_key)
VALUES (?, ?, ?, ?, ?, ?)
"""
_FIND_CREDENTIALS: Final = """
SELECT c.mechanism, c.salt, c.iterations, c.stored_key, c.server_key
FROM credentials AS c JOIN accounts AS a ON a.id = c.account
WHERE a.name = ? AND c.mechanism = ?
"""


def add(tx: Transaction, name: str, credentials: Iterable[Credentials], *, trusted: bool) -> None:
    """Provision a device; raises `SetupError` if there is one of that name."""
    row = tx.row(_ADD, (name, trusted, tx.now.wall))
    if row is None:
        raise SetupError(f"device {name!r} exists already")
    for keys in credentials:
        tx.run(
            _ADD_CREDENTIALS,
            (
                row[0],
                keys.mechanism,
                keys.salt,
                keys.iterations,
                keys.stored_key,
                keys.server_key,
            ),
        )


def credentials(tx: Transaction, name: str, mechanism: str) -> Credentials | None:
    """Return the keys of a device for one mechanism, or `None` if there is no such device."""
    row = tx.row(_FIND_CREDENTIALS, (name, mechanism))
    return None if row is None else Credentials(*row)
