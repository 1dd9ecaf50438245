"""The exception for segments that cannot be decoded. Encoding raises `ValueError` instead."""

from __future__ import annotations

from typing import Final, Literal, get_args

Reason = Literal[
    "short",
    "magic",
    "version",
    "size",
    "checksum",
    "header",
    "identity",
    "count",
    "inflate",
    "body",
    "column",
]

REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
"""All reasons of a `SegmentError`, explained in `docs/reference/segment-format.md`."""


class SegmentError(Exception):
    """The bytes are not a complete, valid segment of a supported version.

    `reason` is one of `REASONS`, for programs; `text` says what is wrong, for people.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(reason, text)
        self.reason: Reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"
