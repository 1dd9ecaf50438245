"""Who is there: bound sessions, as rows that units of work alone change.

The tables are temporary: sessions end with the process. A generation is the number of a session;
units of one that was replaced find no row, and do nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.engine.access import Sender
from edge.engine.database import Transaction

COMPONENT_LINK: Final = 0
"""The generation of no session: what is sent to it goes by its address over a component's link."""

_BIND: Final = """
INSERT INTO temp.sessions (generation, full, bare, account, grant) VALUES (?, ?, ?, ?, ?)
"""
_HOLDER: Final = "SELECT generation FROM temp.sessions WHERE full = ?"
_END: Final = "DELETE FROM temp.sessions WHERE generation = ?"
_FORGET_DIRECTED: Final = "DELETE FROM temp.directed WHERE generation = ?"
_DETACHED: Final = "UPDATE temp.sessions SET detached = ? WHERE generation = ?"
_QOS: Final = "UPDATE temp.sessions SET qos = ? WHERE generation = ?"
_SENDER: Final = """
SELECT s.full, s.bare, s.account, a.id IS NOT NULL AND a.revoked IS NULL, coalesce(a.trusted, 0),
    s.generation, a.revoked IS NOT NULL
FROM temp.sessions AS s LEFT JOIN main.accounts AS a
    ON a.name = s.account AND (s.grant IS NULL OR s.grant = a.grant)
WHERE s.generation = ?
"""
_OF_ACCOUNT: Final = """
SELECT generation, full, available, priority, presence, interested, detached, qos
FROM temp.sessions WHERE bare = ? ORDER BY priority DESC, generation DESC
"""
_AT: Final = """
SELECT generation, full, available, priority, presence, interested, detached, qos
FROM temp.sessions WHERE full = ?
"""
_UNPROVISIONED: Final = """
SELECT s.generation FROM temp.sessions AS s LEFT JOIN main.accounts AS a
    ON a.name = s.account AND a.revoked IS NULL AND (s.grant IS NULL OR s.grant = a.grant)
WHERE a.id IS NULL
"""


class Session(NamedTuple):
    """A bound session: its number, full JID, presence (raw, the last broadcast), and state.

    `available` tells whether it has sent initial presence, `interested` whether it asked for the
    roster, `detached` whether it waits to be resumed. `qos` is the namespace in which it takes
    quality of service, empty if it does not, `None` while that is not known.
    """

    generation: int
    full: str
    available: bool
    priority: int
    presence: bytes | None
    interested: bool
    detached: bool
    qos: str | None = None


def bind(
    tx: Transaction,
    generation: int,
    account: str,
    bare: str,
    full: str,
    grant: int | None = None,
) -> None:
    """Bind a full JID to a session; whoever had it before was ended first.

    `grant` is that of the account when it logged in (`accounts.grant`), `None` where it logged in
    to another server.
    """
    tx.run(_BIND, (generation, full, bare, account, grant))


def find_generation(tx: Transaction, full: str) -> int | None:
    """Return the session that has this full JID, if there is one."""
    row = tx.row(_HOLDER, (full,))
    return None if row is None else int(row[0])


def remove(tx: Transaction, generation: int) -> None:
    """Forget a session."""
    tx.run(_END, (generation,))
    tx.run(_FORGET_DIRECTED, (generation,))
    tx.known.get("senders", {}).pop(generation, None)


def set_detached(tx: Transaction, generation: int, detached: bool) -> None:
    """Note that a session waits to be resumed, or was."""
    tx.run(_DETACHED, (detached, generation))


def set_qos(tx: Transaction, generation: int, namespace: str | None) -> None:
    """Note in which namespace a session takes quality of service: empty for none, `None` if it has
    to be asked."""
    tx.run(_QOS, (namespace, generation))


def sender(tx: Transaction, generation: int) -> Sender | None:
    """Return whose session this is, or `None` if it is over.

    It is known from one transaction to the next, until its row or somebody's account changes.
    """
    senders: dict[int, Sender] = tx.known.setdefault("senders", {})
    found = senders.get(generation)
    if found is None and (row := tx.row(_SENDER, (generation,))) is not None:
        full, bare, account, provisioned, trusted, number, revoked = row
        known = bool(provisioned), bool(trusted), number, bool(revoked)
        found = Sender(full, bare, account, *known)
        senders[generation] = found
    return found


def of_account(tx: Transaction, bare: str) -> list[Session]:
    """Return an account's sessions, the highest priority first, and of those the newest."""
    return [_session(row) for row in tx.rows(_OF_ACCOUNT, (bare,))]


def find(tx: Transaction, full: str) -> Session | None:
    """Return the session of a full JID, if there is one."""
    row = tx.row(_AT, (full,))
    return None if row is None else _session(row)


def unprovisioned(tx: Transaction) -> list[int]:
    """Return the sessions whose account was removed or revoked meanwhile, also where that was
    lifted or another has its name."""
    return [int(row[0]) for row in tx.rows(_UNPROVISIONED)]


def _session(row: tuple[int, str, int, int, bytes | None, int, int, str | None]) -> Session:
    generation, full, available, priority, presence, interested, detached, qos = row
    flags = bool(interested), bool(detached)
    return Session(generation, full, bool(available), priority, presence, *flags, qos)
