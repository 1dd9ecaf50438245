"""The search command: `python -m tests.fuzz [--seconds N] [TARGET ...]`.

An input that breaks a promise, takes longer than `INPUT_S` or needs more memory than `MEMORY_MIB`
is saved in `findings/TARGET/`, and the exit status is 1. After fixing the fault, add the input to
the corpus with `python -m tests.fuzz --keep findings/TARGET/FILE NAME`; all tests then replay it.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.fuzz import targets
from tests.fuzz.targets import FuzzInput, Target

SECONDS: Final = 60.0
"""Default time of a search per target."""
INPUT_S: Final = 10
"""Maximum seconds for one input; the slowest needs some 0.05 s."""
MEMORY_MIB: Final = 512
"""Maximum resident memory: five times what a search needs at its end."""
GRACE_S: Final = 120.0
"""Seconds for the start and the end of a search, beyond its time."""
NO_ATHERIS: Final = """\
atheris cannot be imported here: {error}.
`make fuzz` installs it if it has a wheel: CPython 3.11 to 3.13 on x86-64 Linux. `make test` replays
all known findings on any Python."""


def search(target: Target, seconds: float) -> bool:
    """Search one target; return whether nothing was found."""
    scratch, findings = targets.SCRATCH / target.name, targets.FINDINGS / target.name
    for folder in (scratch, findings):
        folder.mkdir(parents=True, exist_ok=True)
    known = (*targets.read_corpus(target.name), *targets.read_findings(target.name))
    for seed in (*target.seeds(), *(each.data for each in known)):
        (scratch / hashlib.sha256(seed).hexdigest()[:40]).write_bytes(seed)
    options = (
        f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={INPUT_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-dict={targets.DICTIONARY}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        "-verbosity=0",
    )
    harness = (sys.executable, "-m", "tests.fuzz.harness", target.name)
    print(f"{target.name}:", flush=True)
    try:
        done = subprocess.run(
            [*harness, *options, str(scratch)],
            cwd=targets.HERE.parents[1],
            timeout=seconds + GRACE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print("the search did not end")
        return False
    return done.returncode == 0


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
    bad = [target.name for target in chosen if not search(target, options.seconds)]
    print(f"failed, or with findings: {', '.join(bad)}" if bad else "nothing was found")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
