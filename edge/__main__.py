"""The `fieldpost` command.

The gateway is started without click, which would take 1 MB of memory as long as it runs. `edge.cli`
has all other commands, and reports wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def main() -> None:
    """Run the command that the arguments name."""
    folder = run_folder(sys.argv[1:], os.environ)
    if folder is None:
        from edge.cli.commands import main as commands

        commands()
    else:
        _run(folder)


def run_folder(arguments: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Return the folder if the arguments are a simple form of `run` and its option `--dir`."""
    match arguments:
        case ["run"]:
            folder = environment.get("FIELDPOST_DIR", "")
        case ["run", "--dir", folder] if not folder.startswith("-"):
            pass
        case ["run", option] if option.startswith("--dir="):
            folder = option.removeprefix("--dir=")
        case _:
            return None
    return Path(folder) if folder and not Path(folder).is_file() else None


def _run(folder: Path) -> None:
    from edge import app
    from edge.command_errors import CommandError, report_as_line

    def ready(line: str) -> None:
        print(line, flush=True)  # noqa: T201

    def warn(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201

    try:
        with report_as_line(folder):
            app.run(folder, ready, warn)
    except CommandError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:  # before the gateway handles the signal
        sys.exit("Aborted!")


if __name__ == "__main__":
    main()
