"""Generated JSON of devices: no value is lost or guessed, and no limit is exceeded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.config.options import Readings
from edge.features.eventlog import decoders
from edge.features.eventlog.rules import json_readings, strict_json
from edge.features.eventlog.rules.json_readings import MAX_READINGS, Reading
from edge.features.eventlog.rules.strict_json import MAX_DEPTH, MAX_INTEGER, InvalidJson
from tests.fuzz import fuzz_json

legal = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"])
names = st.text(legal, min_size=1, max_size=8).filter(lambda name: "." not in name)
numbers = st.one_of(
    st.integers(-MAX_INTEGER, MAX_INTEGER), st.floats(allow_nan=False, allow_infinity=False)
)
leaves = st.one_of(numbers, st.booleans(), st.text(legal, max_size=20))
objects = st.recursive(
    st.dictionaries(names, leaves, max_size=4),
    lambda inner: st.dictionaries(names, st.one_of(leaves, inner), max_size=4),
    max_leaves=12,
)
anything = st.recursive(
    st.one_of(st.none(), leaves, st.integers(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def flat(content: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Yield the leaves of an object with their joined names."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{name}.")
        else:
            found[before + name] = value
    return found


def depth(content: Any) -> int:
    """Return the nesting depth of a value."""
    inner = content.values() if isinstance(content, dict) else content
    if not isinstance(content, dict | list):
        return 0
    return 1 + max(map(depth, inner), default=0)


@settings(deadline=None)
@given(content=objects)
def test_each_leaf_of_an_object_is_one_reading(content: dict[str, Any]) -> None:
    content.pop("timestamp", None)
    expected = flat(content)
    if not expected or depth(content) > MAX_DEPTH:
        with pytest.raises(InvalidJson):
            json_readings.parse(json.dumps(content))
        return
    found = json_readings.parse(json.dumps(content))
    assert [reading.name for reading in found] == list(expected)
    for reading, value in zip(found, expected.values(), strict=True):
        if isinstance(value, str):
            assert reading == Reading(reading.name, text=value)
        else:
            assert reading == Reading(reading.name, float(value))


@settings(deadline=None)
@given(content=anything)
def test_json_written_by_python_is_parsed_unchanged_or_refused(content: Any) -> None:
    text = json.dumps(content)
    try:
        found = strict_json.parse(text)
    except InvalidJson:
        return
    assert found == content
    fuzz_json.check(text.encode())


@settings(deadline=None)
@given(text=st.text(st.sampled_from('[]{}",:\\u0018ntfa.eE+-N \t'), max_size=60))
def test_json_like_text_violates_no_guarantee(text: str) -> None:
    fuzz_json.check(text.encode())


@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_bytes_violate_no_guarantee(data: bytes) -> None:
    fuzz_json.check(data)
    topic = "plant/pump1"
    found = decoders.decode_by_rule(Readings(filter=topic), topic, data)
    assert not (found.events and found.unreadable)


records = st.fixed_dictionaries(
    {"n": st.from_regex(r"[a-z][a-z0-9:]{0,5}", fullmatch=True)},
    optional={
        "bn": st.from_regex(r"[a-z][a-z0-9:]{0,5}", fullmatch=True),
        "bt": st.floats(0, 1e9),
        "bv": st.floats(-1e9, 1e9),
        "t": st.floats(-1e9, 2e9),
        "u": st.sampled_from(["Cel", "W"]),
        "bu": st.sampled_from(["V", "A"]),
    },
)


@settings(deadline=None)
@given(pack=st.lists(st.tuples(records, st.floats(-1e9, 1e9)), min_size=1, max_size=12))
def test_pack_equals_its_resolved_records(pack: list[tuple[dict[str, Any], float]]) -> None:
    """A pack resolved into independent records has the same readings."""
    written = [{**record, "v": value} for record, value in pack]
    found = json_readings.parse(json.dumps(written))
    bases: dict[str, Any] = {"bn": "", "bt": 0.0, "bv": 0.0, "bu": None}
    alone = []
    for record in written:
        bases = {field: record.get(field, base) for field, base in bases.items()}
        unit = record.get("u", bases["bu"])
        alone.append(
            {
                "bn": bases["bn"],
                "n": record["n"],
                "bt": bases["bt"],
                "t": record.get("t", 0.0),
                "bv": bases["bv"],
                "v": record["v"],
                **({} if unit is None else {"u": unit}),
            }
        )
    each = [json_readings.parse(json.dumps([record])) for record in alone]
    assert found == [reading for one in each for reading in one]
    assert len(found) == len(pack) <= MAX_READINGS
