from __future__ import annotations

import re
from pathlib import Path

from sync.segment import LANES, REASONS, Event, SegmentHeader, decode
from sync.segment import limits as bounds
from sync.segment.frame import MAGIC
from sync.segment.header import VERSION, pack_header
from sync.segment.typed_arrays import FLOATS, INTEGERS

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reference" / "segment-format.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "tests" / "data" / "segment-readings.seg").read_bytes()


def dump() -> bytes:
    """Return the bytes of the document's dump, whose offsets are checked."""
    rows = re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+) ", DOCUMENT, re.MULTILINE)
    content = b""
    for offset, digits in rows:
        assert int(offset, 16) == len(content)
        content += bytes.fromhex(digits)
    return content


def test_the_example_is_the_beginning_of_the_file() -> None:
    content = dump()
    assert len(content) == 288
    assert EXAMPLE.startswith(content)


def test_the_code_writes_the_header_of_the_example() -> None:
    head = pack_header(decode(EXAMPLE).header)
    written = MAGIC + bytes(VERSION) + len(head).to_bytes(2, "big") + head
    assert dump().startswith(written)
    assert len(written) == 0x010E
    assert "at `010e` the compressed body begins" in DOCUMENT
    assert head[0] == 0xAF


def test_every_reason_has_its_row() -> None:
    rows = re.findall(
        r"^\| `([a-z]+)` \| ", DOCUMENT.partition("## What a reader refuses")[2], re.M
    )
    assert tuple(rows) == REASONS


def test_every_column_and_lane_is_named() -> None:
    body = DOCUMENT.partition("## The body")[2]
    for name in Event._fields[1:]:
        assert f"`{name}`" in body
    for lane in LANES:
        assert f"`{lane}`" in DOCUMENT


def test_every_header_key_has_its_row() -> None:
    table = DOCUMENT.partition("## The header")[2].partition("## The body")[0]
    keys = re.findall(r"`([a-z]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)))
    renamed = {"first_seq", "last_seq", "sealed_at", "service_seconds", "config_hash", "disk_used"}
    fields = set(SegmentHeader.__dataclass_fields__) - renamed - {"version"}
    assert fields <= set(keys)
    assert set(keys) - fields == {"first", "last", "count", "sealed", "service", "config", "disk"}


def test_every_number_of_the_code_is_documented() -> None:
    documented = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", DOCUMENT)}
    limits = (
        bounds.MAX_FILE, bounds.MAX_BODY, bounds.MAX_EVENTS, bounds.MAX_DEPTH, bounds.MAX_ITEMS,
        bounds.MAX_DROPPED, bounds.MAX_WORD, bounds.MAX_NAME, bounds.MAX_HASH,
        bounds.MAX_TAG_COLUMNS, bounds.MAX_TAGS, bounds.MAX_DECIMALS,
    )  # fmt: skip
    assert documented >= {*limits, *INTEGERS, *FLOATS}
