"""Collect the evidence of a workers run from files and from the gateway's commands.

The files of workers and members contain the items that they processed, the publishers' outboxes the
items that they published. `fieldpost queue show` gives the items that the gateway keeps, its event
log the dead items.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.jobs import JobStore
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import Level, State
from firmware_sim.scenarios import gateway_command, gateway_log
from firmware_sim.scenarios.workers_participants import ItemPublisher, Setting, jid
from firmware_sim.scenarios.workers_plan import LEVELS, QUEUE
from firmware_sim.scenarios.workers_verdict import (
    DeadItem,
    MemberRecord,
    WorkerRecord,
    WorkersEvidence,
)

_DEAD: Final = "dead"
_DEAD_EVENT: Final = "queue_dead"  # the event of a dead item
_STATES: Final = ("ready", "delayed", "locked")
_MEMBER_ITEMS: Final = "SELECT item, times FROM taken"


def gather(
    stage: Setting,
    publishers: Sequence[ItemPublisher],
    fair: Mapping[str, int],
    most_deliveries: int,
) -> WorkersEvidence:
    """Collect all evidence of a run.

    Args:
        stage: the setting of the run; all participants must be stopped, the gateway may run.
        publishers: the publishers of the run.
        fair: the number of items that each worker finished before the faults began.
        most_deliveries: the number of deliveries after which an item of the queue becomes dead.

    Raises:
        FirmwareError: a file cannot be read, or a `fieldpost` command failed.
    """
    published = Counter[str]()
    for publisher in publishers:
        published.update(publisher.tries)
        published.update(_offered(stage, publisher))
    gateway, most = stage.gateway.folder, str(2 * stage.plan.items)
    words = ("queue", "show", QUEUE, "--json", "--limit", most, "--dir", gateway)
    items = json.loads(gateway_command.run(*words))["items_shown"]
    logged = _logged(gateway)
    return WorkersEvidence(
        published=published,
        worked=[row for name in stage.plan.names for row in _worked(stage, name)],
        taken=[row for level in LEVELS for row in _member_records(stage, level)],
        dead={
            row["item"]: DeadItem(row["deliveries"], row["reason"], row["item"] in logged)
            for row in items
            if row["state"] == _DEAD
        },
        left={row["item"]: row["sentence"] for row in items if row["state"] != _DEAD},
        fair=fair,
        shares=_kept(stage),
        most_deliveries=most_deliveries,
    )


def waiting(gateway: Path) -> int:
    """Return the number of items in all queues that are ready, delayed or locked."""
    return sum(sum(row[state] for state in _STATES) for row in _queues(gateway))


def _kept(stage: Setting) -> dict[int, int]:
    """Return the number of items of each share, including dead items, by the share's level."""
    found = {row["name"]: row for row in _queues(stage.gateway.folder)}
    rows = {level: found.get(stage.plan.share(level), {}) for level in LEVELS}
    return {level: sum(row.get(s, 0) for s in (*_STATES, _DEAD)) for level, row in rows.items()}


def _logged(gateway: Path) -> set[str]:
    rows = gateway_log.events(gateway_log.from_gateway(gateway))
    return {str(row["tags"]["item"]) for row in rows if row["name"] == _DEAD_EVENT}


def _queues(gateway: Path) -> list[dict[str, Any]]:
    lines = gateway_command.run("queue", "list", "--json", "--dir", gateway).splitlines()
    return [json.loads(line) for line in lines]


def _offered(stage: Setting, publisher: ItemPublisher) -> dict[str, int]:
    """Return how often each item of an outbox may have been published; omit failed items."""
    with Outbox.open(stage.file(publisher.name), jid(publisher.name)) as outbox:
        return {
            record.label: publisher.offers[record.number]
            if record.level is Level.ACKNOWLEDGED
            else 1
            for record in outbox.records(State.DONE, State.IN_DOUBT)
        }


def _worked(stage: Setting, name: str) -> Iterator[WorkerRecord]:
    keep = 2 * stage.plan.items
    with JobStore.open(stage.file(name), jid(name), QUEUE, keep=keep) as jobs:
        for record in jobs.records():
            yield WorkerRecord(name, record.item, record.state, record.runs, record.commits)


def _member_records(stage: Setting, level: int) -> Iterator[MemberRecord]:
    for name in stage.plan.members_of(level):
        with Inbox.open(stage.file(name), jid(name)) as inbox:
            for item, times in inbox.database.execute(_MEMBER_ITEMS):
                yield MemberRecord(name, level, item, times)
