"""Service seconds: they go on where they were, whatever the machine's clocks say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.rules.clock import Now, ServiceClock

SECONDS = st.integers(0, 10**9).map(float)


def test_service_time_goes_on_from_what_was_saved() -> None:
    clock = ServiceClock(saved=3600.0, uptime=50.0)
    assert clock.at(50.0) == 3600.0
    assert clock.at(52.5) == 3602.5


@given(SECONDS, SECONDS, SECONDS)
def test_service_time_runs_as_the_monotonic_clock_does(
    saved: float, started: float, passed: float
) -> None:
    clock = ServiceClock(saved, started)
    assert clock.at(started + passed) == saved + passed


def test_a_moment_names_its_parts() -> None:
    now = Now(service=1.5, wall=1_760_000_000_000, synchronised=False)
    assert (now.service, now.wall, now.synchronised) == (1.5, 1_760_000_000_000, False)
