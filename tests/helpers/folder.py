"""A gateway's folder in the test's own process: commands, units of work and events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner, Result
from msgspec import structs

from edge.cli.commands import main
from edge.config import load
from edge.config.annotated_file import to_toml
from edge.config.options import AccessRule
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import StoredEvent
from edge.ops.transactions import changing, reading

T = TypeVar("T")


def fieldpost(folder: Path, *words: object, text: str | bytes | None = None) -> Result:
    """Run `fieldpost WORDS` on a folder; an error that it does not report fails the test."""
    args = [*map(str, words), "--dir", str(folder)]
    return CliRunner().invoke(main, args, prog_name="fieldpost", input=text, catch_exceptions=False)


def configure(folder: Path, section: str, /, **options: object) -> None:
    """Set options of a section in the configuration that `init` wrote."""
    path = folder / load.FILE_NAME
    before, head, after = path.read_text("utf-8").partition(f"[{section}]\n")
    for name, value in options.items():
        start, line, end = re.split(rf"^({name} = .*)$", after, maxsplit=1, flags=re.MULTILINE)
        assert line
        after = f"{start}{name} = {json.dumps(value)}{end}"
    path.write_text(before + head + after, "utf-8")


def set_access(folder: Path, *rules: AccessRule) -> None:
    """Replace the rules `[[access]]` of the configuration."""
    path = folder / load.FILE_NAME
    rule = re.compile(r"^\[\[access\]\]\n(?:(?!\[).*\n)*", re.MULTILINE)
    text = rule.sub("", path.read_text("utf-8"))
    for options in map(structs.asdict, rules):
        lines = "".join(f"{name} = {to_toml(value)}\n" for name, value in options.items())
        text += f"\n[[access]]\n{lines}"
    path.write_text(text, "utf-8")


def change(folder: Path, unit: Callable[[Transaction], T]) -> T:
    """Run a unit of work and commit it."""
    with changing(folder) as tx:
        return unit(tx)


def query(folder: Path, unit: Callable[[Transaction], T]) -> T:
    """Run a unit of work that only reads."""
    with reading(folder) as tx:
        return unit(tx)


def system_events(folder: Path, name: str | None = None) -> list[StoredEvent]:
    """Return the unsealed events of the gateway itself, of one name or any."""
    rows = query(folder, lambda tx: list(events.read(tx, events.SYSTEM, 0, 100, 2**20)))
    return [row for row in rows if name in (None, row.name)]
