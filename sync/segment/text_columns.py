"""Columns of strings: a dictionary and the index of each row into it, or the strings themselves.

The strings of a column stand in one text. Where all are equally long they stand interleaved, first
characters first: times and counters, alike but for their last digits, then all but vanish in zlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from sync.segment.absent import fields, presence, split, spread
from sync.segment.errors import SegmentError
from sync.segment.typed_arrays import UNSIGNED, pack_array, pack_integers, smallest, unpack_array

_KEYS: Final = ("text", "width", "lengths", "index")


def pack_texts(rows: Sequence[str | None]) -> dict[str, Any] | None:
    """Write a column of strings; None if no row has one."""
    column, values = split(rows)
    return {**column, **pack_strings(values)} if values else None


def pack_strings(values: Sequence[str]) -> dict[str, Any]:
    """Write one or more strings: of a column, those of the rows that have one."""
    entries = list(dict.fromkeys(values))
    if len(entries) == 1:
        return {"text": entries[0]}
    if 2 * len(entries) > len(values):  # a dictionary saves nothing: zlib finds the few repeats
        return _joined(values)
    places = {entry: place for place, entry in enumerate(entries)}
    index = list(map(places.__getitem__, values))
    return {**_joined(entries), "index": pack_array(smallest((0, len(entries) - 1)), index)}


def _joined(entries: Sequence[str]) -> dict[str, Any]:
    """Write two or more strings as one text."""
    lengths = list(map(len, entries))
    text = "".join(entries)
    width = lengths[0]
    if width and lengths.count(width) == len(lengths):
        return {"text": "".join(text[place::width] for place in range(width)), "width": width}
    return {"text": text, "lengths": pack_integers(lengths)}


def unpack_texts(item: Any, rows: int) -> list[str | None]:
    """Read a column of `rows` rows.

    Raises `SegmentError` with the reason `column`.
    """
    column = fields(item, _KEYS)
    present = presence(column, rows)
    count = present.count("1")
    entries = read_entries(column, count)
    if "index" in column:
        index = unpack_array(column["index"], UNSIGNED, count)
        if max(index, default=0) >= len(entries):
            raise SegmentError("column", "an index beyond the dictionary")
        values = [entries[place] for place in index]
    else:
        values = entries * count if len(entries) == 1 else entries
    if len(values) != count:
        raise SegmentError("column", "not a string for each row")
    return spread(values, present)


def read_entries(column: dict[str, Any], most: int) -> list[str]:
    """Cut the text of a column into its strings, of which there are `most` at most.

    Raises `SegmentError` with the reason `column`.
    """
    text = column.get("text")
    if not isinstance(text, str):
        raise SegmentError("column", "no text")
    if "width" in column:
        return _interleaved(text, column["width"], most)
    if "lengths" not in column:
        return [text]
    lengths = unpack_array(column["lengths"], UNSIGNED, 0, most)
    if sum(lengths) != len(text):
        raise SegmentError("column", "the strings' lengths are not the text's")
    return [
        text[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)
    ]


def _interleaved(text: str, width: Any, most: int) -> list[str]:
    """Take apart a text of strings that are `width` characters long each."""
    if type(width) is not int or width < 1 or len(text) % width or len(text) // width > most:
        raise SegmentError("column", "the strings' width does not divide the text")
    count = len(text) // width
    return [text[place::count] for place in range(count)]
