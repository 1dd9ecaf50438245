"""Two stored segments stay readable, also with code other than the project's.

cbor2 and the standard library alone read them here; nothing of `sync` is imported.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import segment_reader

DATA = Path(__file__).parents[2] / "data"
NAMES = ("segment-readings", "segment-odd")


def expected(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("name", NAMES)
def test_cbor2_and_the_standard_library_read_a_segment(name: str) -> None:
    data = (DATA / f"{name}.seg").read_bytes()
    header, events = segment_reader.read(data)
    document = expected(name)
    assert events == document["events"]
    assert header == {
        **document["header"],
        "previous": bytes.fromhex(document["header"]["previous"]),
        "config": bytes.fromhex(document["header"]["config"]),
    }
    assert data[-32:].hex() == document["digest"]


def test_the_odd_segment_keeps_the_sign_of_zero() -> None:
    _, events = segment_reader.read((DATA / "segment-odd.seg").read_bytes())
    assert math.copysign(1, events[3]["value"]) == -1


def test_the_reader_shares_nothing_with_the_project() -> None:
    source = Path(segment_reader.__file__).read_text(encoding="utf-8")
    lines = [line for line in source.splitlines() if line.startswith(("import", "from"))]
    allowed = {"__future__", "struct", "zlib", "hashlib", "typing", "cbor2"}
    assert {line.split()[1] for line in lines} == allowed
