"""Resource usage of a process, read from /proc: processor time by thread, and resident memory."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MIB = 1024 * 1024


def raise_descriptors() -> None:
    """Raise this process's limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Processor(NamedTuple):
    """Processor seconds of the main thread, which runs the event loop, and of all other threads."""

    main: float
    others: float

    def since(self, before: Processor) -> Processor:
        """Return the difference from `before`."""
        return Processor(self.main - before.main, self.others - before.others)


class Memory(NamedTuple):
    """Resident bytes, and the proportional share of them where pages are shared."""

    rss: int
    pss: int


def processor(pid: int) -> Processor:
    """Return the processor time of a process's threads, which the kernel counts in nanoseconds."""
    main = others = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        used = int((task / "schedstat").read_text("ascii").split()[0])
        if task.name == str(pid):
            main += used
        else:
            others += used
    return Processor(main / 1e9, others / 1e9)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started from its main thread."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def peer_ports(pid: int) -> list[int]:
    """Return the ports of the peers of a process's connections over IPv4."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            own.add(str(each.readlink()))
    rows = map(str.split, Path(f"/proc/{pid}/net/tcp").read_text("ascii").splitlines()[1:])
    return [int(row[2].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in own]


def written(pid: int) -> int:
    """Return the bytes that a process has had written to disks: whole pages, once each time that
    they were changed after the last write."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("write_bytes:"))
    return int(size)


def peak(pid: int) -> int:
    """Return the peak of a process's resident bytes."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(size) * 1024


def resident(pid: int) -> int:
    """Return the resident bytes of a process and of those that it has started."""
    return sum(memory(each).rss for each in (pid, *children(pid)))


def memory(pid: int) -> Memory:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    sizes = {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
    return Memory(*(int(sizes[name][0]) * 1024 for name in ("Rss", "Pss")))
