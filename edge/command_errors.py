"""Report the error of a command as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.errors import FieldpostError, StoreError
from edge.ops.machine.folder_owner import other_owner
from edge.ops.store_remedies import store_remedy
from sync.common.text import os_error, printable


class CommandError(Exception):
    """A command failed; the text is safe to print."""


@contextmanager
def report_as_line(folder: Path | None) -> Iterator[None]:
    """Raise errors of a command as `CommandError`; exit with status 1 if the reader of its output
    is gone.

    If the user does not own the gateway's `folder`, the line says so, as that is the likely cause.
    """
    try:
        yield
    except StoreError as error:
        advice = "" if folder is None else f"; {store_remedy(error, folder)}"
        raise CommandError(_line(f"{error}{advice}", folder)) from error
    except FieldpostError as error:
        raise CommandError(_line(str(error), folder)) from error
    except BrokenPipeError:
        # The reader of the output has gone; Python must not complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        raise CommandError(_line(os_error(error), folder)) from error


def to_terminal(line: str) -> str:
    """Escape unprintable characters in a line, which can contain text from devices."""
    return printable(line, sys.stdout.encoding)


def _line(text: str, folder: Path | None) -> str:
    owner = None if folder is None else other_owner(folder)
    advice = "" if owner is None else f"; {folder} belongs to {owner}: run this as that user"
    return to_terminal(text + advice)
