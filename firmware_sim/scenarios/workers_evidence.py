"""Gathers what is found when a workers run is over: records, and what the gateway's commands tell.

Workers' and members' files tell what they did, publishers' outboxes what they believe, and
`fieldpost queue show` what the gateway keeps, and why, and its event log which items are dead.
Nothing is judged here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.jobs import Jobs
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import Level, State
from firmware_sim.scenarios import gateway_command, gateway_log
from firmware_sim.scenarios.workers_cast import Press, Stage, jid
from firmware_sim.scenarios.workers_plan import LEVELS, QUEUE
from firmware_sim.scenarios.workers_verdict import Dead, Evidence, Taken, Worked

_DEAD: Final = "dead"
_BURIED: Final = "queue_dead"  # the event that tells of it
_STATES: Final = ("ready", "delayed", "locked")
_TAKEN: Final = "SELECT item, times FROM taken"


def gather(
    stage: Stage, presses: Sequence[Press], fair: Mapping[str, int], most_deliveries: int
) -> Evidence:
    """Gather everything.

    Args:
        stage: of the run; all that play are stopped, the gateway may run.
        presses: its publishers.
        fair: how many items each worker did while all behaved.
        most_deliveries: of the queue.

    Raises:
        FirmwareError: a file cannot be read, or a command of the gateway failed.
    """
    published = Counter[str]()
    for press in presses:
        published.update(press.tries)
        published.update(_offered(stage, press))
    items = show(stage.gateway.folder, QUEUE, 2 * stage.plan.items)["items_shown"]
    logged = _logged(stage.gateway.folder)
    return Evidence(
        published=published,
        worked=[row for name in stage.plan.names for row in _worked(stage, name)],
        taken=[row for level in LEVELS for row in _taken(stage, level)],
        dead={
            row["item"]: Dead(row["deliveries"], row["reason"], row["item"] in logged)
            for row in items
            if row["state"] == _DEAD
        },
        left={row["item"]: row["sentence"] for row in items if row["state"] != _DEAD},
        fair=fair,
        shares=_kept(stage),
        most_deliveries=most_deliveries,
    )


def show(gateway: Path, queue: str, limit: int) -> dict[str, Any]:
    """Ask a gateway for a queue: its counts, its members, and its items up to a limit of each."""
    words = ("queue", "show", queue, "--json", "--limit", str(limit), "--dir", gateway)
    found: dict[str, Any] = json.loads(gateway_command.run(*words))
    return found


def waiting(gateway: Path) -> int:
    """Say how many items the queues of nodes and shares have that are not dead."""
    return sum(sum(row[state] for state in _STATES) for row in _queues(gateway))


def _kept(stage: Stage) -> dict[int, int]:
    """Say how many items each share has, dead ones too, by its level."""
    found = {row["name"]: row for row in _queues(stage.gateway.folder)}
    rows = {level: found.get(stage.plan.share(level), {}) for level in LEVELS}
    return {level: sum(row.get(s, 0) for s in (*_STATES, _DEAD)) for level, row in rows.items()}


def _logged(gateway: Path) -> set[str]:
    """List the items that are dead as the event log tells."""
    rows = gateway_log.events(gateway_log.from_gateway(gateway))
    return {str(row["tags"]["item"]) for row in rows if row["name"] == _BURIED}


def _queues(gateway: Path) -> list[dict[str, Any]]:
    lines = gateway_command.run("queue", "list", "--json", "--dir", gateway).splitlines()
    return [json.loads(line) for line in lines]


def _offered(stage: Stage, press: Press) -> dict[str, int]:
    """Read from an outbox how often each item may be published that is not certainly lost."""
    many = 2 * stage.plan.items
    limits = OutboxLimits(keep_done=many, keep_failed=many)
    with Outbox.open(stage.file(press.name), jid(press.name), limits) as outbox:
        return {
            record.label: press.offers[record.number] if record.level is Level.ACKNOWLEDGED else 1
            for record in outbox.records(State.DONE, State.IN_DOUBT)
        }


def _worked(stage: Stage, name: str) -> Iterator[Worked]:
    keep = 2 * stage.plan.items
    with Jobs.open(stage.file(name), jid(name), QUEUE, keep=keep) as jobs:
        for record in jobs.records():
            yield Worked(name, record.item, record.state, record.runs, record.commits)


def _taken(stage: Stage, level: int) -> Iterator[Taken]:
    for name in stage.plan.crew(level):
        with Inbox.open(stage.file(name), jid(name)) as inbox:
            for item, times in inbox.database.execute(_TAKEN):
                yield Taken(name, level, item, times)
