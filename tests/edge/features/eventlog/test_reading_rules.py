"""Payloads of devices that know nothing of the gateway, read by the rules of `[[readings]]`."""

from __future__ import annotations

import json

import pytest

from edge.features.eventlog.rules import reading_rules
from edge.features.eventlog.rules.json_readings import MAX_NAME_BYTES, MAX_READINGS, Reading
from edge.features.eventlog.rules.reading_rules import ReadingRule
from edge.features.eventlog.rules.strict_json import MAX_DEPTH, InvalidJson

TOPIC = "plant/pump1/state"
ALL = ReadingRule()


def read(text: str, rule: ReadingRule = ALL, topic: str = TOPIC) -> list[Reading]:
    return reading_rules.read(rule, topic, text)


def values(text: str, rule: ReadingRule = ALL, topic: str = TOPIC) -> dict[str, object]:
    """Return the readings by name, each its value or its text."""
    found = read(text, rule, topic)
    assert len({one.name for one in found}) == len(found)
    return {one.name: one.value if one.text is None else one.text for one in found}


def refusal(text: str, rule: ReadingRule = ALL, topic: str = TOPIC) -> str:
    with pytest.raises(InvalidJson) as refused:
        read(text, rule, topic)
    return str(refused.value)


# Payloads as devices publish them

TASMOTA = (
    '{"Time":"2026-03-04T10:15:00","ENERGY":{"TotalStartTime":"2026-01-02T08:00:00",'
    '"Total":12.345,"Yesterday":0.512,"Today":0.231,"Power":[48,0],"Voltage":231,'
    '"Current":[0.264,0.000]},"SI7021":{"Temperature":21.4,"Humidity":null,"DewPoint":10.1},'
    '"Switch1":"OFF","TempUnit":"C"}'
)
ZIGBEE2MQTT = (
    '{"battery":87,"last_seen":"2026-03-04T10:15:00+01:00","linkquality":120,'
    '"occupancy":false,"state":"ON","temperature":20.93,"update":{"installed_version":16777241,'
    '"state":"idle"},"update_available":null,"action":""}'
)
SHELLY = (
    '{"id":0,"source":"init","output":true,"apower":142.7,"voltage":230.4,"current":0.632,'
    '"aenergy":{"total":8734.112,"by_minute":[2378.104,2375.018,2380.421],'
    '"minute_ts":1772619300},"temperature":{"tC":45.2,"tF":113.4},"errors":[]}'
)


def test_a_rule_reads_all_numbers_and_booleans() -> None:
    assert values(TASMOTA, ReadingRule(time="Time")) == {
        "ENERGY.Total": 12.345,
        "ENERGY.Yesterday": 0.512,
        "ENERGY.Today": 0.231,
        "ENERGY.Power.0": 48.0,
        "ENERGY.Power.1": 0.0,
        "ENERGY.Voltage": 231.0,
        "ENERGY.Current.0": 0.264,
        "ENERGY.Current.1": 0.0,
        "SI7021.Temperature": 21.4,
        "SI7021.DewPoint": 10.1,
    }
    assert values(ZIGBEE2MQTT) == {
        "battery": 87.0,
        "linkquality": 120.0,
        "occupancy": 0.0,
        "temperature": 20.93,
        "update.installed_version": 16777241.0,
    }


@pytest.mark.parametrize(
    ("text", "fields", "found"),
    [
        (TASMOTA, ["SI7021.Temperature"], {"SI7021.Temperature": 21.4}),
        (TASMOTA, ["SI7021.Humidity"], {}),
        (TASMOTA, ["ENERGY.Power"], {"ENERGY.Power.0": 48.0, "ENERGY.Power.1": 0.0}),
        (TASMOTA, ["ENERGY.Power.0", "Switch1"], {"ENERGY.Power.0": 48.0, "Switch1": "OFF"}),
        (TASMOTA, ["SI7021"], {"SI7021.Temperature": 21.4, "SI7021.DewPoint": 10.1}),
        (ZIGBEE2MQTT, ["state", "action", "update"],
         {"state": "ON", "action": "", "update.installed_version": 16777241.0}),
        (ZIGBEE2MQTT, ["temp", "emperature", "battery.0", "missing"], {}),
        (SHELLY, ["apower", "aenergy.total", "temperature.tC", "output", "errors"],
         {"output": 1.0, "apower": 142.7, "aenergy.total": 8734.112, "temperature.tC": 45.2}),
    ],
)  # fmt: skip
def test_a_rule_reads_the_fields_that_it_lists(
    text: str, fields: list[str], found: dict[str, object]
) -> None:
    assert values(text, ReadingRule(fields)) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [("21.5", 21.5), (" -40\r\n", -40.0), ("1e3", 1000.0), ("true", 1.0), ("false", 0.0)],
)
def test_a_number_or_boolean_alone_is_named_after_the_last_level(text: str, value: float) -> None:
    topic = "shellies/shelly1pm-98F4AB/relay/0/power"
    assert read(text, ReadingRule(unit="W"), topic) == [Reading("power", value, "W")]
    assert read(text, ReadingRule(["power", "energy"]), topic) == [Reading("power", value)]
    assert read(text, ReadingRule(["energy"]), topic) == []


