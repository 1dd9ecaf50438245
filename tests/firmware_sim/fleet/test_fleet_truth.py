"""Tests of the expected report figures of a simulated fleet, computed from a few events."""

from __future__ import annotations

from typing import Any

import pytest

from firmware_sim.fleet import expected
from firmware_sim.fleet.contents import SystemEvent
from firmware_sim.fleet.truth import Rollout, VersionRun
from sync.segment import Event

START = 1_772_409_600_000
"""2026-03-02 00:00:00 UTC, in milliseconds."""


def system(
    *events: tuple[str, float], epoch: str = "E1", first: int = 1, **of: Any
) -> list[SystemEvent]:
    """Make system events, each a name and seconds since the start; heartbeats come each minute."""
    return [
        SystemEvent(epoch, _event(seq, name, seconds, **of))
        for seq, (name, seconds) in enumerate(events, start=first)
    ]


def _event(
    seq: int, name: str, seconds: float, clock: bool = True, value: float | None = 60.0
) -> Event:
    stored = value if name in ("start", "heartbeat", "clock_stepped") else None
    return Event(seq, START + round(seconds * 1000), clock, "system", name=name, value=stored)


def states(events: list[SystemEvent]) -> list[tuple[str, int]]:
    return [(each.state, each.length) for each in expected.intervals(events)]


def test_gap_is_an_outage_if_no_event_is_missing() -> None:
    begin = system(("start", 0), ("heartbeat", 60))
    assert states([*begin, *system(("heartbeat", 210), first=3)])[1:] == [("running", 150_000)]
    assert states([*begin, *system(("heartbeat", 211), first=3)])[1:] == [("outage", 151_000)]
    assert states([*begin, *system(("heartbeat", 211), first=4)])[1:] == [("unknown", 151_000)]
    [outage] = expected.outages([*begin, *system(("start", 400), first=3)])
    assert (outage["seconds"], outage["ended"]) == (340.0, "restarted")
    assert outage["begin"] == "2026-03-02T00:01:00.000+00:00"


def test_end_of_an_epoch_without_a_stop_is_unknown() -> None:
    first = system(("start", 0), ("heartbeat", 60))
    later = system(("start", 400), epoch="E2")
    assert states([*first, *later])[-1] == ("unknown", 340_000)
    ended = system(("start", 0), ("stop", 60))
    assert states([*ended, *later])[-1] == ("stopped", 340_000)
    assert states([*ended, *system(("start", 400), epoch="E2", first=2)])[-1][0] == "unknown"
    assert expected.availability([*first, *later])["unclean_restarts"] == 0


def test_setting_the_clock_is_no_outage() -> None:
    events = [
        *system(("start", 0), ("heartbeat", 60), clock=False),
        *system(("clock_stepped", 5_000), ("clock_synchronised", 5_001), first=3),
        *system(("clock_stepped", 9_000), ("heartbeat", 9_060), first=5, value=-90.0),
    ]
    assert [state for state, _ in states(events)] == ["running", "clock", "clock", "running"]
    assert expected.availability(events)["clock_steps"] == 2
    clock = expected.clock(events)
    assert (clock["steps"], clock["odd_steps"], clock["step_max_s"]) == (2, 1, -90.0)
    assert (clock["step_sum_s"], clock["synchronised"]) == (150.0, True)
    assert clock["unsynchronised_s"] == 60.0


def test_silence_depends_on_the_sealing_interval() -> None:
    events = system(("start", 0))
    arrivals = [START, START + 700_000, START + 2_000_000]
    as_of = START + 2_700_000
    found = expected.arrivals_and_state(events, arrivals, [], as_of)
    assert (found["state"], found["silences"], found["longest_silence_s"]) == ("running", 1, 1_300)
    sealed = [("E1", float(at)) for at in range(0, 3_600, 600)]
    found = expected.arrivals_and_state(events, arrivals, sealed, as_of)
    assert (found["silent_after_s"], found["silences"]) == (1_500.0, 0)
    found = expected.arrivals_and_state(events, arrivals, sealed, as_of + 1_000_000)
    assert (found["state"], found["longest_silence_s"]) == ("silent", 1_700)
    stopped = system(("start", 0), ("stop", 1))
    found = expected.arrivals_and_state(stopped, arrivals, [], as_of + 10**7)
    assert found["state"] == "stopped"


def depth(seconds: int, waiting: int, delivered: int, **tags: int) -> SystemEvent:
    counts = {"ready": waiting, "locked": 0, "delayed": 0, "dead": 0, "oldest_s": 0, "members": 1}
    counts |= {"delivered": delivered, "redelivered": 0, "timeouts": 0} | tags
    texts = {name: str(count) for name, count in counts.items()}
    fields: dict[str, Any] = {"name": "depth", "value": float(waiting), "tags": texts}
    event = Event(seconds, START + seconds * 1000, True, "queue", topic="q", **fields)
    return SystemEvent("E1", event)


