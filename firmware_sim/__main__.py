"""The `fieldpost-sim` command: simulated devices against a gateway, with a verdict.

Subcommands import what they need when they run, so that `--help` is fast.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from firmware_sim.fleet.command import fleet_command
from firmware_sim.scenarios.commands import attack_command, custody_command, workers_command

if TYPE_CHECKING:
    from firmware_sim.scenarios.count import CountResult, CountSettings, Progress
    from firmware_sim.scenarios.count_verdict import Verdict
    from firmware_sim.scenarios.record import RunRecord

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Test a Fieldpost gateway with simulated devices, or simulate the data of a fleet."""


@main.group("run")
def run_group() -> None:
    """Run a scenario. Exit status: 0 passed, 1 failed, 2 wrong usage."""


main.add_command(fleet_command)
run_group.add_command(custody_command)
run_group.add_command(attack_command)
run_group.add_command(workers_command)


@run_group.command("count")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the gateway.")
@click.option(
    "--port", type=click.IntRange(1, 65535), required=True, help="XMPP port of the gateway."
)
@click.option(
    "--domain", required=True, help="XMPP domain of the gateway; its certificate must name it."
)
@click.option("--ca", type=_FILE, required=True, help="PEM certificate of the gateway's CA.")
@click.option(
    "--accounts",
    type=_FILE,
    required=True,
    help="JSON file: an object of account names and passwords.",
)
@click.option(
    "--devices",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of devices.",
)
@click.option(
    "--messages",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    metavar="N",
    help="Number of events that each device sends.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the random times and faults."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.0, 86_400.0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time in which the events are sent.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0.0, 86_400.0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time for deliveries after --seconds.",
)
@click.option(
    "--faults",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    show_default=True,
    metavar="N",
    help="Fraction of events with a fault.",
)
@click.option(
    "--gateway", default="", help="JID of the gateway, if it is a component of that server."
)
@click.option(
    "--retry-base",
    type=click.FloatRange(0.1, 3600.0),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Time after which a device first repeats an unanswered request.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of the run: outboxes and settings. An interrupted run continues.",
)
@click.option("--gateway-dir", type=_FOLDER, help="Folder of the gateway, for the verdict.")
@click.option(
    "--events",
    type=_FILE,
    help="File with the output of `fieldpost events --json`, instead of --gateway-dir.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def count_command(
    *,
    domain: str,
    ca: Path,
    accounts: Path,
    devices: int,
    messages: int,
    retry_base: float,
    state: Path,
    gateway_dir: Path | None,
    events: Path | None,
    as_json: bool,
    **pace: Any,
) -> None:
    """Send assured events from many failing devices and check that each is logged once.

    The run ends when all events are delivered, or when --patience has passed.
    """
    from firmware_sim.device.limits import SendPolicy
    from firmware_sim.scenarios.count import CountSettings

    passwords = _passwords(accounts, devices)
    run = _begin(state, domain, tuple(passwords), messages)
    policy = SendPolicy(retry_base=retry_base, silence=max(10.0, 4 * retry_base))
    settings = CountSettings(ca_file=ca, passwords=passwords, state=state, policy=policy, **pace)
    begun = time.monotonic()
    ran = _run(run, settings)
    took = round(time.monotonic() - begun, 1)
    _finish(run, state, gateway_dir, events, as_json, {"seconds": took, **_named(ran)})


@main.command("verdict")
@click.option("--state", type=_FOLDER, required=True, help="Folder of the run.")
@click.option("--gateway-dir", type=_FOLDER, help="Folder of the gateway.")
@click.option(
    "--events",
    type=_FILE,
    help="File with the output of `fieldpost events --json`, instead of --gateway-dir.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verdict_command(
    state: Path, gateway_dir: Path | None, events: Path | None, as_json: bool
) -> None:
    """Compare the events that the devices of a run sent with the gateway's event log."""
    from firmware_sim.scenarios.record import RunMismatch, RunRecord

    if gateway_dir is None and events is None:
        raise click.UsageError("give --gateway-dir or --events")
    try:
        run = RunRecord.load(state)
    except RunMismatch as error:
        raise click.UsageError(str(error)) from error
    _finish(run, state, gateway_dir, events, as_json, {})


def _passwords(accounts: Path, devices: int) -> dict[str, str]:
    """Read the first DEVICES accounts of the file."""
    try:
        rows = json.loads(accounts.read_text())
    except ValueError as error:
        raise click.UsageError(f"{accounts} is not JSON: {error}") from error
    if not isinstance(rows, dict) or not all(isinstance(v, str) for v in rows.values()):
        raise click.UsageError(f"{accounts} is not a JSON object of names and passwords")
    if len(rows) < devices:
        raise click.UsageError(f"{accounts} has {len(rows)} accounts, not {devices}")
    return dict(list(rows.items())[:devices])


def _begin(state: Path, domain: str, names: tuple[str, ...], messages: int) -> RunRecord:
    from firmware_sim.scenarios.record import RunMismatch, RunRecord

    try:
        return RunRecord.begin(state, domain, names, messages)
    except RunMismatch as error:
        raise click.UsageError(str(error)) from error


def _run(run: RunRecord, settings: CountSettings) -> CountResult:
    import asyncio
    import logging

    from firmware_sim.errors import FirmwareError
    from firmware_sim.scenarios.count import count

    # Lost connections are part of every run; each device logs its own.
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    shown = _progress() if sys.stderr.isatty() else None
    try:
        return asyncio.run(count(run, settings, shown))
    except* FirmwareError as errors:
        _fail(str(errors.exceptions[0]))
    finally:
        if shown is not None:
            click.echo(err=True)


def _progress() -> Callable[[Progress], None]:
    def show(at: Progress) -> None:
        line = (
            f"\r{at.delivered}/{at.planned} delivered, {at.waiting} waiting,"
            f" {at.online} devices online, {at.faults} faults  "
        )
        click.echo(line, nl=False, err=True)

    return show


def _finish(
    run: RunRecord,
    state: Path,
    gateway_dir: Path | None,
    events: Path | None,
    as_json: bool,
    more: dict[str, Any],
) -> None:
    """Print the verdict; exit with 0 if it is exact, otherwise 1."""
    from firmware_sim.errors import FirmwareError

    try:
        found = _judge(run, state, gateway_dir, events)
    except (FirmwareError, ValueError, OSError) as error:
        _fail(str(error))
    if as_json:
        click.echo(json.dumps({"run": run.run, **more, **found.as_json()}))
    else:
        click.echo("\n".join([*found.lines(), *(f"{k}: {v}" for k, v in more.items())]))
    sys.exit(0 if found.passed else 1)


def _judge(run: RunRecord, state: Path, gateway_dir: Path | None, events: Path | None) -> Verdict:
    from firmware_sim.scenarios import gateway_log
    from firmware_sim.scenarios.count_verdict import judge
    from firmware_sim.scenarios.record import EVENT

    believed = run.believed(state)
    if events is not None:
        with events.open() as lines:
            return judge(run.planned, believed, gateway_log.of_run(lines, EVENT, run.run))
    if gateway_dir is not None:
        printed = gateway_log.from_gateway(gateway_dir)
        return judge(run.planned, believed, gateway_log.of_run(printed, EVENT, run.run))
    return judge(run.planned, believed, None)


def _named(ran: CountResult) -> dict[str, int]:
    faults = sorted((fault.value, count) for fault, count in ran.faults.items())
    offline = [(f"offline: {error}", count) for error, count in ran.errors.most_common()]
    return dict([*faults, *offline])


def _fail(message: str) -> NoReturn:
    click.echo(f"fieldpost-sim: {message}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
