"""Tests of power cuts at any moment: nothing acknowledged is lost, and nothing is repeated.

A gateway, its devices and its centre are recorded (`helpers.recorded_site`). For many points in the
log of their writes, the folders of the gateway, of the centre or of both are made as a disk might
show them after a cut there (`helpers.power_cut`). A gateway and a receiver start upon them, and the
messages and segments that are there are compared with those that were acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from edge import app
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.errors import FieldpostError
from edge.features.custody.store import was_released
from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder
from sync.segment import Event, SegmentError
from tests.helpers import power_cut, recorded_site
from tests.helpers.fleet import GATEWAY, OTHER, identity
from tests.helpers.recorded_site import (
    ACKNOWLEDGED,
    DELIVERED,
    EACH,
    HELD,
    KINDS,
    LOGGED,
    PUBLISHED,
    RECEIVED,
    RELAYED,
    SENT,
    STORED,
    TAKEN,
    UPLOADED,
    RecordedAnswer,
    RecordedRun,
)
from tests.helpers.store import Clock, read_element
from tests.helpers.whole_log import read_log, segments

WAL = f"{database.FILE_NAME}-wal"
MOMENT = Clock()()

GATEWAY_PART, CENTRE_PART = "gateway", "centre"
GATEWAY_ONLY, CENTRE_ONLY = frozenset({GATEWAY_PART}), frozenset({CENTRE_PART})
VICTIMS = (GATEWAY_ONLY, CENTRE_ONLY, GATEWAY_ONLY | CENTRE_ONLY)

NORMAL = """
from edge.engine.store import database
database._SETTINGS += ("PRAGMA synchronous = NORMAL",)
from edge.cli.commands import main
main()
"""
"""The program of a gateway whose commits are not synced."""

WITHOUT_SYNC = """
import os
os.fsync = lambda descriptor: None
from sync.cli.__main__ import main
main()
"""
"""The program of a receiver that syncs nothing."""

Key = tuple[str, str]


@pytest.fixture(scope="module")
def compiler() -> None:
    if power_cut.compiler() is None:
        pytest.skip("no C compiler: gcc makes the recorder of writes")


@pytest.fixture(scope="module")
def recorded(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return recorded_site.record(tmp_path_factory.mktemp("power"))


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the garbage collection of this process, in which gateways start."""
    monkeypatch.setattr(app, "_tune_interpreter", lambda: None)


class MessageCopies(NamedTuple):
    """The number of copies of each message by place."""

    held: Counter[Key]
    outbox: Counter[Key]
    released: Counter[Key]
    """Of those in the outbox, the ones that their recipient has in its own custody."""
    logged: Counter[Key]
    stored: Counter[Key]
    mqtt: Counter[tuple[str, str]]
    """Of those of MQTT, by their subscriber, "" for custody, and their key."""


def find(tx: Transaction, log: dict[str, dict[int, Event]]) -> MessageCopies:
    """Count the messages in a gateway's database and its log."""
    logged = Counter(
        (str(event.source), (event.tags or {})["n"]) for event in log.get("logs", {}).values()
    )
    stored = tx.rows("SELECT sender, stanza FROM offline")
    bodies = [
        *tx.rows("SELECT '', body FROM held"),
        *tx.rows("SELECT recipient, body FROM outbox JOIN outbox_bodies USING (id)"),
    ]
    keys = [(to.partition("@")[0], re.search(rb"mqtt ([0-9-]+);", body)) for to, body in bodies]
    return MessageCopies(
        Counter(tx.rows("SELECT sender, msg_id FROM held")),
        Counter(tx.rows("SELECT sender, msg_id FROM outbox WHERE msg_id IS NOT NULL")),
        Counter(tx.rows("SELECT sender, msg_id FROM outbox WHERE state = 'released'")),
        logged,
        Counter((sender, read_element(stanza).attrib["id"]) for sender, stanza in stored),
        Counter((to, key[1].decode()) for to, key in keys if key is not None),
    )


def faults(gateway: Path, fleet: Path, recorded: RecordedRun, end: int) -> list[str]:
    """Start a receiver and a gateway upon their folders, and list what is wrong with them.

    `end` is the length of the log at the cut: later acknowledgements do not count.
    """
    centre = FleetFolder(fleet)
    asyncio.run(recorded_site.recover(gateway, fleet))
    log, wrong = read_log(gateway, centre)
    answers = [answer for answer in recorded.answers if answer.at <= end]
    with closing(database.connect(gateway / database.FILE_NAME)) as connection:
        wrong += [str(row) for (row,) in connection.execute("PRAGMA integrity_check")]
        with database.transaction(connection, MOMENT) as tx:
            found = find(tx, log)
            delivered = {
                (one.sender, one.msg_id)
                for one in answers
                if one.what in (DELIVERED, RECEIVED, TAKEN)
            }
            wrong += [fault for one in answers for fault in _missing(tx, found, one, delivered)]
    in_custody = found.held + found.outbox + found.logged
    for key, count in [*in_custody.items(), *found.stored.items()]:
        if count > 1:
            wrong.append(f"{key} exists {count} times")
    for (to, mqtt), count in found.mqtt.items():
        if count > 1 or (to and mqtt.endswith("-2") and found.mqtt["", mqtt]):
            wrong.append(f"{mqtt} exists {count} times for {to}")
    uploaded = segments(centre)
    for answer in answers:
        if answer.what == UPLOADED:
            name = identity(int(answer.msg_id), int(answer.msg_id), OTHER)
            if uploaded.get(name) != recorded.uploads[name]:
                wrong.append(f"{name} was acknowledged, and is missing")
    wrong += [f"{path.name} was set aside" for path in centre.aside.rglob("*.seg")]
    return [fault for fault in wrong if fault != "ok"]


