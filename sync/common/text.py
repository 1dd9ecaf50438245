"""How the way to the centre and the centre itself write for people, wherever it is shown.

`edge.text` does the same at the gateway; the two do not import each other. What is written on the
report's pages alone is in `sync.pages.text`. Decides nothing, prints nothing.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[\\nrt])?")
"""What `printable` and `spelled` write for a character; or a backslash that neither writes."""


def printable(text: str, encoding: str = "utf-8") -> str:
    """Escape what is not printable, so that no stranger can forge a line or steer a terminal.

    What `encoding` does not have is escaped as well.
    """
    escaped = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def spelled(name: str) -> str:
    """Double the backslashes of a name: what `printable` makes of that is of no other name."""
    return name.replace("\\", "\\\\")


def read_back(shown: str) -> str:
    """Give the name that was `spelled` and made `printable`, in whatever encoding.

    Raises ValueError where that is nothing they write.
    """
    return _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), shown)


def noun(number: int, one: str, many: str | None = None) -> str:
    """Give the noun as it is behind that number."""
    return one if number == 1 else many or one + "s"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun."""
    return f"{number} {noun(number, one, many)}"


def fault(error: OSError) -> str:
    """Tell what the system says of a file, without the number of the error."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
