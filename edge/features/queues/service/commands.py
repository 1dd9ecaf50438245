"""Ad-hoc commands for the owner of a queue node: show, unlock, requeue, purge.

Shared subscriptions have no owner; only the gateway's operator can inspect them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.rules.access import Sender
from edge.engine.store.database import Transaction
from edge.features.adhoc_commands.service import (
    AdHocCommand,
    CommandError,
    CommandResult,
    Commands,
    FieldType,
    Form,
    FormField,
    Reason,
)
from edge.features.queues.service import admin, diagnosis
from edge.features.queues.service.admin import Overview
from edge.features.queues.service.diagnosis import Report
from edge.features.queues.service.dispatch import dispatch
from edge.features.queues.service.errors import QueueError
from sync.common.text import plural

ITEMS: Final = 10
"""Maximum number of items in each state in an answer."""

BATCH: Final = 1000
"""Maximum number of items that one command requeues or deletes, so that it ends quickly."""

_NODE: Final = FormField("node", "Node", required=True)
_ITEM: Final = FormField("item", f"ItemID; if empty, the first {ITEMS} items in each state")
_REQUIRED_ITEM: Final = FormField("item", "ItemID", required=True)
_DEAD: Final = FormField("items", "ItemIDs, one per line", FieldType.LINES)
_ALL: Final = FormField(
    "all", f"Requeue all dead items, up to {BATCH} at a time", FieldType.BOOLEAN, ("0",)
)
_SURE: Final = FormField(
    "sure",
    f"Delete all items permanently, up to {BATCH} at a time",
    FieldType.BOOLEAN,
    ("0",),
    required=True,
)

_COLUMNS: Final = (
    FormField("item", "Item"),
    FormField("state", "State"),
    FormField("why", "Reason"),
    FormField("sentence", "Why the item is not delivered"),
    FormField("before", "Items before this one"),
    FormField("deliveries", "Deliveries"),
    FormField("holder", "Locked by"),
)
_COUNTS: Final = ("policy", "items", "bytes", "ready", "locked", "delayed", "dead", "members")
_TRUE: Final = (["1"], ["true"])


def show(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Show a queue and why its items are not delivered; an ItemID in `form` selects items."""
    queue, item = _queue(tx, sender, form), _text(form, "item")
    report = diagnosis.running_report(tx, context.limits, queue, item=item, limit=ITEMS)
    if item is not None and not report.items:
        return CommandResult(f"there is no item {item!r} in {queue.name}", failed=True)
    fields = [FormField("node", values=(queue.name,))]
    fields += [FormField(name, values=(str(getattr(queue, name)),)) for name in _COUNTS]
    fields.append(FormField("attending", type=FieldType.LINES, values=[*_members(report)]))
    text = (
        f"{plural(queue.items, 'item')}: {queue.ready} ready, {queue.locked} locked,"
        f" {queue.delayed} delayed, {queue.dead} dead"
    )
    if report.refusal:
        text += f"; {report.refusal}"
    return CommandResult(text, fields, _COLUMNS, _rows(report))


def unlock(_context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Unlock an item, as if its lock had timed out."""
    queue, item = _queue(tx, sender, form), _text(form, "item")
    if item is None:
        raise CommandError(Reason.INVALID_FORM, "item is required")
    try:
        admin.unlock(tx, queue, item, sender.bare)
    except QueueError as error:
        return CommandResult(str(error), failed=True)
    tx.wake_at(tx.now.service)
    return CommandResult(f"{item} is unlocked")


def requeue(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Make dead items ready again: those in `items`, or up to `BATCH` if `all` is set."""
    queue = _queue(tx, sender, form)
    items = list(dict.fromkeys(item for item in form.get("items", ()) if item))
    if bool(items) == (form.get("all") in _TRUE):
        raise CommandError(Reason.INVALID_FORM, "set either items or all, but not both")
    try:
        if items:
            count = admin.requeue(tx, queue, items, sender.bare)
        else:
            count = admin.requeue_all(tx, queue, BATCH, sender.bare)
    except QueueError as error:
        return CommandResult(str(error), failed=True)
    dispatch(context, tx, queue.id)
    return CommandResult(f"{count} requeued, {queue.dead - count} still dead")


def purge(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Delete up to `BATCH` items of a queue, if `sure` is set."""
    queue = _queue(tx, sender, form)
    if form.get("sure") not in _TRUE:
        raise CommandError(Reason.INVALID_FORM, "sure must be true")
    count = admin.purge_running(context, tx, queue, BATCH, sender.bare)
    return CommandResult(f"{count} deleted, {queue.items - count} left")


def _queue(tx: Transaction, sender: Sender, form: Form) -> Overview:
    """Return the queue that a form names, if the sender owns its node; raises `CommandError`."""
    name = _text(form, "node")
    if name is None:
        raise CommandError(Reason.INVALID_FORM, "node is required")
    try:
        return admin.get_owned(tx, sender, name)
    except QueueError as error:
        raise CommandError(Reason.INVALID_FORM, str(error)) from error


def _text(form: Form, name: str) -> str | None:
    values = form.get(name, [])
    if len(values) > 1:
        raise CommandError(Reason.INVALID_FORM, f"{name} must have one value")
    return values[0] if values and values[0] else None


def _members(report: Report) -> Iterator[str]:
    for member in report.members:
        connected = ", ".join(report.sessions(member) or ()) or "not connected"
        yield f"{member.jid}: has {member.in_flight} of {member.requests} items; {connected}"


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    for found in report.items:
        item = found.item
        holder = item.holder if item.state == "locked" else None
        texts = (item.item, item.state, found.reason.value, found.explanation)
        yield (*texts, str(found.before), str(item.deliveries), holder or "")


def register_for_accounts(hooks: Hooks) -> None:
    """Register the ad-hoc commands with the engine."""
    for verb, label, fields, act in (
        ("show", "Show a queue", (_NODE, _ITEM), show),
        ("unlock", "Unlock an item", (_NODE, _REQUIRED_ITEM), unlock),
        ("requeue", "Requeue dead items", (_NODE, _DEAD, _ALL), requeue),
        ("purge", "Delete all items of a queue", (_NODE, _SURE), purge),
    ):
        hooks.of(Commands).register(AdHocCommand(f"queue#{verb}", label, fields, act))
