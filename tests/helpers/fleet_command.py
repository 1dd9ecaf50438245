"""Run `fieldpost-fleet` in the test's process, which is faster than starting one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from subprocess import CompletedProcess

from click.testing import CliRunner

from sync.cli.main import cli

Command = Callable[..., CompletedProcess[str]]
"""A function that runs `fieldpost-fleet` with these arguments."""


def fleet_command(
    *words: object, environ: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Run `fieldpost-fleet WORDS`; `environ` is added to the environment."""
    arguments = [str(word) for word in words]
    result = CliRunner().invoke(
        cli, arguments, prog_name="fieldpost-fleet", env=environ, catch_exceptions=False
    )
    return CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)
