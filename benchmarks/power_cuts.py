"""Power cuts of the compared servers: what each has acknowledged by then, and what it still has.

A server runs under strace while a few connections publish. For some moments of that, its folder is
made as a disk might show it after a cut (`tests.helpers.power_cut`), another server starts upon it,
and a client asks for the messages that were acknowledged before the cut.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from subprocess import SubprocessError
from typing import Final, NamedTuple

from benchmarks import load, traced_calls
from benchmarks.kept_messages import ID, KEPT
from benchmarks.peer import LoginError, Target
from benchmarks.peer_servers import Options, Peer
from benchmarks.report import table
from benchmarks.server import ServerError
from benchmarks.traced_calls import ANSWER, REQUEST, TracedCalls, UnknownCallError
from tests.helpers.power_cut import Disk, Record

CONNECTIONS: Final = 4
MESSAGES: Final = 60

SEED: Final = 29

_ALL_ITEMS: Final = "<field var='pubsub#max_items'><value>256</value></field></x>"

_ANSWERS: Final = {
    "mqtt": re.compile(rb"\x40[\x02-\x04]\0\x01"),
    "pubsub": re.compile(rb"<iq [^>]*id='p"),
    "nats": re.compile(rb'"seq":'),
    "amqp": re.compile(rb"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50"),
}
"""By protocol: what the answer to a message contains. A connection has one in flight, so its
answers are in the order of its messages."""

FAILURES: Final = (LoginError, OSError, ServerError, SubprocessError, UnknownCallError)
"""Errors of a server that cannot be recorded or read."""

_STEPS: Final = {"W": "write", "T": "write", "R": "rename", "U": "unlink", "S": "sync", "D": "sync"}
_REPEATED: Final = re.compile(r"\b(\w+(?:, \w+){1,2})(?:, \1\b)+")


class Step(NamedTuple):
    """A record, and the message that it asks for or answers, if it does."""

    record: Record
    message: str = ""


class PowerCuts(NamedTuple):
    """Results of power cuts of a server.

    Attributes:
        order: the most frequent order of steps from a request to the connection's next one.
        acknowledged: messages that were acknowledged before the cuts, in all.
        missing: those of them that the server did not have any more.
        lossy: cuts after which some were missing.
        most: the most that were missing after one.
        refused: cuts after which the server did not start, or did not answer.
    """

    order: str
    cuts: int = 0
    acknowledged: int = 0
    missing: int = 0
    lossy: int = 0
    most: int = 0
    refused: int = 0

    @property
    def is_synced(self) -> bool:
        """Whether a sync came before the answer in the most frequent order."""
        return "sync" in self.order.partition(", answer")[0]


def is_possible(one: Peer) -> bool:
    """Return whether a server's cuts can be observed: a client can ask what the server has.

    The variants of a server that differ in their subscriber or in fsync have the same cuts.

    The gateway's messages over XMPP leave by its log; `tests/acceptance/test_power_cut.py` has its
    cuts.
    """
    is_variant = one.tls or one.subscriber or one.fsync_delay
    return one.protocol in KEPT and not is_variant and shutil.which("strace") is not None


def measure(
    one: Peer,
    options: Options,
    load_options: Callable[[Target], Mapping[str, object]],
    cuts: int,
) -> PowerCuts:
    """Record a server in the new folder of `options`, and cut its power so many times.

    A moment can have several cuts, which differ in what is on the disk. Over MQTT the messages have
    QoS 1.
    """
    folder = options.folder
    with one.start(options) as running:  # sessions, streams and queues are made before
        _publish(load_options(running.address))
    disk, recorded = Disk(folder), TracedCalls(folder)
    log = folder.with_name(f"{folder.name}.calls")
    with one.start(options._replace(tool=traced_calls.command(log))) as running:
        _publish(load_options(running.address))
    records = recorded.records(log, running.address.port)
    steps = list(_steps(records, recorded, _ANSWERS[one.protocol]))
    found = PowerCuts(order(steps))
    chance = random.Random(SEED)
    asked = [at for at, step in enumerate(steps) if step.message]
    moments = Counter(chance.choices(range(asked[0], asked[-1] + 1), k=cuts))
    acknowledged: set[str] = set()
    for at, step in enumerate(steps):
        disk.replay(step.record)
        if step.record.kind == ANSWER and step.message:
            acknowledged.add(step.message)
        for _ in range(moments[at]):
            shutil.rmtree(folder)  # at the same path, because RabbitMQ stores it
            disk.cut(folder, folder, chance)
            found = _compare(found, acknowledged, one, options)
    return found


def _publish(options: Mapping[str, object]) -> None:
    few = {"exchanges": MESSAGES, "connections": CONNECTIONS, "subscriber": "away", "qos": 1}
    first = str(options.get("first", "")).replace("</x>", _ALL_ITEMS)
    more = {"first": first, "silence": 0}
    command = load.exchange_command({**options, **few, **more}, 0.0, load.MARGIN)
    subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=load.MARGIN)


def _steps(
    records: Iterator[Record], recorded: TracedCalls, answer: re.Pattern[bytes]
) -> Iterator[Step]:
    """Yield the records with the messages that they ask for or answer.

    Before the first message, everything that the server has written is taken to be durable: it may
    have been started long ago.
    """
    received: dict[int, bytes] = {}
    waiting: dict[int, list[str]] = {}
    known: set[str] = set()
    for record in records:
        if record.kind not in (REQUEST, ANSWER):
            yield Step(record)
            continue
        client, pattern = record.inode, ID if record.kind == REQUEST else answer
        data = received.pop(client, b"") + record.data if record.kind == REQUEST else record.data
        end = 0
        for found in pattern.finditer(data):
            end = found.end()
            if record.kind == ANSWER:
                if waiting.get(client):
                    yield Step(record, waiting[client].pop(0))
            elif (message := found[0].decode()) not in known:
                if not known:
                    yield from map(Step, recorded.syncs())
                known.add(message)
                waiting.setdefault(client, []).append(message)
                yield Step(record, message)
        if record.kind == REQUEST:
            received[client] = data[end:]


def order(steps: Sequence[Step]) -> str:
    """Return the most frequent order of steps from a request to the connection's next one."""
    orders: Counter[str] = Counter()
    open_orders: dict[int, list[str]] = {}
    for record, message in steps:
        if message and record.kind == REQUEST:
            if words := open_orders.pop(record.inode, None):
                orders[_shorten(", ".join(words))] += 1
            open_orders[record.inode] = ["request"]
        elif message:
            open_orders[record.inode].append("answer")
        elif (word := _STEPS.get(record.kind)) is not None:
            for words in open_orders.values():
                if words[-1] != word:
                    words.append(word)
    return orders.most_common(1)[0][0] if orders else ""


