"""Check the machine: ports, clock, temperature, voltage, card wear, the systemd service, and what
confines the front processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge.config.load import Config, is_loopback, parse_address
from edge.engine.limits.flash_wear import DailyWear
from edge.engine.time import clock as engine_clock
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.gateway.control import FrontStatus
from edge.ops.machine import hardware
from edge.ops.machine.hardware import Disk
from edge.ops.machine.listen_error import find_listen_error
from sync.common.text import size

HOT: Final = 80.0
"""Degrees Celsius from which a Raspberry Pi throttles its processor."""

SHORT_LIFE_YEARS: Final = 3.0
"""Estimated life of a card, in years, below which the verdict is `notice`."""

WRONG_CARD_YEARS: Final = 0.5
"""Estimated life of a card, in years, below which the verdict is `wrong`: the gateway writes too
much for this card."""

WORN_PERCENT: Final = 80
"""Used percentage of an eMMC's rated life from which it should be replaced."""

DEFAULT_WRITE_CYCLES: Final = 500
"""Number of times that a card can be written in full, assumed if `flash.endurance_bytes` is not
set. Cards for cameras, with three bits per cell, are rated at 500 to 1,000 times and more; cards
without a rating are worse."""

MIN_MEASURED_SECONDS: Final = 3_600.0
"""Minimum seconds of operation from which the card's life is estimated. A shorter time misleads,
because a start of the gateway writes more than the hour after it."""

_DAY: Final = 86_400.0
_YEAR: Final = 365.0
"""Days in a year."""

UNIT: Final = "fieldpost.service"

_UNIT_FOLDERS: Final = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


def ports(settings: Config) -> Iterator[Finding]:
    """Report configured addresses on which a stopped gateway could not listen if it started now."""
    web = [parse_address(settings.web.listen)] if settings.web.listen else []
    for section, option, addresses in (*settings.listeners, ("web", "listen", web)):
        for address in addresses:
            error = find_listen_error(section, option, address)
            if error is not None:
                remedy = f"stop the other process, which `ss -ltnp 'sport = :{address.port}'` lists"
                yield Finding("gateway", WRONG, str(error), remedy)


def anonymous(settings: Config) -> Iterator[Finding]:
    """Report that other machines can act as an account without a password."""
    name = settings.mqtt.anonymous
    reached = [
        str(address)
        for section, _option, addresses in settings.listeners
        for address in addresses
        if section == "mqtt" and not is_loopback(address.host)
    ]
    if name and reached:
        text = f"clients without a user name act as {name} at {', '.join(reached)}"
        remedy = "give each device an account (`fieldpost device add`), and clear mqtt.anonymous"
        yield Finding("mqtt", NOTICE, text, remedy)


def clock() -> Iterator[Finding]:
    """Check that the wall clock is synchronised."""
    if engine_clock.is_clock_synchronised():
        yield Finding("clock", OK, "the clock is synchronised")
    else:
        text = "the clock is not synchronised: event timestamps may be wrong"
        yield Finding(
            "clock", NOTICE, text, "check the time service (`timedatectl`) and its server"
        )


def climate(root: Path = Path("/")) -> Iterator[Finding]:
    """Check temperature and voltage if the kernel reports them.

    `root` is the folder that contains `sys`.
    """
    degrees, low = hardware.temperature(root), hardware.undervoltage(root)
    if degrees is not None and degrees >= HOT:
        text = f"the board is at {degrees:.0f} °C; from {HOT:.0f} °C it slows down"
        yield Finding("temperature", NOTICE, text, "give it ventilation, shade or a heat sink")
    elif degrees is not None:
        yield Finding("temperature", OK, f"the board is at {degrees:.0f} °C")
    if low:
        text = "the voltage of the board was too low; that damages cards"
        yield Finding("voltage", WRONG, text, "use the maker's power supply and a short cable")
    elif low is not None:
        yield Finding("voltage", OK, "the voltage of the board is sufficient")


