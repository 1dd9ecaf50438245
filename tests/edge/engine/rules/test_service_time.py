from __future__ import annotations

import pytest

from edge.engine.rules.service_time import (
    MAX_TIME_OFF,
    STEP,
    ClockReading,
    Now,
    Run,
    SavedTime,
    TimeOff,
    TimeOffSource,
    TrustedMoment,
    advance,
    clock_step,
    start_run,
)

WALL = 1_760_000_000_000
DAY = 86_400.0
BEFORE = SavedTime(1000.0, "one", 500.0, TrustedMoment(1000.0, WALL), None, clean=True)
"""A run that ended while its clock was synchronised."""


def after(seconds: float) -> int:
    return WALL + round(seconds * 1000)


@pytest.mark.parametrize("synchronised", [True, False])
@pytest.mark.parametrize("wall", [0, WALL - 10**9, WALL, after(DAY), after(MAX_TIME_OFF * 9)])
def test_within_a_boot_the_time_off_is_taken_from_the_uptime(wall: int, synchronised: bool) -> None:
    start = start_run(BEFORE, 0.0, ClockReading("one", 530.0, wall, synchronised))
    assert (start.off, start.known, start.saved.service) == (30.0, TimeOffSource.UPTIME, 1030.0)
    assert start.saved == SavedTime(1030.0, "one", 530.0, BEFORE.trusted, None)


def test_time_off_is_counted_from_the_latest_row() -> None:
    start = start_run(BEFORE, 1020.0, ClockReading("one", 530.0, WALL, synchronised=True))
    assert (start.off, start.saved.service) == (10.0, 1030.0)
    start = start_run(BEFORE, 1040.0, ClockReading("one", 530.0, WALL, synchronised=True))
    assert (start.off, start.saved.service) == (0.0, 1040.0)
    start = start_run(BEFORE, 1020.0, ClockReading("two", 5.0, after(50), synchronised=True))
    assert (start.off, start.saved.service) == (30.0, 1050.0)


@pytest.mark.parametrize(
    ("wall", "off", "known", "service"),
    [
        (after(DAY), DAY, TimeOffSource.WALL, 1000.0 + DAY),
        (after(MAX_TIME_OFF), MAX_TIME_OFF, TimeOffSource.WALL, 1000.0 + MAX_TIME_OFF),
        (after(MAX_TIME_OFF + 1), MAX_TIME_OFF + 1, TimeOffSource.IMPLAUSIBLE, 1000.0),
        (after(-DAY), 0.0, TimeOffSource.WALL, 1000.0),
    ],
)
def test_across_boots_the_time_off_is_taken_from_a_trusted_clock(
    wall: int, off: float, known: TimeOffSource, service: float
) -> None:
    start = start_run(BEFORE, 0.0, ClockReading("two", 5.0, wall, synchronised=True))
    assert (start.off, start.known, start.saved.service) == (off, known, service)
    assert start.saved.trusted == TrustedMoment(service, wall), "trusted from now on"
    assert start.saved.before is None


def test_a_smaller_uptime_means_another_boot() -> None:
    start = start_run(BEFORE, 0.0, ClockReading("one", 499.0, after(60), synchronised=True))
    assert (start.off, start.known) == (60.0, TimeOffSource.WALL)


def test_without_a_trusted_moment_the_time_off_is_unknown() -> None:
    saved = BEFORE._replace(trusted=None)
    start = start_run(saved, 1010.0, ClockReading("two", 5.0, after(DAY), synchronised=True))
    assert (start.off, start.known) == (0.0, TimeOffSource.NOTHING)
    assert start.saved == SavedTime(1010.0, "two", 5.0, None, None)


def test_the_first_start_has_no_time_off() -> None:
    start = start_run(SavedTime(), 0.0, ClockReading("one", 70.0, WALL, synchronised=True))
    assert (start.saved, start.known) == (SavedTime(0.0, "one", 70.0), TimeOffSource.NOTHING)
    assert start.previous == "unknown"


def test_the_end_of_the_previous_run_is_reported() -> None:
    at = ClockReading("one", 530.0, WALL, synchronised=False)
    assert start_run(BEFORE, 0.0, at).previous == "clean"
    assert start_run(BEFORE._replace(clean=False), 0.0, at).previous == "unclean"
    assert not start_run(BEFORE, 0.0, at).saved.clean


def test_a_time_off_becomes_known_at_the_first_trusted_moment() -> None:
    start = start_run(BEFORE, 1010.0, ClockReading("two", 5.0, 0, synchronised=False))
    assert (start.off, start.known, start.saved.before) == (0.0, TimeOffSource.LATER, 1010.0)
    run = Run("two", 1005.0)
    saved, off = advance(start.saved, run, Now(1030.0, 25, synchronised=False))
    assert off is None
    assert saved == SavedTime(1030.0, "two", 25.0, BEFORE.trusted, 1010.0)
    saved, off = advance(saved, run, Now(1070.0, after(DAY + 70), synchronised=True))
    assert off == TimeOff(1010.0, DAY, TimeOffSource.WALL), (
        "one day has passed since the last trusted moment"
    )
    assert saved == SavedTime(1070.0, "two", 65.0, TrustedMoment(1070.0, after(DAY + 70)), None)
    assert advance(saved, run, Now(1080.0, after(DAY + 80), synchronised=True))[1] is None


def test_boots_without_a_trusted_clock_add_up_to_one_time_off() -> None:
    saved = start_run(BEFORE, 0.0, ClockReading("two", 5.0, 0, synchronised=False)).saved
    saved, _ = advance(saved, Run("two", 995.0), Now(1100.0, 0, synchronised=False))
    third_start = start_run(saved, 0.0, ClockReading("three", 5.0, after(DAY), synchronised=True))
    assert (third_start.known, third_start.saved.before) == (TimeOffSource.LATER, 1000.0)
    now = Now(third_start.saved.service, after(DAY), synchronised=True)
    assert advance(third_start.saved, Run("three", 1095.0), now)[1] == TimeOff(
        1000.0, DAY - 100.0, TimeOffSource.WALL
    )


def test_an_implausible_time_off_is_reported_once() -> None:
    saved = start_run(BEFORE, 0.0, ClockReading("two", 5.0, 0, synchronised=False)).saved
    now = Now(1010.0, after(MAX_TIME_OFF + 11), synchronised=True)
    saved, off = advance(saved, Run("two", 995.0), now)
    assert off == TimeOff(1000.0, MAX_TIME_OFF + 1, TimeOffSource.IMPLAUSIBLE)
    assert (saved.trusted, saved.before) == (TrustedMoment(1010.0, now.wall), None)


@pytest.mark.parametrize(
    ("moved", "expected"),
    [(0.0, 0.0), (0.4, 0.0), (-0.4, 0.0), (STEP, STEP), (-STEP, -STEP), (3600.0, 3600.0)],
)
def test_a_clock_that_was_set_differs_from_one_that_drifts(moved: float, expected: float) -> None:
    last, now = Now(100.0, WALL, True), Now(160.0, after(60.0 + moved), True)
    assert clock_step(last, now) == pytest.approx(expected)
