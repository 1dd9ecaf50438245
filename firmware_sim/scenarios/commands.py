"""The commands `fieldpost-sim run custody`, `attack` and `workers`, each with its own gateway.

Each works in a folder, shows progress on standard error, prints the verdict, and exits with status
0 if it passed, else with 1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    Tell = Callable[[str], None]

T = TypeVar("T")

_TOLD_S: Final = 10.0  # seconds between two lines of progress where there is no terminal
_MIB: Final = 1024 * 1024

_seed = click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of all random choices."
)
_state = click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for all files, which is kept; by default a temporary one.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")


def _seconds(name: str, default: float, help_: str) -> Callable[[Any], Any]:
    kind = click.FloatRange(0.0, 86_400.0)
    return click.option(name, type=kind, default=default, show_default=True, help=help_)


@click.command("custody")
@click.option("--devices", type=click.IntRange(2, 1000), default=100, show_default=True)
@click.option("--messages", type=click.IntRange(1, 1_000_000), default=20_000, show_default=True)
@_seconds("--seconds", 180.0, "Over which the messages are sent.")
@_seconds("--patience", 180.0, "More seconds, until all is delivered.")
@click.option("--faults", type=click.FloatRange(0.0, 1.0), default=0.05, show_default=True)
@click.option("--kills", type=click.IntRange(0, 1000), default=10, show_default=True)
@_seed
@_state
@_as_json
def custody_command(*, state: Path | None, as_json: bool, **given: Any) -> None:
    """Send messages between devices at all levels while everything fails; judge each message.

    Creates its own gateway and kills it KILLS times. Of the DEVICES, one in twenty never connects
    and one in twenty reads slowly; for the share FAULTS of the messages a link or a device fails.
    MESSAGES is the total.
    """
    from firmware_sim.scenarios.custody import CustodySettings, custody

    with _Folder(state) as folder:
        begun = time.monotonic()
        ran = _run(lambda show: custody(CustodySettings(folder.path, **given), show))
        found = {"seconds": round(time.monotonic() - begun, 1), "kills": ran.kills}
        found |= {fault.value: count for fault, count in sorted(ran.faults.items(), key=str)}
        found |= {f"offline: {error}": count for error, count in ran.errors.most_common()}
        folder.keep = not ran.verdict.exact
        _finish(ran.verdict.lines(), ran.verdict.as_json(), found, as_json)
    sys.exit(0 if ran.verdict.exact else 1)


@click.command("attack")
@click.option("--devices", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--pace", type=click.FloatRange(0.1, 100.0), default=5.0, show_default=True)
@_seconds("--quiet", 10.0, "Of quiet, before the attack and after it.")
@_seconds("--attacked", 40.0, "Of the attack.")
@click.option("--rate", type=click.FloatRange(20.0, 1e5), default=500.0, show_default=True)
@click.option(
    "--ceiling-mb", type=click.IntRange(0, 1 << 20), default=0, help="Memory ceiling in MiB."
)
@click.option("--times", type=click.FloatRange(1.0, 1e6), default=3.0, show_default=True)
@click.option("--attack", "attacks", multiple=True, help="Run only this attack; repeatable.")
@click.option(
    "--judge-times/--no-judge-times",
    default=True,
    show_default=True,
    help="Judge response times, and run the attackers only while the processor is idle.",
)
@_seed
@_state
@_as_json
def attack_command(
    *,
    state: Path | None,
    as_json: bool,
    ceiling_mb: int,
    attacks: tuple[str, ...],
    **given: Any,
) -> None:
    """Attack a gateway, and measure the effect on honest devices and on memory.

    Creates its own gateway. DEVICES honest devices send PACE assured events a second each: before,
    during and after attackers, with and without accounts, send RATE stanzas a second each. The
    gateway's memory must stay below a ceiling computed from its configuration, or given by
    --ceiling-mb; the 99th percentile of response times must stay below TIMES that of the calmer
    quiet phase; refusals must be in the gateway's log.
    """
    from firmware_sim.attackers.__main__ import named
    from firmware_sim.scenarios.attack import AttackSettings, attack

    try:
        named(attacks)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with _Folder(state) as folder:
        settings = AttackSettings(folder.path, ceiling=ceiling_mb * _MIB, attacks=attacks, **given)
        verdict = _run(lambda show: attack(settings, show))
        folder.keep = not verdict.passed
        _finish(verdict.lines(), verdict.as_json(), {}, as_json)
    sys.exit(0 if verdict.passed else 1)


@click.command("workers")
@click.option("--workers", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--items", type=click.IntRange(2, 1_000_000), default=5_000, show_default=True)
@click.option("--members", type=click.IntRange(0, 100), default=3, show_default=True)
@_seconds(
    "--seconds",
    60.0,
    "Over which the second half is published; the first over half.",
)
@_seconds("--patience", 120.0, "More seconds, until all is done.")
@click.option("--faults", type=click.FloatRange(0.0, 1.0), default=0.05, show_default=True)
@click.option("--kills", type=click.IntRange(0, 1000), default=3, show_default=True)
@_seed
@_state
@_as_json
def workers_command(*, state: Path | None, as_json: bool, **given: Any) -> None:
    """Share a queue between workers while everything fails; judge each item.

    Creates its own gateway. WORKERS behave well for the first half of ITEMS, to measure whether
    they are loaded evenly; then, for the share FAULTS of the deliveries, they crash, hang, return
    items, leave and come back, and the gateway is killed KILLS times. Each of three shares, one at
    each level, has MEMBERS members and gets a fifth as many items.
    """
    from firmware_sim.scenarios.workers import WorkersSettings, workers

    with _Folder(state) as folder:
        begun = time.monotonic()
        ran = _run(lambda show: workers(WorkersSettings(folder.path, **given), show))
        found = {"seconds": round(time.monotonic() - begun, 1), "kills": ran.kills}
        found |= {fault.value: count for fault, count in sorted(ran.faults.items(), key=str)}
        found["members crashed"] = ran.crashes
        folder.keep = not ran.verdict.exact
        _finish(ran.verdict.lines(), ran.verdict.as_json(), found, as_json)
    sys.exit(0 if ran.verdict.exact else 1)


class _Folder:
    """The folder of a run: the given one, or a temporary one that is kept on request."""

    def __init__(self, given: Path | None) -> None:
        if given is not None and given.exists() and any(given.iterdir()):
            raise click.UsageError(f"{given} is not empty; give a new folder")
        self._temporary = given is None
        self.path = given or Path(tempfile.mkdtemp(prefix="fieldpost-sim-")) / "run"
        self.keep = True

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporary and self.keep:
            click.echo(f"files are kept in {self.path}", err=True)
        elif self._temporary:
            shutil.rmtree(self.path.parent, ignore_errors=True)


def _run(work: Callable[[Tell], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario; print a failure in one line and exit with status 1."""
    from firmware_sim.errors import FirmwareError

    # Lost connections are what a run is about, and each device tells its own.
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        return asyncio.run(work(_progress_printer()))
    except* FirmwareError as errors:
        click.echo(f"fieldpost-sim: {errors.exceptions[0]}", err=True)
    sys.exit(1)


def _progress_printer() -> Tell:
    """Return a function that shows progress on standard error: in place on a terminal, else as
    occasional lines."""
    terminal, reported = sys.stderr.isatty(), 0.0

    def show(line: str) -> None:
        nonlocal reported
        if terminal:
            click.echo(f"\r{line:<79}", nl=False, err=True)
        elif time.monotonic() - reported >= _TOLD_S:
            reported = time.monotonic()
            click.echo(line, err=True)

    return show


def _finish(lines: list[str], found: dict[str, Any], more: dict[str, Any], as_json: bool) -> None:
    if sys.stderr.isatty():
        click.echo(err=True)
    if as_json:
        click.echo(json.dumps({**more, **found}))
    else:
        click.echo("\n".join([*lines, *(f"{name}: {value}" for name, value in more.items())]))
