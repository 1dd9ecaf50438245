"""The commands `fieldpost-sim run` and `fieldpost-sim verdict`.

The `run` commands show progress on standard error (`count` only on a terminal). Each command prints
a verdict, and exits with status 0 if the run passed, otherwise with 1. All scenarios except `count`
create their own gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click import FloatRange, IntRange

from firmware_sim.options import Decorator, fail, json_option, number, seconds, seed_option

if TYPE_CHECKING:
    from firmware_sim.scenarios.play import Result, ShowProgress
    from firmware_sim.scenarios.record import RunRecord
    from firmware_sim.scenarios.verdict import Verdict

    Scenario = Callable[[Any, ShowProgress], Coroutine[Any, Any, Result]]

T = TypeVar("T")

_PROGRESS_INTERVAL_S: Final = 10.0  # between two lines of progress without a terminal
_MIB: Final = 1024 * 1024
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
_NEW_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_STATE: Final = (
    "New or empty folder for all files. Default: a temporary folder, kept only on failure."
)


def _faults(default: float, of: str) -> Decorator:
    help_ = f"Fraction (0 to 1) of {of} with a fault."
    return number("--faults", FloatRange(0.0, 1.0), default, help_)


def _kills(default: int) -> Decorator:
    help_ = "Number of times that the gateway is killed."
    return number("--kills", IntRange(0, 1000), default, help_)


def _scenario(
    name: str, *options: Decorator, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., tuple[Scenario, Any]]], click.Command]:
    """Return a decorator that makes the command of a scenario that creates its own gateway.

    It decorates a function that returns the scenario and its settings, given the values of
    `options` and `seed`, and the folder of the run.
    """

    def decorate(choose: Callable[..., tuple[Scenario, Any]]) -> click.Command:
        @functools.wraps(choose)
        def run(*, state: Path | None, as_json: bool, **given: Any) -> None:
            with _folder(state) as folder:
                scenario, settings = choose(folder=folder, **given)
                result, took = _run(lambda show: scenario(settings, show))
                _finish(result.verdict, {"seconds": took, **result.happened}, as_json)

        command: Any = run
        state_option = click.option("--state", type=_NEW_FOLDER, help=_STATE)
        for option in reversed((*options, seed_option(), state_option, json_option())):
            command = option(command)
        return click.command(name, cls=cls)(command)

    return decorate


def _log_options(command: Decorator) -> Decorator:
    folder = "Folder of the gateway, to read its event log for the verdict."
    file = "File with the output of `fieldpost events --json`, instead of --gateway-dir."
    command = click.option("--events", type=_FILE, help=file)(command)
    return click.option("--gateway-dir", type=_FOLDER, help=folder)(command)


@click.command("count")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the gateway.")
@click.option("--port", type=IntRange(1, 65535), required=True, help="XMPP port of the gateway.")
@click.option("--domain", required=True, help="XMPP domain of the gateway, as in its certificate.")
@click.option("--ca", type=_FILE, required=True, help="PEM certificate of the gateway's CA.")
@click.option("--accounts", type=_FILE, required=True, help="JSON object of names to passwords.")
@number("--devices", IntRange(1, 1000), 20, "Number of devices.")
@number("--messages", IntRange(1, 100_000), 50, "Number of events that each device sends.")
@seed_option("Seed of the random times and faults.")
@seconds("--seconds", 30.0, "Time over which the events are spread.")
@seconds("--patience", 120.0, "Maximum time for deliveries after --seconds.")
@_faults(0.0, "events")
@click.option("--gateway", default="", help="JID of the gateway, if it is a component of --host.")
@seconds("--retry-base", 15.0, "Time before a device first repeats a request.", 0.1, 3600.0)
@click.option(
    "--state",
    type=_NEW_FOLDER,
    required=True,
    help="Folder for outboxes and settings. If it contains an interrupted run, this run continues.",
)
@_log_options
@json_option()
def count_command(
    *,
    domain: str,
    ca: Path,
    accounts: Path,
    devices: int,
    messages: int,
    retry_base: float,
    state: Path,
    as_json: bool,
    gateway_dir: Path | None,
    events: Path | None,
    **pace: Any,
) -> None:
    """Send assured events from devices with faults, and check that each is logged once.

    The run ends when all events are delivered, or after --seconds and --patience together.
    """
    from firmware_sim.device.limits import SendPolicy
    from firmware_sim.scenarios.count import CountSettings, count
    from firmware_sim.scenarios.record import RunRecord

    passwords = _passwords(accounts, devices)
    with _usage_errors():
        run = RunRecord.begin(state, domain, tuple(passwords), messages)
    policy = SendPolicy(retry_base=retry_base, silence=max(10.0, 4 * retry_base))
    settings = CountSettings(ca_file=ca, passwords=passwords, state=state, policy=policy, **pace)
    terminal = sys.stderr.isatty()  # elsewhere no progress is shown
    happened, took = _run(lambda show: count(run, settings, show if terminal else lambda _: None))
    _judge_count(run, state, gateway_dir, events, as_json, {"seconds": took, **happened})


@click.command("verdict")
@click.option(
    "--state",
    type=_FOLDER,
    required=True,
    help="Folder that `fieldpost-sim run count` was given as --state.",
)
@_log_options
@json_option()
def verdict_command(
    state: Path, gateway_dir: Path | None, events: Path | None, as_json: bool
) -> None:
    """Compare the events that the devices of a run sent with the gateway's event log."""
    from firmware_sim.scenarios.record import RunRecord

    if gateway_dir is None and events is None:
        raise click.UsageError("the gateway's log is missing; give --gateway-dir or --events")
    with _usage_errors():
        run = RunRecord.load(state)
    _judge_count(run, state, gateway_dir, events, as_json, {})


