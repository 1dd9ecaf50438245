"""Small segments that expand to gigabytes of text are refused before they are expanded."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from cbor2 import CBORTag

from sync.ingest.arrow_columns import MAX_TEXT, arrow_columns
from sync.segment import MAX_EVENTS, Event, SegmentError, encode
from tests.helpers.segments import header

LONG = "é" * (MAX_TEXT // MAX_EVENTS // 2)
"""A text that fills a column exactly to its limit if every row has it."""


def repeated(text: str, rows: int) -> dict[str, Any]:
    """A dictionary of a short text, which no row has, and a long one, which all have."""
    lengths = CBORTag(70, struct.pack("<2I", 1, len(text)))
    return {"text": "-" + text, "lengths": lengths, "index": CBORTag(64, b"\x01" * rows)}


def single(text: str, rows: int) -> dict[str, Any]:
    """One text for all rows, with its length, which our encoder leaves out."""
    return {"text": text, "lengths": CBORTag(70, struct.pack("<I", len(text)))}


def tags(text: str, rows: int) -> dict[str, Any]:
    """Part of the text as the key, part in the column of it, and part in another key's."""
    cut = len(text) // 3
    return {"columns": {text[:cut]: {"text": text[cut : 2 * cut]}, "": {"text": text[2 * cut :]}}}


def pairs(text: str, rows: int) -> dict[str, Any]:
    row_numbers = CBORTag(69, struct.pack(f"<{rows}H", *range(rows)))
    return {"columns": {}, "rows": row_numbers, "keys": {"text": ""}, "values": {"text": text}}


FORMS: dict[str, tuple[str, Callable[[str, int], dict[str, Any]]]] = {
    "one": ("text", lambda text, rows: {"text": text}),
    "a dictionary": ("text", repeated),
    "a key": ("tags", lambda text, rows: {"columns": {text: {"text": ""}}}),
    "one with a length": ("text", single),
    "a kind": ("kind", lambda text, rows: {"text": text}),
    "tags": ("tags", tags),
    "tags as pairs": ("tags", pairs),
}


@cache
def plain(rows: int) -> bytes:
    """Return a segment of that many rows without text."""
    events = [Event(seq=seq, time=0, clock=True, kind="log") for seq in range(1, rows + 1)]
    return encode(header(1, rows), events)


def forged(form: str, text: str, rows: int = MAX_EVENTS) -> bytes:
    """Return a segment of that many rows, all with a text in one of `FORMS`."""
    data = plain(rows)
    length = 8 + struct.unpack_from(">H", data, 6)[0]
    name, make_column = FORMS[form]
    body = cbor2.loads(zlib.decompress(data[length:-32]))
    packed = zlib.compress(cbor2.dumps(body | {name: make_column(text, rows)}))
    data = data[:length] + packed
    return data + sha256(data).digest()


@pytest.mark.parametrize("form", FORMS)
def test_gigabytes_of_text_are_refused_before_they_are_created(form: str) -> None:
    data = forged(form, "x" * 60_000)
    assert len(data) < 200_000
    with pytest.raises(SegmentError, match="bytes of text") as caught:
        arrow_columns(data)
    assert caught.value.reason == "column"
    assert pa.default_memory_pool().max_memory() < 16 * MAX_TEXT


@pytest.mark.parametrize("form", ["one", "a dictionary", "a kind", "tags", "a key"])
def test_text_is_accepted_up_to_the_limit(form: str) -> None:
    columns = arrow_columns(forged(form, LONG))[1]
    assert len(columns["text"]) == MAX_EVENTS
    with pytest.raises(SegmentError, match="bytes of text"):
        arrow_columns(forged(form, LONG + "x"))
