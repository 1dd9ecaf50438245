"""Find every fault in a `fieldpost.toml`, and the options that differ from their defaults.

`fieldpost run` stops at the first fault; a person who edits the file needs to know all faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from edge.config import annotated_file, load
from edge.config.faults import SECRETS, Fault, find_invalid
from edge.config.load import ARRAYS, SECTIONS, Config
from edge.errors import ConfigError

HIDDEN: Final = "(not shown)"


class ChangedOption(NamedTuple):
    """An option whose value differs from its default; `default` is `None` if it has none."""

    option: str
    value: object
    default: object


class Report(NamedTuple):
    """The faults of a configuration, and its valid options that differ from the default."""

    faults: list[Fault]
    changed: list[ChangedOption]


def check(folder: Path) -> Report:
    """Check the configuration in `folder`, and that the secret and the enrolment that it names are
    there; raises `ConfigError` if the configuration cannot be read."""
    report = check_text(load.read(folder))
    if not report.faults:
        report.faults.extend(_find_missing(folder, load.load(folder)))
    return report


def _find_missing(folder: Path, config: Config) -> Iterator[Fault]:
    if config.component is not None:
        try:
            load.read_component_secret(folder, config)
        except ConfigError as error:
            yield _to_fault(error)
    enrolment = folder / config.uplink.enrolment
    if config.uplink.enrolment and not enrolment.is_file():
        text = f"{enrolment} does not exist; write it by `fieldpost-fleet gateway add`"
        yield Fault("uplink.enrolment", text)


def check_text(text: bytes) -> Report:
    """Check the text of a configuration file."""
    try:
        tables = load.read_tables(text)
    except ConfigError as error:
        return Report([Fault("", str(error))], [])
    faults = list(find_invalid(tables, SECTIONS, ARRAYS))
    invalid = {fault.option for fault in faults}
    invalid |= {option.partition("[")[0] for option in invalid}  # an array with an invalid table
    valid = {
        name: options
        if name in ARRAYS
        else {k: v for k, v in options.items() if f"{name}.{k}" not in invalid}
        for name, options in tables.items()
        if name not in invalid
    }
    # a domain lets the other checks run
    valid["gateway"] = {"domain": "gw.invalid"} | valid.get("gateway", {})
    config = msgspec.convert(valid, Config)
    faults += [_to_fault(error) for error in load.find_conflicts(config)]
    return Report(faults, list(_changed(config, faults)))


def _to_fault(error: ConfigError) -> Fault:
    """Convert an error to a fault; if its text begins with an option, split that off."""
    option, colon, text = str(error).partition(": ")
    if colon and re.split(r"[.\[]", option)[0] in Config.__struct_fields__ and " " not in option:
        return Fault(option, text)
    return Fault("", str(error))


def _changed(config: Config, faults: list[Fault]) -> Iterator[ChangedOption]:
    wrong = {fault.option for fault in faults}
    for name, table in load.tables_of(config):
        for field in msgspec.structs.fields(type(table)):
            option = f"{name}.{field.name}"
            default = annotated_file.default(field)
            value = getattr(table, field.name)
            if value == default or option in wrong:
                continue
            printed = HIDDEN if option in SECRETS else value
            yield ChangedOption(option, printed, None if default is msgspec.NODEFAULT else default)
