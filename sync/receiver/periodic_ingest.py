"""Ingest received segments at intervals, each time in a separate process.

So the receiver holds neither Spark nor the tables in its memory, and a failed ingest does not
affect the receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from sync.common.json_log import log_event
from sync.common.text import os_error
from sync.segment import SUFFIX
from sync.storage.locations import ASIDE, LANDING
from sync.storage.storage import Storage

REPORT_EVERY_S: Final = 900.0
"""Minimum seconds between two reports: each starts Spark, which needs some seconds of two cores."""

STOP_S: Final = 10.0
"""Seconds from SIGTERM to SIGKILL for an ingest that must stop: service managers wait longer."""

COMMAND: Final = (sys.executable, "-m", "sync.cli", "ingest")


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """Ingest command with its storage options, seconds between checks for segments, and path or
    URI of the report (None: no report).
    """

    command: Sequence[str]
    every_s: float
    report: str | None = None


@contextlib.asynccontextmanager
async def periodic_ingest(segments: Storage, plan: IngestPlan) -> AsyncIterator[None]:
    """Ingest while the context lasts, then terminate a running one: a later one can repeat it."""
    task = asyncio.create_task(_repeat(segments, plan))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(segments: Storage, plan: IngestPlan) -> None:
    report_due, is_stale = 0.0, plan.report is not None
    while True:
        try:
            waits = await asyncio.to_thread(_has_segments, segments)
        except OSError as error:
            log_event(logging.ERROR, "ingest", text=f"cannot list the landing: {os_error(error)}")
            waits = False
        out = plan.report if (is_stale or waits) and time.monotonic() >= report_due else None
        if waits or out:
            words = ["--report", out] if out else []
            done = await _run([*plan.command, *words])
            is_stale = not (out and done)
        if out:
            report_due = time.monotonic() + REPORT_EVERY_S
        await asyncio.sleep(plan.every_s)


def _has_segments(segments: Storage) -> bool:
    return any(True for place in (LANDING, ASIDE) for _ in segments.files(place, SUFFIX))


async def _run(words: Sequence[str]) -> bool:
    """Run a process to its end, log its outcome, and return whether it succeeded.

    If this is cancelled, terminate the process, and kill it after `STOP_S` seconds.
    """
    try:
        process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=PIPE)
    except OSError as error:
        log_event(logging.ERROR, "ingest", text=os_error(error))
        return False
    try:
        output, errors = await process.communicate()
    finally:
        for stop in (process.terminate, process.kill):
            if process.returncode is None:
                stop()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), STOP_S)
    if process.returncode:
        log_event(logging.ERROR, "ingest", text=_line(errors), status=process.returncode)
        return False
    log_event(logging.INFO, "ingested", text=_line(output))
    return True


def _line(output: bytes) -> str:
    return output.decode(errors="replace").strip().partition("\n")[0]