def test_senml_is_read_with_its_times_and_units() -> None:
    text = """[{"bn": "boiler1:", "bt": 1709208000, "bu": "Cel", "n": "flow", "v": 71.5},
        {"n": "return", "v": 48.25, "t": -60}, {"n": "on", "u": "/", "vb": true},
        {"n": "mode", "vs": "auto"}, {"n": "energy", "u": "J", "s": 5}]"""
    rule = ReadingRule(["boiler1:flow", "boiler1:mode", "boiler1:energy"], "%2 %f", "K")
    noon = {"timestamp": "2024-02-29T12:00:00Z"}
    assert read(text, rule) == [
        Reading("pump1 boiler1:flow", 71.5, "Cel", tags=noon),
        Reading("pump1 boiler1:mode", None, "Cel", "auto", noon),
        Reading("pump1 boiler1:energy", None, "J", tags={**noon, "sum": "5"}),
    ]
    assert [one.name for one in read(text)] == [f"boiler1:{name}" for name in
                                                ("flow", "return", "on", "energy")]  # fmt: skip
    series = '[{"bn": "t", "v": 1, "t": -1}, {"v": 2}]'
    assert [one.unit for one in read(series, ReadingRule(unit={"t": "K"}))] == ["K", "K"]


# Names, units and times


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("%f", "a.b"),
        ("%2/%f", "pump1/a.b"),
        ("%3 of %2", "state of pump1"),
        ("%1%1%9-%%%f%", "plantplant-%a.b%"),
        ("%%f", "%f"),
    ],
)
def test_names_are_made_from_levels_and_paths(template: str, name: str) -> None:
    assert [one.name for one in read('{"a": {"b": 5}}', ReadingRule(name=template))] == [name]


def test_a_path_in_a_name_is_no_template() -> None:
    assert [one.name for one in read('{"%1": 5}', ReadingRule(name="%2.%f"))] == ["pump1.%1"]


def test_units_are_those_of_the_rule_or_of_its_fields() -> None:
    text = '{"t": 21.5, "u": 3, "v": 4}'
    rule = ReadingRule(unit={"t": "Cel", "v": "", "w": "W"})
    assert [one.unit for one in read(text, rule)] == ["Cel", None, None]
    assert [one.unit for one in read(text, ReadingRule(unit="V"))] == ["V", "V", "V"]


@pytest.mark.parametrize(
    ("path", "time", "tag"),
    [
        ("Time", '"2026-03-04T10:15:00"', "2026-03-04T10:15:00"),
        ("params.ts", "1772619300.25", "1772619300.25"),
        ("last_seen", "1772619300123", "1772619300123"),
    ],
)
def test_the_time_of_the_device_is_kept_as_text(path: str, time: str, tag: str) -> None:
    for name in reversed(path.split(".")):
        time = f'{{"{name}": {time}}}'
    found = read(f'{time[:-1]}, "t": 5}}', ReadingRule(time=path))
    assert found == [Reading("t", 5.0, tags={"timestamp": tag})]


@pytest.mark.parametrize("time", ["null", "true", "{}", "[]"])
def test_other_values_are_no_time(time: str) -> None:
    assert read(f'{{"timestamp": {time}, "t": 5}}') == [Reading("t", 5.0)]


def test_a_text_that_is_no_time_is_refused() -> None:
    rule = ReadingRule(time="last_seen")
    problem = "timestamp 'yesterday' is not a time such as 2026-06-07T16:24:30Z"
    assert refusal('{"last_seen": "yesterday", "t": 5}', rule) == problem
    assert values('{"timestamp": "yesterday", "t": 5}', rule) == {"t": 5.0}


# Bounds and refusals


@pytest.mark.parametrize("text", ["{}", '{"a": null}', '{"a": [], "b": {"c": "on"}}', "[]"])
def test_a_payload_without_selected_fields_has_no_readings(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("null", "it must be a number, true, false, an object or a SenML pack"),
        ('"21.5"', "it must be a number, true, false, an object or a SenML pack"),
        ("", "it is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        ("ON", "it is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        ("21.5 C", "it is not valid JSON: Extra data: line 1 column 6 (char 5)"),
        ("NaN", "NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "it has the name 'a' twice"),
        ('{"a.b": 1, "a": {"b": 2}}', "two fields have the path 'a.b'"),
        ('{"a": {"0": 1}, "a.0": 2}', "two fields have the path 'a.0'"),
        ('{"": 1}', "a reading has no name"),
        ("[1, 2]", "each record of a SenML pack must be an object"),
        ("[" * (MAX_DEPTH + 1), f"it is nested more than {MAX_DEPTH} levels deep"),
        ("9" * 17, "an integer exceeds 9007199254740991"),
    ],
)
def test_payloads_that_hold_no_readings_are_refused(text: str, problem: str) -> None:
    assert refusal(text) == problem


def test_names_are_unique_and_not_empty() -> None:
    rule = ReadingRule(name="%2")
    assert values('{"t": 1}', rule) == {"pump1": 1.0}
    assert refusal('{"t": 1, "u": 2}', rule) == "'t' and 'u' would both be named 'pump1'"
    assert refusal("5", topic="plant/") == "a reading has no name"
    assert refusal('{"t": 1}', ReadingRule(name="%9")) == "a reading has no name"


def test_names_and_numbers_of_readings_are_limited() -> None:
    longest = "n" * MAX_NAME_BYTES
    assert values(f'{{"{longest}": 1}}') == {longest: 1.0}
    problem = f"the name of a reading exceeds {MAX_NAME_BYTES} bytes"
    assert refusal(f'{{"{longest}": 1}}', ReadingRule(name="-%f")) == problem
    assert refusal(f'{{"{longest}": [1]}}') == problem
    most = {f"n{number}": number for number in range(MAX_READINGS)}
    assert len(read(json.dumps(most))) == MAX_READINGS
    assert refusal(json.dumps(most | {"one": 1})) == f"it has more than {MAX_READINGS} readings"
    assert values(json.dumps(most | {"one": 1}), ReadingRule(["one"])) == {"one": 1.0}
