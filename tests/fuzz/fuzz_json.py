"""JSON of devices: any text.

- Only `InvalidJson` is raised.
- Python's own parser accepts every text that is accepted, and no name occurs twice.
- Readings are limited in number; each has a name of limited length, a finite value or none, and
  only characters that XML allows, as have its tags.
- White space between tokens does not change the result.
- The rules of `[[readings]]` guarantee the same, except that they may select nothing, and read all
  numbers and booleans that are read without a rule.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from edge.features.eventlog.rules import json_readings, reading_rules
from edge.features.eventlog.rules.json_readings import MAX_NAME_BYTES, MAX_READINGS, Reading
from edge.features.eventlog.rules.reading_rules import ReadingRule
from edge.features.eventlog.rules.strict_json import MAX_INTEGER, InvalidJson

MAX_BYTES: Final = 4096
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check(data: bytes) -> None:
    """Parse a text and check the result."""
    text = data.decode("utf-8", "surrogateescape")
    selected = [_read_by_rule(rule, text) for rule in _RULES]
    try:
        readings = json_readings.parse(text)
    except InvalidJson:
        return
    assert selected[0] == [reading for reading in readings if reading.text is None]
    plain = json.loads(text, object_pairs_hook=_once, parse_int=_whole)
    assert 1 <= len(readings) <= MAX_READINGS
    for reading in readings:
        _check(reading)
    assert json_readings.parse(json.dumps(plain, indent=1)) == readings


_RULES: Final = (
    ReadingRule(),
    ReadingRule(["a", "a.b", "0"], name="%1 %3 %%%f", unit={"a": "W"}, time="a.t"),
    ReadingRule(name="%2", time=""),
)


def _read_by_rule(rule: ReadingRule, text: str) -> list[Reading]:
    try:
        readings = reading_rules.read(rule, "plant/pump1", text)
    except InvalidJson:
        return []
    assert len(readings) <= MAX_READINGS
    for reading in readings:
        _check(reading)
    return readings


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
