"""What reading a segment can go wrong with: one error, told apart by a word.

Our own mistakes in writing one are plain `ValueError`s: nothing here is for them.
"""

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
"""Every word that a `SegmentError` may carry: `docs/reference/segment-format.md` says what each
one means."""


class SegmentError(Exception):
    """The bytes are not a whole, valid segment of a version that is read here.

    `reason` is one of `REASONS`, for programs and tables; `text` says which part and why, for
    people.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(reason, text)
        self.reason: Reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"