def _passwords(accounts: Path, devices: int) -> dict[str, str]:
    with _usage_errors(f"{accounts} is not JSON: "):
        rows = json.loads(accounts.read_text())
    if not isinstance(rows, dict) or not all(isinstance(v, str) for v in rows.values()):
        raise click.UsageError(f"{accounts} is not a JSON object of account names to passwords")
    if len(rows) < devices:
        text = f"{accounts} has {len(rows)} accounts, fewer than --devices {devices}"
        raise click.UsageError(text)
    return dict(list(rows.items())[:devices])


def _judge_count(
    run: RunRecord,
    state: Path,
    gateway_dir: Path | None,
    events: Path | None,
    as_json: bool,
    happened: Mapping[str, Any],
) -> None:
    """Judge a run and finish the command (see `_finish`).

    The gateway's event log is read from the file `events` or, without it, from `gateway_dir`. If
    both are None, only the deliveries according to the devices are judged.
    """
    from firmware_sim.device.errors import FirmwareError
    from firmware_sim.scenarios import gateway_command
    from firmware_sim.scenarios.count_verdict import judge

    rows: list[dict[str, Any]] | None = None
    try:
        believed = run.believed(state)
        if events is not None:
            rows = list(gateway_command.objects(events.read_text().split("\n")))
        elif gateway_dir is not None:
            rows = gateway_command.read(gateway_dir, "events")
        logged = None if rows is None else gateway_command.of_run(rows, run.run)
        verdict = judge(run.planned, believed, logged)
    except (FirmwareError, ValueError, OSError) as error:
        fail(str(error))
    _finish(verdict, {"run": run.run, **happened}, as_json)


@_scenario(
    "custody",
    number("--devices", IntRange(2, 1000), 100, "Number of devices."),
    number("--messages", IntRange(1, 1_000_000), 20_000, "Number of messages in total."),
    seconds("--seconds", 180.0, "Time over which the messages are spread."),
    seconds("--patience", 180.0, "Maximum time for deliveries after --seconds."),
    _faults(0.05, "messages"),
    _kills(10),
)
def custody_command(**options: Any) -> tuple[Scenario, Any]:
    """Send messages of all QoS levels between devices, cause faults, and check each message.

    Creates its own gateway, and kills and restarts it. One in twenty devices never connects, and
    one in twenty reads slowly. A fault is a failure of a link or of a device.
    """
    from firmware_sim.scenarios.custody import custody
    from firmware_sim.scenarios.custody_plan import CustodyPlan

    return custody, CustodyPlan(**options)


class _AttackCommand(click.Command):
    """A command whose `--help` lists the attacks below the options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name and the description of each attack."""
        from firmware_sim.attackers.__main__ import ALL

        with formatter.section("Attacks"):
            formatter.write_dl([(attack.name, attack.about) for attack in ALL])


_CEILING: Final = "Permitted memory of the gateway; 0 computes it from the configuration."
_TIMES: Final = "Permitted ratio of the 99th percentile of response times to that without attack."
_ONLY: Final = "Run only this attack; may be repeated."


