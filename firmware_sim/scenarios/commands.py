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
    ShowProgress = Callable[[str], None]

T = TypeVar("T")

_PROGRESS_INTERVAL_S: Final = 10.0  # between two lines of progress without a terminal
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


def _number(
    name: str, kind: click.ParamType[Any], default: float, help_: str
) -> Callable[[Any], Any]:
    """Make an option with a number, which the help shows as N."""
    return click.option(
        name, type=kind, default=default, show_default=True, metavar="N", help=help_
    )


def _seconds(name: str, default: float, help_: str) -> Callable[[Any], Any]:
    kind = click.FloatRange(0.0, 86_400.0)
    return click.option(
        name, type=kind, default=default, show_default=True, metavar="SECONDS", help=help_
    )


@click.command("custody")
@_number("--devices", click.IntRange(2, 1000), 100, "Number of devices.")
@_number("--messages", click.IntRange(1, 1_000_000), 20_000, "Number of messages of all devices.")
@_seconds("--seconds", 180.0, "Time in which the messages are sent.")
@_seconds("--patience", 180.0, "Maximum time for deliveries after --seconds.")
@_number("--faults", click.FloatRange(0.0, 1.0), 0.05, "Fraction of messages with a fault.")
@_number("--kills", click.IntRange(0, 1000), 10, "How often the gateway is killed.")
@_seed
@_state
@_as_json
def custody_command(*, state: Path | None, as_json: bool, **given: Any) -> None:
    """Send messages between devices at all levels, cause faults, and check each message.

    Creates its own gateway, and kills and restarts it. One in twenty devices never connects, and
    one in twenty reads slowly. A fault is a failure of a link or of a device.
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


class _AttackCommand(click.Command):
    """Lists the attacks below the options in `--help`."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each attack's name, and what it does."""
        from firmware_sim.attackers.__main__ import ALL

        with formatter.section("Attacks"):
            formatter.write_dl([(attack.name, attack.about) for attack in ALL])


@click.command("attack", cls=_AttackCommand)
@_number("--devices", click.IntRange(1, 1000), 10, "Number of honest devices.")
@_number(
    "--pace", click.FloatRange(0.1, 100.0), 5.0, "Assured events per second of an honest device."
)
@_seconds("--quiet", 10.0, "Duration of the quiet phase before the attack, and of the one after.")
@_seconds("--attacked", 40.0, "Least duration of the attack.")
@_number("--rate", click.FloatRange(20.0, 1e5), 500.0, "Stanzas per second of an attacker.")
@click.option(
    "--ceiling-mb",
    type=click.IntRange(0, 1 << 20),
    default=0,
    metavar="MIB",
    help="Memory limit of the gateway. By default it is computed from the configuration.",
)
@_number(
    "--times",
    click.FloatRange(1.0, 1e6),
    3.0,
    "Permitted growth of the 99th percentile of response times during the attack, as a factor.",
)
@click.option(
    "--attack", "attacks", multiple=True, metavar="NAME", help="Run only this attack; repeatable."
)
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

    Creates its own gateway. Honest devices send assured events before, during and after the
    attack. The attackers send with and without accounts. The run passes if the gateway's memory
    stays below its limit, the response times grow less than --times compared with the better of
    the two quiet phases, and the gateway's log contains the refusals.
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
@_number("--workers", click.IntRange(1, 1000), 20, "Number of workers of the queue.")
@_number("--items", click.IntRange(2, 1_000_000), 5_000, "Number of items of the queue.")
@_number("--members", click.IntRange(0, 100), 3, "Number of members of each share.")
@_seconds(
    "--seconds",
    60.0,
    "Time in which the second half of the items is published; the first half takes half of it.",
)
@_seconds("--patience", 120.0, "Maximum time to finish all items after they are published.")
@_number("--faults", click.FloatRange(0.0, 1.0), 0.05, "Fraction of deliveries with a fault.")
@_number("--kills", click.IntRange(0, 1000), 3, "How often the gateway is killed.")
@_seed
@_state
@_as_json
def workers_command(*, state: Path | None, as_json: bool, **given: Any) -> None:
    """Divide a queue among workers, cause faults, and check each item.

    Creates its own gateway. During the first half of the items there are no faults, to measure
    whether the workers get equal numbers of items. Then workers crash, hang, return items,
    disconnect and reconnect, and the gateway is killed and restarted. There are also three shares
    (shared subscriptions), one at each level; each gets a fifth of the number of items.
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


def _run(work: Callable[[ShowProgress], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario; print a failure in one line and exit with status 1."""
    from firmware_sim.errors import FirmwareError

    # Lost connections are part of every run; each device logs its own.
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        return asyncio.run(work(_progress_printer()))
    except* FirmwareError as errors:
        click.echo(f"fieldpost-sim: {errors.exceptions[0]}", err=True)
    sys.exit(1)


def _progress_printer() -> ShowProgress:
    """Return a function that shows progress on standard error: in place on a terminal, else as
    occasional lines."""
    terminal, reported = sys.stderr.isatty(), 0.0

    def show(line: str) -> None:
        nonlocal reported
        if terminal:
            click.echo(f"\r{line:<79}", nl=False, err=True)
        elif time.monotonic() - reported >= _PROGRESS_INTERVAL_S:
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