def service(root: Path = Path("/")) -> Iterator[Finding]:
    """Check that systemd starts the gateway at boot, if the machine has systemd.

    `root` is the root of the file system.
    """
    if not (root / "run/systemd/system").is_dir():
        return
    if not any((root / folder / UNIT).exists() for folder in _UNIT_FOLDERS):
        text = f"systemd has no {UNIT}: the gateway does not start at boot"
        yield Finding("service", NOTICE, text, "install the Debian package (deploy/raspberrypi)")
        return
    if not (root / _UNIT_FOLDERS[0] / "multi-user.target.wants" / UNIT).is_symlink():
        text = f"{UNIT} is not enabled: the gateway does not start after a power cut"
        yield Finding("service", WRONG, text, "`sudo systemctl enable fieldpost`")
    else:
        yield Finding("service", OK, f"{UNIT} is enabled")
    if not _has_watchdog(root):
        text = f"{UNIT} has no watchdog: a gateway that hangs is not started again"
        yield Finding("service", NOTICE, text, "install the Debian package (deploy/raspberrypi)")
    try:
        controllers = (root / "sys/fs/cgroup/cgroup.controllers").read_text("ascii").split()
    except OSError:
        return
    if "memory" not in controllers:
        text = "the kernel's memory controller is off: MemoryMax of the service has no effect"
        remedy = "append cgroup_enable=memory to /boot/firmware/cmdline.txt and reboot"
        yield Finding("service", NOTICE, text, remedy)


def confinement(fronts: Sequence[FrontStatus], root: Path = Path("/")) -> Iterator[Finding]:
    """Report running front processes that the kernel could confine, and does not.

    `root` is the folder that contains `sys`.
    """
    free = [str(front.number) for front in fronts if front.pid is not None and not front.confined]
    try:
        modules = (root / "sys/kernel/security/lsm").read_text("ascii").strip().split(",")
    except OSError:
        return
    if free and "landlock" in modules:
        text = f"front processes are not confined by Landlock: {', '.join(free)}"
        remedy = "allow the service the system calls landlock_* (`systemctl cat fieldpost`)"
        yield Finding("fronts", NOTICE, text, remedy)


def _has_watchdog(root: Path) -> bool:
    """Return whether the service has a watchdog; the last drop-in file with the option decides."""
    folders = [root / folder for folder in _UNIT_FOLDERS]
    unit = next(path for folder in folders if (path := folder / UNIT).exists())
    drop_ins = [path for folder in folders for path in folder.glob(f"{UNIT}.d/*.conf")]
    value = "0"
    for path in (unit, *sorted(drop_ins, key=lambda path: path.name)):
        with suppress(OSError):  # a drop-in file may be for root alone
            for line in path.read_text("utf-8", errors="replace").splitlines():
                name, _, setting = line.partition("=")
                value = setting.strip() if name.strip() == "WatchdogSec" else value
    return value not in ("", "0", "infinity")


def wear(folder: Path, settings: Config, days: Sequence[DailyWear]) -> Iterator[Finding]:
    """Estimate the life of the card from the bytes that were written on each of `days`.

    A card wears out by the bytes that its controller writes: those that the host writes, times an
    unknown factor. Manufacturers rate the bytes that the host may write.
    """
    disk = hardware.disk(folder)
    if disk.worn is not None:
        text = f"{disk.name} reports that up to {disk.worn} % of its life is used"
        verdict = WRONG if disk.worn >= WORN_PERCENT else OK
        yield Finding("wear", verdict, text, "replace it soon" if verdict == WRONG else "")
    seconds = sum(day.seconds for day in days)
    if seconds < MIN_MEASURED_SECONDS:
        text = "the gateway has not run long enough to estimate the life of the card"
        yield Finding("wear", OK, text)
        return
    per_day = sum(day.written for day in days) / seconds * _DAY
    yield _expected_life(settings, disk, per_day)


def _expected_life(settings: Config, disk: Disk, per_day: float) -> Finding:
    rated = settings.flash.endurance_bytes
    endurance = rated or DEFAULT_WRITE_CYCLES * disk.bytes
    basis = (
        "flash.endurance_bytes"
        if rated
        else f"assumed: {DEFAULT_WRITE_CYCLES} times the size of the card"
    )
    text = f"the gateway writes {size(per_day)} per day to {disk.name} ({size(disk.bytes)})"
    if not per_day:
        return Finding("wear", OK, text)
    years = endurance / per_day / _YEAR
    text += (
        f"; with an endurance of {size(endurance)} ({basis}) a new card lasts about {years:.1f}"
        " years. This is an estimate: it leaves out other programs and the card's own overhead"
    )
    if years >= SHORT_LIFE_YEARS:
        return Finding("wear", OK, text)
    remedy = (
        "use a high-endurance card, or batch commits with flash.bytes_per_day and flash.commit_wait"
    )
    return Finding("wear", NOTICE if years >= WRONG_CARD_YEARS else WRONG, text, remedy)
