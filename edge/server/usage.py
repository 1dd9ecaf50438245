"""How much of each limit of connections, sessions and buffers is used just now, for who asks.

Nothing is counted for it beforehand: it is looked up when somebody asks. What the database holds is
in the database.
"""

from __future__ import annotations

from edge.server.session import Session
from edge.server.shared import Shared


def used(shared: Shared) -> dict[str, int]:
    """Tell how much is used, by the option of `limits` that bounds it.

    Where an option bounds each session, it is that of the session which has most; `paused` counts
    the connections that wait since they sent too much at once (`limits.*_per_second`).
    """
    registry, waiting = shared.registry, shared.store.waiting
    sessions = [session for session in registry.sessions() if not session.over]
    account, address = registry.fullest()
    return {
        "sessions": registry.live,
        "sessions_per_account": account,
        "sessions_per_address": address,
        "unauthenticated": len(registry.strangers),
        "unauthenticated_per_address": registry.strangers.fullest(),
        "handshakes": shared.handshakes.taken,
        "paused": shared.paused,
        "send_buffer": max(map(_buffered, sessions), default=0),
        "session_units": max((session.in_flight for session in sessions), default=0),
        "session_bytes": max((session.in_flight_bytes for session in sessions), default=0),
        "unacknowledged_stanzas": max(map(_unacknowledged, sessions), default=0),
        "unacknowledged_bytes": max((session.held for session in sessions), default=0),
        "unacknowledged_total_bytes": registry.unacknowledged + registry.returning,
        "waiting_units": waiting.units,
        "waiting_bytes": waiting.bytes,
    }


def _buffered(session: Session) -> int:
    return 0 if session.connection is None else session.connection.backlog()


def _unacknowledged(session: Session) -> int:
    return 0 if session.management is None else session.management.bounded
