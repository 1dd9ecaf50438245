"""The command `python -m benchmarks`: run benchmarks and write pages with the results.

Each topic has a page under `benchmarks/results/`. `--quick` only checks that a topic runs: its page
is printed, not written. The exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks import (
    attack,
    cluster,
    commits,
    exchanges,
    fronts,
    history,
    ingest,
    landing,
    machine,
    memory,
    mqtt,
    parse,
    peers,
    queues,
    reconnect,
    relay,
    report,
    reports,
    seconds,
    segments,
    wear,
)

SCRATCH: Final = Path(__file__).parents[1] / ".benchmarks"
"""Folder for the servers' data. It is on the checkout's disk because the system's temporary folder
may be in memory, where fsync costs nothing."""

TOPICS: Final[dict[str, Callable[[report.Settings], report.Topic]]] = {
    "parse": parse.measure,
    "commit": commits.measure,
    "exchanges": exchanges.measure,
    "fronts": fronts.measure,
    "attack": attack.measure,
    "relay": relay.measure,
    "queues": queues.measure,
    "peers": peers.measure,
    "mqtt": mqtt.measure,
    "memory": memory.measure,
    "reconnect": reconnect.measure,
    "wear": wear.measure,
    "segments": segments.measure,
    "landing": landing.measure,
    "ingest": ingest.measure,
    "history": history.measure,
    "reports": reports.measure,
    "seconds": seconds.measure,
    "cluster": cluster.measure,
}

SPARK: Final = ("ingest", "history", "reports", "seconds", "cluster")
"""Topics that need Java."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the topics on the command line; return the exit status."""
    options = _options(arguments)
    SCRATCH.mkdir(exist_ok=True)
    print(f"{'quick run: ' if options.quick else ''}{', '.join(options.topics)}", flush=True)
    missed = False
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        settings = report.Settings(Path(folder).resolve(), options.quick, options.share)
        head = machine.describe(settings.folder)
        for name in options.topics:
            began = time.perf_counter()
            topic = TOPICS[name](settings)
            text = report.page(topic, head)
            print(f"\n{text}\n({name} took {time.perf_counter() - began:.0f} s)", flush=True)
            missed = missed or not all(goal.reached for goal in topic.goals)
            if not options.quick:
                options.results.mkdir(exist_ok=True)
                (options.results / f"{topic.name}.md").write_text(text, "utf-8")
    return 0 if options.quick or not missed else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Run benchmarks and write their results."
    )
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", help=f"one of {', '.join(TOPICS)}; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="only check that the topics run")
    parser.add_argument(
        "--share", type=float, default=1.0, help="part of the full sizes of `cluster`"
    )
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="folder for the pages")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="folder on the measured disk")
    options = parser.parse_args(arguments)
    options.topics = options.topics or list(TOPICS)
    if unknown := set(options.topics) - set(TOPICS):
        parser.error(f"unknown topic: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
