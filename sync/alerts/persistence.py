"""What the alerts keep between two runs, below the tables: what was seen, and what was told.

Each is one file that is replaced as a whole. What was seen is saved first: whoever dies between the
two judges again by the same state. One process works at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from sync.alerts.incidents import Alert, Incident
from sync.alerts.state import FleetState
from sync.common.durable_files import PRIVATE_FILE, make_folders, replace_file
from sync.common.errors import FleetError

VERSION: Final = 1
"""Version of both files: what was seen by another one is learnt anew."""

FOLDER: Final = "alerts"
"""Where the files are, below the tables' folder."""

MAX_WEBHOOK_QUEUE: Final = 1_000
"""Messages that wait for the webhook; beyond, the oldest go, and are counted."""

MAX_OUTPUT_QUEUE: Final = 10_000
"""Messages that wait to be written: in one look there may be one of each gateway and more."""


class _Seen(msgspec.Struct):
    version: int
    seen: FleetState


class AlertJournal(msgspec.Struct):
    """What was told: the stretches that are on or were lately, and what is still to be told.

    `lines` is for the output and `posts` for the webhook, the oldest first; `dropped` counts what
    went untold, for want of room.
    """

    version: int = VERSION
    stretches: list[Incident] = []
    lines: list[Alert] = []
    posts: list[Alert] = []
    dropped: int = 0

    def queue(self, messages: list[Alert], *, posts: bool) -> int:
        """Put messages where they wait to be told; gives how many went for want of room."""
        dropped = _push(self.lines, messages, MAX_OUTPUT_QUEUE)
        if posts:
            dropped += _push(self.posts, messages, MAX_WEBHOOK_QUEUE)
        self.dropped += dropped
        return dropped


def _push(queue: list[Alert], messages: list[Alert], most: int) -> int:
    queue += messages
    beyond = max(0, len(queue) - most)
    del queue[:beyond]
    return beyond


class StateStore:
    """The two files in `tables/alerts`. Raises OSError when the disk refuses."""

    def __init__(self, tables: Path) -> None:
        make_folders(tables, tables / FOLDER)
        self._seen = tables / FOLDER / "seen.json"
        self._told = tables / FOLDER / "told.json"
        self._lock = tables / FOLDER / "lock"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be the one who watches this fleet. Raises FleetError when another process does."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            msg = f"another process tells the alerts of {self._lock.parents[2]} already"
            raise FleetError(msg) from None
        try:
            yield
        finally:
            os.close(descriptor)

    def seen(self) -> FleetState | None:
        """Read what was seen; None when it has to be learnt anew."""
        try:
            kept = msgspec.json.decode(self._seen.read_bytes(), type=_Seen)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return kept.seen if kept.version == VERSION else None

    def save_seen(self, seen: FleetState) -> None:
        """Replace what was seen, durably."""
        replace_file(self._seen, msgspec.json.encode(_Seen(VERSION, seen)))

    def told(self) -> AlertJournal:
        """Read what was told. Raises FleetError when that cannot be read."""
        try:
            data = self._told.read_bytes()
        except FileNotFoundError:
            return AlertJournal()
        try:
            told = msgspec.json.decode(data, type=AlertJournal)
        except msgspec.DecodeError as error:
            reason = str(error)
        else:
            if told.version == VERSION:
                return told
            reason = f"it is of version {told.version}"
        msg = (
            f"{self._told} cannot be read: {reason}. Without it, what is on is told again, with "
            "the same ids"
        )
        raise FleetError(msg)

    def save_told(self, told: AlertJournal) -> None:
        """Replace what was told, durably."""
        replace_file(self._told, msgspec.json.encode(told))
