"""Readings of devices in JSON: accepted values, and the reasons of refusals."""

from __future__ import annotations

import json

import pytest

from edge.features.eventlog.rules import json_readings, strict_json
from edge.features.eventlog.rules.json_readings import MAX_NAME_BYTES, MAX_READINGS, Reading
from edge.features.eventlog.rules.strict_json import MAX_DEPTH, MAX_INTEGER, InvalidJson

SENSOR = "urn:dev:ow:10e2073a01080063"


def read(text: str) -> list[Reading]:
    return json_readings.parse(text)


def refusal(text: str) -> str:
    with pytest.raises(InvalidJson) as refused:
        json_readings.parse(text)
    return str(refused.value)


# Objects


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ('"2024-02-29T12:00:00Z"', "2024-02-29T12:00:00Z"),
        ("1709208000", "1709208000"),
        ("1709208000.25", "1709208000.25"),
        ("1709208000.0", "1709208000"),
        ("1e300", "1e+300"),
        ("-0.0", "0"),
    ],
)
def test_timestamp_is_kept_as_text_with_each_reading(text: str, tag: str) -> None:
    found = read(f'{{"a": 1, "timestamp": {text}, "b": "x"}}')
    tags = {"timestamp": tag}
    assert found == [Reading("a", 1.0, tags=tags), Reading("b", text="x", tags=tags)]


def test_nested_or_invalid_timestamp_is_a_reading() -> None:
    assert read('{"a": {"timestamp": 5}, "timestamp": {"b": true}}') == [
        Reading("a.timestamp", 5.0),
        Reading("timestamp.b", 1.0),
    ]
    assert read('{"timestamp": true}') == [Reading("timestamp", 1.0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "it has no readings"),
        ('{"a": {}}', "it has no readings"),
        ('{"timestamp": 5}', "it has no readings"),
        ("[]", "it has no readings"),
        ("5", "it must be an object or a SenML pack"),
        ("null", "it must be an object or a SenML pack"),
        ('"a"', "it must be an object or a SenML pack"),
        ('{"a": null}', "'a' is null; use a number, boolean, string or object"),
        ('{"a": [1]}', "'a' is an array; use a number, boolean, string or object"),
        ('{"": 1}', "a reading has no name"),
        ('{"a": {"": 1}}', "a reading has no name"),
        ('{"a.b": 1, "a": {"b": 2}}', "two readings are named 'a.b'"),
    ],
)
def test_other_values_are_refused(text: str, reason: str) -> None:
    assert refusal(text) == reason


def test_names_and_numbers_of_readings_are_limited() -> None:
    longest = "n" * MAX_NAME_BYTES
    assert [one.name for one in read(f'{{"{longest}": 1}}')] == [longest]
    assert refusal(f'{{"{longest}n": 1}}') == "the name of a reading exceeds 256 bytes"
    assert refusal(f'{{"{"n" * 128}": {{"{"ä" * 64}": 1}}}}').startswith("the name of a reading")
    largest = {f"n{number}": number for number in range(MAX_READINGS)}
    assert len(read(json.dumps(largest))) == MAX_READINGS == 1000
    assert refusal(json.dumps(largest | {"one": 1})) == "it has more than 1000 readings"


def test_long_name_of_a_large_object_is_refused_before_joining() -> None:
    members = ",".join(f'"{number}": 1' for number in range(5000))
    assert refusal(f'{{"{"n" * 30_000}": {{{members}}}}}').startswith("the name of a reading")


# SenML (RFC 8428)


def test_senml_base_fields_apply_to_later_records() -> None:
    text = f"""[
        {{"bn": "{SENSOR}:", "bt": 1.276020076001e+09, "bu": "A", "n": "voltage", "u": "V",
          "v": 120.1}},
        {{"n": "current", "t": -5, "v": 1.2}},
        {{"bn": "x", "bt": 0, "bv": 20, "v": 1.5}},
        {{"n": "/y", "t": -2.5, "v": -0.5, "u": "W"}}
    ]"""
    assert read(text) == [
        Reading(f"{SENSOR}:voltage", 120.1, "V", tags={"timestamp": "2010-06-08T18:01:16.001000Z"}),
        Reading(f"{SENSOR}:current", 1.2, "A", tags={"timestamp": "2010-06-08T18:01:11.001000Z"}),
        Reading("x", 21.5, "A"),
        Reading("x/y", 19.5, "W", tags={"offset_s": "-2.5"}),
    ]


def test_senml_record_of_base_fields_only_is_no_reading() -> None:
    assert read('[{"bn": "a", "bver": 10, "unknown": 5}, {"v": 1}]') == [Reading("a", 1.0)]
    assert refusal('[{"bn": "a", "bv": 5}]') == "it has no readings"


def test_senml_value_types() -> None:
    text = """[{"n": "a", "vs": "on"}, {"n": "b", "vb": true, "u": "/"}, {"n": "c", "vb": false},
        {"n": "d", "vs": ""}, {"n": "e", "v": 0}]"""
    assert read(text) == [
        Reading("a", text="on"),
        Reading("b", 1.0, "/"),
        Reading("c", 0.0),
        Reading("d", text=""),
        Reading("e", 0.0),
    ]


