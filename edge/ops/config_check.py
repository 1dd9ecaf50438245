"""Every fault of a `fieldpost.toml`, each by its option, and what in it differs from the defaults.

A gateway that starts stops at the first fault; who mends the file wants all of them. What is no
fault of the file, as a key that is missing, is the `doctor`'s.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec
from msgspec import Struct

from edge.config import annotated_file, load
from edge.config.load import SECTIONS, Config
from edge.errors import ConfigError

SECRETS: Final = frozenset({"xmpp.component_secret"})
"""Options whose values are not shown."""

HIDDEN: Final = "(not shown)"


class Fault(NamedTuple):
    """What is wrong; `option` is `SECTION.NAME`, or empty where it is no single option's."""

    option: str
    text: str


class Changed(NamedTuple):
    """An option with another value than its default, which is `None` where it has none."""

    option: str
    value: object
    default: object


class Checked(NamedTuple):
    """What came of it; what differs is told of the options that are well written."""

    faults: list[Fault]
    changed: list[Changed]


def check(folder: Path) -> Checked:
    """Check the configuration of `folder`; raises `ConfigError` where it cannot be read."""
    return checked(load.read(folder))


def checked(text: bytes) -> Checked:
    """Check what stands in a file."""
    try:
        found = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Checked([Fault("", load.said(error))], [])
    faults: list[Fault] = []
    sound: dict[str, dict[str, Any]] = {}
    for name, options in found.items():
        kind = SECTIONS.get(name)
        if kind is None or not isinstance(options, dict):
            faults.append(Fault(name, "there is no such section"))
        else:
            sound[name] = _sound(name, kind, options, faults)
    given = sound.setdefault("gateway", {})
    if "domain" not in given:
        if not any(fault.option == "gateway.domain" for fault in faults):
            faults.append(Fault("gateway.domain", "it is missing"))
        given["domain"] = "gw.invalid"  # the rest is checked all the same
    whole = msgspec.convert(sound, Config)
    faults += [_of_all(error) for error in load.faults(whole)]
    return Checked(faults, list(_changed(sound, faults)))


def _sound(
    section: str, kind: type[Struct], options: dict[str, Any], faults: list[Fault]
) -> dict[str, Any]:
    """Return the options of a section that are well written, each for itself."""
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name for field in msgspec.structs.fields(kind)}
    sound = {}
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; there is {section}.{near[0]}" if near else ""
            faults.append(Fault(f"{section}.{name}", f"there is no such option{hint}"))
            continue
        try:
            sound[name] = msgspec.convert(value, hints[name])
        except msgspec.ValidationError as error:
            faults.append(Fault(f"{section}.{name}", _lower(str(error))))
    return sound


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _of_all(error: ConfigError) -> Fault:
    """Take the option from the front of a text that begins with one."""
    option, colon, text = str(error).partition(": ")
    if colon and option.partition(".")[0] in SECTIONS and " " not in option:
        return Fault(option, text)
    return Fault("", str(error))


def _changed(sound: dict[str, dict[str, Any]], faults: list[Fault]) -> Iterator[Changed]:
    missing = {fault.option for fault in faults}
    for section, kind in SECTIONS.items():
        for field in msgspec.structs.fields(kind):
            option = f"{section}.{field.name}"
            default = annotated_file.default(field)
            value = sound.get(section, {}).get(field.name, default)
            if value == default or option in missing:
                continue
            secret = option in SECRETS
            known = None if default is msgspec.NODEFAULT else default
            yield Changed(option, HIDDEN if secret else value, known)
