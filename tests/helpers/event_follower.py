"""A process of `fieldpost events --follow`."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

WAIT_S: Final = 30.0


class Follower:
    """A process that follows the log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next(self, timeout: float = WAIT_S) -> dict[str, Any] | None:
        """Return the next event, or None if there is none in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        event: dict[str, Any] = json.loads(self.process.stdout.readline())
        return event

    def next_name(self) -> str:
        event = self.next()
        assert event is not None
        return str(event["name"])


@contextmanager
def following(folder: Path, *words: str) -> Iterator[Follower]:
    command = [sys.executable, "-m", "edge", "events", "--follow", "--json", "--dir", str(folder)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in background it is ignored
    with subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        signal.signal(signal.SIGINT, before)
        try:
            yield Follower(process)
        finally:
            process.kill()
