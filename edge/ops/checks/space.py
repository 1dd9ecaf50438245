"""Check that there is room for new messages: on the disk, in the database and in its WAL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from edge.engine.rules import space_rules
from edge.engine.rules.space_rules import MESSAGE_ROOM, SpaceLimits, SpaceUsage
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from sync.common.text import size


def room(folder: Path, usage: SpaceUsage, limits: SpaceLimits) -> Iterator[Finding]:
    """Check that there is room for new messages, by the rule by which the gateway refuses them."""
    system = os.statvfs(folder)
    over = space_rules.exceeded_limit(MESSAGE_ROOM, usage, limits)
    free, used = size(max(0, usage.disk)), size(usage.live + usage.wal)
    text = f"{free} are free; the database uses {used} of {size(limits.database)}"
    if system.f_flag & os.ST_RDONLY:
        remedy = "see the kernel's log (`dmesg`); a failing card becomes read-only: replace it"
        yield Finding("disk", WRONG, "the file system is read-only", remedy)
    elif over is not None:
        name = "WAL" if over.name == "wal_bytes" else "disk"
        yield Finding(name, WRONG, *space_rules.shortage(usage, limits, over))
    elif usage.free + usage.disk < limits.database - usage.live - usage.wal:
        remedy = "free disk space, or lower limits.database_bytes"
        yield Finding("disk", NOTICE, f"{text}, and the disk has no room for the rest", remedy)
    else:
        yield Finding("disk", OK, text)
    if usage.wal <= limits.wal:
        text = f"the write-ahead log uses {size(usage.wal)} of {size(limits.wal)}"
        yield Finding("WAL", OK, text)
