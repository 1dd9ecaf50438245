"""The rows of bound sessions (`temp.sessions`), which only units of work change.

The rows include detached sessions, which have lost their connection and can be resumed (XEP-0198).
The tables are temporary (`tables`), because sessions end with the process. A session's
generation is its number. Units of a session that was replaced find no row, and do nothing.

A row has what the session's protocol declares that the session can do now. Features decide by this
who gets what, and know nothing of how a protocol tells it. The sessions of an account are cached in
memory once they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender
from edge.engine.store import events
from edge.engine.store.database import Transaction

T = TypeVar("T")

WITHOUT_SESSION: Final = 0
"""The generation (session number) for messages to addresses that have no session here, such as
users of another server. An endpoint that reaches them attaches itself under this generation."""

_BIND: Final = """
INSERT INTO temp.sessions (
    generation, full, bare, account, grant, since, qos, adopts, resends, ordered, window, ids,
    relays, protocol, version, transport
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_END: Final = "DELETE FROM temp.sessions WHERE generation = ?"
_DETACHED: Final = "UPDATE temp.sessions SET detached = ? WHERE generation = ?"
_QOS: Final = "UPDATE temp.sessions SET qos = ? WHERE generation = ?"
_SENDER: Final = """
SELECT s.full, s.bare, s.account, a.id IS NOT NULL AND a.revoked IS NULL, coalesce(a.trusted, 0),
    s.generation, a.revoked IS NOT NULL OR (a.id IS NULL AND s.grant IS NOT NULL), s.adopts
FROM temp.sessions AS s LEFT JOIN main.accounts AS a
    ON a.name = s.account AND (s.grant IS NULL OR s.grant = a.grant)
WHERE s.generation = ?
"""
_AVAILABLE: Final = """
UPDATE temp.sessions
SET gets_items = gets_items OR NOT available, available = 1, accepts = ?, rank = ?
WHERE generation = ?
"""
_UNAVAILABLE: Final = """
UPDATE temp.sessions SET available = 0, accepts = 0, rank = 0 WHERE generation = ?
"""
_GETS_ITEMS: Final = "UPDATE temp.sessions SET gets_items = ? WHERE generation = ?"
_OF_ACCOUNT: Final = """
SELECT generation, full, detached, available, accepts, rank, gets_items, qos, since, resends,
    ordered, window, ids, relays
FROM temp.sessions WHERE bare = ? ORDER BY rank DESC, generation DESC
"""
_PROTOCOL: Final = "SELECT protocol, version, transport FROM temp.sessions WHERE generation = ?"
_BARE: Final = "SELECT bare FROM temp.sessions WHERE generation = ?"
_NEWEST: Final = "SELECT bare, max(generation) FROM temp.sessions GROUP BY bare"
_UNPROVISIONED: Final = """
SELECT s.generation FROM temp.sessions AS s LEFT JOIN main.accounts AS a
    ON a.name = s.account AND a.revoked IS NULL AND s.grant = a.grant
WHERE a.id IS NULL AND s.grant IS NOT NULL
"""

_SENDERS: Final = "senders"
_SESSIONS: Final = "sessions"

MAX_CACHED: Final = 4096
"""Maximum accounts whose sessions are cached, including accounts without a session."""


class Declaration(NamedTuple):
    """The needs of a session's protocol, declared when it is bound. The defaults are XMPP's.

    Attributes:
        qos: as in `SessionRow`.
        adopts: whether it takes over custody of earlier sessions of its account. If not, its msgIds
            belong to its full address alone.
        resends: whether a message that it does not answer in time is sent again. If not, this
            happens only in a later session (MQTT 5, section 4.4).
        ordered: whether messages are released in the order in which the session has received them
            (MQTT 5, section 4.6), not in the order of their source.
        window: the maximum number of messages that were sent to it and are not finished; `None` for
            `limits.outbox_window`, which the account's sessions share unless they are `ordered` or
            have `ids`.
        ids: how many ids its protocol has for such messages (`outbox.rules.message_id`); `None`
            if it has enough.
        relays: whether it gets the messages and requests that other sessions send to its address.
            If not, their senders are told that nobody is there.
        protocol: its protocol in the event log; empty for XMPP.
        version: the version of the protocol in the event log; empty if it has only one.
        transport: what carries the protocol, in the event log; empty for TCP, with or without TLS.
        durable: the seconds for which its state is kept after it has lost its connection
            (`durable_sessions`); `None` if no state belongs to the session.
        clean: whether the state of earlier sessions of its full address ends.
    """

    qos: str | None = None
    adopts: bool = True
    resends: bool = True
    ordered: bool = False
    window: int | None = None
    ids: int | None = None
    relays: bool = True
    protocol: str = ""
    version: str = ""
    transport: str = ""
    durable: float | None = None
    clean: bool = False


DEFAULT: Final = Declaration()

_TRAITS: Final = Declaration._fields.index("durable")
"""Number of the first values of `Declaration`, which are columns of `temp.sessions`."""


class SessionRow(NamedTuple):
    """A bound session.

    Attributes:
        detached: whether it lost its connection and can be resumed.
        available: whether it has declared itself available. Subscriptions of the account's bare
            address may end with the last available session.
        accepts: whether it accepts messages for its account; only an available session does.
        rank: its rank among the account's sessions; those of the highest rank get messages first.
        gets_items: whether it gets items of nodes and queues.
        qos: how its protocol names the quality of service that it supports; empty if it supports
            none, `None` while that is not known.
        since: when it was bound, in service seconds.
        resends: as in `Declaration`, like the attributes that follow.
    """

    generation: int
    full: str
    detached: bool
    available: bool
    accepts: bool
    rank: int
    gets_items: bool
    qos: str | None
    since: float
    resends: bool
    ordered: bool
    window: int | None
    ids: int | None
    relays: bool

    @property
    def has_own_window(self) -> bool:
        """Return whether messages to it have limits and an order of their own."""
        return bool(self.ordered or self.window or self.ids)


def bind(
    tx: Transaction,
    generation: int,
    account: str,
    bare: str,
    full: str,
    grant: int | None = None,
    declared: Declaration = DEFAULT,
) -> None:
    """Insert a session; its full address must be free.

    `grant` is the account's login grant (`accounts.login_grant`), or `None` if the session logged
    in to another server, of which the gateway is a component.
    """
    tx.run(_BIND, (generation, full, bare, account, grant, tx.now.service, *declared[:_TRAITS]))
    tx.cache.get(_SESSIONS, {}).pop(bare, None)


def protocol_tags(tx: Transaction, generation: int) -> dict[str, str]:
    """Return the tags by which the event log names a session's protocol; none for XMPP."""
    values = tx.row(_PROTOCOL, (generation,)) or ()
    return {name: value for name, value in zip(events.PROTOCOL_TAGS, values, strict=False) if value}


def remove(tx: Transaction, generation: int) -> None:
    """Remove a session."""
    _forget_cached(tx, generation)
    tx.run(_END, (generation,))
    tx.cache.get(_SENDERS, {}).pop(generation, None)


def _forget_cached(tx: Transaction, generation: int) -> None:
    row = tx.row(_BARE, (generation,))
    if row is not None:
        tx.cache.get(_SESSIONS, {}).pop(row[0], None)


def set_detached(tx: Transaction, generation: int, detached: bool) -> None:
    """Set whether a session waits to be resumed."""
    tx.run(_DETACHED, (detached, generation))
    _forget_cached(tx, generation)


def set_qos(tx: Transaction, generation: int, name: str | None) -> None:
    """Set the quality of service that a session supports (`SessionRow.qos`)."""
    tx.run(_QOS, (name, generation))
    _forget_cached(tx, generation)


def set_gets_items(tx: Transaction, generation: int, gets_items: bool) -> None:
    """Set whether a session gets items of nodes and queues."""
    tx.run(_GETS_ITEMS, (gets_items, generation))
    _forget_cached(tx, generation)


def set_available(
    context: Context,
    tx: Transaction,
    sender: Sender,
    *,
    accepts: bool,
    rank: int = 0,
    renewed: bool = False,
) -> None:
    """Record that a session is available, with these values of `accepts` and `rank`.

    If it begins to accept messages, or accepts them and is `renewed`, run the hooks for that. A
    session that was not available gets items again.
    """
    session = find(tx, sender.full)
    tx.run(_AVAILABLE, (accepts, rank, sender.generation))
    _forget_cached(tx, sender.generation)
    if accepts and session is not None and (renewed or not session.accepts):
        run_ready_hooks(context, tx, sender)


def set_unavailable(context: Context, tx: Transaction, sender: Sender) -> None:
    """Record that a session is not available, and run the hooks for that."""
    tx.run(_UNAVAILABLE, (sender.generation,))
    _forget_cached(tx, sender.generation)
    for hook in context.hooks.on_unavailable:
        hook(context, tx, sender)


def run_ready_hooks(context: Context, tx: Transaction, sender: Sender) -> None:
    """Run the hooks that send a session what waits for it, because it may accept more now."""
    session = find(tx, sender.full)
    if session is not None:
        accepts = session.accepts
        for hook in context.hooks.on_accepting if accepts else context.hooks.on_qos_known:
            hook(context, tx, sender)


def sender(tx: Transaction, generation: int) -> Sender | None:
    """Return the sender of a session's requests, or `None` if the session has ended.

    The result is cached across transactions until the session or an account changes.
    """
    senders: dict[int, Sender] | None = tx.cache.get(_SENDERS)
    if senders is None:
        senders = tx.cache[_SENDERS] = {}
    found = senders.get(generation)
    if found is None and (row := tx.row(_SENDER, (generation,))) is not None:
        full, bare, account, provisioned, trusted, number, revoked, adopts = row
        known = bool(provisioned), bool(trusted), number, bool(revoked), bool(adopts)
        found = Sender(full, bare, account, *known)
        senders[generation] = found
    return found


def guarded(
    work: Callable[[Transaction, Sender], T], generation: int
) -> Callable[[Transaction], T | bytes]:
    """Return a unit of work that does nothing if the session of `generation` has ended."""

    def unit(tx: Transaction) -> T | bytes:
        found = sender(tx, generation)
        return b"" if found is None else work(tx, found)

    return unit


def of_account(tx: Transaction, bare: str) -> Sequence[SessionRow]:
    """Return an account's sessions: highest rank first, and newest first among equals."""
    cached: dict[str, Sequence[SessionRow]] = tx.cache.setdefault(_SESSIONS, {})
    found = cached.get(bare)
    if found is None:
        found = tuple(_session(row) for row in tx.rows(_OF_ACCOUNT, (bare,)))
        if len(cached) >= MAX_CACHED:
            cached.clear()
        cached[bare] = found
    return found


def find(tx: Transaction, full: str) -> SessionRow | None:
    """Return the session with a full address, or `None`."""
    for session in of_account(tx, full.partition("/")[0]):
        if session.full == full:
            return session
    return None


def newest(tx: Transaction) -> dict[str, int]:
    """Return the generation of the newest session of each account that has one, by bare address."""
    return dict(tx.rows(_NEWEST))


def unprovisioned(tx: Transaction) -> list[int]:
    """Return the generations of sessions whose account was removed or revoked since log-in.

    They are included even if the revocation was lifted or a new account has the same name. Sessions
    without a grant, which logged in to another server, are not.
    """
    return [int(row[0]) for row in tx.rows(_UNPROVISIONED)]


def _session(row: Sequence[Any]) -> SessionRow:
    generation, full, detached, available, accepts, rank, gets_items, qos, since, *traits = row
    flags = bool(detached), bool(available), bool(accepts)
    resends, ordered, window, ids, relays = traits
    declared = bool(resends), bool(ordered), window, ids, bool(relays)
    return SessionRow(generation, full, *flags, rank, bool(gets_items), qos, since, *declared)
