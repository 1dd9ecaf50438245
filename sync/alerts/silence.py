"""Which gateways are gone, whether anything arrives at all, and whether the ingest keeps up.

Pure. A gateway is gone by the time at which others still arrived: when several are overdue and
nobody was heard since, it is the centre that is to be looked at, and one alert says so. After that,
each gateway has its whole patience to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median, median_low
from typing import Final, NamedTuple

from sync.alerts.state import MINUTE_MS, FleetState, GatewayState
from sync.alerts.verdict import (
    AllClear,
    Subject,
    Verdict,
    format_duration,
    format_time,
    problem,
)
from sync.reports.shared.thresholds import MIN_SEALINGS, MISSED_INTERVALS, SILENCE_S

INGEST_BEHIND_S: Final = 900.0
"""Seconds that a file may wait in the landing: a continuous ingest takes it in about two minutes,
and upkeep holds the tables for some."""

NEW_GATEWAY_TIMEOUT_S: Final = 3_600.0
"""Seconds without an arrival that a gateway has, at least, while too few of its segments are known
to tell how often it seals: after half an hour at the usual cadence they are."""

MAX_TIMEOUT_S: Final = 30 * 86_400.0
"""Seconds without an arrival that a gateway has at most, whatever it tells of its segments: what
nobody hears of for so long is watched no longer."""

FLEET_SILENT: Final = Subject("silent", "", "fleet")
INGEST_BEHIND: Final = Subject("ingest_behind", "", "ingest")

_LOOK: Final = (
    "See whether `fieldpost-fleet serve` runs at the centre, whether its disk has room, and "
    "whether gateways can reach its port."
)


class LandingBacklog(NamedTuple):
    """What waits in the landing of a gateway: its first and last arrival in ms since 1970 UTC.

    `stopped`: the last of what it told there is a clean stop. `minutes` are those since 1970 in
    which something arrived.
    """

    first: int
    last: int
    stopped: bool = False
    minutes: frozenset[int] = frozenset()


def silent_after_ms(gateway: GatewayState) -> int:
    """Tell after how many ms without an arrival a gateway counts as silent.

    As in report 1, but that one that is new has more patience.
    """
    pairs = zip(gateway.system, gateway.system[1:], strict=False)
    between = [
        after.service - before.service for before, after in pairs if before.epoch == after.epoch
    ]
    known = [each for each in between if each > 0]
    if len(known) < MIN_SEALINGS:
        patience = max(NEW_GATEWAY_TIMEOUT_S, MISSED_INTERVALS * max(known, default=0.0))
    else:
        patience = max(SILENCE_S, MISSED_INTERVALS * median(known))
    return round(1000 * min(MAX_TIMEOUT_S, patience))


def judge_silence(
    seen: FleetState,
    landing: Mapping[str, LandingBacklog],
    now: int,
    revoked: Callable[[str], bool],
    on: Mapping[Subject, int],
) -> Iterator[Verdict]:
    """Say of each gateway, of the fleet and of the ingest how they are at `now`.

    `landing` is what waits there by gateway; a gateway that is `revoked` may be silent. `on` maps
    what is told as wrong to since when it is: a gateway that is told as gone is so until it is
    heard.
    """
    lives = {
        Subject("silent", name, name): life for name, life in _lives(seen, landing, now, revoked)
    }
    heard = max((life.arrived for life in lives.values()), default=now)
    told = {key for key, life in lives.items() if life.arrived <= on.get(key, -1)}
    since = _listening(seen, landing, [lives[key] for key in lives.keys() - told])
    overdue: list[tuple[Subject, int]] = []
    present: list[tuple[Subject, int]] = []
    for key, life in sorted(lives.items()):
        last = max(life.arrived, since)
        if life.stopped:
            yield AllClear(key, now, "It stopped cleanly, or was revoked.")
        elif key not in told and heard - last > life.patience:
            yield _gone(key, life.arrived, now)
        elif key not in told:
            (overdue if now - last > life.patience else present).append((key, life.arrived))
    for key, arrived in present:
        yield AllClear(key, arrived, f"Segments arrive again, since {format_time(arrived)}.")
    yield from _fleet(overdue, len(present), heard, now)
    yield from _ingest(landing, now)


class _Life(NamedTuple):
    arrived: int
    patience: int
    stopped: bool


def _lives(
    seen: FleetState,
    landing: Mapping[str, LandingBacklog],
    now: int,
    revoked: Callable[[str], bool],
) -> Iterator[tuple[str, _Life]]:
    for name in seen.gateways.keys() | landing.keys():
        gateway = seen.gateways.get(name) or GatewayState()
        waiting = landing.get(name)
        arrived = max(gateway.arrived, waiting.last if waiting else 0)
        stopped = gateway.sign is not None and gateway.sign.name == "stop"
        if waiting is not None and waiting.last > gateway.arrived:
            stopped = waiting.stopped
        patience = silent_after_ms(gateway)
        if not stopped and now - arrived > patience:
            stopped = revoked(name)
        yield name, _Life(arrived, patience, stopped)


def _listening(
    seen: FleetState, landing: Mapping[str, LandingBacklog], expected: Sequence[_Life]
) -> int:
    """Tell since when something arrived again and again: before that, it was off.

    It was when nothing arrived for longer than half of those that are `expected` are silent for.
    """
    patience = median_low([life.patience for life in expected if not life.stopped] or [0])
    minutes = set(seen.heard).union(*(each.minutes for each in landing.values()))
    since = max(minutes, default=0)
    for minute in sorted(minutes, reverse=True):
        if (since - minute) * MINUTE_MS > patience:
            break
        since = minute
    return since * MINUTE_MS


def _gone(key: Subject, arrived: int, now: int) -> Verdict:
    text = (
        f"Nothing arrived since {format_time(arrived)}, for {format_duration(now - arrived)}, "
        "and it did not say "
        "that it would stop."
    )
    return problem(key, arrived, now, text)


def _fleet(
    overdue: Sequence[tuple[Subject, int]], present: int, heard: int, now: int
) -> Iterator[Verdict]:
    """Judge those who are overdue, and after whose patience nobody at all was heard.

    If they are several, and not fewer than the others, it is the centre that nobody reaches. If it
    is the only one that should send, it is gone; else, what comes next of the others will tell.
    """
    if len(overdue) > 1 and len(overdue) >= present:
        text = (
            f"Nothing arrived from any of {len(overdue) + present} gateways since "
            f"{format_time(heard)}, for {format_duration(now - heard)}."
        )
        yield problem(FLEET_SILENT, heard, now, text)._replace(remedy=_LOOK)
        return
    yield AllClear(FLEET_SILENT, heard, "Segments arrive.")
    if not present:
        for key, arrived in overdue:
            yield _gone(key, arrived, now)


def _ingest(landing: Mapping[str, LandingBacklog], now: int) -> Iterator[Verdict]:
    first = min((each.first for each in landing.values()), default=now)
    if now - first <= 1000 * INGEST_BEHIND_S:
        yield AllClear(INGEST_BEHIND, now, "The ingest keeps up.")
        return
    waited = format_duration(now - first)
    text = f"Segments have waited for the ingest since {format_time(first)}, for {waited}."
    yield problem(INGEST_BEHIND, first, now, text)
