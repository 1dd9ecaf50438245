"""Logging what was refused, folded by source and rule.

Source: XEP QoS, "Memory attacks": invalid use is logged by XEP-0337, so that its source is found.
"""

from __future__ import annotations

from edge.engine import refusal_log, space
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import Context


def log(
    context: Context, tx: Transaction, sender: Sender, rule: str, figure: int | None = None
) -> None:
    """Log that `rule` refused something to the sender; `figure` is the limit, if it has one.

    What it was allowed and is told all the same (`store.refusals.CHANGED`) is logged alike.
    """
    log_source(context, tx, sender.bare, rule, figure)


def log_if_room(context: Context, tx: Transaction, sender: Sender, rule: str) -> None:
    """Log what the sender was allowed; not while the database is full: to find no room for that
    would undo the answer that it gets."""
    if space.reserve(tx, 0, context.limits) is None:
        log(context, tx, sender, rule)


def log_source(
    context: Context, tx: Transaction, source: str, rule: str, figure: int | None = None
) -> None:
    """Log that `rule` refused something to a source, a bare JID."""
    limits = context.limits
    refusal_log.refuse(tx, source, rule, figure, limits.refusal_window, limits.refusal_sources)
