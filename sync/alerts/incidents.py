"""Stretches in which something is wrong: each is told once when it begins, and once when it ends.

Pure. A subject that goes wrong again and again is told of more and more seldom; what is known from
events that were held up on their way waits, since it may be over long ago.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from sync.alerts.state import DAY_MS
from sync.alerts.verdict import AllClear, Kind, Problem, Subject, Verdict, format_iso

REPEAT_MS: Final = 3_600_000
"""Ms from one alert of a subject to the next at least: doubled each time, up to `AGAIN_MOST_MS`."""

MAX_REPEAT_MS: Final = DAY_MS
"""Ms after which a subject that flaps is told of again: once a day is enough to be mended."""

CALM_MS: Final = 2 * MAX_REPEAT_MS
"""Ms without an alert after which a subject counts as one that never flapped."""

HOLD_MS: Final = 3_600_000
"""Ms for which late news waits before it is told: the rest of a day's backlog is in by then. Also
how much later an alert comes from a gateway whose clock counts as right and is far behind."""

FORGET_MS: Final = 30 * DAY_MS
"""Ms after which what nobody hears of is watched no longer, and its alert ends."""

_ARRIVALS: Final[tuple[Kind, ...]] = ("silent", "ingest_behind")
"""Kinds whose stretches are timed by the centre's clock; of the others by the gateway's."""

FORGOTTEN_TEXT: Final = "Nothing was heard of it for 30 days, and it is watched no longer."


class Alert(msgspec.Struct, frozen=True):
    """What is told. Times are ISO 8601 in UTC: `since` and `until` by the gateway's clock or that
    of arrivals, `at` is when it was noticed.

    `id` is the same for both states of a stretch, and whenever it is told again. `held` counts the
    stretches of this subject that were not told, since the last that was.
    """

    id: str
    state: Literal["raised", "recovered"]
    kind: Kind
    gateway: str
    subject: str
    since: str
    until: str
    at: str
    text: str
    remedy: str
    held: int


class Incident(msgspec.Struct):
    """A subject that is wrong, or was: `since` (ms) while it is told as wrong.

    `noticed` is the day (ms) on which it was wrong last. `pending` is when it went wrong, while it
    is not told; `damped`: because it was told lately. `raised` is when it was told last, `pause`
    how long the next has to wait after that, `ended` up to when the last stretch lasted at most.
    `named` is the id of a stretch whose `since` was set back after it was told, else "".
    """

    kind: Kind
    gateway: str
    subject: str
    since: int | None = None
    noticed: int = 0
    pending: int | None = None
    damped: bool = False
    raised: int = -CALM_MS
    pause: int = 0
    ended: int = 0
    held: int = 0
    named: str = ""

    @property
    def key(self) -> Subject:
        """What it is about."""
        return Subject(self.kind, self.gateway, self.subject)


class IncidentTracker:
    """All stretches that are on, or were lately."""

    def __init__(self, known: Iterable[Incident] = ()) -> None:
        self._known = {each.key: each for each in known}

    def known(self) -> list[Incident]:
        """List them in the order of their keys."""
        return [each for _, each in sorted(self._known.items())]

    def on(self) -> dict[Subject, int]:
        """Map what is told as wrong to since when (ms since 1970 UTC)."""
        return {key: each.since for key, each in self._known.items() if each.since is not None}

    def set_back(self, now: int) -> None:
        """Have nothing be told or noticed after `now`: the centre's clock was set back, and what
        waits would wait until it is there again.

        A stretch that is on keeps its id.
        """
        for each in self._known.values():
            each.noticed, each.raised = min(each.noticed, now), min(each.raised, now)
            each.pending = None if each.pending is None else min(each.pending, now)
            if each.kind in _ARRIVALS:
                each.ended = min(each.ended, now)
                if each.since is not None and each.since > now:
                    each.named = each.named or alert_id(each.key, each.since)
                    each.since = now

    def take(self, verdicts: Iterable[Verdict], now: int) -> list[Alert]:
        """Give what is to be told at `now` (ms since 1970 UTC), in the order of the verdicts."""
        told: list[Alert] = []
        for verdict in verdicts:
            if isinstance(verdict, Problem):
                stretch = self._known.setdefault(verdict.key, Incident(*verdict.key))
                told += _wrong(stretch, verdict, now)
            elif verdict.key in self._known:
                told += _right(self._known[verdict.key], verdict, now)
        for stretch in self._known.values():
            if stretch.since is not None and now - stretch.noticed > FORGET_MS:
                told += _right(stretch, AllClear(stretch.key, now, FORGOTTEN_TEXT), now)
        self._known = {key: each for key, each in self._known.items() if not _over(each, now)}
        return told


def _wrong(stretch: Incident, verdict: Problem, now: int) -> Iterator[Alert]:
    stretch.noticed = now - now % DAY_MS
    if stretch.since is not None:
        return
    if stretch.pending is None:
        stretch.pending = now
    if verdict.late and now - stretch.pending < HOLD_MS:
        return
    stretch.damped = now - stretch.raised < stretch.pause
    if stretch.damped:
        return
    calm = now - stretch.raised >= CALM_MS
    stretch.pause = REPEAT_MS if calm else min(2 * stretch.pause, MAX_REPEAT_MS)
    stretch.since = max(verdict.since, stretch.ended)
    stretch.raised, stretch.pending, stretch.damped, stretch.named = now, None, False, ""
    yield Alert(
        id=alert_id(stretch.key, stretch.since),
        state="raised",
        **stretch.key._asdict(),
        since=format_iso(stretch.since),
        until=format_iso(verdict.until),
        at=format_iso(now),
        text=verdict.text,
        remedy=verdict.remedy,
        held=stretch.held,
    )
    stretch.held = 0


def _right(stretch: Incident, verdict: AllClear, now: int) -> Iterator[Alert]:
    stretch.held += stretch.damped
    stretch.pending, stretch.damped = None, False
    if stretch.since is None:
        return
    yield Alert(
        id=stretch.named or alert_id(stretch.key, stretch.since),
        state="recovered",
        **stretch.key._asdict(),
        since=format_iso(stretch.since),
        until=format_iso(verdict.until),
        at=format_iso(now),
        text=verdict.text,
        remedy="",
        held=stretch.held,
    )
    stretch.since, stretch.ended = None, verdict.until


def _over(stretch: Incident, now: int) -> bool:
    on = stretch.since is not None or stretch.pending is not None
    return not on and now - stretch.raised >= CALM_MS


def alert_id(key: Subject, since: int) -> str:
    """Name a stretch: 16 hexadecimal digits, the same wherever and whenever it is computed."""
    text = "\0".join((*key, str(since)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
