"""JSON as it is taken from others: nothing in it is guessed, and nothing is dropped unnoticed.

What Python's own reader lets through is refused: names given twice, `NaN` and infinities, numbers
that a 64-bit float has no place for, characters that XML has none for. What the values mean is not
known here. Source: RFC 8259; RFC 7493 (I-JSON), section 2.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Final, NoReturn, TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | int | bool | None"

MAX_DEPTH: Final = 8
"""Objects and arrays within each other: names of readings that are nested deeper nobody reads."""

MAX_INTEGER: Final = 2**53 - 1
"""The largest whole number of which a 64-bit float has every smaller one (RFC 8259, section 6): a
larger one would become another, unnoticed."""

_DIGITS: Final = len(str(-MAX_INTEGER))

_MARK: Final = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
"""What opens, closes or quotes, and what a backslash takes the meaning from."""

_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What an escape can write and XML cannot have (its section 2.2), surrogates without their partner
among it: no text of an event has them otherwise."""


class InvalidJson(ValueError):
    """A text is no JSON, or has what is not taken; the error says what."""


def parse(text: str) -> Json:
    """Read a JSON text.

    Numbers are `int`, up to `MOST_WHOLE`, where they have neither a point nor an exponent, and
    finite `float` where they do.

    Raises:
        BadJson: it is none, or has what is not taken; the error says what.
    """
    _check_depth(text)
    try:
        found: Json = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"it is no JSON: {error}") from None
    return found


def _check_depth(text: str) -> None:
    """Look how deep it goes before it is read: the reader goes as deep as its stack lets it."""
    depth, quoted = 0, False
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidJson(f"it is nested more than {MAX_DEPTH} deep")
        elif mark in "]}":
            depth -= 1


def _object(pairs: Sequence[tuple[str, Json]]) -> Json:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidJson(f"it has {name!r} twice")
        if _UNFIT.search(name) or (isinstance(value, str) and _UNFIT.search(value)):
            raise InvalidJson(f"{name!r} has a character that XML cannot have")
        found[name] = value
    return found


def _whole(text: str) -> int:
    """Read a whole number; one that is too long is not even read, as that takes its square."""
    if len(text) > _DIGITS or abs(int(text)) > MAX_INTEGER:
        raise InvalidJson(f"a whole number is beyond {MAX_INTEGER}")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidJson("a number is too large for a 64-bit float")
    return number


def _refuse(text: str) -> NoReturn:
    raise InvalidJson(f"{text} is no number of JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole, parse_float=_number, parse_constant=_refuse
)
