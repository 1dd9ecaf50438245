"""Progress of a command that takes long: one line on the terminal, replaced at each step."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Final

from sync.common.text import printable

Progress = Callable[[str, int, int], None]
"""Takes a stage in a few words, how many of its parts are done, and the number of all; with 0 parts
in all, only the stage is shown."""

_STDERR: Final = 2
_CLEAR: Final = "\r\x1b[K"


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@contextlib.contextmanager
def progress_line(*, shown: bool = True) -> Iterator[Progress]:
    """Yield a function that shows progress in one line on standard error, cleared at the end.

    Nothing is shown unless standard error is a terminal and `shown` is true. The terminal is still
    used if standard error is redirected within the block.
    """
    if not (shown and os.isatty(_STDERR)):
        yield no_progress
        return
    terminal = os.dup(_STDERR)

    def write(text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone; the work goes on
            os.write(terminal, text.encode())

    def show(stage: str, done: int, total: int) -> None:
        text = f"{stage}: {done} of {total}" if total else stage
        width = shutil.get_terminal_size().columns - 1
        write(_CLEAR + printable(text, "ascii")[:width])

    try:
        yield show
    finally:
        write(_CLEAR)
        os.close(terminal)
