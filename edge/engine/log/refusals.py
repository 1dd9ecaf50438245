"""Log refusals as events: at most one event per time window for each source and rule.

A source is a bare JID or an IP address. A rule is the name of a limit or of another reason. The
first refusal of a window is logged at once. Later refusals are counted in a row of a table, and
logged when the window is over. The table is bounded: beyond its limit, refusals count for the
source `other`. Some frequent events that are no refusals are counted in the same way. A rule may
have details (`with_details`); beyond the table's limit all but the protocol is dropped. Source: XEP
QoS, "Memory attacks": invalid use is logged by XEP-0337, so that its source is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from edge.config.limits import Limits
from edge.engine.dispatch.hooks import Context
from edge.engine.rules.access import Sender
from edge.engine.store import events, space
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent

OTHER_SOURCE: Final = "other"

REPEATED: Final = "repeated"
"""The name under which requests that a peer repeats after the answer are counted."""

CHANGED: Final = "password_changed"
"""The name under which password changes by devices are counted, in place of a rule's name."""

_OTHER_EVENTS: Final = {
    CHANGED: NewEvent("device", name="password", level="Notice"),
    REPEATED: NewEvent("message", name=REPEATED, value=1.0, level="Informational"),
}
"""For each rule name that is no refusal, the event that is logged for a single occurrence."""

BATCH: Final = 256
"""Maximum windows (`limits.refusal_window`) that are closed in one unit of work."""

_COUNT: Final = """
UPDATE refusals SET count = count + ?, figure = ? WHERE source = ? AND rule = ? RETURNING count
"""
_OPEN: Final = "INSERT INTO refusals (source, rule, count, figure, due) VALUES (?, ?, 0, ?, ?)"
_ROWS: Final = "SELECT count(*) FROM refusals"
_OVER: Final = """
SELECT source, rule, count, figure FROM refusals WHERE due <= ? ORDER BY due LIMIT ?
"""
_CLOSE: Final = "DELETE FROM refusals WHERE source = ? AND rule = ?"
_REOPEN: Final = "UPDATE refusals SET count = 0, due = ? WHERE source = ? AND rule = ?"
_COUNTED: Final = "SELECT source, rule, count, figure FROM refusals WHERE count > 0 ORDER BY due"
_CLOSE_ALL: Final = "DELETE FROM refusals"
_FIRST_DUE: Final = "SELECT min(due) FROM refusals"

_to_json: Final = msgspec.json.Encoder(order="sorted").encode
_from_json: Final = msgspec.json.Decoder(tuple[str | None, dict[str, str]]).decode


def with_details(rule: str, text: str | None, tags: Mapping[str, str]) -> str:
    """Return a rule name that includes `text` and `tags`, so that these are counted separately."""
    return f"{rule} {_to_json((text, tags)).decode()}"


def without_details(rule: str) -> str:
    """Return the name of a rule without the details that `with_details` added, if any."""
    return rule.partition(" ")[0]


def with_protocol_only(rule: str) -> str:
    """Return a rule with no other details than those of `events.PROTOCOL_TAGS`."""
    name, _, details = rule.partition(" ")
    tags = _from_json(details)[1] if details else {}
    kept = {key: tags[key] for key in events.PROTOCOL_TAGS if key in tags}
    return with_details(name, None, kept) if kept else name


def log(
    context: Context,
    tx: Transaction,
    sender: Sender,
    rule: str,
    limit: int | None = None,
    text: str | None = None,
) -> None:
    """Log that `rule` refused a request of the sender; `limit` is its value if it is a limit.

    `text` is logged with the first refusal of a window.
    """
    count(tx, context.limits, sender.bare, rule, limit, text=text)


def log_if_room(context: Context, tx: Transaction, sender: Sender, rule: str) -> None:
    """Log an allowed request under `rule`, if the database has room.

    Without room, logging would fail, and the request itself would be undone.
    """
    if space.reserve(tx, 0, context.limits) is None:
        log(context, tx, sender, rule)


def log_source(
    context: Context, tx: Transaction, source: str, rule: str, limit: int | None = None
) -> None:
    """Log that `rule` refused a request of a source; `limit` is its value if it is a limit."""
    count(tx, context.limits, source, rule, limit)


def count(
    tx: Transaction,
    limits: Limits,
    source: str,
    rule: str,
    limit: int | None = None,
    times: int = 1,
    text: str | None = None,
) -> None:
    """Count `times` refusals; log them at once if no window of this source and rule is open.

    `limit` is the value of the exceeded limit, if any; `text` is logged if they are logged at once.
    """
    if tx.row(_COUNT, (times, limit, source, rule)) is not None:
        return
    if source != OTHER_SOURCE and tx.row(_ROWS)[0] >= limits.refusal_sources:
        count(tx, limits, OTHER_SOURCE, with_protocol_only(rule), limit, times, text)
        return
    due = tx.now.service + limits.refusal_window
    tx.run(_OPEN, (source, rule, limit, due))
    tx.wake_at(due)
    found = event(source, rule, times, limit)
    events.append(tx, events.SYSTEM, found if text is None else found._replace(text=text))


def close_due_windows(tx: Transaction, window: float) -> None:
    """Log the refusals of the windows that are over, and set the timer for the next window's end.

    If a window counted refusals, a new one of `window` service seconds follows; otherwise none.
    """
    for source, rule, times, limit in tx.rows(_OVER, (tx.now.service, BATCH)):
        if times:
            _append_event(tx, source, rule, times, limit)
            tx.run(_REOPEN, (tx.now.service + window, source, rule))
        else:
            tx.run(_CLOSE, (source, rule))
    (due,) = tx.row(_FIRST_DUE)
    if due is not None:
        tx.wake_at(due)


def close_all_windows(tx: Transaction) -> None:
    """Log the refusals counted in all time windows and close the windows: the gateway stops."""
    for source, rule, times, limit in tx.rows(_COUNTED):
        _append_event(tx, source, rule, times, limit)
    tx.run(_CLOSE_ALL)


def event(source: str, rule: str, times: int, limit: int | None) -> NewEvent:
    """Return the event for `times` refusals by a rule, or occurrences if the rule refuses nothing.

    `limit` is the value of the exceeded limit, if any.
    """
    other = _OTHER_EVENTS.get(rule)
    if other is not None:
        return other._replace(source=source, value=float(times) if times > 1 else other.value)
    name, _, details = rule.partition(" ")
    text, tags = _from_json(details) if details else (None, {})
    if limit is not None:
        tags["limit"] = str(limit)
    return NewEvent(
        "limit", source, name=name, value=float(times), level="Warning", text=text, tags=tags
    )


def _append_event(tx: Transaction, source: str, rule: str, times: int, limit: int | None) -> None:
    events.append(tx, events.SYSTEM, event(source, rule, times, limit))