def test_senml_sum_and_update_time_are_tags() -> None:
    text = '[{"bs": 100, "n": "a", "v": 5, "s": 20.5, "ut": 60}, {"n": "b", "s": 1, "u": "W"}]'
    assert read(text) == [
        Reading("a", 5.0, tags={"sum": "120.5", "update_s": "60"}),
        Reading("b", None, "W", tags={"sum": "101"}),
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("5", "each record of a SenML pack must be an object"),
        ("[]", "each record of a SenML pack must be an object"),
        ('{"n": "a", "v": 1, "x_": 2}', "a record has the unknown mandatory field"),
        ('{"n": "a", "vd": "AA"}', "a record has binary data (vd), which is not supported"),
        ('{"n": 5, "v": 1}', "'n' of a record must be a string"),
        ('{"n": "a", "vs": null}', "'vs' of a record must be a string"),
        ('{"n": "a", "v": "1"}', "'v' of a record must be a number"),
        ('{"n": "a", "v": true}', "'v' of a record must be a number"),
        ('{"n": "a", "v": 1, "t": null}', "'t' of a record must be a number"),
        ('{"n": "a", "vb": 1}', "'vb' of a record must be a boolean"),
        ('{"bver": 11, "n": "a", "v": 1}', "a record has SenML version 11"),
        ('{"v": 1}', "a reading has no name"),
        ('{"n": "/a", "v": 1}', "'/a' is not a valid SenML name"),
        ('{"n": "a b", "v": 1}', "'a b' is not a valid SenML name"),
        ('{"n": "a\\n", "v": 1}', "'a\\n' is not a valid SenML name"),
        ('{"n": "a"}', "'a' must have exactly one value"),
        ('{"n": "a", "v": 1, "vb": true}', "'a' must have exactly one value"),
        ('{"n": "a", "vs": "1", "vb": true, "s": 1}', "'a' must have exactly one value"),
        ('{"bn": "a", "t": 5}', "'a' must have exactly one value"),
        ('{"n": "a", "bv": 1e308, "v": 1e308}', "'v' of a record plus its base value is too large"),
        ('{"n": "a", "bt": 1e308, "t": 1e308, "v": 1}', "'t' of a record plus its base"),
        ('{"n": "a", "t": 1e300, "v": 1}', "the time 1e+300 (seconds since 1970) is after"),
        ('{"n": "a", "t": 253402300800, "v": 1}', "the time 253402300800 (seconds since 1970)"),
    ],
)  # fmt: skip
def test_invalid_senml_record_refuses_the_pack(record: str, reason: str) -> None:
    assert refusal(f'[{{"n": "fine", "v": 1}}, {record}]').startswith(reason)


# JSON syntax


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not valid JSON: Expecting value"),
        ("{", "it is not valid JSON: Expecting property name"),
        ('{"a": 1} x', "it is not valid JSON: Extra data"),
        ('{"a": 01}', "it is not valid JSON: Expecting"),
        ("{'a': 1}", "it is not valid JSON: Expecting property name"),
        ('{"a": "\t\n"}', "it is not valid JSON: Invalid control character"),
        ("\\[\\[\\[", "it is not valid JSON: Expecting value"),
        ("]" * 20 + "[" * 20, "it is not valid JSON: Expecting value"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e999}', "a number exceeds the range of a 64-bit float"),
        ('{"a": -1e999}', "a number exceeds the range of a 64-bit float"),
        ('{"a": 9007199254740992}', "an integer exceeds 9007199254740991"),
        ('{"a": -9007199254740992}', "an integer exceeds 9007199254740991"),
        ('{"a": 1' + "0" * 5000 + "}", "an integer exceeds 9007199254740991"),
        ('{"a": 1, "a": 1}', "it has the name 'a' twice"),
        ('{"a": {"b": 1, "\\u0062": 2}}', "it has the name 'b' twice"),
        ('{"a": "\\ud800"}', "'a' has a character that XML does not allow"),
        ('{"\\udfff": 1}', "'\\udfff' has a character that XML does not allow"),
        ('{"a": "\\u0000"}', "'a' has a character that XML does not allow"),
        ('{"a": "\\uffff"}', "'a' has a character that XML does not allow"),
    ],
)
def test_invalid_or_ambiguous_json_is_refused(text: str, reason: str) -> None:
    assert refusal(text).startswith(reason)


def test_largest_values_are_accepted() -> None:
    text = f'{{"a": {MAX_INTEGER}, "b": {-MAX_INTEGER}, "c": 1e300, "d": "\\ud83d\\ude00\\t"}}'
    assert [(one.value, one.text) for one in read(text)] == [
        (float(MAX_INTEGER), None),
        (float(-MAX_INTEGER), None),
        (1e300, None),
        (None, "\U0001f600\t"),
    ]


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_nesting_is_limited() -> None:
    assert len(read(nested(MAX_DEPTH))) == 1
    assert refusal(nested(MAX_DEPTH + 1)) == "it is nested more than 8 levels deep"
    assert refusal("[" * 60_000) == "it is nested more than 8 levels deep"
    assert refusal('{"a": "' + "\\" * 9 + '["}' + "[" * 9).startswith("it is")


def test_brackets_in_strings_do_not_count_as_nesting() -> None:
    assert strict_json.parse('{"a": "[[[[[[[[[[", "b": "\\"[[[[[[[[[[\\\\"}') == {
        "a": "[[[[[[[[[[",
        "b": '"[[[[[[[[[[\\',
    }