def _missing(
    tx: Transaction, found: MessageCopies, answer: RecordedAnswer, delivered: set[Key]
) -> Iterator[str]:
    key = (answer.sender, answer.msg_id)
    places = {
        HELD: found.held + found.outbox + found.logged,
        LOGGED: found.logged,
        ACKNOWLEDGED: found.logged,
        RELAYED: found.outbox,
        STORED: found.stored,
        SENT: found.stored,
    }
    if answer.what in (RECEIVED, TAKEN, UPLOADED):
        return
    if answer.what == PUBLISHED:
        for to in ("away",) if key in delivered else ("away", "reader"):
            if not found.mqtt[to, answer.msg_id] and not found.mqtt["", answer.msg_id]:
                yield f"{answer.what} {key} is missing for {to}"
        return
    if answer.what == DELIVERED:
        if found.outbox[key] != found.released[key]:
            yield f"{key} would be offered again although its recipient has it"
    elif not places[answer.what][key] and key not in delivered:
        yield f"{answer.what} {key} is missing"
    bare = answer.sender.partition("/")[0]
    if answer.what in (LOGGED, RELAYED) and not was_released(tx, bare, *key):
        yield f"a repeated deliver of {key} would be refused as unknown"


def cuts(
    recorded: RecordedRun,
    folder: Path,
    count: int,
    chance: random.Random,
    victims: Sequence[frozenset[str]] = VICTIMS,
) -> Iterator[list[str]]:
    """Cut the power at so many moments, of one of the victims each; yield the faults after each."""
    disk = recorded.disk.copy()
    moments = set(chance.sample(range(len(recorded.records)), count))
    for number, change in enumerate(recorded.records):
        disk.replay(change)
        if number not in moments:
            continue
        after = folder / str(number)
        after.mkdir()
        cut = chance.choice(victims)
        gateway, fleet = after / GATEWAY_PART, after / CENTRE_PART
        for source, target in ((recorded.gateway, gateway), (recorded.fleet, fleet)):
            if target.name in cut:
                disk.cut(source, target, chance)
            else:
                disk.show(source, target)
        yield faults(gateway, fleet, recorded, change.end)
        shutil.rmtree(after)


def is_detected(
    recorded: RecordedRun, folder: Path, chance: random.Random, victim: frozenset[str]
) -> bool:
    """Return whether one of many cuts shows a fault, or leaves what cannot even be read."""
    try:
        return any(wrong != [] for wrong in cuts(recorded, folder, 200, chance, (victim,)))
    except (FieldpostError, FleetError, SegmentError, sqlite3.Error):
        return True


def test_a_power_cut_loses_nothing_acknowledged_and_repeats_nothing(
    recorded: RecordedRun, tmp_path: Path, scale: Callable[[int, int], int], seed: int
) -> None:
    what = Counter(answers.what for answers in recorded.answers)
    assert min(what[kind] for kind in KINDS) >= EACH, what
    chance = random.Random(seed)
    for wrong in cuts(recorded, tmp_path, scale(20, 1000), chance):
        assert wrong == []


def test_the_recorded_run_has_checkpoints_restarted_wals_and_segments(
    recorded: RecordedRun,
) -> None:
    """Otherwise the cuts would miss these moments."""
    done = recorded.records
    names = [(change.kind, change.data.decode()) for change in done if change.kind in "CLU"]
    assert names.count(("C", WAL)) > 1
    assert ("U", WAL) in names
    assert sum(change.kind == "S" and change.inode == recorded.database for change in done) > 2
    wals = {change.inode for change in done if (change.kind, change.data) == ("C", WAL.encode())}
    headers = [r.data for r in done if r.kind == "W" and r.inode in wals and r.offset == 0]
    assert any(int.from_bytes(header[12:16]) for header in headers), "how often it was reset"
    uploaded = segments(FleetFolder(recorded.fleet))
    assert Counter(name.gateway for name in uploaded)[GATEWAY] > 4
    assert sum(kind == "L" for kind, _name in names) == len(uploaded)


@pytest.fixture(scope="module")
def careless(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Run a gateway and a receiver that answer before what they answer for is durable."""
    folder = tmp_path_factory.mktemp("careless")
    programs = (("python", "-c", NORMAL), ("python", "-c", WITHOUT_SYNC))
    return recorded_site.record(folder, *programs, runs=1)


@pytest.mark.parametrize("victim", [GATEWAY_ONLY, CENTRE_ONLY])
def test_answers_before_a_sync_are_detected(
    careless: RecordedRun, tmp_path: Path, seed: int, victim: frozenset[str]
) -> None:
    assert is_detected(careless, tmp_path, random.Random(seed), victim)


@pytest.mark.long
def test_checkpoints_without_a_sync_are_detected(
    recorded: RecordedRun, tmp_path: Path, seed: int
) -> None:
    kept = [one for one in recorded.records if (one.kind, one.inode) != ("S", recorded.database)]
    without = recorded._replace(records=kept)
    assert is_detected(without, tmp_path, random.Random(seed), GATEWAY_ONLY)
