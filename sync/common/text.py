"""Format counts, durations, sizes, tables and system errors for people to read."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Container, Iterator, Sequence
from typing import Final

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SIZES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")

_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[\\nrt])?")
"""An escape sequence that `printable` or `double_backslashes` writes, or an invalid backslash."""


def printable(text: str, encoding: str = "utf-8") -> str:
    """Escape unprintable characters, so that text cannot forge lines or control a terminal.

    Characters that `encoding` cannot represent are also escaped.
    """
    escaped = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def double_backslashes(name: str) -> str:
    """Double the backslashes of a name, so that `printable` keeps different names different."""
    return name.replace("\\", "\\\\")


def unescape(shown: str) -> str:
    """Return the name from which `double_backslashes` and then `printable` made `shown`.

    Raises ValueError if `shown` has an invalid escape sequence.
    """
    return _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), shown)


def noun(number: int, one: str, many: str | None = None) -> str:
    """Return `one` (the singular) if `number` is 1, else `many` (the plural)."""
    return one if number == 1 else many or one + "s"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun, such as `3 items`."""
    return f"{number} {noun(number, one, many)}"


def listing(names: Sequence[str], most: int) -> str:
    """Format the first `most` names and the number of the others, such as `a, b and 2 more`."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def duration(seconds: float) -> str:
    """Format a duration with its two largest units, such as `2 h 5 min`."""
    left = round(seconds)
    parts = []
    for unit, length in _UNITS:
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def utc_time(milliseconds: int, timespec: str = "seconds") -> str:
    """Format milliseconds since 1970 UTC as RFC 3339; `timespec` as for `datetime.isoformat`."""
    moment = _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def size(count: float) -> str:
    """Format a number of bytes, such as `5.0 MiB`."""
    power = min(int(math.log2(max(count, 1)) / 10), len(_SIZES) - 1)
    unit = "byte" if count == 1 else _SIZES[power]
    return f"{count / 1024**power:.{min(power, 1)}f} {unit}"


def os_error(error: OSError) -> str:
    """Format an OSError as `file: reason`, without its error number."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


def columns(rows: Sequence[tuple[str, ...]], right: Container[int] = ()) -> Iterator[str]:
    """Format rows as aligned columns; a column whose index is in `right` is right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
