"""Certificates that the gateway's CA issued to devices: whose they are, and which are revoked.

A certificate is known by its fingerprint, the SHA-256 of its DER. TLS checks its signature and its
dates; what is not in this table is nobody's, whoever signed it. Making certificates and the list of
revoked ones is `admin`'s. All times are in ms since 1970 UTC.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine import meta
from edge.engine.database import Transaction
from edge.errors import SetupError

DAY_MS: Final = 24 * 3600 * 1000
"""Milliseconds."""

RETENTION_MS: Final = 365 * DAY_MS
"""Milliseconds that a certificate stays here after it ran out; what is forgotten is refused."""

MAX_EXPIRING: Final = 100
"""Devices told of at once: a day's events are no backlog of their own."""

MAX_VALID: Final = 8
"""Certificates of one device that are good at once: the old one, the new one, and a few mishaps."""

_CRL: Final = "crl"
"""The key of the last revocation list's number."""


class Certificate(NamedTuple):
    """A certificate; `serial` is hexadecimal, `name` its device's, who may be gone."""

    fingerprint: bytes
    name: str
    serial: str
    issued: int
    not_after: int
    revoked: int | None


class RevokedCertificate(NamedTuple):
    """An entry of the revocation list."""

    serial: str
    revoked: int


class ExpiringDevice(NamedTuple):
    """A device whose last certificate runs out at `not_after`."""

    name: str
    not_after: int


_ADD: Final = """
INSERT INTO certificates (fingerprint, account, name, serial, issued, not_after)
SELECT ?, id, name, ?, ?, ? FROM accounts WHERE name = ? RETURNING account
"""
_OWNER: Final = """
SELECT a.name FROM certificates AS c JOIN accounts AS a ON a.id = c.account
WHERE c.fingerprint = ? AND c.revoked IS NULL AND a.revoked IS NULL
"""
_REVOKE: Final = """
UPDATE certificates SET revoked = ?
WHERE account = (SELECT id FROM accounts WHERE name = ?) AND revoked IS NULL
"""
_LIST: Final = """
SELECT fingerprint, name, serial, issued, not_after, revoked FROM certificates
ORDER BY name, issued, fingerprint
"""
_VALID: Final = """
SELECT count(*) FROM certificates AS c JOIN accounts AS a ON a.id = c.account
WHERE a.name = ? AND c.revoked IS NULL AND c.not_after > ?
"""
_LATEST: Final = """
SELECT a.name, max(c.not_after) FROM certificates AS c JOIN accounts AS a ON a.id = c.account
WHERE c.revoked IS NULL GROUP BY a.id
"""
_EXPIRING: Final = """
SELECT a.name, max(c.not_after) AS ends
FROM certificates AS c JOIN accounts AS a ON a.id = c.account
WHERE c.revoked IS NULL AND a.revoked IS NULL
GROUP BY a.id HAVING ends BETWEEN ? AND ? ORDER BY ends, a.name LIMIT ?
"""
_REVOKED: Final = """
SELECT serial, revoked FROM certificates WHERE revoked IS NOT NULL ORDER BY revoked, serial
"""
_FORGET: Final = """
DELETE FROM certificates WHERE not_after < ?
    AND (revoked IS NOT NULL OR account = (SELECT id FROM accounts WHERE name = ?))
"""


def add(tx: Transaction, name: str, fingerprint: bytes, serial: str, not_after: int) -> None:
    """Record a certificate of the device `name`.

    Raises `SetupError` if there is no such device, or it has `VALID` certificates already that are
    good. What ran out long ago is forgotten, of this device and of all the revoked: where the clock
    is wrong, other devices keep what they have.
    """
    now = tx.now.wall
    tx.run(_FORGET, (now - RETENTION_MS, name))
    if tx.row(_VALID, (name, now))[0] >= MAX_VALID:
        raise SetupError(
            f"device {name!r} has {MAX_VALID} certificates already: revoke the old ones"
        )
    if tx.row(_ADD, (fingerprint, serial, now, not_after, name)) is None:
        raise SetupError(f"device {name!r} does not exist")


def find_owner(tx: Transaction, fingerprint: bytes) -> str | None:
    """Return the device whose certificate this is (SHA-256 of its DER).

    `None` if nobody knows it, or it or its device is revoked. Its dates are not looked at: TLS did.
    """
    row = tx.row(_OWNER, (fingerprint,))
    return None if row is None else str(row[0])


def revoke(tx: Transaction, name: str) -> int:
    """Revoke all certificates of a device; returns how many there were to revoke."""
    return tx.run(_REVOKE, (tx.now.wall, name)).rowcount


def list_all(tx: Transaction) -> list[Certificate]:
    """Return all certificates that are remembered, those of removed devices too."""
    return [Certificate(*row) for row in tx.rows(_LIST)]


def latest_expiry(tx: Transaction) -> dict[str, int]:
    """Return of each device that has a certificate when the last one runs out (or ran)."""
    return dict(tx.rows(_LATEST))


def find_expiring(tx: Transaction, now: int, days: int) -> list[ExpiringDevice]:
    """Return the devices whose last certificate runs out within `days` days of `now`.

    Soonest first, and `EXPIRING` at most. A device that has a newer certificate is not told of: it
    has been renewed.
    """
    rows = tx.rows(_EXPIRING, (now, now + days * DAY_MS, MAX_EXPIRING))
    return [ExpiringDevice(*row) for row in rows]


def list_revoked(tx: Transaction) -> list[RevokedCertificate]:
    """Return what the revocation list has to name, oldest first."""
    return [RevokedCertificate(*row) for row in tx.rows(_REVOKED)]


def next_crl_number(tx: Transaction, least: int) -> int:
    """Return the number of the next revocation list: above the last one, and `least` at least."""
    number = max(int(meta.read_number(tx, _CRL)) + 1, least)
    meta.write(tx, _CRL, number)
    return number
