"""The machine: its disk, clock, warmth, voltage and card, and how the service starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from edge.config.load import Config
from edge.engine import flash_endurance
from edge.engine.flash_wear import DailyWear
from edge.engine.space_rules import WAL_SHARE
from edge.ops import hardware
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.hardware import Disk
from sync.common.text import size

HOT: Final = 80.0
"""Degrees Celsius from which on a Raspberry Pi makes itself slow, at 85 very much so."""

SOON: Final = 3.0
"""Years: a card that lasts for less than that is to be replaced within a gateway's life."""

NOW: Final = 0.5
"""Years: less is a fault, or the wrong card."""

WORN: Final = 80
"""Percent of its life at which an eMMC is to be replaced, as it says itself."""

UNIT: Final = "fieldpost.service"

_UNITS: Final = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


def disk(folder: Path, settings: Config, taken: int) -> Iterator[Finding]:
    """Look whether the disk has room for what the database may grow to; it takes `taken` bytes."""
    limits, system = settings.limits, os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    text = f"{size(free)} are free, and the database takes {size(taken)}"
    text += f" of {size(limits.database_bytes)}"
    if system.f_flag & os.ST_RDONLY:
        remedy = "look at the kernel's log (`dmesg`): a card that fails is made so"
        yield Finding("disk", WRONG, "the file system is read-only", remedy)
    elif free < limits.database_reserve + WAL_SHARE:
        yield Finding("disk", WRONG, f"{text}: new messages are refused", "make room on the disk")
    elif free < limits.database_bytes - taken:
        remedy = "make room, or set limits.database_bytes to what there is"
        yield Finding("disk", NOTICE, f"{text}, for which there is no room", remedy)
    else:
        yield Finding("disk", OK, text)


def clock() -> Iterator[Finding]:
    """Look whether the kernel holds the wall clock for synchronised."""
    if hardware.clock_synchronised():
        yield Finding("clock", OK, "the clock is synchronised")
    else:
        text = "the clock is not synchronised: what the log has is dated by guess"
        yield Finding("clock", NOTICE, text, "look at the time daemon and its server")


def warmth(root: Path = Path("/")) -> Iterator[Finding]:
    """Look at thermometers and voltage, where the kernel tells; `root` is where `sys` is."""
    degrees, low = hardware.temperature(root), hardware.undervoltage(root)
    if degrees is not None and degrees >= HOT:
        text = f"the board has {degrees:.0f} °C, and is slow from {HOT:.0f} °C on"
        yield Finding("temperature", NOTICE, text, "give it air, shade or a heat sink")
    elif degrees is not None:
        yield Finding("temperature", OK, f"the board has {degrees:.0f} °C")
    if low:
        text = "the board has had too little voltage: cards are damaged by that"
        yield Finding("voltage", WRONG, text, "take the maker's power supply, and a short cable")
    elif low is not None:
        yield Finding("voltage", OK, "the board has enough voltage")


def service(root: Path = Path("/")) -> Iterator[Finding]:
    """Look whether systemd starts the gateway again, where there is systemd."""
    if not (root / "run/systemd/system").is_dir():
        return
    if not any((root / place / UNIT).exists() for place in _UNITS):
        text = f"systemd has no {UNIT}: nobody starts the gateway again"
        yield Finding("service", NOTICE, text, "deploy/raspberrypi/install.sh installs it")
        return
    if not (root / _UNITS[0] / "multi-user.target.wants" / UNIT).is_symlink():
        text = f"{UNIT} is not enabled: after a power cut it stays off"
        yield Finding("service", WRONG, text, "`sudo systemctl enable fieldpost`")
    else:
        yield Finding("service", OK, f"{UNIT} is enabled")
    try:
        controllers = (root / "sys/fs/cgroup/cgroup.controllers").read_text("ascii").split()
    except OSError:
        return
    if "memory" not in controllers:
        text = "the kernel's memory controller is off: the unit's MemoryMax has no effect"
        remedy = "append cgroup_enable=memory to /boot/firmware/cmdline.txt, and reboot"
        yield Finding("service", NOTICE, text, remedy)


def wear(folder: Path, settings: Config, days: Sequence[DailyWear]) -> Iterator[Finding]:
    """Estimate for how long the card lasts; `days` are the last that were counted."""
    found = hardware.disk(folder)
    if found.worn is not None:
        text = f"{found.name} says itself that up to {found.worn} % of its life are used"
        verdict = WRONG if found.worn >= WORN else OK
        yield Finding("wear", verdict, text, "replace it soon" if verdict == WRONG else "")
    per_day = flash_endurance.bytes_per_day(
        sum(day.written for day in days), sum(day.seconds for day in days)
    )
    if per_day is None:
        yield Finding("wear", OK, "the gateway has not run for long enough to tell what it writes")
        return
    yield _life(settings, found, per_day)


def _life(settings: Config, disk: Disk, per_day: float) -> Finding:
    rated = settings.flash.endurance_bytes
    total = flash_endurance.endurance(rated, disk.bytes)
    years = flash_endurance.lifetime_years(total, per_day)
    basis = (
        "as flash.endurance_bytes says"
        if rated
        else f"{flash_endurance.DEFAULT_WRITE_CYCLES} times its size is assumed"
    )
    text = f"the gateway writes {size(per_day)} a day to {disk.name} ({size(disk.bytes)})"
    if years is None:
        return Finding("wear", OK, text)
    text += f"; at {size(total)} ({basis}), a new card lasts about {years:.1f} years; an estimate:"
    text += " nobody knows what the controller writes beyond, and others may write too"
    if years >= SOON:
        return Finding("wear", OK, text)
    remedy = "take a card of high endurance, or let commits wait: flash.bytes_per_day, commit_wait"
    return Finding("wear", NOTICE if years >= NOW else WRONG, text, remedy)
