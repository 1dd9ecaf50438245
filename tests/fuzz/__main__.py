"""The search command: `python -m tests.fuzz [--seconds N] [TARGET ...]`.

An input that breaks a promise, takes longer than `INPUT_S` or needs more memory than `MEMORY_MIB`
is saved in `findings/TARGET/`, and the exit status is 1. After fixing the fault, add the input to
the corpus with `python -m tests.fuzz --keep findings/TARGET/FILE NAME`; all tests then replay it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz import targets
from tests.fuzz.targets import FuzzInput, Target

SECONDS: Final = 60.0
"""Default time of a search per target."""
INPUT_S: Final = 10
"""Maximum seconds for one input; the slowest needs some 0.05 s."""
MEMORY_MIB: Final = 512
"""Maximum resident memory: five times what a search needs at its end."""
LOG_LINES: Final = 40
"""Lines of the end of a failed search's log to print."""
GRACE_S: Final = 120.0
"""Seconds for the start and the end of a search, beyond its time."""
NO_ATHERIS: Final = """\
atheris cannot be imported here: {error}.
`make fuzz` installs it if it has a wheel: CPython 3.11 to 3.13 on x86-64 Linux. `make test` replays
all known findings on any Python."""

_EXECUTIONS: Final = re.compile(r"stat::number_of_executed_units: *(\d+)")
_PULSE: Final = re.compile(r"^#(\d+)\t", re.MULTILINE)
_MEMORY: Final = re.compile(r"stat::peak_rss_mb: *(\d+)")


class Outcome(NamedTuple):
    """The result of a search."""

    executions: int
    seconds: float
    memory_mib: int
    findings: list[str]
    log: str


def search(target: Target, seconds: float) -> Outcome:
    """Search one target."""
    scratch, findings = targets.SCRATCH / target.name, targets.FINDINGS / target.name
    for folder in (scratch, findings):
        folder.mkdir(parents=True, exist_ok=True)
    known = (*targets.read_corpus(target.name), *targets.read_findings(target.name))
    for seed in (*target.seeds(), *(each.data for each in known)):
        (scratch / hashlib.sha256(seed).hexdigest()[:40]).write_bytes(seed)
    before = {path.name for path in findings.iterdir()}
    options = (
        f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={INPUT_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-dict={targets.DICTIONARY}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
    )
    begun = time.monotonic()
    harness = (sys.executable, "-m", "tests.fuzz.harness", target.name)
    log = _run([*harness, *options, str(scratch)], seconds + GRACE_S)
    duration = time.monotonic() - begun
    found = sorted({path.name for path in findings.iterdir()} - before)
    counts = _EXECUTIONS.findall(log) or _PULSE.findall(log) or ["0"]
    return Outcome(int(counts[-1]), duration, int((_MEMORY.findall(log) or ["0"])[-1]), found, log)


def _run(command: list[str], timeout: float) -> str:
    """Run a search and return its log; one that does not end is killed."""
    process = subprocess.Popen(
        command,
        cwd=targets.HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    with process:
        try:
            log, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"{process.communicate()[0]}\nexit status: none, it did not end in {timeout} s\n"
    return log if process.returncode == 0 else f"{log}\nexit status {process.returncode}\n"


def report(target: Target, outcome: Outcome) -> bool:
    """Print the result of a search; return whether nothing was found."""
    passed = not outcome.findings and "stat::number_of_executed_units" in outcome.log
    passed = passed and "\nexit status" not in outcome.log
    print(
        f"{target.name:<12} {outcome.executions:>10} executions {outcome.seconds:>6.0f} s"
        f" {outcome.memory_mib:>5} MiB {len(outcome.findings):>3} findings",
        flush=True,
    )
    for name in outcome.findings:
        print(f"  saved: {targets.FINDINGS / target.name / name}")
    if not passed:
        lines = (line for line in outcome.log.splitlines() if not line.startswith(("#", "INFO")))
        print("\n".join(f"  {line[:300]}" for line in list(lines)[-LOG_LINES:]))
    return passed


def main() -> int:
    """Search, or keep a finding; return the exit status: 0 if nothing was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Search for faults with atheris."
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time per target")
    parser.add_argument(
        "--keep", nargs=2, metavar=("FILE", "NAME"), help="add a finding to the corpus as NAME"
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets.names()))
    options = parser.parse_args()
    if options.keep:
        file, name = Path(options.keep[0]).resolve(), options.keep[1]
        targets.add_to_corpus(file.parent.name, FuzzInput(name, file.read_bytes()))
        return 0
    unknown = set(options.targets) - set(targets.names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    try:
        import atheris  # noqa: F401 - each search imports it in its own process
    except ImportError as error:
        print(NO_ATHERIS.format(error=error), file=sys.stderr)
        return 1
    chosen = [targets.load(name) for name in options.targets or targets.names()]
    bad = [target.name for target in chosen if not report(target, search(target, options.seconds))]
    print(f"failed, or with findings: {', '.join(bad)}" if bad else "nothing was found")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
