"""A strict JSON parser that refuses what Python's parser would silently change or drop.

It refuses duplicate names, `NaN` and infinities, numbers that a 64-bit float cannot hold, and
characters that XML cannot hold. Source: RFC 8259; RFC 7493 (I-JSON), section 2.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Final, NoReturn, TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | int | bool | None"

MAX_DEPTH: Final = 8
"""Maximum levels of nested objects and arrays."""

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer up to which a 64-bit float holds every integer (RFC 8259, section 6)."""

_DIGITS: Final = len(str(-MAX_INTEGER))

_MARK: Final = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
"""Matches brackets, and the quotes and escapes that show which brackets are in strings."""

_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Matches characters that a JSON escape can write and XML cannot hold (XML, section 2.2)."""


class InvalidJson(ValueError):
    """A JSON text that is not accepted; the message gives the reason."""


def parse(text: str) -> Json:
    """Parse a JSON text.

    A number without a decimal point or exponent becomes an `int` of at most `MAX_INTEGER`; any
    other becomes a `float`.

    Raises:
        InvalidJson: the text is not valid JSON, or has content that is refused.
    """
    _check_depth(text)
    try:
        found: Json = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"it is not valid JSON: {error}") from None
    return found


def _check_depth(text: str) -> None:
    """Raise `InvalidJson` for nesting so deep that it could overflow the parser's stack."""
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
                raise InvalidJson(f"it is nested more than {MAX_DEPTH} levels deep")
        elif mark in "]}":
            depth -= 1


def _build_object(pairs: Sequence[tuple[str, Json]]) -> Json:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidJson(f"it has the name {name!r} twice")
        if _NOT_XML.search(name) or (isinstance(value, str) and _NOT_XML.search(value)):
            raise InvalidJson(f"{name!r} has a character that XML does not allow")
        found[name] = value
    return found


def _parse_integer(text: str) -> int:
    """Parse an integer; check its length first, because parsing takes quadratic time."""
    if len(text) > _DIGITS or abs(int(text)) > MAX_INTEGER:
        raise InvalidJson(f"an integer exceeds {MAX_INTEGER}")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidJson("a number exceeds the range of a 64-bit float")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidJson(f"{text} is not a JSON number")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_build_object,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
)
