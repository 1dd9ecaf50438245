"""The files of devices and workers: their owners and versions, and `kill -9` at random moments."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from firmware_sim.device.errors import FirmwareError, InboxError, JobsError, OutboxError
from firmware_sim.device.inbox import Inbox, InboxCounter, Key
from firmware_sim.device.jobs import JobStore
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.receiver_rules import State as Received
from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.device.storage import DurableFile
from firmware_sim.scenarios.actuator import Actuator

JID = "valve1@gw.example/fw"
SENDER = "pump1@gw.example/fw"
KEEP = OutboxLimits(messages=10**6, keep_done=10**6, keep_failed=10**6)
ORDER = [State.QUEUED, State.OFFERED, State.RELEASED, State.DONE]


def open_jobs(path: Path, jid: str, schema: str = "") -> JobStore:
    return JobStore.open(path, jid, "jobs", keep=1, schema=schema)


each_file = pytest.mark.parametrize(
    ("open_file", "error"),
    [(Outbox.open, OutboxError), (Inbox.open, InboxError), (open_jobs, JobsError)],
    ids=["outbox", "inbox", "jobs"],
)


@each_file
def test_file_belongs_to_one_jid_and_one_process(
    tmp_path: Path, open_file: Callable[..., DurableFile], error: type[FirmwareError]
) -> None:
    with open_file(tmp_path / "file", JID), pytest.raises(error, match="locked"):
        open_file(tmp_path / "file", JID)
    with pytest.raises(error, match=rf"belongs to .*{JID}.*; give another file"):
        open_file(tmp_path / "file", "other@gw.example/fw")


@each_file
def test_newer_or_damaged_file_is_refused(
    tmp_path: Path, open_file: Callable[..., DurableFile], error: type[FirmwareError]
) -> None:
    path = tmp_path / "file"
    open_file(path, JID).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(error, match="version 99"):
        open_file(path, JID)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(error, match="not a database"):
        open_file(path, JID)
    with pytest.raises(error, match="unable to open"):
        open_file(tmp_path, JID)


@pytest.mark.parametrize(("open_file", "error"), [(Inbox.open, InboxError), (open_jobs, JobsError)])
def test_invalid_application_schema_leaves_an_empty_file(
    tmp_path: Path, open_file: Callable[..., DurableFile], error: type[FirmwareError]
) -> None:
    with pytest.raises(error, match="syntax error"):
        open_file(tmp_path / "file", JID, schema="CREATE NONSENSE")
    open_file(tmp_path / "file", JID).close()


# Adds three messages in a commit, advances older ones, and prints the states in each commit.
SENDING = """
import sys
from pathlib import Path
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import IN_FLIGHT, Level, Message, State

keep = OutboxLimits(messages=10**6, keep_done=10**6, keep_failed=10**6)
after = {State.QUEUED: State.OFFERED, State.OFFERED: State.RELEASED, State.RELEASED: State.DONE}
with Outbox.open(Path(sys.argv[1]), sys.argv[2], keep) as outbox:
    print("open", flush=True)
    while True:
        with outbox.transaction():
            messages = [outbox.add("gw.example", Level.ASSURED, "<message/>") for _ in range(3)]
            for old in (outbox.in_flight() + outbox.queued(0, 2))[:4]:
                new = Message(old.number, old.level, old.size, after[old.state])
                outbox.save(old.state, new)
                messages.append(new)
        print(*(f"{m.state.name}:{m.number}" for m in messages), flush=True)
"""

# Serves offers and delivers, each twice, three messages in a commit, and prints those it answered.
RECEIVING = """
import sys
from pathlib import Path
from firmware_sim.scenarios.actuator import Actuator, command
from firmware_sim.device.inbox import Inbox
from firmware_sim.device.limits import InboxLimits
from firmware_sim.device.qos_receiver_plugin import IncomingStanza
from firmware_sim.device.receiver_loop import ReceiverLoop
from firmware_sim.device.qos_sender_plugin import Step
from firmware_sim.device.receive_options import ReceiveOptions

path, jid, sender, first = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

class Answers:
    unsent = 0
    def answer(self, text):
        answers.append(text)

def request(step, number):
    text = command(str(number), "open") if step is Step.ASSURED else ""
    id_ = f"{step.value}:{number}"
    return (Answers(), IncomingStanza(step, id_, sender, "urn:xmpp:qos", str(number), text))

options = ReceiveOptions(path, Actuator().run)
limits = InboxLimits(messages=10**6, source_messages=10**6, source_bytes=10**9, bytes=10**9)
with Inbox.open(path, jid, limits, Actuator.SCHEMA) as inbox:
    loop = ReceiverLoop(inbox, options, lambda error: sys.exit(str(error)))
    print("open", flush=True)
    while True:
        numbers = range(first, first + 3)
        for step in (Step.ASSURED, Step.DELIVER):
            answers = []
            loop.serve([request(step, number) for number in numbers for _ in range(2)])
            assert len(answers) == 6 and not any("type='error'" in each for each in answers)
            print(*(f"{step.value}:{number}" for number in numbers), flush=True)
        first += 3
"""


def kill_after(count: int, program: str, *arguments: object) -> list[tuple[str, int]]:
    """Run a program, kill it after `count` lines, and return the steps that it printed."""
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        lines = [child.stdout.readline() for _ in range(count)]
        child.send_signal(signal.SIGKILL)
        lines += [line for line in child.stdout if line.endswith("\n")]  # printed before the kill
    steps = (entry.split(":") for line in lines for entry in line.split())
    return [(step, int(number)) for step, number in steps]


def test_committed_states_of_an_outbox_survive_kill(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    path, printed = tmp_path / "outbox", dict[int, State]()
    chance = random.Random(seed)
    for _ in range(scale(2, 100)):
        steps = kill_after(chance.randrange(60), SENDING, path, JID)
        printed.update((number, State[step]) for step, number in steps)
        with Outbox.open(path, JID, KEEP) as outbox:
            found = {record.number: record.state for record in outbox.records(*State)}
            assert sorted(found) == list(range(1, len(found) + 1))
            for number, state in printed.items():
                assert ORDER.index(found[number]) >= ORDER.index(state)
            counts = outbox.counts()
            assert counts == {s: list(found.values()).count(s) for s in State}
            assert outbox.live == sum(counts[state] for state in LIVE)
            assert outbox.live_bytes == 10 * outbox.live
    assert len(printed) > 3


def test_messages_answered_by_an_inbox_survive_kill_and_commands_run_once(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    path, printed = tmp_path / "inbox", set[tuple[str, int]]()
    chance = random.Random(seed)
    for attempt in range(scale(2, 100)):
        lines, first = chance.randrange(40), 1 + attempt * 10_000
        printed.update(kill_after(lines, RECEIVING, path, JID, SENDER, first))
        with Inbox.open(path, JID) as inbox:
            runs = Counter({int(r.command): r.times for r in Actuator.ran(inbox.database)})
            assert set(runs.values()) <= {1}
            assert inbox.counts()[InboxCounter.ASSURED] == len(runs)
            assert {number for step, number in printed if step == "deliver"} <= set(runs)
            for step, number in printed:
                if step == "assured":
                    state, body = inbox.find(Key(SENDER, str(number)))
                    assert (state is Received.HELD) == (body is not None) == (number not in runs)
    assert len(printed) > 3
