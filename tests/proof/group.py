"""Run a process in a control group of its own: little memory, no swap, part of a processor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000

# The weight is the highest: only the quota limits the group, not what else the machine does.
V1: Final = {
    "memory/memory.limit_in_bytes": "{memory}",
    "memory/memory.memsw.limit_in_bytes": "{memory}",
    "cpu/cpu.cfs_period_us": "{period}",
    "cpu/cpu.cfs_quota_us": "{quota}",
    "cpu/cpu.shares": "262144",
}
V2: Final = {
    "memory.max": "{memory}",
    "memory.swap.max": "0",
    "cpu.max": "{quota} {period}",
    "cpu.weight": "10000",
}
"""The settings of a group by their files, which begin with the controller in version 1."""


class Version(NamedTuple):
    """A version of control groups on this machine.

    Attributes:
        folders: where groups are made: a folder for each controller, or one for all.
        settings: the settings of a group.
        peak: the file with the largest use of memory, in bytes.
        kills: the file with the number of killed processes.
    """

    folders: tuple[str, ...]
    settings: Mapping[str, str]
    peak: str
    kills: str


FIRST: Final = Version(
    ("memory", "cpu"), V1, "memory/memory.max_usage_in_bytes", "memory/memory.oom_control"
)
SECOND: Final = Version(("",), V2, "memory.peak", "memory.events")


def version() -> Version | None:
    """Return the version of control groups whose groups this process may make, if any."""
    controllers = ROOT / "cgroup.subtree_control"
    if controllers.exists():
        enabled = {"memory", "cpu"} <= set(controllers.read_text("ascii").split())
        return SECOND if enabled and os.access(ROOT, os.W_OK) else None
    found = all(os.access(ROOT / name / "cgroup.procs", os.W_OK) for name in FIRST.folders)
    return FIRST if found else None


class Group:
    """A control group."""

    def __init__(self, version: Version, name: str) -> None:
        self._version = version
        self._name = name

    def path(self, file: str) -> Path:
        """Return the path of a file of the group, named as in `Version`."""
        folder, _, name = file.rpartition("/")
        return ROOT / folder / self._name / name

    def folders(self) -> Iterator[Path]:
        for name in self._version.folders:
            yield self.path(f"{name}/" if name else "")

    def command(self, *argv: str | Path) -> tuple[str, ...]:
        """Return a command that runs `argv` in the group."""
        joins = "".join(f"echo $$ > {folder / 'cgroup.procs'} && " for folder in self.folders())
        return ("sh", "-c", f'{joins}exec "$@"', "sh", *map(str, argv))

    def peak(self) -> int:
        """Return the largest use of memory in bytes, the cache of files included."""
        return int(self.path(self._version.peak).read_text("ascii"))

    def kills(self) -> int:
        """Return the number of processes that were killed for lack of memory."""
        lines = self.path(self._version.kills).read_text("ascii").splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])


@contextmanager
def limited(version: Version, memory: int, processor: float) -> Iterator[Group]:
    """Make a group with so many bytes of memory and this part of a processor; remove it at the
    end, when its processes have ended."""
    group = Group(version, f"fieldpost-{os.getpid()}")
    values = {"memory": memory, "period": PERIOD_US, "quota": round(processor * PERIOD_US)}
    made: list[Path] = []
    try:
        for folder in group.folders():
            folder.mkdir()
            made.append(folder)
        for file, value in version.settings.items():
            if group.path(file).exists():  # memory.memsw and memory.swap need swap accounting
                group.path(file).write_text(value.format(**values), "ascii")
        yield group
    finally:
        for folder in made:
            folder.rmdir()
