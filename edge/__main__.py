"""The `fieldpost` command.

The gateway is started without click, which would take 1 MB of memory as long as it runs. `edge.cli`
has all other commands, and reports wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class RunOptions(NamedTuple):
    """The options of `run`."""

    folder: Path
    level: str
    form: str


def main() -> None:
    """Run the command that the arguments name."""
    options = run_options(sys.argv[1:], os.environ)
    if options is None:
        from edge.cli.commands import main as commands

        commands()
        return
    from edge import app
    from edge.journal import Journal

    app.run(options.folder, Journal(options.level, options.form))


def run_options(arguments: Sequence[str], environment: Mapping[str, str]) -> RunOptions | None:
    """Return the options if the arguments are `run` with valid options, otherwise `None`."""
    if arguments[:1] != ["run"]:
        return None
    from edge.journal import DEFAULT_LEVEL, FORMATS, LEVEL_NAMES

    options = {"--dir": environment.get("FIELDPOST_DIR", "")}
    words = iter(arguments[1:])
    for word in words:
        name, equals, value = word.partition("=")
        options[name] = value if equals else next(words, "")
    folder = options.pop("--dir")
    level = options.pop("--log-level", DEFAULT_LEVEL).lower()
    form = options.pop("--log-format", FORMATS[0]).lower()
    usable = folder and not folder.startswith("-") and not Path(folder).is_file()
    if options or not usable or level not in LEVEL_NAMES or form not in FORMATS:
        return None
    return RunOptions(Path(folder), level, form)


if __name__ == "__main__":
    main()
