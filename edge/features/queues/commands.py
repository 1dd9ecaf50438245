"""What the owner of a queue node may ask and do by ad-hoc commands (XEP-0050): see why its items do
not move, unlock one, let dead ones wait again, delete all.

The engine of commands is `handlers.commands`, the sentences are `admin.queue_report`'s, and what
is done is `store.queue_care`'s. Shares belong to nobody: they are seen by the operator alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.hooks import AdHocCommand, CommandResult, Context, Hooks
from edge.features.discovery.disco import NODE
from edge.features.pubsub import rights
from edge.features.queues.dispatch import pump
from edge.features.queues.service import admin, diagnosis
from edge.features.queues.service.diagnosis import Moment, Report
from edge.features.queues.service.errors import QueueError
from edge.features.queues.store import overview, queue_members
from edge.features.queues.store.overview import Overview
from edge.xmpp import commands as wire
from edge.xmpp import forms
from edge.xmpp.forms import Field
from sync.common.text import plural

if TYPE_CHECKING:
    Form = Mapping[str, list[str]]

Row = TypeVar("Row", bound=tuple[str, ...])

FORM: Final = f"{NODE}:queue"
"""What the forms are for, and what the commands' nodes begin with."""

ITEMS: Final = 10
"""Items of each state that are told."""

TABLE_BYTES: Final = 16 * 1024
"""Letters in what is told of items, and of members: an answer has room in any stream."""

BATCH: Final = 1000
"""Items that one command lets wait again, or deletes: a unit of work is short."""

_NODE: Final = Field("node", "text-single", required=True, label="The node")
_ITEM: Final = Field("item", "text-single", label="The ItemID; none: the first of each state")
_THE_ITEM: Final = Field("item", "text-single", required=True, label="The ItemID")
_DEAD: Final = Field("items", "text-multi", label="The ItemIDs, one a line")
_ALL: Final = Field("all", "boolean", ("0",), label=f"All that are dead, {BATCH} at a time")
_SURE: Final = Field(
    "sure", "boolean", ("0",), required=True, label=f"Delete all items for good, {BATCH} at a time"
)

_COLUMNS: Final = (
    Field("item", "text-single", label="Item"),
    Field("state", "text-single", label="State"),
    Field("why", "text-single", label="Reason"),
    Field("sentence", "text-single", label="Why it does not move"),
    Field("before", "text-single", label="Before it in line"),
    Field("deliveries", "text-single", label="Deliveries"),
    Field("holder", "text-single", label="Who has it"),
)
_TRUE: Final = (["1"], ["true"])


