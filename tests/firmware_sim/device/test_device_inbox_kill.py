"""The inbox under `kill -9` at random moments: answered messages are stored, commands run once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from firmware_sim.device.inbox import Inbox, InboxCounter, Key
from firmware_sim.device.receiver_rules import State
from firmware_sim.scenarios.actuator import Actuator

JID = "valve1@gw.example/fw"
SENDER = "pump1@gw.example/fw"

# Serves offers and delivers, each twice, three messages in a commit, and prints what it answered.
CHILD = """
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
room = InboxLimits(messages=10**6, source_messages=10**6, source_bytes=10**9, bytes=10**9)
with Inbox.open(path, jid, room, Actuator.SCHEMA) as inbox:
    loop = ReceiverLoop(inbox, options, lambda error: sys.exit(str(error)))
    print("open", flush=True)
    while True:
        numbers = range(first, first + 3)
        for step in (Step.ASSURED, Step.DELIVER):
            answers = []
            loop.serve([request(step, number) for number in numbers for _ in range(2)])
            assert len(answers) == 6 and not any("type='error'" in each for each in answers)
            print(step.value, *numbers, flush=True)
        first += 3
"""


def kill_after(lines: int, path: Path, first: int) -> list[tuple[str, int]]:
    """Run the child, kill it after so many lines, and return the steps that it answered."""
    words = [sys.executable, "-c", CHILD, str(path), JID, SENDER, str(first)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        told = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        told += [line for line in child.stdout if line.endswith("\n")]  # what it still said
    steps = (line.split() for line in told)
    return [(step, int(number)) for step, *numbers in steps for number in numbers]


def test_answered_messages_survive_and_commands_run_once(
    tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    path, told = tmp_path / "inbox", set[tuple[str, int]]()
    chance = random.Random(seed)
    for turn in range(scale(2, 100)):
        told.update(kill_after(chance.randrange(40), path, 1 + turn * 10_000))
        with Inbox.open(path, JID) as inbox:
            ran = Counter({int(r.command): r.times for r in Actuator.ran(inbox.database)})
            assert set(ran.values()) <= {1}
            assert inbox.counts()[InboxCounter.ASSURED] == len(ran)
            assert {number for step, number in told if step == "deliver"} <= set(ran)
            for step, number in told:
                if step == "assured":
                    state, body = inbox.find(Key(SENDER, str(number)))
                    assert (state is State.HELD) == (body is not None) == (number not in ran)
    assert len(told) > 3
