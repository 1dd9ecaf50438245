"""Lines to words and back, without I/O. Words are percent-encoded: they can be any bytes."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

MAX_LINE: Final = 65536
"""Maximum bytes of a line."""


class LineParser:
    """Splits a stream of bytes into lines of words; a line that is too long has no words."""

    def __init__(self) -> None:
        self.reset()

    @property
    def pending(self) -> int:
        return len(self._rest)

    def set_limit(self, max_bytes: int) -> None:
        """Keep `MAX_LINE`."""

    def reset(self) -> None:
        self._rest = b""

    def release(self) -> None:
        """Free nothing."""

    release_if_idle = close = release

    def feed(self, data: bytes | memoryview) -> list[list[bytes]]:
        """Return the words of each line that ends in this part of the stream."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [decode(line) for line in lines]
        return [*found, []] if len(self._rest) > MAX_LINE else found


def decode(line: bytes) -> list[bytes]:
    """Return the words of a line."""
    return [unquote_to_bytes(word) for word in line.split(b" ")]


def encode(*words: str | bytes | int) -> bytes:
    """Return the line of these words."""
    texts = (word if isinstance(word, bytes) else str(word).encode() for word in words)
    return " ".join(quote_from_bytes(text) for text in texts).encode() + b"\n"
