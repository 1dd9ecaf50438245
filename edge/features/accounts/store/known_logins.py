"""The table `known_logins`: addresses from which accounts have logged in, for the login throttle.

A row is written only at the first login of an account from an address, so that the logins of a
site after a power cut write nothing.
"""

from __future__ import annotations

from typing import Final

from edge.engine.store.database import Transaction

_ADD: Final = """
INSERT OR IGNORE INTO known_logins (account, address)
SELECT id, ? FROM accounts WHERE name = ? RETURNING account
"""
_TRIM_ACCOUNT: Final = """
DELETE FROM known_logins WHERE id IN (
    SELECT id FROM known_logins WHERE account = ? ORDER BY id DESC LIMIT -1 OFFSET ?
)
"""
_TRIM: Final = """
DELETE FROM known_logins WHERE id IN (
    SELECT id FROM known_logins ORDER BY id DESC LIMIT -1 OFFSET ?
)
"""
_LIST: Final = """
SELECT k.address, a.name FROM known_logins AS k JOIN accounts AS a ON a.id = k.account
ORDER BY k.id
"""


def add(tx: Transaction, address: str, account: str, per_account: int, total: int) -> None:
    """Record that an account has logged in from an address; keep the latest addresses only.

    Args:
        per_account: the maximum number of addresses of one account.
        total: the maximum number of addresses of all accounts.
    """
    row = tx.row(_ADD, (address, account))
    if row is not None:
        tx.run(_TRIM_ACCOUNT, (row[0], per_account))
        tx.run(_TRIM, (total,))


def list_all(tx: Transaction) -> list[tuple[str, str]]:
    """Return pairs of an address and an account's name, the oldest first."""
    return [(address, name) for address, name in tx.rows(_LIST)]
