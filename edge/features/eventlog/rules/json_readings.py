"""Parse sensor readings sent as JSON: a SenML pack, or an object whose members are the values.

An array is a SenML pack (RFC 8428). In an object, numbers, booleans and strings are readings named
after their members; names in nested objects are joined with a dot, as in `motor.temp`. A member
`timestamp` of the outermost object is the device's time. A device's time is kept as text and never
used in calculations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from edge.features.eventlog.rules import device_times, strict_json
from edge.features.eventlog.rules.strict_json import InvalidJson, Json

MAX_READINGS: Final = 1000
"""Maximum readings in one JSON text: the default limit of elements in a stanza."""

MAX_NAME_BYTES: Final = 256
"""Maximum bytes of a reading's joined name: the default limit of a node's name.

Without this limit, the long name of an outer object would be repeated for each value in it.
"""

# Tags of readings; the last three are those of SenML.
_TIMESTAMP: Final = "timestamp"  # the device's own time
_OFFSET: Final = "offset_s"  # a relative time: seconds from the device's current time
_SUM: Final = "sum"  # an integrated sum
_UPDATE: Final = "update_s"  # the seconds until the next reading


class Reading(NamedTuple):
    """A reading: its name; either a finite value and its unit, or a text; and its tags."""

    name: str
    value: float | None = None
    unit: str | None = None
    text: str | None = None
    tags: Mapping[str, str] = {}


def parse(text: str) -> list[Reading]:
    """Return the readings of a JSON text, at least one and at most `MAX_READINGS`.

    Raises:
        InvalidJson: the text is not accepted, or holds no reading.
    """
    content = strict_json.parse(text)
    if isinstance(content, list):
        readings = read_pack(content)
    elif isinstance(content, dict):
        readings = _members(content)
    else:
        raise InvalidJson("it must be an object or a SenML pack")
    found = take(readings)
    if not found:
        raise InvalidJson("it has no readings")
    return found


def take(readings: Iterator[Reading]) -> list[Reading]:
    """Return all readings; raises `InvalidJson` if there are more than `MAX_READINGS`."""
    found = list(islice(readings, MAX_READINGS + 1))
    if len(found) > MAX_READINGS:
        raise InvalidJson(f"it has more than {MAX_READINGS} readings")
    return found


def check_name(name: str) -> str:
    """Return the name of a reading; raises `InvalidJson` if it is empty or too long."""
    if not name:
        raise InvalidJson("a reading has no name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidJson(f"the name of a reading exceeds {MAX_NAME_BYTES} bytes")
    return name


# Objects


def _members(content: dict[str, Json]) -> Iterator[Reading]:
    tags = time_tags(content.get(_TIMESTAMP))
    if tags:
        content = {name: value for name, value in content.items() if name != _TIMESTAMP}
    names: set[str] = set()
    for name, value in leaves(content):
        if name in names:
            raise InvalidJson(f"two readings are named {name!r}")
        names.add(name)
        yield _member(name, value, tags)


def time_tags(time: Json) -> dict[str, str]:
    """Return the tag for a device's time, if it is a text or a number; raises `InvalidJson` if the
    text is not a time."""
    if isinstance(time, str):
        if fault := device_times.find_fault(time):
            raise InvalidJson(fault)
        return {_TIMESTAMP: time}
    return {_TIMESTAMP: _format_number(time)} if _is_number(time) else {}


def leaves(content: Mapping[str, Json], before: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the values in nested objects, each with its joined name, which begins with `before`;
    raises `InvalidJson` if a name is empty or too long."""
    for name, value in content.items():
        whole = check_name(name and before + name)
        if isinstance(value, dict):
            yield from leaves(value, f"{whole}.")
        else:
            yield whole, value


def _member(name: str, value: Json, tags: Mapping[str, str]) -> Reading:
    if isinstance(value, str):
        return Reading(name, text=value, tags=tags)
    if isinstance(value, bool | int | float):
        return Reading(name, float(value), tags=tags)
    kind = "null" if value is None else "an array"
    raise InvalidJson(f"{name!r} is {kind}; use a number, boolean, string or object")


def _is_number(value: Json) -> bool:
    """Return whether a value is a number; a boolean is not, although `bool` is a kind of `int`."""
    return isinstance(value, int | float) and not isinstance(value, bool)


# SenML

