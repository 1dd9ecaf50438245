"""Find every fault in a `fieldpost.toml`, and the options that differ from their defaults.

`fieldpost run` stops at the first fault; whoever edits the file needs all of them.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from edge.config import annotated_file, load
from edge.config.load import SECTIONS, Config
from edge.config.options import Section
from edge.errors import ConfigError

SECRETS: Final = frozenset({"xmpp.component_secret"})
"""Options whose values are not shown."""

HIDDEN: Final = "(not shown)"


class Fault(NamedTuple):
    """A fault in the file; `option` is `SECTION.NAME`, or empty if it is about several."""

    option: str
    text: str


class ChangedOption(NamedTuple):
    """An option whose value differs from its default, which is `None` if it has none."""

    option: str
    value: object
    default: object


class Report(NamedTuple):
    """The result of a check; `changed` covers the options that are valid by themselves."""

    faults: list[Fault]
    changed: list[ChangedOption]


def check(folder: Path) -> Report:
    """Check the configuration in `folder`; raises `ConfigError` if it cannot be read."""
    return check_text(load.read(folder))


def check_text(text: bytes) -> Report:
    """Check the text of a configuration."""
    try:
        tables = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Report([Fault("", load.format_decode_error(error))], [])
    faults: list[Fault] = []
    valid: dict[str, dict[str, Any]] = {}
    for name, options in tables.items():
        kind = SECTIONS.get(name)
        if kind is None or not isinstance(options, dict):
            faults.append(Fault(name, "there is no such section"))
        else:
            valid[name] = _valid_options(name, kind, options, faults)
    gateway = valid.setdefault("gateway", {})
    if "domain" not in gateway:
        if not any(fault.option == "gateway.domain" for fault in faults):
            faults.append(Fault("gateway.domain", "it is missing"))
        gateway["domain"] = "gw.invalid"  # lets the other checks run
    config = msgspec.convert(valid, Config)
    faults += [_to_fault(error) for error in load.find_conflicts(config)]
    return Report(faults, list(_changed(valid, faults)))


def _valid_options(
    section: str, kind: type[Section], options: dict[str, Any], faults: list[Fault]
) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name for field in msgspec.structs.fields(kind)}
    valid = {}
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {section}.{near[0]}?" if near else ""
            faults.append(Fault(f"{section}.{name}", f"there is no such option{hint}"))
            continue
        try:
            valid[name] = msgspec.convert(value, hints[name])
        except msgspec.ValidationError as error:
            text = str(error)
            faults.append(Fault(f"{section}.{name}", text[:1].lower() + text[1:]))
    return valid


def _to_fault(error: ConfigError) -> Fault:
    """Split off the option with which an error's text may begin."""
    option, colon, text = str(error).partition(": ")
    if colon and option.partition(".")[0] in SECTIONS and " " not in option:
        return Fault(option, text)
    return Fault("", str(error))


def _changed(valid: dict[str, dict[str, Any]], faults: list[Fault]) -> Iterator[ChangedOption]:
    wrong = {fault.option for fault in faults}
    for section, kind in SECTIONS.items():
        for field in msgspec.structs.fields(kind):
            option = f"{section}.{field.name}"
            default = annotated_file.default(field)
            value = valid.get(section, {}).get(field.name, default)
            if value == default or option in wrong:
                continue
            shown = HIDDEN if option in SECRETS else value
            yield ChangedOption(option, shown, None if default is msgspec.NODEFAULT else default)
