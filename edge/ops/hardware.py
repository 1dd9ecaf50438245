"""What the gateway runs on, as the kernel tells it: the board, the card, the clock, the warmth.

Each may be unknown: a machine may not have it, or may keep it from who asks. What follows from a
change of board or card is `rules.lineage`'s. Source: Linux, Documentation/ABI/testing:
sysfs-firmware-ofw, sysfs-class-block, sysfs-class-thermal; Documentation/hwmon/sysfs-interface.rst
and raspberrypi-hwmon.rst; Documentation/driver-api/mmc/mmc-dev-attrs.rst; adjtimex(2).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from edge.features.eventlog.rules.epoch import Hardware

LONGEST: Final = 128
"""Characters of a serial number: a card's id has 32, a UUID 36."""

_BOARD: Final = ("sys/firmware/devicetree/base/serial-number", "sys/class/dmi/id/product_uuid")
_BLOCK: Final = "sys/dev/block"
_SECTOR: Final = 512

_TIMEX_BYTES: Final = 256
"""More than `struct timex` has on any Linux; all zero, it asks and changes nothing."""

_TIME_ERROR: Final = 5


class Disk(NamedTuple):
    """What a folder lies on: the name of the device, its bytes, and what it says itself of its wear
    (eMMC): the upper end of the tenth of its life that is used, in percent."""

    name: str
    bytes: int
    worn: int | None = None


def read(folder: Path, root: Path = Path("/")) -> Hardware:
    """Return the board, and the card that holds `folder`.

    `root` is where `sys` is mounted: another one in tests. It blocks, for less than a millisecond.
    """
    board = next((found for name in _BOARD if (found := _text(root / name)) is not None), None)
    return Hardware(board, _card(folder, root))


def _card(folder: Path, root: Path) -> str | None:
    """Return the id of the card (SD or eMMC) that the file system of `folder` lies on."""
    return _text(_device(folder, root) / "device" / "cid")


def _device(folder: Path, root: Path) -> Path:
    """Return where the kernel tells of the disk that the file system of `folder` lies on."""
    device = folder.stat().st_dev
    place = (root / _BLOCK / f"{os.major(device)}:{os.minor(device)}").resolve()
    return place.parent if (place / "partition").exists() else place


def disk(folder: Path, root: Path = Path("/")) -> Disk:
    """Return the disk that holds `folder`; its file system, where the disk is not known."""
    place = _device(folder, root)
    sectors = _number(place / "size")
    if sectors is None:
        system = os.statvfs(folder)
        return Disk("its file system", system.f_blocks * system.f_frsize)
    told = (_text(place / "device" / "life_time") or "").split()
    tenths = [int(each, 16) for each in told if each.startswith("0x")]
    worn = max(tenths, default=0) * 10  # 0: not told
    return Disk(place.name, sectors * _SECTOR, worn or None)


def temperature(root: Path = Path("/")) -> float | None:
    """Return what the warmest of the machine's thermometers shows, in degrees Celsius."""
    zones = (root / "sys/class/thermal").glob("thermal_zone*/temp")
    found = [value for zone in zones if (value := _number(zone)) is not None]
    return max(found) / 1000 if found else None


def undervoltage(root: Path = Path("/")) -> bool | None:
    """Tell whether the board has had too little voltage since it was asked last; `None` where no
    board says so. A Raspberry Pi tells."""
    for place in (root / "sys/class/hwmon").glob("hwmon*"):
        if _text(place / "name") == "rpi_volt":
            return bool(_number(place / "in0_lcrit_alarm"))
    return None


def clock_synchronised() -> bool:
    """Tell whether the kernel holds the wall clock for synchronised: time daemons tell it."""
    adjtimex = _adjtimex()
    return adjtimex is not None and adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)) in range(
        _TIME_ERROR
    )


@cache
def _adjtimex() -> Callable[[ctypes.Array[ctypes.c_char]], int] | None:
    return getattr(ctypes.CDLL(None), "adjtimex", None)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str | None:
    """Read a short text; `None` where there is none, or one that many machines have."""
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST).decode("ascii", "replace").strip("\0 \n")
    except OSError:
        return None
    told = set(text.replace("-", "").lower())
    return text if len(told) > 1 else None  # a board may say 0000-0000 for "not set"