@_scenario(
    "attack",
    number("--devices", IntRange(1, 1000), 10, "Number of honest devices."),
    number("--pace", FloatRange(0.1, 100.0), 5.0, "Events per second of each honest device."),
    seconds("--quiet", 10.0, "Duration of each quiet phase, before and after the attack."),
    seconds("--attacked", 40.0, "Minimum duration of the attack."),
    number("--rate", FloatRange(20.0, 1e5), 500.0, "Maximum stanzas per second of an attacker."),
    number("--ceiling-mb", IntRange(0, 1 << 20), 0, _CEILING, "MIB"),
    number("--times", FloatRange(1.0, 1e6), 3.0, _TIMES),
    click.option("--attack", "attacks", multiple=True, metavar="NAME", help=_ONLY),
    click.option(
        "--judge-times/--no-judge-times",
        default=True,
        show_default=True,
        help="Judge response times, and run the attackers only while the processor is idle.",
    ),
    cls=_AttackCommand,
)
def attack_command(
    ceiling_mb: int, attacks: tuple[str, ...], **options: Any
) -> tuple[Scenario, Any]:
    """Attack a gateway, and measure the effect on honest devices and on memory.

    Creates its own gateway. Honest devices send assured events before, during and after the attack.
    Some attackers have accounts. The run passes if the gateway keeps running within its memory
    limit, logs each honest message once and all refusals, and if the 99th percentile of response
    times during the attack, divided by the lower of those before and after it, is at most --times.
    """
    from firmware_sim.attackers.__main__ import named
    from firmware_sim.scenarios.attack import AttackSettings, attack

    with _usage_errors():
        chosen = named(attacks)
    return attack, AttackSettings(attacks=chosen, ceiling=ceiling_mb * _MIB, **options)


@_scenario(
    "workers",
    number("--workers", IntRange(1, 1000), 20, "Number of workers of the queue."),
    number("--items", IntRange(2, 1_000_000), 5_000, "Number of items of the queue."),
    number("--members", IntRange(0, 100), 3, "Number of members of each share."),
    seconds("--seconds", 60.0, "Time to publish the second half; the first takes half this time."),
    seconds("--patience", 120.0, "Maximum time to finish the items after each half is published."),
    _faults(0.05, "deliveries in the second half"),
    _kills(3),
)
def workers_command(**options: Any) -> tuple[Scenario, Any]:
    """Divide a queue among workers, cause faults, and check each item.

    Creates its own gateway. The first half of the items is processed without faults, to check
    whether the workers get equal numbers of items. Then workers crash, hang, return items,
    disconnect and reconnect, and the gateway is killed and restarted. There are also three shares
    (shared subscriptions), one for each quality of service level. Each gets a fifth as many items
    as the queue.
    """
    from firmware_sim.scenarios.workers import workers
    from firmware_sim.scenarios.workers_plan import WorkersPlan

    return workers, WorkersPlan(**options)


@contextlib.contextmanager
def _usage_errors(prefix: str = "") -> Iterator[None]:
    """Raise each `ValueError` as an error of the command's arguments."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{prefix}{error}") from error


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """Provide the folder of a run: `path`, or a temporary one that is deleted if the run passes."""
    if path is not None:
        if path.exists() and any(path.iterdir()):
            raise click.UsageError(f"{path} is not empty; give a new folder")
        yield path
        return
    temporary = Path(tempfile.mkdtemp(prefix="fieldpost-sim-"))
    try:
        yield temporary / "run"
    except BaseException:
        if (temporary / "run").exists():
            click.echo(f"files are kept in {temporary / 'run'}", err=True)
        else:
            temporary.rmdir()
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def _run(work: Callable[[ShowProgress], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a scenario; return its result and duration in seconds. Exit with 1 on an error."""
    from firmware_sim.device.errors import FirmwareError

    # Lost connections are part of every run; each device logs its own.
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    begun = time.monotonic()
    try:
        result = asyncio.run(work(_progress_printer()))
    except FirmwareError as error:
        fail(str(error))
    except ExceptionGroup as errors:
        if errors.split(FirmwareError)[1] is not None:
            raise
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        fail(str(first))
    finally:
        if sys.stderr.isatty():
            click.echo(err=True)
    return result, round(time.monotonic() - begun, 1)


def _progress_printer() -> ShowProgress:
    """Return a function that shows progress on standard error.

    On a terminal, it overwrites one line; otherwise, it prints a line every ten seconds.
    """
    terminal, reported = sys.stderr.isatty(), 0.0

    def show(line: str) -> None:
        nonlocal reported
        if terminal:
            click.echo(f"\r{line:<79}", nl=False, err=True)
        elif time.monotonic() - reported >= _PROGRESS_INTERVAL_S:
            reported = time.monotonic()
            click.echo(line, err=True)

    return show


def _finish(verdict: Verdict, happened: Mapping[str, Any], as_json: bool) -> None:
    """Print a verdict and what happened; exit with status 1 if the run did not pass."""
    if as_json:
        click.echo(json.dumps({**happened, **verdict.as_json()}))
    else:
        rows = (f"{name}: {value}" for name, value in happened.items())
        click.echo("\n".join([*verdict.lines(), *rows]))
    if not verdict.passed:
        sys.exit(1)
