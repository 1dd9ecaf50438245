"""Read the gateway's records of issued certificates."""

from __future__ import annotations

from typing import NamedTuple

from edge.engine.store.database import Transaction

LIST = """
SELECT fingerprint, name, serial, issued, not_after, revoked FROM certificates
ORDER BY name, issued, fingerprint
"""


class Certificate(NamedTuple):
    """A certificate: `serial` is hexadecimal, `name` the device, which may have been removed."""

    fingerprint: bytes
    name: str
    serial: str
    issued: int
    not_after: int
    revoked: int | None


def list_all(tx: Transaction) -> list[Certificate]:
    """Return all recorded certificates, including those of removed devices."""
    return [Certificate(*row) for row in tx.rows(LIST)]
