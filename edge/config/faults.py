"""Find unknown, invalid and missing options, and describe the valid values of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from edge.config.options import Rule, Section

SECRETS: Final = frozenset({"xmpp.component_secret"})
"""Options whose values errors do not show."""

MAX_VALUE: Final = 60
"""Maximum characters of a wrong value that an error quotes."""


class Fault(NamedTuple):
    """A fault in the file; `option` is `SECTION.NAME`, or empty if it is not in one option."""

    option: str
    text: str

    def __str__(self) -> str:
        return f"{self.option}: {self.text}" if self.option else self.text


def find_invalid(
    tables: Mapping[str, Any],
    sections: Mapping[str, type[Section]],
    arrays: Mapping[str, type[Rule]],
) -> Iterator[Fault]:
    """Yield a fault for each section and option that is unknown, invalid or missing.

    `sections` and `arrays` are the permitted sections and arrays of tables, by name.
    """
    for name, options in {**tables, "gateway": tables.get("gateway", {})}.items():
        kind = sections.get(name)
        if name in arrays:
            yield from _find_invalid_rules(name, arrays[name], options)
        elif kind is None:
            yield Fault(name, "there is no such section")
        elif not isinstance(options, dict):
            yield Fault(name, f"it must be a section that begins with [{name}]")
        else:
            yield from _find_invalid_options(name, kind, options)


def _find_invalid_rules(name: str, kind: type[Rule], tables: object) -> Iterator[Fault]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield Fault(name, f"each must be a table that begins with [[{name}]]")
    elif len(tables) > kind.most:
        yield Fault(name, f"there are {len(tables)} tables, but at most {kind.most} are allowed")
    else:
        for number, options in enumerate(tables, 1):
            yield from _find_invalid_options(f"{name}[{number}]", kind, options)


def _hint(section: str, name: str, known: Iterable[str]) -> str:
    import difflib  # takes 0.2 MB, and a running gateway needs it only for a wrong option

    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {section}.{near[0]}?" if near else ""


def _find_invalid_options(
    section: str, kind: type[Section], options: Mapping[str, Any]
) -> Iterator[Fault]:
    fields = msgspec.structs.fields(kind)
    known = {field.name: field.type for field in fields}
    for name, value in options.items():
        option = f"{section}.{name}"
        if name not in known:
            yield Fault(option, f"there is no such option{_hint(section, name, known)}")
            continue
        try:
            msgspec.convert(value, known[name])
        except msgspec.ValidationError:
            yield Fault(option, _format_invalid(option, value, known[name]))
    for field in fields:
        if field.required and field.name not in options:
            yield Fault(f"{section}.{field.name}", "it is missing")


_KINDS: Final = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list[str]: "a list of strings",
    str | list[str]: "a string or a list of strings",
    str | dict[str, str]: "a string or a table of strings",
}


def _format_invalid(option: str, value: object, hint: Any) -> str:
    kind, meta = get_args(hint)
    if get_origin(kind) is Literal:
        expected = "one of " + ", ".join(map(_format_value, get_args(kind)))
    else:
        expected = _KINDS[kind]
    if meta.max_length is not None:
        expected += f" with at most {meta.max_length} entries"
    bounds = [
        f"{words} {bound:,g}" if isinstance(bound, float) else f"{words} {bound:,}"
        for words, bound in (
            ("at least", meta.ge),
            ("greater than", meta.gt),
            ("at most", meta.le),
            ("less than", meta.lt),
        )
        if bound is not None
    ]
    if bounds:
        expected += f", {' and '.join(bounds)}"
    if meta.extra["unit"]:
        expected += f" (unit: {meta.extra['unit']})"
    if option in SECRETS:
        return f"it must be {expected}"
    return f"it is {_format_value(value)}, but must be {expected}"


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "..."