_VERSION: Final = 10
"""The SenML version that RFC 8428 specifies; it applies if a pack names none."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]*")
"""A valid SenML name (RFC 8428, section 4.5.1)."""

_TEXT_FIELDS: Final = ("bn", "bu", "n", "u", "vs")
_NUMBER_FIELDS: Final = ("bt", "bv", "bs", "bver", "v", "s", "t", "ut")
_VALUE_FIELDS: Final = ("v", "vs", "vb")

_ABSOLUTE: Final = 2**28
"""The first absolute time in seconds; a lower value is relative (RFC 8428, section 4.5.3)."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Base(NamedTuple):
    """The current values of the base fields (RFC 8428, section 4.1), set by earlier records."""

    name: str = ""
    unit: str | None = None
    time: float = 0.0
    value: float = 0.0
    sum: float = 0.0


def read_pack(records: list[Json]) -> Iterator[Reading]:
    """Yield the readings of a SenML pack (RFC 8428, section 4.6); raises `InvalidJson`.

    A record with base fields only is no reading.
    """
    base = _Base()
    for record in records:
        if not isinstance(record, dict):
            raise InvalidJson("each record of a SenML pack must be an object")
        _check_record(record)
        base = _apply_base(base, record)
        if any(field in record for field in ("n", "u", "s", "t", "ut", *_VALUE_FIELDS)):
            yield _resolve(base, record)


def _check_record(record: dict[str, Json]) -> None:
    for field, value in record.items():
        if field.endswith("_"):
            raise InvalidJson(f"a record has the unknown mandatory field {field!r}")
        if field == "vd":
            raise InvalidJson("a record has binary data (vd), which is not supported")
        if field in _TEXT_FIELDS and not isinstance(value, str):
            raise InvalidJson(f"{field!r} of a record must be a string")
        if field in _NUMBER_FIELDS and not _is_number(value):
            raise InvalidJson(f"{field!r} of a record must be a number")
        if field == "vb" and not isinstance(value, bool):
            raise InvalidJson("'vb' of a record must be a boolean")
        if field == "bver" and value != _VERSION:
            raise InvalidJson(
                f"a record has SenML version {value}; the supported version is {_VERSION}"
            )


def _apply_base(base: _Base, record: Mapping[str, Json]) -> _Base:
    return _Base(
        str(record.get("bn", base.name)),
        _unit(record, "bu", base.unit),
        _number(record, "bt", base.time),
        _number(record, "bv", base.value),
        _number(record, "bs", base.sum),
    )


def _unit(record: Mapping[str, Json], field: str, otherwise: str | None) -> str | None:
    value = record.get(field, otherwise)
    return value if isinstance(value, str) else None


def _number(record: Mapping[str, Json], field: str, otherwise: float) -> float:
    value = record.get(field)
    return float(value) if isinstance(value, int | float) else otherwise


def _resolve(base: _Base, record: Mapping[str, Json]) -> Reading:
    name = check_name(base.name + str(record.get("n", "")))
    if not _NAME.fullmatch(name):
        raise InvalidJson(f"{name!r} is not a valid SenML name")
    present = [field for field in _VALUE_FIELDS if field in record]
    if len(present) > 1 or not (present or "s" in record):
        raise InvalidJson(f"{name!r} must have exactly one value (v, vs or vb)")
    tags = _tags(base, record)
    unit = _unit(record, "u", base.unit)
    if "vs" in record:
        return Reading(name, None, unit, str(record["vs"]), tags)
    if "vb" in record:
        return Reading(name, float(record["vb"] is True), unit, None, tags)
    if "v" in record:
        return Reading(name, _with_base(base.value, record, "v"), unit, None, tags)
    return Reading(name, None, unit, None, tags)


def _tags(base: _Base, record: Mapping[str, Json]) -> dict[str, str]:
    tags = {}
    time = _with_base(base.time, record, "t")
    if time >= _ABSOLUTE:
        tags[_TIMESTAMP] = _format_time(time)
    elif time:
        tags[_OFFSET] = _format_number(time)
    if "s" in record:
        tags[_SUM] = _format_number(_with_base(base.sum, record, "s"))
    if "ut" in record:
        tags[_UPDATE] = _format_number(record["ut"])
    return tags


def _with_base(base: float, record: Mapping[str, Json], field: str) -> float:
    whole = base + _number(record, field, 0.0)
    if not math.isfinite(whole):
        raise InvalidJson(f"{field!r} of a record plus its base value is too large")
    return whole


def _format_time(seconds: float) -> str:
    try:
        moment = _UNIX_EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        text = f"the time {_format_number(seconds)} (seconds since 1970) is after the year 9999"
        raise InvalidJson(text) from None
    return moment.isoformat().replace("+00:00", "Z")


def _format_number(number: Json) -> str:
    if isinstance(number, float) and number.is_integer() and abs(number) <= strict_json.MAX_INTEGER:
        return str(int(number))
    return repr(number)
