"""Select readings of a payload by a rule: a number, a boolean, a JSON object, or a SenML pack.

Unlike `json_readings`, a rule takes the fields that it selects and leaves the others, so that
payloads can be read which were not written for the gateway. An array inside an object is read as
an object whose names are the positions, from 0. Source: docs/how-to/readings-from-json.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from edge.features.eventlog.rules import json_readings, strict_json
from edge.features.eventlog.rules.json_readings import Reading
from edge.features.eventlog.rules.strict_json import InvalidJson, Json

_MARK: Final = re.compile("%([1-9f%])")


class ReadingRule(NamedTuple):
    """The options of a table `[[readings]]`, which docs/reference/options.md describes."""

    fields: Sequence[str] = ()
    name: str = "%f"
    unit: str | Mapping[str, str] = ""
    time: str = "timestamp"


def read(rule: ReadingRule, topic: str, text: str) -> list[Reading]:
    """Return the readings that a rule selects in a payload, none or at most `MAX_READINGS`.

    Args:
        topic: the name of the node to which the payload was published.
        text: the payload.

    Raises:
        InvalidJson: the payload is not accepted, or two fields would have the same name.
    """
    levels = topic.split("/")
    paths: dict[str, str] = {}

    def selected() -> Iterator[Reading]:
        for reading in _fields(rule, levels, strict_json.parse(text)):
            path = reading.name
            if _is_selected(rule, reading):
                name = json_readings.check_name(_name(rule.name, levels, path))
                if paths.setdefault(name, path) != path:
                    raise InvalidJson(f"{paths[name]!r} and {path!r} would both be named {name!r}")
                yield reading._replace(name=name, unit=reading.unit or _unit(rule, path))

    return json_readings.take(selected())


def _fields(rule: ReadingRule, levels: Sequence[str], content: Json) -> Iterator[Reading]:
    """Yield a reading for each number, boolean and text, named after its path."""
    if isinstance(content, list):
        return json_readings.read_pack(content)
    if isinstance(content, dict):
        return _members(rule, content)
    if isinstance(content, bool | int | float):
        return iter([Reading(levels[-1], float(content))])
    raise InvalidJson("it must be a number, true, false, an object or a SenML pack")


def _members(rule: ReadingRule, content: dict[str, Json]) -> Iterator[Reading]:
    fields: dict[str, Json] = {}
    for path, value in _leaves(content):
        if path in fields:
            raise InvalidJson(f"two fields have the path {path!r}")
        fields[path] = value
    tags = json_readings.time_tags(fields.pop(rule.time, None))
    for path, value in fields.items():
        if isinstance(value, str):
            yield Reading(path, text=value, tags=tags)
        elif isinstance(value, bool | int | float):
            yield Reading(path, float(value), tags=tags)


def _leaves(content: Mapping[str, Json], before: str = "") -> Iterator[tuple[str, Json]]:
    for path, value in json_readings.leaves(content, before):
        if isinstance(value, list):
            yield from _leaves({str(n): each for n, each in enumerate(value)}, f"{path}.")
        else:
            yield path, value


def _is_selected(rule: ReadingRule, reading: Reading) -> bool:
    if reading.text is not None:
        return reading.name in rule.fields
    inside = f"{reading.name}."
    return not rule.fields or any(inside.startswith(f"{path}.") for path in rule.fields)


def _name(template: str, levels: Sequence[str], path: str) -> str:
    def value(mark: re.Match[str]) -> str:
        if mark[1] == "f":
            return path
        if mark[1] == "%":
            return "%"
        return levels[int(mark[1]) - 1] if int(mark[1]) <= len(levels) else ""

    return _MARK.sub(value, template)


def _unit(rule: ReadingRule, path: str) -> str | None:
    return (rule.unit if isinstance(rule.unit, str) else rule.unit.get(path)) or None
