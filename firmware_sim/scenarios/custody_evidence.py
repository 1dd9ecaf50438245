"""Collect the evidence of a custody run from files and from the gateway's commands.

Outboxes contain the states of messages according to their senders, inboxes the executed commands.
The gateway's event log contains the messages to the gateway; its dead letters and its status show
the messages that it still keeps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from firmware_sim.device.inbox import Inbox
from firmware_sim.device.outbox import Outbox, OutboxRecord
from firmware_sim.device.sender_rules import Level, State
from firmware_sim.scenarios import gateway_command, gateway_log
from firmware_sim.scenarios.actuator import Actuator
from firmware_sim.scenarios.count_verdict import Key
from firmware_sim.scenarios.custody_plan import Plan
from firmware_sim.scenarios.custody_verdict import GATEWAY, CustodyEvidence, Execution

_IN_DOUBT: Final = "in doubt"
_NUMBER: Final = re.compile("name=[\"'](?:command|n)[\"'] value=[\"']([0-9]+)[\"']")
"""Matches a message's number in its body: a command's id, or an event's tag `n`."""


def gather(
    folder: Path,
    plan: Plan,
    run: str,
    plain: Mapping[Key, State],
    offers: Mapping[str, Mapping[int, int]],
) -> CustodyEvidence:
    """Collect all evidence of a run.

    Args:
        folder: the folder of the run; all devices must be stopped, the gateway may run.
        plan: the plan of the run.
        run: the run's id, the value of the tag `run` of its events.
        plain: the outcomes of the messages of level 0, which are not in an outbox.
        offers: for each device, the number of offers of each message, by its number in the outbox.

    Raises:
        FirmwareError: a file cannot be read, or a `fieldpost` command failed.
    """
    believed, executions, repeated = dict(plain), list[Execution](), 0
    for name in plan.present:
        with Outbox.open(outbox(folder, name), plan.jid(name)) as opened:
            for record in opened.records(*State):
                believed[plan.jid(name), int(record.label)] = record.state
            repeated += for_absent(plan, opened.records(State.DONE), offers[name]).repeated
        with Inbox.open(inbox(folder, name), plan.jid(name)) as received:
            for row in Actuator.ran(received.database):
                executions.append(Execution((row.sender, int(row.command)), name, row.times))
    gateway = gateway_folder(folder)
    logged = gateway_log.of_run(gateway_log.from_gateway(gateway), run)
    executions += [Execution(key, GATEWAY) for key in logged]
    reported = dict(_dead_letters(gateway))
    waiting, absent = kept(gateway), frozenset(plan.absent)
    return CustodyEvidence(believed, executions, reported, waiting, absent, repeated)


def gateway_folder(folder: Path) -> Path:
    """Return the folder of the run's gateway."""
    return folder / "gateway"


def outbox(folder: Path, name: str) -> Path:
    """Return the path of a device's outbox."""
    return folder / f"{name}.outbox"


def inbox(folder: Path, name: str) -> Path:
    """Return the path of a device's inbox."""
    return folder / f"{name}.inbox"


def kept(gateway: Path) -> int:
    """Return the number of messages of levels 1 and 2 in a gateway's outboxes, from its status."""
    status = json.loads(gateway_command.run("status", "--json", "--dir", gateway))
    return int(status["waiting"]["outbox"])


class ForAbsent(NamedTuple):
    """Counts of messages to devices that never connect: all, and repeated offers at level 1."""

    messages: int
    repeated: int


def for_absent(
    plan: Plan, delivered: Iterable[OutboxRecord], offers: Mapping[int, int]
) -> ForAbsent:
    """Count messages to devices that never connect, and repeated offers of those at level 1.

    Args:
        plan: the plan of the run.
        delivered: the messages that are delivered according to their sender.
        offers: the number of offers of each message, by its number in the outbox.
    """
    found = [each for each in delivered if plan.name(each.recipient) in plan.absent]
    once = [each.number for each in found if each.level is Level.ACKNOWLEDGED]
    return ForAbsent(len(found), sum(offers[number] - 1 for number in once))


def _dead_letters(gateway: Path) -> Iterator[tuple[Key, bool]]:
    """Return a gateway's dead letters, and whether each was certainly not delivered."""
    lines = gateway_command.run("dead", "list", "--json", "--all", "--dir", gateway).splitlines()
    for line in lines:
        words = ("dead", "show", str(json.loads(line)["id"]), "--json", "--dir", gateway)
        found = json.loads(gateway_command.run(*words))
        number = _NUMBER.search(found["body"])
        if number is not None:
            yield (found["sender"], int(number[1])), found["state"] != _IN_DOUBT
