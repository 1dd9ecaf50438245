"""The command `fieldpost-sim fleet`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from firmware_sim.fleet.faults import FAULTS
from firmware_sim.fleet.settings import MAX_DAYS, MAX_GATEWAYS, FleetSettings
from firmware_sim.options import fail, json_option, number, seconds, seed_option


@click.command("fleet")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="New or empty folder for segments/ and truth.json.",
)
@number("--gateways", click.IntRange(1, MAX_GATEWAYS), 12, "Number of gateways.")
@number("--days", click.IntRange(1, MAX_DAYS), 2, "Duration of the simulated time.", "DAYS")
@seed_option()
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    metavar="TIME",
    help="Start of the simulated time (UTC): YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS."
    "  [default: --days ago]",
)
@number(
    "--readings",
    click.IntRange(8, 10_000_000),
    4_000,
    "Number of readings of each gateway per day.",
)
@seconds("--heartbeat", 60.0, "Time between two heartbeats of a gateway.", 1.0, 3_600.0)
@seconds(
    "--seal", 300.0, "Age of a segment's first event at which the gateway seals the segment.", 1.0
)
@click.option(
    "--faults",
    default="all",
    show_default=True,
    metavar="all|none|KIND,...",
    help=f"Faults to simulate: {', '.join(FAULTS)}.",
)
@number(
    "--per-fault",
    click.IntRange(1, MAX_GATEWAYS),
    1,
    "Number of gateways with each fault, if there are enough.",
)
@json_option("Print a summary as JSON.")
def fleet_command(
    *, out: Path, start: datetime | None, faults: str, as_json: bool, **options: Any
) -> None:
    """Write the segments of a simulated fleet, and the results that its report must show.

    The expected results are in truth.json. The same arguments, including --start, give the same
    bytes. This command needs no gateway and no centre.
    """
    from firmware_sim.errors import SimulationFailed
    from firmware_sim.fleet.simulate import write_fleet

    settings = FleetSettings(
        start=_start(start, options["days"]), faults=_faults(faults.split(",")), **options
    )
    try:
        truth = write_fleet(settings, out)
    except (SimulationFailed, OSError) as error:
        fail(str(error))
    totals = truth["totals"] | {"planted": len(truth["planted"])}
    click.echo(json.dumps(totals) if as_json else _line(totals, out))


def _start(start: datetime | None, days: int) -> int:
    """Return the start in milliseconds since 1970 UTC; by default, `days` before now."""
    if start is None:
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        start = now - timedelta(days=days)
    return round(start.replace(tzinfo=UTC).timestamp() * 1000)


def _faults(words: Sequence[str]) -> frozenset[str]:
    if words in (["all"], ["none"]):
        return frozenset(FAULTS if words == ["all"] else ())
    if unknown := sorted(set(words) - FAULTS.keys()):
        msg = f"--faults: unknown {', '.join(unknown)}; choose from {', '.join(FAULTS)}"
        raise click.UsageError(msg)
    return frozenset(words)


def _line(totals: dict[str, Any], out: Path) -> str:
    return (
        f"wrote {totals['files']:,} files of {totals['gateways']:,} gateways to {out}:"
        f" {totals['segments']:,} segments with {totals['events']:,} events;"
        f" {totals['planted']:,} faults planted, see truth.json"
    )