def test_queue_is_stuck_while_items_wait_and_none_is_delivered() -> None:
    events = [depth(at, 5, 0) for at in range(300, 2_401, 300)]
    [row] = expected.queues(events)
    assert (row["state"], row["stuck"], row["recovered"]) == ("stuck", 1, 0)
    assert (row["since"], row["longest_stuck_s"]) == ("2026-03-02T00:05:00.000+00:00", 2_100.0)
    [row] = expected.queues([*events, depth(2_700, 4, 2, timeouts=1, redelivered=1)])
    assert (row["state"], row["stuck"], row["recovered"]) == ("ok", 1, 1)
    assert (row["delivered"], row["timeouts"], row["redelivered"]) == (2, 1, 1)
    [row] = expected.queues([depth(each.event.seq, 5, 0, delayed=5) for each in events])
    assert (row["state"], row["stuck"], row["depth_max"]) == ("ok", 0, 5)
    [row] = expected.queues([each for each in events if not 900 < each.event.seq < 1_800])
    assert row["stuck"] == 0
    [row] = expected.queues([*events, depth(2_700, 0, 0)])
    assert (row["state"], row["recovered"]) == ("idle", 1)


def test_counts_are_sums_of_the_events() -> None:
    def event(kind: str, name: str, value: float | None = None) -> SystemEvent:
        return SystemEvent("E1", Event(1, START, True, kind, "d@gw", name=name, value=value))

    events = [event("limit", "rate", 3.0), event("limit", "rate"), event("message", "dead")]
    events += [event("message", "repeated", 7.0)]
    [refused] = expected.refusals(events)
    assert (refused["source"], refused["rule"], refused["times"]) == ("d@gw", "rate", 4)
    [repeated] = expected.repeats(events)
    assert (repeated["source"], repeated["times"]) == ("d@gw", 7)
    rows = [(row["kind"], row["name"], row["times"]) for row in expected.notices(events)]
    assert rows == [("limit", "rate", 4), ("message", "dead", 1)]


def test_sessions_are_counted_by_protocol() -> None:
    def event(name: str, source: str, value: float, **tags: str) -> SystemEvent:
        found = Event(1, START, True, "session", source, name=name, value=value, tags=tags)
        return SystemEvent("E1", found)

    mqtt = {"protocol": "mqtt", "version": "5.0"}
    websocket = mqtt | {"transport": "websocket"}
    events = [
        *(event("began", source, 2.0, **mqtt) for source in ("a", "b", "a")),
        *(event("ended", source, 1.0, reason="lost", **mqtt) for source in ("b", "a")),
        event("ended", "b", 3.0, reason="keep_alive_timeout", **mqtt),
        event("ended", "c", 9.0, reason="closed", **mqtt),
        event("began", "c", 4.0, **websocket),
        event("ended", "d", 1.0, reason="not-resumed"),
    ]
    names = ("protocol", "version", "transport", "devices", "sessions", "lost", "which")
    assert [tuple(row[name] for name in names) for row in expected.sessions(events)] == [
        ("mqtt", "5.0", "websocket", 1, 4, 0, ""),
        ("mqtt", "5.0", None, 2, 6, 5, "b, a"),
        ("xmpp", None, None, 0, 0, 1, "d"),
    ]


@pytest.mark.parametrize(("days", "usual"), [(1, 10.0), (2, 15.0), (3, 20.0), (5, 30.0)])
def test_ordinary_day_is_neither_the_first_nor_the_last(days: int, usual: float) -> None:
    sizes = [(START + day * 86_400_000, 10 * (day + 1)) for day in range(days)]
    found = expected.growth([], sizes, (at for at, _ in sizes), 99)
    assert (found["shipped_day"], found["days"]) == (usual, max(days - 2, 0))
    shipped = sum(size for _, size in sizes)
    assert (found["shipped"], found["events_day"], found["disk_used"]) == (shipped, 1.0, 99)


def test_an_implausible_time_counts_at_the_arrival() -> None:
    day = 86_400_000
    for off in (-366 * day, 0, day):
        assert expected.counted_at(START + off, START) == START + off
    for off in (-366 * day - 1, day + 1):
        assert expected.counted_at(START + off, START) == START


def test_versions_are_summed_over_gateways() -> None:
    def run_of(errors: int, *times: int) -> VersionRun:
        run = VersionRun()
        run.add(len(times), errors, known=times[1:], seen=times)
        return run

    rollout = Rollout()
    rollout.add({"1": run_of(1, START, START + 5), "2": run_of(2, START + 6, START + 9)}, "2")
    rollout.add({"1": run_of(0, START + 1, START + 3)}, "1")
    first, second = rollout.as_json()
    names = ("version", "gateways", "current", "before", "events", "errors")
    assert [first[name] for name in names] == ["1", 2, 1, None, 4, 1]
    assert first["first_seen"] == "2026-03-02T00:00:00.003+00:00"
    assert (second["before"], second["errors"]) == ("1", 2)
