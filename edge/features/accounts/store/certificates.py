"""The table `certificates`: client certificates that the gateway's CA issued to devices.

A certificate is identified by its fingerprint, the SHA-256 of its DER encoding. TLS checks the
signature, and the login checks the dates. A certificate that is not in this table is refused. All
times are in ms since 1970 UTC.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.rules.service_time import DAY_MS
from edge.engine.store import meta
from edge.engine.store.database import Transaction
from edge.errors import SetupError

RETENTION_MS: Final = 365 * DAY_MS
"""Milliseconds for which a certificate is kept in the table after it expired."""

MAX_EXPIRING: Final = 100
"""Maximum number of devices that `find_expiring` returns."""

MAX_VALID: Final = 8
"""Maximum number of valid certificates of one device. A renewal needs two: the old and the new."""

_CRL: Final = "crl"
"""The key in `meta` of the number of the last certificate revocation list (CRL)."""


class IssuedCertificate(NamedTuple):
    """A recorded certificate, to explain why a login with it is refused.

    Attributes:
        name: the device that it was issued to.
        is_revoked: whether the certificate itself is revoked.
        is_removed: whether the device was removed.
    """

    name: str
    is_revoked: bool
    is_removed: bool


class RevokedCertificate(NamedTuple):
    """An entry of the certificate revocation list."""

    serial: str
    revoked: int


class ExpiringDevice(NamedTuple):
    """A device, and when the last of its certificates expires (ms since 1970 UTC)."""

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
_ISSUED: Final = """
SELECT name, revoked IS NOT NULL, account IS NULL FROM certificates WHERE fingerprint = ?
"""
_REVOKE: Final = """
UPDATE certificates SET revoked = ?
WHERE account = (SELECT id FROM accounts WHERE name = ?) AND revoked IS NULL
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
_EXPIRED: Final = """
SELECT a.name, max(c.not_after) AS ends
FROM certificates AS c JOIN accounts AS a ON a.id = c.account
WHERE c.revoked IS NULL AND a.revoked IS NULL
    AND NOT EXISTS (SELECT 1 FROM credentials AS p WHERE p.account = a.id)
GROUP BY a.id HAVING ends < ? ORDER BY ends, a.name LIMIT ?
"""
_REVOKED: Final = """
SELECT serial, revoked FROM certificates WHERE revoked IS NOT NULL ORDER BY revoked, serial
"""
_FORGET: Final = """
DELETE FROM certificates WHERE not_after < ?
    AND (revoked IS NOT NULL OR account = (SELECT id FROM accounts WHERE name = ?))
"""


def add(tx: Transaction, name: str, fingerprint: bytes, serial: str, not_after: int) -> None:
    """Record a certificate of a device.

    Also delete certificates that expired more than `RETENTION_MS` ago: all of this device, but only
    revoked ones of other devices, because the clock may be wrong.

    Raises:
        SetupError: the device does not exist, or it has `MAX_VALID` valid certificates.
    """
    now = tx.now.wall
    tx.run(_FORGET, (now - RETENTION_MS, name))
    if tx.row(_VALID, (name, now))[0] >= MAX_VALID:
        raise SetupError(
            f"device {name!r} has {MAX_VALID} certificates already: revoke them with --revoke-old"
        )
    if tx.row(_ADD, (fingerprint, serial, now, not_after, name)) is None:
        raise SetupError(f"device {name!r} does not exist")


def find_owner(tx: Transaction, fingerprint: bytes) -> str | None:
    """Return the device that a certificate belongs to, by the SHA-256 of its DER encoding.

    Returns `None` if the certificate is unknown, or if the certificate or the device is revoked.
    The dates are not checked.
    """
    row = tx.row(_OWNER, (fingerprint,))
    return None if row is None else str(row[0])


def find_issued(tx: Transaction, fingerprint: bytes) -> IssuedCertificate | None:
    """Return the record of an issued certificate, or `None` if there is none."""
    row = tx.row(_ISSUED, (fingerprint,))
    return None if row is None else IssuedCertificate(row[0], bool(row[1]), bool(row[2]))


def revoke(tx: Transaction, name: str) -> int:
    """Revoke all certificates of a device; return the number that were not revoked before."""
    return tx.run(_REVOKE, (tx.now.wall, name)).rowcount


def latest_expiry(tx: Transaction) -> dict[str, int]:
    """Return, for each device with unrevoked certificates, when the last of these expires."""
    return dict(tx.rows(_LATEST))


def find_expiring(tx: Transaction, now: int, days: int) -> list[ExpiringDevice]:
    """Return up to `MAX_EXPIRING` devices whose last certificate expires within `days` of `now`.

    The last certificate of a device is the one that expires last. The earliest expiry comes first.
    `now` is in ms since 1970 UTC. Devices whose last certificate has expired are left out.
    """
    rows = tx.rows(_EXPIRING, (now, now + days * DAY_MS, MAX_EXPIRING))
    return [ExpiringDevice(*row) for row in rows]


def find_expired(tx: Transaction, now: int) -> list[ExpiringDevice]:
    """Return up to `MAX_EXPIRING` devices without a password whose last certificate has expired at
    `now` (ms since 1970 UTC), so that they cannot log in."""
    return [ExpiringDevice(*row) for row in tx.rows(_EXPIRED, (now, MAX_EXPIRING))]


def list_revoked(tx: Transaction) -> list[RevokedCertificate]:
    """Return the entries of the certificate revocation list, the oldest first."""
    return [RevokedCertificate(*row) for row in tx.rows(_REVOKED)]


def next_crl_number(tx: Transaction, least: int) -> int:
    """Return and store the next revocation list's number: above the last, and at least `least`."""
    number = max(int(meta.read_number(tx, _CRL)) + 1, least)
    meta.write(tx, _CRL, number)
    return number
