"""Ad-hoc commands for the owner of a queue node: show, unlock, requeue, purge (XEP-0050).

Shared subscriptions have no owner; only the gateway's operator can inspect them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import AdHocCommand, CommandResult, Context, Hooks
from edge.features.queues.service import admin, diagnosis
from edge.features.queues.service.admin import Overview
from edge.features.queues.service.diagnosis import Report
from edge.features.queues.service.dispatch import dispatch
from edge.features.queues.service.errors import QueueError
from edge.xmpp import commands as wire
from edge.xmpp import forms
from edge.xmpp.disco import NODE
from edge.xmpp.forms import Field
from sync.common.text import plural

Form: TypeAlias = Mapping[str, list[str]]

FORM: Final = f"{NODE}:queue"
"""`FORM_TYPE` of the forms, and prefix of the commands' node names."""

ITEMS: Final = 10
"""Maximum number of items in each state in an answer."""

BATCH: Final = 1000
"""Maximum number of items that one command requeues or deletes, so that it ends quickly."""

_NODE: Final = Field("node", "text-single", required=True, label="Node")
_ITEM: Final = Field(
    "item", "text-single", label=f"ItemID; if empty, the first {ITEMS} items in each state"
)
_REQUIRED_ITEM: Final = Field("item", "text-single", required=True, label="ItemID")
_DEAD: Final = Field("items", "text-multi", label="ItemIDs, one per line")
_ALL: Final = Field(
    "all", "boolean", ("0",), label=f"Requeue all dead items, up to {BATCH} at a time"
)
_SURE: Final = Field(
    "sure",
    "boolean",
    ("0",),
    required=True,
    label=f"Delete all items permanently, up to {BATCH} at a time",
)

_COLUMNS: Final = (
    Field("item", "text-single", label="Item"),
    Field("state", "text-single", label="State"),
    Field("why", "text-single", label="Reason"),
    Field("sentence", "text-single", label="Why the item is not delivered"),
    Field("before", "text-single", label="Items before this one"),
    Field("deliveries", "text-single", label="Deliveries"),
    Field("holder", "text-single", label="Locked by"),
)
_COUNTS: Final = ("policy", "items", "bytes", "ready", "locked", "delayed", "dead", "members")
_TRUE: Final = (["1"], ["true"])


def show(_context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Show a queue and why its items are not delivered; an ItemID in `form` selects items."""
    queue, item = _queue(tx, sender, form), _text(form, "item")
    report = diagnosis.running_report(tx, queue, item=item, limit=ITEMS)
    if item is not None and not report.items:
        return CommandResult(f"there is no item {item!r} in {queue.name}", failed=True)
    fields = [Field("node", "text-single", (queue.name,))]
    fields += [Field(name, "text-single", (str(getattr(queue, name)),)) for name in _COUNTS]
    members = [text for (text,) in wire.limit_rows(_members(report))]
    fields.append(Field("attending", "text-multi", members))
    table = forms.table(_COLUMNS, wire.limit_rows(_rows(report)))
    text = (
        f"{plural(queue.items, 'item')}: {queue.ready} ready, {queue.locked} locked,"
        f" {queue.delayed} delayed, {queue.dead} dead"
    )
    return CommandResult(text, forms.write("result", FORM, fields, table))


def unlock(_context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Unlock an item, as if its lock had timed out."""
    queue, item = _queue(tx, sender, form), _text(form, "item")
    if item is None:
        raise wire.refusal("bad-request", "bad-payload", "item is required")
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
        raise wire.refusal("bad-request", "bad-payload", "set either items or all, but not both")
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
        raise wire.refusal("bad-request", "bad-payload", "sure must be true")
    count = admin.purge_running(context, tx, queue, BATCH, sender.bare)
    return CommandResult(f"{count} deleted, {queue.items - count} left")


def _queue(tx: Transaction, sender: Sender, form: Form) -> Overview:
    """Return the queue that a form names, if the sender owns its node; raises `StanzaError`."""
    name = _text(form, "node")
    if name is None:
        raise wire.refusal("bad-request", "bad-payload", "node is required")
    try:
        return admin.get_owned(tx, sender, name)
    except QueueError as error:
        raise wire.refusal("bad-request", "bad-payload", str(error)) from error


def _text(form: Form, name: str) -> str | None:
    values = form.get(name, [])
    if len(values) > 1:
        raise wire.refusal("bad-request", "bad-payload", f"{name} must have one value")
    return values[0] if values and values[0] else None


def _members(report: Report) -> Iterator[tuple[str]]:
    for member in report.members:
        connected = ", ".join(report.sessions(member) or ()) or "not connected"
        yield (f"{member.jid}: has {member.in_flight} of {member.requests} items; {connected}",)


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    for found in report.items:
        item = found.item
        holder = item.holder if item.state == "locked" else None
        texts = (item.item, item.state, found.reason.value, found.explanation)
        yield (*texts, str(found.before), str(item.deliveries), holder or "")


def _form(*fields: Field) -> bytes:
    return forms.write("form", FORM, fields)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the ad-hoc commands with the engine."""
    for name, label, form, act in (
        ("show", "Show a queue", _form(_NODE, _ITEM), show),
        ("unlock", "Unlock an item", _form(_NODE, _REQUIRED_ITEM), unlock),
        ("requeue", "Requeue dead items", _form(_NODE, _DEAD, _ALL), requeue),
        ("purge", "Delete all items of a queue", _form(_NODE, _SURE), purge),
    ):
        hooks.adhoc_command(AdHocCommand(f"{FORM}#{name}", label, form, act))
