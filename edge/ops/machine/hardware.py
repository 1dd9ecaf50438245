"""Read properties of the machine from the kernel: board, card, temperature, voltage.

Each property may be unknown. Sources: Linux, Documentation/ABI/testing: sysfs-firmware-ofw,
sysfs-class-block, sysfs-class-thermal; Documentation/hwmon/sysfs-interface.rst and
raspberrypi-hwmon.rst; Documentation/driver-api/mmc/mmc-dev-attrs.rst.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from edge.features.eventlog.rules.epoch import Hardware

MAX_TEXT: Final = 128
"""Maximum characters of a serial number: a card's id has 32, a UUID has 36."""

_BOARD: Final = ("sys/firmware/devicetree/base/serial-number", "sys/class/dmi/id/product_uuid")
_BLOCK: Final = "sys/dev/block"
_SECTOR: Final = 512


class Disk(NamedTuple):
    """The disk under a folder: its device name, its size in bytes, and the used part of its life.

    `worn` is in percent, rounded up to tens; only eMMC cards report it.
    """

    name: str
    bytes: int
    worn: int | None = None


def read(folder: Path, root: Path = Path("/")) -> Hardware:
    """Return the ids of the board and of the card that holds `folder`.

    `root` is the folder that contains `sys`. The call blocks for less than a millisecond.
    """
    board = next((found for name in _BOARD if (found := _text(root / name)) is not None), None)
    card = _text(_device(folder, root) / "device" / "cid")
    return Hardware(board, card)


def _device(folder: Path, root: Path) -> Path:
    """Return the sysfs folder of the disk that holds `folder`."""
    device = folder.stat().st_dev
    place = (root / _BLOCK / f"{os.major(device)}:{os.minor(device)}").resolve()
    return place.parent if (place / "partition").exists() else place


def disk(folder: Path, root: Path = Path("/")) -> Disk:
    """Return the disk that holds `folder`; if that is unknown, the size of its file system."""
    place = _device(folder, root)
    sectors = _number(place / "size")
    if sectors is None:
        system = os.statvfs(folder)
        return Disk("the file system", system.f_blocks * system.f_frsize)
    reported = (_text(place / "device" / "life_time") or "").split()
    tenths = [int(each, 16) for each in reported if each.startswith("0x")]
    worn = max(tenths, default=0) * 10  # 0: not reported
    return Disk(place.name, sectors * _SECTOR, worn or None)


def temperature(root: Path = Path("/")) -> float | None:
    """Return the machine's highest temperature in degrees Celsius, or `None` without a sensor."""
    zones = (root / "sys/class/thermal").glob("thermal_zone*/temp")
    found = [value for zone in zones if (value := _number(zone)) is not None]
    return max(found) / 1000 if found else None


def undervoltage(root: Path = Path("/")) -> bool | None:
    """Return whether the voltage was too low since the last call; `None` if unknown.

    Only a Raspberry Pi reports this.
    """
    for place in (root / "sys/class/hwmon").glob("hwmon*"):
        if _text(place / "name") == "rpi_volt":
            return bool(_number(place / "in0_lcrit_alarm"))
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str | None:
    """Read a short text file; return `None` if it is missing or contains a placeholder."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TEXT).decode("ascii", "replace").strip("\0 \n")
    except OSError:
        return None
    characters = set(text.replace("-", "").lower())
    return text if len(characters) > 1 else None  # such as 0000-0000 for "not set"
