"""Searches all targets, or those named, each for its time; says what was done and found.

    python -m tests.fuzz [--seconds N] [TARGET ...]

An input that breaks a promise, takes longer than `INPUT_S` or more memory than `MEMORY_MIB` is kept
in `findings/TARGET/`; then the exit status is 1. Mend the fault, move the input to `corpus/TARGET/`
under a name that tells what it was, and it is replayed with all tests from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from typing import Final, NamedTuple

from tests.fuzz import targets
from tests.fuzz.targets import Target

SECONDS: Final = 60.0
"""For each target, if nobody says otherwise."""
INPUT_S: Final = 10
"""Seconds that one input may take; the slowest takes some 0.05 s."""
MEMORY_MIB: Final = 512
"""Resident, all in all: five times what a search takes at its end."""
TOLD_LINES: Final = 40
"""Of the log of a search that found something: its last, with the traceback."""
GRACE_S: Final = 120.0
"""Seconds for a search to begin and end, beyond its time."""
NO_ATHERIS: Final = """\
atheris cannot be imported here: {error}.
`make fuzz` installs it where it has a wheel: CPython 3.11 to 3.13 on x86-64 Linux. What has been
found before is replayed by `make test` on any Python."""

_EXECUTIONS: Final = re.compile(r"stat::number_of_executed_units: *(\d+)")
_PULSE: Final = re.compile(r"^#(\d+)\t", re.MULTILINE)
_MEMORY: Final = re.compile(r"stat::peak_rss_mb: *(\d+)")


class Outcome(NamedTuple):
    """How one search went."""

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
    for seed in target.seeds():
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
    corpora = (str(scratch), str(targets.CORPUS / target.name))
    harness = (sys.executable, "-m", "tests.fuzz.harness", target.name)
    log = _run([*harness, *options, *corpora], seconds + GRACE_S)
    took = time.monotonic() - begun
    found = sorted({path.name for path in findings.iterdir()} - before)
    counts = _EXECUTIONS.findall(log) or _PULSE.findall(log) or ["0"]
    return Outcome(int(counts[-1]), took, int((_MEMORY.findall(log) or ["0"])[-1]), found, log)


def _run(command: list[str], most: float) -> str:
    """Run a search; one that does not end is killed, and its log tells so."""
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
            log, _ = process.communicate(timeout=most)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"{process.communicate()[0]}\nexit status: none, it did not end in {most} s\n"
    return log if process.returncode == 0 else f"{log}\nexit status {process.returncode}\n"


def report(target: Target, outcome: Outcome) -> bool:
    """Print how a search went; returns whether all is well."""
    well = not outcome.findings and "stat::number_of_executed_units" in outcome.log
    well = well and "\nexit status" not in outcome.log
    print(
        f"{target.name:<12} {outcome.executions:>10} executions {outcome.seconds:>6.0f} s"
        f" {outcome.memory_mib:>5} MiB {len(outcome.findings):>3} findings",
        flush=True,
    )
    for name in outcome.findings:
        print(f"  kept: {targets.FINDINGS / target.name / name}")
    if not well:
        lines = (line for line in outcome.log.splitlines() if not line.startswith(("#", "INFO")))
        print("\n".join(f"  {line[:300]}" for line in list(lines)[-TOLD_LINES:]))
    return well


def main() -> int:
    """Search, and return the exit status: 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Search by atheris.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets.names()))
    options = parser.parse_args()
    unknown = set(options.targets) - set(targets.names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    try:
        import atheris  # noqa: F401 - each search imports it for itself
    except ImportError as error:
        print(NO_ATHERIS.format(error=error), file=sys.stderr)
        return 1
    chosen = [targets.load(name) for name in options.targets or targets.names()]
    ill = [target.name for target in chosen if not report(target, search(target, options.seconds))]
    print(f"something was found: {', '.join(ill)}" if ill else "nothing was found")
    return 1 if ill else 0


if __name__ == "__main__":
    sys.exit(main())
