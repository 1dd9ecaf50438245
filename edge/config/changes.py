"""Compare the configuration of a running gateway with a new one, and change it in place.

All parts of a gateway share the section objects and the lists of the arrays of tables, and read an
option each time they need it. Only `assign` changes them after they were loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from edge.config.load import ARRAYS, SECTIONS, Config
from edge.config.options import descriptions


class Changes(NamedTuple):
    """The options that differ, as `SECTION.NAME`, and the arrays of tables that do: what a reload
    applies, and what needs a restart."""

    reloadable: list[str]
    restart: list[str]


def compare(current: Config, new: Config) -> Changes:
    """Return the options whose values differ, and the names of the arrays that differ."""
    changes = Changes([], [])
    for section, name, restart in _options():
        if getattr(getattr(current, section), name) != getattr(getattr(new, section), name):
            options = changes.restart if restart else changes.reloadable
            options.append(f"{section}.{name}")
    changes.reloadable.extend(
        name for name in ARRAYS if getattr(current, name) != getattr(new, name)
    )
    return changes


def merge(current: Config, new: Config) -> Config:
    """Return `new`, but with the values of `current` for options that need a restart."""
    tables: dict[str, dict[str, Any]] = msgspec.to_builtins(new)
    for section, name, restart in _options():
        if restart:
            tables[section][name] = getattr(getattr(current, section), name)
    return msgspec.convert(tables, Config)


def assign(current: Config, target: Config) -> None:
    """Set all options of `current` to the values of `target`.

    The section objects and the lists of arrays stay the same, so every part of the gateway that
    holds one sees the change.
    """
    for section, name, _restart in _options():
        value = getattr(getattr(target, section), name)
        force_setattr(getattr(current, section), name, value)
    for array in ARRAYS:
        getattr(current, array)[:] = getattr(target, array)


def _options() -> Iterator[tuple[str, str, bool]]:
    for section, kind in SECTIONS.items():
        for name, description in descriptions(kind).items():
            yield section, name, description["restart"]
