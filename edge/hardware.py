"""What the gateway runs on, as the kernel tells it: the board's serial number, the card's id.

Each may be unknown: a machine may have neither, or may keep them from who asks. What follows from a
change is `rules.lineage`'s. Source: Linux, Documentation/ABI/testing/sysfs-firmware-ofw and
sysfs-class-block, Documentation/driver-api/mmc/mmc-dev-attrs.rst.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from edge.rules.lineage import Hardware

LONGEST: Final = 128
"""Characters of a serial number: a card's id has 32, a UUID 36."""

_BOARD: Final = ("sys/firmware/devicetree/base/serial-number", "sys/class/dmi/id/product_uuid")
_BLOCK: Final = "sys/dev/block"


def read(folder: Path, root: Path = Path("/")) -> Hardware:
    """Return the board, and the card that holds `folder`.

    `root` is where `sys` is mounted: another one in tests. It blocks, for less than a millisecond.
    """
    board = next((found for name in _BOARD if (found := _text(root / name)) is not None), None)
    return Hardware(board, _card(folder, root))


def _card(folder: Path, root: Path) -> str | None:
    """Return the id of the card (SD or eMMC) that the file system of `folder` lies on."""
    device = folder.stat().st_dev
    place = (root / _BLOCK / f"{os.major(device)}:{os.minor(device)}").resolve()
    disk = place.parent if (place / "partition").exists() else place
    return _text(disk / "device" / "cid")


def _text(path: Path) -> str | None:
    """Read a short text; `None` where there is none, or one that many machines have."""
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST).decode("ascii", "replace").strip("\0 \n")
    except OSError:
        return None
    told = set(text.replace("-", "").lower())
    return text if len(told) > 1 else None  # a board may say 0000-0000 for "not set"
