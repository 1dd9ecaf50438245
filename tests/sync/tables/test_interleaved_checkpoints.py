"""Ingests, maintenance, reports and alerts on one storage, in any order of calls, interrupted.

Each has its turn for one call of the storage. The lease is lost at any time, and what is gathered
is swept at once: no reader is given time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync.common.errors import FleetError
from sync.tables.manifest import UPKEEP, Commits, Manifest, live_files
from tests.helpers.memory_storage import Disk, MemoryStorage
from tests.helpers.taking_turns import Actor

QUERIES = ("a", "b")
BATCHES = 2
DAYS = ("2025-11-21", "2025-11-22")
AT = "2025-11-21T12:00:00+00:00"

Row = tuple[str, int]


@dataclass
class World:
    """What is true: which attempt was seen as the one of a batch, and what rows a file has."""

    disk: Disk = field(default_factory=Disk)
    known: dict[Row, str] = field(default_factory=dict)
    rows: dict[str, frozenset[Row]] = field(default_factory=dict)
    retired: dict[str, frozenset[Row]] = field(default_factory=dict)
    tokens: count[int] = field(default_factory=count)
    tidies: bool = True

    def token(self) -> str:
        return f"t{next(self.tokens)}"

    def put(self, path: str, rows: frozenset[Row]) -> str:
        """Write a file of rows, as Spark does: nobody sees it until a manifest names it."""
        self.disk.files[path] = (b"rows", self.disk.clock)
        self.rows[path] = rows
        return path

    def see(self, manifest: Manifest) -> None:
        """Note an attempt that was committed, or read: it is never another one."""
        key = (manifest.query, manifest.batch)
        assert self.known.setdefault(key, manifest.attempt) == manifest.attempt

    def ingest(self, storage: MemoryStorage, query: str) -> None:
        """Offer all batches of a query, as a stream does that has lost its checkpoint."""
        commits = Commits(storage)
        with commits.lease():
            for number in range(BATCHES):
                if not commits.committed(query, number):
                    self._take(commits, query, number)
            for manifest in commits.unarchived():
                commits.mark_archived(manifest)
            self._tidy(commits)

    def _take(self, commits: Commits, query: str, number: int) -> None:
        token = self.token()
        name = f"data/{query}/{number}/{token}"
        events = self.put(f"{name}/events/0", frozenset({(query, number)}))
        segments = self.put(f"{name}/segments/0", frozenset())
        day = DAYS[number % len(DAYS)]
        manifest = Manifest(query, number, token, AT, (segments,), {day: (events,)})
        commits.commit(manifest)
        self.see(manifest)

    def upkeep(self, storage: MemoryStorage, day: str, *, retire: bool) -> None:
        """Compact a day, with the segments, or take it away."""
        commits = Commits(storage)
        with commits.lease():
            number, found = commits.next_upkeep(), live_files(commits.manifests())
            files = found.events.get(day, ())
            token, name = self.token(), f"data/{UPKEEP}/{number}"
            rows = frozenset().union(*(self.rows[path] for path in files))
            if retire:
                self.retired[token] = rows
                step = Manifest(
                    *(UPKEEP, number, token, AT, ()),
                    kind="retired",
                    replaces=files,
                    retired={day: 1},
                )
            else:
                events = self.put(f"{name}/{token}/events/0", rows)
                segments = self.put(f"{name}/{token}/segments/0", frozenset())
                step = Manifest(
                    *(UPKEEP, number, token, AT, (segments,), {day: (events,)}),
                    kind="compacted",
                    replaces=(*files, *found.segments),
                )
            commits.commit(step)
            self.see(step)
            self._tidy(commits)

    def _tidy(self, commits: Commits) -> None:
        if self.tidies:
            commits.checkpoint()
            commits.remove_checkpointed(math.inf)

    def read(self, storage: MemoryStorage) -> None:
        """Read all, as a report does."""
        commits = Commits(storage)
        for _ in range(2):
            self.check(before=dict(self.known), found=commits.manifests())

    def check(self, before: dict[Row, str], found: Sequence[Manifest]) -> None:
        """See that each batch is there once, and each row once."""
        keys = {(each.query, each.batch): each.attempt for each in found}
        assert len(keys) == len(found)
        assert before.items() <= keys.items(), "what was committed is not read"
        for each in found:
            self.see(each)
        rows = [
            row
            for paths in live_files(found).events.values()
            for path in paths
            for row in self.rows[path]
        ]
        gone = [
            row for each in found if each.kind == "retired" for row in self.retired[each.attempt]
        ]
        assert len({*rows, *gone}) == len(rows) + len(gone), "rows are doubled"
        assert {key for key in before if key[0] != UPKEEP} <= {*rows, *gone}, "rows are lost"

    def follow(self, storage: MemoryStorage) -> None:
        """Follow the batches, as the alerts do, from the beginning."""
        commits, followed = Commits(storage), dict.fromkeys(QUERIES, -1)
        for _ in range(2):
            before = dict(self.known)
            for each in commits.after(dict(followed)):
                assert each.batch == followed[each.query] + 1
                followed[each.query] = each.batch
                self.see(each)
            for query, number in before:
                assert query == UPKEEP or number <= followed[query], "a batch is missed"

    def look_up(self, storage: MemoryStorage) -> None:
        """Ask for what is known, and for the files of segments, which are asked for again."""
        commits = Commits(storage)
        for _ in range(2):
            for query, number in list(self.known):
                assert commits.committed(query, number)
            before = live_files(commits.manifests()).segments
            after = commits.segments()
            left = live_files(commits.manifests()).segments
            assert {*before} & {*left} <= {*after}
            assert len({*after}) == len(after)


TURNS = (1, 2, 5, 20, 60, 400)
"""Calls of the storage in one turn: the last is enough for all that somebody has to do."""

KINDS = ("ingest a", "ingest b", "compact", "retire", "read", "follow", "look up")


def start(world: World, kind: str) -> Actor:
    def work(storage: MemoryStorage) -> None:
        try:
            if kind.startswith("ingest"):
                world.ingest(storage, kind[-1])
            elif kind in ("compact", "retire"):
                world.upkeep(storage, DAYS[0], retire=kind == "retire")
            else:
                {"read": world.read, "follow": world.follow, "look up": world.look_up}[kind](
                    storage
                )
        except (FleetError, FileNotFoundError):
            return  # the lease was lost, or there was a gathering at each look: told, and no answer

    return Actor(world.disk, work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_suspended_before_any_call(kind: str) -> None:
    calls, over = 0, False
    while not over:
        world = World(tidies=False)
        quiet = MemoryStorage(world.disk)
        world.ingest(quiet, "a")
        world.tidies = True
        actor = start(world, kind)
        for _ in range(calls):
            actor.go_on()
        over = actor.over
        for query in QUERIES:
            world.ingest(quiet, query)
        world.upkeep(quiet, DAYS[0], retire=False)
        while not actor.over:
            actor.go_on()
        world.follow(quiet)
        finish(world)
        calls += 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=6),
    st.randoms(use_true_random=False),
)
def test_each_batch_counts_once_in_any_order_of_calls(kinds: list[str], random: Random) -> None:
    interleave(kinds, random)


@pytest.mark.long
@settings(max_examples=3_000, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=3, max_size=9),
    st.randoms(use_true_random=False),
)
def test_each_batch_counts_once_in_very_many_orders(kinds: list[str], random: Random) -> None:
    interleave(kinds, random)


def interleave(kinds: Sequence[str], random: Random) -> None:
    """Give turns at random, of few calls or many, until all are over."""
    world = World()
    actors = [start(world, kind) for kind in kinds]
    while left := [actor for actor in actors if not actor.over]:
        actor = random.choice(left)
        for _ in range(random.choice(TURNS)):
            actor.go_on()
        world.disk.clock += 1
        if random.random() < 0.01:
            actor.cut()
    finish(world)


def finish(world: World) -> None:
    """See that whoever comes after all that was cut off finds all in order."""
    quiet = MemoryStorage(world.disk)
    for query in QUERIES:
        world.ingest(quiet, query)
    world.upkeep(quiet, DAYS[1], retire=False)
    world.read(quiet)
    world.follow(quiet)
    world.look_up(quiet)
    assert {key for key in world.known if key[0] != UPKEEP} == {
        (query, number) for query in QUERIES for number in range(BATCHES)
    }
    names = [path for path in world.disk.files if path.startswith("manifests/")]
    assert names == ["manifests/gathered/0.json", max(names)], "all the rest is swept"
