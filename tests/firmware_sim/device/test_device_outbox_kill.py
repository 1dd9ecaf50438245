"""The outbox under `kill -9` at random moments: committed changes survive."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import LIVE, State

JID = "pump1@gw.example/fw"
KEEP = OutboxLimits(messages=10**6, keep_done=10**6, keep_failed=10**6)
ORDER = [State.QUEUED, State.OFFERED, State.RELEASED, State.DONE]

# Takes messages and steps them on, three in a commit, and says of each commit what is in it.
CHILD = """
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
            told = [outbox.add("gw.example", Level.ASSURED, "<message/>") for _ in range(3)]
            for old in (outbox.in_flight() + outbox.queued(0, 2))[:4]:
                new = Message(old.number, old.level, old.size, after[old.state])
                outbox.save(old.state, new)
                told.append(new)
        print(*(f"{m.number}:{m.state.name}" for m in told), flush=True)
"""


def kill_after(lines: int, path: Path) -> dict[int, State]:
    """Run the child, kill it after so many lines, and return the last state it told of each."""
    told: dict[int, State] = {}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), JID], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        for _ in range(lines):
            _note(told, child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:  # what it still managed to say
            if line.endswith("\n"):
                _note(told, line)
    return told


def _note(told: dict[int, State], line: str) -> None:
    for word in line.split():
        number, _, name = word.partition(":")
        told[int(number)] = State[name]


def test_committed_states_survive_kill(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    path, told = tmp_path / "outbox", dict[int, State]()
    chance = random.Random(seed)
    for _ in range(scale(2, 100)):
        told.update(kill_after(chance.randrange(60), path))
        with Outbox.open(path, JID, KEEP) as outbox:
            found = {record.number: record.state for record in outbox.records(*State)}
            assert sorted(found) == list(range(1, len(found) + 1))
            for number, state in told.items():
                assert ORDER.index(found[number]) >= ORDER.index(state)
            counts = outbox.counts()
            assert counts == {s: list(found.values()).count(s) for s in State}
            assert outbox.live == sum(counts[state] for state in LIVE)
            assert outbox.live_bytes == 10 * outbox.live
    assert len(told) > 3
