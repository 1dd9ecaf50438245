"""JSON of devices: any text.

- Nothing is raised but `BadJson`.
- What is accepted is JSON to Python's own reader too, and no name in it is given twice.
- Readings are bounded in number, have a name of bounded length, a finite value or none, and no
  character that XML has none for; nor have their tags.
- What is read is the same however its structure is spaced.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from edge.features.eventlog.rules import json_readings
from edge.features.eventlog.rules.json_readings import MAX_NAME_BYTES, MAX_READINGS, Reading
from edge.features.eventlog.rules.strict_json import MAX_INTEGER, InvalidJson

MAX_BYTES: Final = 4096
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check(data: bytes) -> None:
    """Read a text, and look at what is told of it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        readings = json_readings.parse(text)
    except InvalidJson:
        return
    plain = json.loads(text, object_pairs_hook=_once, parse_int=_whole)
    assert 1 <= len(readings) <= MAX_READINGS
    for reading in readings:
        _check(reading)
    assert json_readings.parse(json.dumps(plain, indent=1)) == readings


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs)
    return found


def _whole(text: str) -> int:
    assert abs(int(text)) <= MAX_INTEGER
    return int(text)


def _check(reading: Reading) -> None:
    name, value, unit, text, tags = reading
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert value is None or (type(value) is float and math.isfinite(value))
    assert value is None or text is None
    for each in (name, unit, text, *tags, *tags.values()):
        assert each is None or not _ILLEGAL.search(each)