def show(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Tell how a queue stands, and why its items, or one of them, do not move."""
    queue, item = _queue(context, tx, sender, form), _text(form, "item")
    attending = overview.attendance(tx, queue.id, diagnosis.MAX_MEMBERS)
    when = Moment(tx.now.service, tx.now.wall)
    found = diagnosis.report(tx, queue, attending, when, item=item, limit=ITEMS)
    if item is not None and not found.items:
        return CommandResult(f"there is no item {item!r} in {queue.name}", failed=True)
    figures = (
        *(("policy", queue.policy), ("items", queue.items), ("bytes", queue.bytes)),
        *(("ready", queue.ready), ("locked", queue.locked), ("delayed", queue.delayed)),
        *(("dead", queue.dead), ("members", queue.members)),
    )
    fields = [Field("node", "text-single", (queue.name,))]
    fields += [Field(name, "text-single", (str(figure),)) for name, figure in figures]
    members = [text for (text,) in _fitting(_members(found))]
    fields.append(Field("attending", "text-multi", members))
    table = forms.table(_COLUMNS, _fitting(_rows(found)))
    text = f"{plural(queue.items, 'item')}: {queue.ready} ready, {queue.locked} locked"
    return CommandResult(
        f"{text}, {queue.delayed} delayed, {queue.dead} dead",
        forms.write("result", FORM, fields, table),
    )


def unlock(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Take an item from the worker that has it, as if its time were over."""
    queue, item = _queue(context, tx, sender, form), _text(form, "item")
    if item is None:
        raise wire.refusal("bad-request", "bad-payload", "an item is needed")
    try:
        admin.unlock(tx, queue, item, sender.bare)
    except QueueError as error:
        return CommandResult(str(error), failed=True)
    tx.wake_at(tx.now.service)
    return CommandResult(f"{item} is unlocked")


def requeue(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Let dead items wait again."""
    queue = _queue(context, tx, sender, form)
    items = list(dict.fromkeys(item for item in form.get("items", ()) if item))
    if bool(items) == (form.get("all") in _TRUE):
        raise wire.refusal("bad-request", "bad-payload", "either items are needed, or all")
    try:
        if items:
            count = admin.requeue(tx, queue, items, sender.bare)
        else:
            count = admin.requeue_all(tx, queue, BATCH, sender.bare)
    except QueueError as error:
        return CommandResult(str(error), failed=True)
    pump(context, tx, queue.id)
    return CommandResult(f"{count} requeued, {queue.dead - count} are dead still")


def purge(context: Context, tx: Transaction, sender: Sender, form: Form) -> CommandResult:
    """Delete all items of a queue."""
    queue = _queue(context, tx, sender, form)
    if form.get("sure") not in _TRUE:
        raise wire.refusal("bad-request", "bad-payload", "it is not said that it is sure")
    count = admin.purge(tx, queue, BATCH, sender.bare)
    queue_members.recount_queue(tx, queue.id, context.limits.unacknowledged_bytes)
    return CommandResult(f"{count} deleted, {queue.items - count} are left")


def _queue(context: Context, tx: Transaction, sender: Sender, form: Form) -> Overview:
    """Return the queue that a form names, to an owner of its node; raises `StanzaError`."""
    name = _text(form, "node")
    if name is None:
        raise wire.refusal("bad-request", "bad-payload", "a node is needed")
    node = rights.node(context, tx, name)
    rights.check_owner(context, tx, node, sender)
    found = overview.of_node(tx, node.name)
    if found is None:
        raise wire.refusal("bad-request", "bad-payload", "the node is no queue")
    return found


def _text(form: Form, var: str) -> str | None:
    values = form.get(var, [])
    if len(values) > 1:
        raise wire.refusal("bad-request", "bad-payload", f"one {var} is needed")
    return values[0] if values and values[0] else None


def _members(report: Report) -> Iterator[tuple[str]]:
    for member in report.members:
        there = ", ".join(report.sessions(member) or ()) or "away"
        yield (f"{member.jid}: has {member.in_flight} of {member.requests}; {there}",)


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    for found in report.items:
        item = found.item
        holder = item.holder if item.state == "locked" else None
        texts = (item.item, item.state, found.reason.value, found.explanation)
        yield (*texts, str(found.before), str(item.deliveries), holder or "")


def _fitting(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield as many of the first as have room."""
    room = TABLE_BYTES
    for row in rows:
        room -= sum(map(len, row))
        if room < 0:
            return
        yield row


def _form(*fields: Field) -> bytes:
    return forms.write("form", FORM, fields)


NEEDS_ACCOUNTS: Final = True


def register(hooks: Hooks) -> None:
    """Register with the engine."""
    hooks.adhoc_command(AdHocCommand(f"{FORM}#show", "Show a queue", _form(_NODE, _ITEM), show))
    hooks.adhoc_command(
        AdHocCommand(f"{FORM}#unlock", "Unlock an item", _form(_NODE, _THE_ITEM), unlock)
    )
    hooks.adhoc_command(
        AdHocCommand(
            f"{FORM}#requeue", "Let dead items wait again", _form(_NODE, _DEAD, _ALL), requeue
        )
    )
    hooks.adhoc_command(
        AdHocCommand(f"{FORM}#purge", "Delete all items of a queue", _form(_NODE, _SURE), purge)
    )
