"""`fieldpost events` with a selection, and while events are logged."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from edge.config import load
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.ops import current_time
from edge.uplink.backlog import begin_epoch
from sync.common.text import utc_time
from tests.helpers.backlog import FixedState
from tests.helpers.event_follower import WAIT_S, following
from tests.helpers.folder import change, fieldpost


def log(folder: Path, *logged: NewEvent) -> None:
    def unit(tx: Transaction) -> None:
        for event in logged:
            events.append(tx, events.SYSTEM, event)

    change(folder, unit)


def names(folder: Path, *words: str) -> list[str]:
    result = fieldpost(folder, "events", "--json", *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line)["name"] for line in result.output.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["a", "b", "c", "d"]),
        (("--device", "pump1"), ["a", "b"]),
        (("--device", "PUMP1@gw.example"), ["a", "b"]),
        (("--device", "pump1@other.example"), []),
        (("--device", "pump"), []),
        (("--kind", "session"), ["a"]),
        (("--kind", "Session", "--kind", "system"), ["a", "d"]),
        (("--kind", "session", "--device", "pump2"), []),
    ],
)
def test_source_and_kinds_are_selected(
    folder: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    log(
        folder,
        NewEvent("session", "pump1@gw.example/fw", name="a"),
        NewEvent("limit", "pump1@gw.example", name="b"),
        NewEvent("limit", "pump2@gw.example", name="c"),
        NewEvent("system", name="d"),
    )
    assert names(folder, *words) == expected


def test_events_are_selected_from_a_time_on(folder: Path) -> None:
    log(folder, NewEvent("system", name="a"))
    (line,) = fieldpost(folder, "events", "--json").output.splitlines()
    time: int = json.loads(line)["time"]
    assert names(folder, "--since", utc_time(time, "milliseconds")) == ["a"]
    assert names(folder, "--since", utc_time(time + 1, "milliseconds")) == []
    assert names(folder, "--since", utc_time(time, "milliseconds").removesuffix("Z")) == ["a"]
    now = current_time.now().wall
    assert now - time < 60_000, "the tests' folder has the machine's time"
    assert names(folder, "--since", "2h") == names(folder, "--since", "1d") == ["a"]


@pytest.mark.parametrize("time", ["yesterday", "5", "5w", "", "9999999999d"])
def test_a_time_that_is_none_is_wrong_usage(folder: Path, time: str) -> None:
    result = fieldpost(folder, "events", "--since", time)
    assert result.exit_code == 2
    assert "30s, 15m, 2h or 7d" in " ".join(result.output.split())


def test_new_events_are_followed_until_an_interrupt(folder: Path) -> None:
    log(folder, NewEvent("limit", name="old"), NewEvent("system", name="old"))
    with following(folder, "--since", "1h", "--kind", "system") as follower:
        assert follower.next_name() == "old"
        log(folder, NewEvent("limit", name="other"), NewEvent("system", name="new"))
        assert follower.next_name() == "new"
        state, settings = asyncio.run(FixedState().state()), load.load(folder)
        change(folder, lambda tx: begin_epoch(tx, settings, state, "restored"))
        log(folder, NewEvent("system", name="of a new epoch"))
        assert follower.next_name() == "of a new epoch"
        follower.process.send_signal(signal.SIGINT)
        assert follower.process.wait(WAIT_S) == 0
        assert follower.process.stderr is not None
        assert follower.process.stderr.read() == ""


def test_only_new_events_are_followed_without_a_time(folder: Path) -> None:
    log(folder, NewEvent("system", name="old"))
    with following(folder) as follower:
        event = None
        for _ in range(60):  # until the process has begun
            log(folder, NewEvent("system", name="new"))
            if (event := follower.next(timeout=0.5)) is not None:
                break
        assert event is not None
        assert event["name"] == "new"


def test_following_ends_when_nobody_reads_the_output(folder: Path) -> None:
    with following(folder) as follower:
        assert follower.process.stdout is not None
        follower.process.stdout.close()
        assert follower.process.wait(WAIT_S) == 0
        assert follower.process.stderr is not None
        assert follower.process.stderr.read() == ""


def test_following_a_lost_database_is_an_error(folder: Path) -> None:
    log(folder, NewEvent("system", name="old"))
    with following(folder, "--since", "1h") as follower:
        assert follower.next_name() == "old"
        folder.rename(folder.with_name("away"))
        assert follower.process.wait(WAIT_S) == 1
        assert follower.process.stderr is not None
        assert "does not exist" in follower.process.stderr.read()
