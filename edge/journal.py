"""The journal of the running gateway: lines on standard error.

Each event of the gateway's own that has at least the chosen level is written as a line after its
commit; so are warnings, faults and the reason of a failed start or stop. Under systemd, each line
begins with its priority (sd-daemon(3)) instead of its time and level. A line that cannot be written
at once is counted and dropped, because writing must not block the event loop.
"""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, Final, TextIO

import msgspec

from edge.engine.store.events import NewEvent
from edge.features.eventlog.rules.levels import INFORMATIONAL, LEVELS, RANKS
from sync.common.text import plural, printable, utc_time

DEFAULT_LEVEL: Final = "warning"
LEVEL_NAMES: Final = tuple(level.lower() for level in LEVELS)
FORMATS: Final = ("text", "json")

MAX_TEXT: Final = 500
"""Maximum characters of an event's line in the format `text`, and of each string of an event in the
format `json`. A line then fits into 4 KiB, which any writable pipe has room for."""

_to_json: Final = msgspec.json.Encoder().encode


class Journal:
    """The writer of the journal.

    Args:
        level: the lowest level of events and warnings that are written, in upper or lower case.
        form: `text`, or `json` for one object per line.
        stream: the stream to write to; standard error by default.
    """

    def __init__(
        self, level: str = DEFAULT_LEVEL, form: str = "text", stream: TextIO | None = None
    ) -> None:
        self._rank = RANKS[level.title()]
        self._is_json = form == "json"
        self._stream = sys.stderr if stream is None else stream
        self._has_priorities = _is_journal(self._stream)
        self._dropped = 0

    def log_events(self, found: Iterable[NewEvent]) -> None:
        """Write the events that have at least the chosen level."""
        for event in found:
            level = event.level or INFORMATIONAL
            if RANKS[level] < self._rank:
                continue
            if self._is_json:
                self._write_object(level, _fields(event))
            else:
                self._write_text(level, _clip(_text(event)))

    def warn(self, text: str) -> None:
        """Write a warning that is not an event."""
        if RANKS["Warning"] >= self._rank:
            self._write_plain("Warning", _clip(text))

    def fail(self, text: str) -> None:
        """Write why the gateway ends, whatever the chosen level; `text` must be safe to print."""
        if self._is_json or self._has_priorities:
            self._write_plain("Error", text)
        else:
            self._write("Error", f"Error: {text}")

    def log_fault(self, context: dict[str, Any]) -> None:
        """Write an unexpected exception with its traceback.

        `context` is what the event loop passes to its exception handler.
        """
        text, error = str(context.get("message", "")), context.get("exception")
        trace = "" if error is None else "".join(traceback.format_exception(error))
        if self._is_json:
            self._write_object("Error", {"text": text, "trace": trace})
            return
        self._write_text("Error", text)
        for line in trace.splitlines():
            self._write("Error", printable(line))

    def _write_plain(self, level: str, text: str) -> None:
        if self._is_json:
            self._write_object(level, {"text": text})
        else:
            self._write_text(level, text)

    def _write_object(self, level: str, fields: dict[str, object]) -> None:
        fields = {"time": _now(), "level": level, **fields}
        self._write(level, _to_json(fields).decode())

    def _write_text(self, level: str, text: str) -> None:
        stamp = "" if self._has_priorities else f"{_now()} {level}: "
        self._write(level, stamp + printable(text))

    def _write(self, level: str, line: str) -> None:
        try:
            if not _is_writable(self._stream):
                self._dropped += 1
                return
            if self._dropped:
                count, self._dropped = self._dropped, 0
                self._write_plain(
                    "Warning",
                    f"{plural(count, 'line')} could not be written: standard error was full",
                )
            prefix = f"<{_priority(level)}>" if self._has_priorities else ""
            self._stream.write(f"{prefix}{line}\n")
            self._stream.flush()
        except (OSError, ValueError):  # closed, or its terminal is gone
            pass


def _now() -> str:
    return utc_time(round(time.time() * 1000))


def _priority(level: str) -> int:
    """Return the priority of syslog for a level: 0 for Emergency, 7 for Debug."""
    return len(LEVELS) - 1 - RANKS[level]


def _is_journal(stream: TextIO) -> bool:
    """Return whether systemd has connected a stream to its journal (systemd.exec(5))."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def _is_writable(stream: TextIO) -> bool:
    """Return whether a short line can be written without waiting."""
    try:
        descriptor = stream.fileno()
    except OSError:  # in memory
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def _clip(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def _fields(event: NewEvent) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in event._asdict().items():
        if value is None or name == "level":
            continue
        found[name] = _clip(value) if isinstance(value, str) else value
    if event.tags is not None:
        found["tags"] = {name: _clip(value) for name, value in event.tags.items()}
    return found


def _text(event: NewEvent) -> str:
    head = f"{event.kind} {event.name or ''}".rstrip()
    if event.text:
        head += f": {event.text}"
    details = ", ".join(f"{name}={value}" for name, value in _details(event))
    return f"{head} ({details})" if details else head


def _details(event: NewEvent) -> Iterator[tuple[str, str]]:
    if event.source:
        yield "source", event.source
    if event.topic:
        yield "topic", event.topic
    if event.value is not None:
        yield "value", f"{event.value:g} {event.unit or ''}".rstrip()
    yield from (event.tags or {}).items()
