"""Few bytes that say gigabytes of text: refused before a worker makes the text of them."""

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
"""A text that fills a column just to its bound when every row has it."""


def repeated(text: str, rows: int) -> dict[str, Any]:
    """A dictionary of a short text, which no row has, and a long one, which all have."""
    lengths = CBORTag(70, struct.pack("<2I", 1, len(text)))
    return {"text": "-" + text, "lengths": lengths, "index": CBORTag(64, b"\x01" * rows)}


def alone(text: str, rows: int) -> dict[str, Any]:
    """One text for all rows, not as our encoder writes it: with its length."""
    return {"text": text, "lengths": CBORTag(70, struct.pack("<I", len(text)))}


def tags(text: str, rows: int) -> dict[str, Any]:
    """Part of the text as the key, part in the column of it, and part in another key's."""
    cut = len(text) // 3
    return {"columns": {text[:cut]: {"text": text[cut : 2 * cut]}, "": {"text": text[2 * cut :]}}}


def pairs(text: str, rows: int) -> dict[str, Any]:
    places = CBORTag(69, struct.pack(f"<{rows}H", *range(rows)))
    return {"columns": {}, "rows": places, "keys": {"text": ""}, "values": {"text": text}}


FORMS: dict[str, tuple[str, Callable[[str, int], dict[str, Any]]]] = {
    "one": ("text", lambda text, rows: {"text": text}),
    "a dictionary": ("text", repeated),
    "a key": ("tags", lambda text, rows: {"columns": {text: {"text": ""}}}),
    "one with a length": ("text", alone),
    "a kind": ("kind", lambda text, rows: {"text": text}),
    "tags": ("tags", tags),
    "tags as pairs": ("tags", pairs),
}


@cache
def plain(rows: int) -> bytes:
    """A segment of so many rows without text."""
    events = [Event(seq=seq, time=0, clock=True, kind="log") for seq in range(1, rows + 1)]
    return encode(header(1, rows), events)


def forged(form: str, text: str, rows: int = MAX_EVENTS) -> bytes:
    """A segment of so many rows, all with a text in one of `FORMS`."""
    data = plain(rows)
    length = 8 + struct.unpack_from(">H", data, 6)[0]
    name, made = FORMS[form]
    body = cbor2.loads(zlib.decompress(data[length:-32]))
    packed = zlib.compress(cbor2.dumps(body | {name: made(text, rows)}))
    data = data[:length] + packed
    return data + sha256(data).digest()


@pytest.mark.parametrize("form", FORMS)
def test_text_that_would_be_gigabytes_is_refused_before_it_is_made(form: str) -> None:
    data = forged(form, "x" * 60_000)
    assert len(data) < 200_000
    with pytest.raises(SegmentError, match="bytes of text") as caught:
        arrow_columns(data)
    assert caught.value.reason == "column"
    assert pa.default_memory_pool().max_memory() < 16 * MAX_TEXT


@pytest.mark.parametrize("form", ["one", "a dictionary", "a kind", "tags", "a key"])
def test_text_is_taken_up_to_the_bound_and_not_beyond(form: str) -> None:
    columns = arrow_columns(forged(form, LONG))[1]
    assert len(columns["text"]) == MAX_EVENTS
    with pytest.raises(SegmentError, match="bytes of text"):
        arrow_columns(forged(form, LONG + "x"))
