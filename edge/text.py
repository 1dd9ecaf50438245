"""How the gateway writes for people: counts with their nouns, lengths of time, sizes, faults.

And what others wrote, so that it can be shown at all. `sync.common.text` does the same at the
other side of the border between the two, which neither imports across. Decides nothing, prints
nothing.
"""

from __future__ import annotations

import math
from typing import Final

_LENGTHS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def printable(text: str, encoding: str = "utf-8") -> str:
    """Escape what is not printable, so that no stranger can forge a line or steer a terminal.

    What `encoding` does not have is escaped as well.
    """
    escaped = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def plural(number: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Write a length of time in the two largest units that it fills."""
    left = round(seconds)
    parts = []
    for unit, length in _LENGTHS:
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def size(count: float) -> str:
    """Write a number of bytes."""
    power = min(int(math.log2(max(count, 1)) / 10), len(_SIZES) - 1)
    unit = "byte" if count == 1 else _SIZES[power]
    return f"{count / 1024**power:.{min(power, 1)}f} {unit}"


def fault(error: OSError) -> str:
    """Tell what the system says of a file, without the number of the error."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