def _shorten(text: str) -> str:
    """Write steps that are repeated once."""
    while (shorter := _REPEATED.sub(r"\1", text)) != text:
        text = shorter
    return text


def _compare(before: PowerCuts, acknowledged: set[str], one: Peer, options: Options) -> PowerCuts:
    """Start a server upon the folder that a cut has left, and count what is missing."""
    kept: set[str] = set()
    refused = 0
    try:
        with one.start(options) as running:
            kept = KEPT[one.protocol](running.address)
    except (ServerError, LoginError, OSError):
        refused = 1
    missing = len(acknowledged - kept)
    return before._replace(
        cuts=before.cuts + 1,
        acknowledged=before.acknowledged + len(acknowledged),
        missing=before.missing + missing,
        lossy=before.lossy + bool(missing),
        most=max(before.most, missing),
        refused=before.refused + refused,
    )


def blocks(found: Mapping[str, PowerCuts]) -> Iterator[str]:
    """Describe what the cuts have shown, by a server's label."""
    yield "## Power cuts"
    yield (
        f"Each server has a new folder and runs under strace, while {CONNECTIONS} connections"
        f" publish {MESSAGES} messages in all at least once, one in flight for each. At random"
        " moments up to the last answer, its folder is made as a disk might show it after a power"
        " cut: any sectors of what was not synced, and any names whose folder was not synced."
        " Everything from before the first message is durable. A server starts upon the folder, and"
        " must have what was acknowledged before the cut. The order of steps is the most frequent"
        " one from a message to the connection's next."
    )
    head = (
        *("", "order", "cuts", "cuts with loss", "acknowledged", "missing"),
        *("most of a cut", "no service"),
    )
    rows = (
        (
            *(label, each.order, each.cuts, each.lossy, each.acknowledged, each.missing),
            *(each.most, each.refused),
        )
        for label, each in found.items()
    )
    yield table(head, rows)
