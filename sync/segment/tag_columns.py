"""Tags: a column of strings for each key, in the order in which the keys are met.

Keys beyond a bound are written pair by pair: a device that invents keys makes its own segment
large, but costs nobody time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from sync.segment.absent import fields
from sync.segment.errors import SegmentError
from sync.segment.limits import MAX_TAG_COLUMNS, MAX_TAGS
from sync.segment.text_columns import pack_strings, pack_texts, unpack_texts
from sync.segment.typed_arrays import UNSIGNED, pack_integers, pack_places, unpack_array

_KEYS: Final = ("columns", "rows", "keys", "values")


def pack_tags(rows: Sequence[Mapping[str, str]]) -> dict[str, Any] | None:
    """Write the tags of each row; None if no row has any.

    Raises `ValueError` for more than `MAX_TAGS` tags.
    """
    if not any(rows):
        return None
    if sum(map(len, rows)) > MAX_TAGS:
        raise ValueError(f"more than {MAX_TAGS} tags")
    keys = list(dict.fromkeys(chain.from_iterable(rows)))
    first = keys[:MAX_TAG_COLUMNS]
    tagged = [(place, row) for place, row in enumerate(rows) if row]
    columns = {key: _column(tagged, key, len(rows)) for key in first}
    return {"columns": columns, **_rest(rows, frozenset(keys[MAX_TAG_COLUMNS:]))}


def _column(tagged: Sequence[tuple[int, Mapping[str, str]]], key: str, rows: int) -> dict[str, Any]:
    """Write the tag of each of `rows` rows, asking only those that have any."""
    values = [row[key] for _, row in tagged if key in row]
    if len(values) == rows:
        return pack_strings(values)
    places = [place for place, row in tagged if key in row]
    return {"present": pack_places(places, rows), **pack_strings(values)}


def _rest(rows: Sequence[Mapping[str, str]], keys: frozenset[str]) -> dict[str, Any]:
    """Write the tags whose keys have no column: row, key and value of each."""
    if not keys:
        return {}
    pairs = [(place, key, row[key]) for place, row in enumerate(rows) for key in row if key in keys]
    places, names, values = zip(*pairs, strict=True)
    return {"rows": pack_integers(places), "keys": pack_texts(names), "values": pack_texts(values)}


def unpack_tags(item: Any, rows: int) -> list[dict[str, str]]:
    """Read the tags of each of `rows` rows.

    Raises `SegmentError` with the reason `column`.
    """
    tags = fields(item, _KEYS)
    columns = tags.get("columns")
    if not isinstance(columns, dict) or len(columns) > MAX_TAG_COLUMNS or "present" in tags:
        raise SegmentError("column", "not a column for each key")
    found: list[dict[str, str]] = [{} for _ in range(rows)]
    total = 0
    for key, column in columns.items():
        values = unpack_texts(column, rows)
        total += rows - values.count(None)
        if total > MAX_TAGS:
            raise SegmentError("column", f"more than {MAX_TAGS} tags")
        for row, value in zip(found, values, strict=True):
            if value is not None:
                row[key] = value
    if "rows" in tags:
        _add_rest(found, tags, MAX_TAGS - total)
    return found


def _add_rest(found: list[dict[str, str]], tags: dict[str, Any], most: int) -> None:
    """Read the tags whose keys have no column."""
    places = unpack_array(tags["rows"], UNSIGNED, 1, most)
    if max(places) >= len(found):
        raise SegmentError("column", "a tag beyond the last row")
    names = unpack_texts(tags.get("keys"), len(places))
    values = unpack_texts(tags.get("values"), len(places))
    for place, name, value in zip(places, names, values, strict=True):
        if name is None or value is None or name in found[place]:
            raise SegmentError("column", "a tag without key or value, or twice")
        found[place][name] = value
