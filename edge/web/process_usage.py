"""Read the processor time and the memory of each process of the gateway, as Linux counts them."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from edge.ops.gateway.control import FrontStatus

CORE: Final = "core"
"""The name of the process that has the database."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessUsage(NamedTuple):
    """The usage of one process.

    Attributes:
        name: `core`, or `front N`.
        cpu: seconds of processor time since it began.
        resident: bytes of its memory that are not swapped out.
    """

    name: str
    cpu: float
    resident: int


def read_usage(fronts: Sequence[FrontStatus]) -> list[ProcessUsage]:
    """Read the usage of this process and of each front process that runs."""
    found = [_read(CORE, os.getpid())]
    for front in fronts:
        if front.pid is not None:
            try:
                found.append(_read(f"front {front.number}", front.pid))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    return found


def _read(name: str, pid: int) -> ProcessUsage:
    """Read proc_pid_stat(5); the fields after the command's name, which may have spaces, count."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    user, system, pages = (int(fields[index]) for index in (11, 12, 21))
    return ProcessUsage(name, (user + system) / _TICKS, pages * resource.getpagesize())
