"""A wall clock that a test sets while processes run on it.

libfaketime replaces the wall clock of a process, and reads it from a file at each call; the uptime
of the machine and file times stay. https://github.com/wolfcw/libfaketime
"""

from __future__ import annotations

from pathlib import Path

_LIBRARIES = "usr/lib/*/faketime/libfaketimeMT.so.1"
_SHARED = Path("/dev/shm")  # noqa: S108


def library() -> Path | None:
    """Return the library (Debian's package `libfaketime`), if it is installed."""
    return next(Path("/").glob(_LIBRARIES), None)


def remove_leftovers() -> None:
    """Remove the shared memory and semaphores of killed processes, which are named by their ids."""
    for path in _SHARED.glob("*faketime_*_*"):
        if not Path(f"/proc/{path.name.rpartition('_')[2]}").exists():
            path.unlink(missing_ok=True)


class SetClock:
    """A wall clock, which the file at `path` sets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    def set(self, years: int) -> None:
        """Set the clock so many years before or after the true time."""
        temporary = self._path.with_suffix(".new")
        temporary.write_text(f"{years:+}y\n")
        temporary.replace(self._path)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process with this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # the wait for Python's interpreter lock would end at once, again and again
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
