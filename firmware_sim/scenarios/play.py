"""Settings, participants and results of the scenarios, and how these are played."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from firmware_sim.errors import SimulationFailed
from firmware_sim.scenarios.gateway_process import DOMAIN
from firmware_sim.scenarios.record import jid
from firmware_sim.scenarios.verdict import Verdict

LOOK_S: Final = 0.5
"""Seconds between two looks at what is left to do, and between two reports of progress."""

ShowProgress = Callable[[str], None]
"""A function that shows a line about a run's progress."""


_START_S: Final = 60.0  # until all participants are ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run.

    `folder` is created; its files are kept for inspection. `seconds` is the time over which
    messages, or items, are spread, `patience` the maximum number of further seconds for deliveries.
    `faults` is the fraction of messages, or deliveries of items, with a fault; `kills` is how often
    the gateway is killed and restarted. `seed` selects all random choices.
    """

    folder: Path = Path()
    seconds: float = 0.0
    patience: float = 0.0
    faults: float = 0.0
    kills: int = 0
    seed: int = 1

    def jid(self, name: str) -> str:
        """Return the full JID of a participant."""
        return jid(name, DOMAIN)


class Result(NamedTuple):
    """A finished run: its verdict, and the numbers of what happened, such as faults, by name."""

    verdict: Verdict
    happened: Mapping[str, float]


class Participant(Protocol):
    """A simulated client that takes part in a run."""

    async def start(self) -> None:
        """Start, and wait until the run may begin."""

    async def stop(self) -> None:
        """Stop; what was stored for the verdict is kept."""

    def happened(self) -> Counter[str]:
        """Count what happened to this participant, such as faults, by name."""


@contextlib.asynccontextmanager
async def playing(
    participants: Sequence[Participant], show: ShowProgress, progress: Callable[[], str]
) -> AsyncIterator[Counter[str]]:
    """Start participants, show progress twice a second, and stop the participants in the end.

    The context provides the sum of what `happened`, which is complete after the context. A
    TimeoutError ends the context normally, because the verdict reports what is not finished.
    """
    happened = Counter[str]()
    reporting = asyncio.create_task(_report(show, progress))
    try:
        await prepare(*(each.start() for each in participants))
        with contextlib.suppress(TimeoutError):
            yield happened
        for each in participants:
            happened.update(each.happened())
    finally:
        reporting.cancel()
        await asyncio.gather(*(each.stop() for each in participants))


async def prepare(*work: Coroutine[Any, Any, None]) -> None:
    """Run coroutines that make a run ready, at the same time.

    Raises SimulationFailed if they take longer than a minute.
    """
    try:
        async with asyncio.timeout(_START_S), asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except TimeoutError as error:
        text = f"not all participants were ready within {_START_S:.0f} s"
        raise SimulationFailed(text) from error


async def _report(show: ShowProgress, progress: Callable[[], str]) -> None:
    while True:
        show(progress())
        await asyncio.sleep(LOOK_S)
