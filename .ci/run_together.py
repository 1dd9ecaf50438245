"""Run commands at the same time, and print their outputs one after another, as soon as possible.

Usage: run_together.py COMMAND... Each is one string, split as a shell splits words. The exit status
is 0 if all succeed, else 1.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack


def main(argv: list[str]) -> int:
    """Run the commands of the command line."""
    if len(argv) < 2:
        sys.stderr.write("usage: run_together.py COMMAND...\n")
        return 2
    first, *others = (shlex.split(command) for command in argv[1:])
    with ExitStack() as stack:
        beside = []
        for command in others:
            output = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.kill)
            beside.append((process, output))
        statuses = [subprocess.run(first, check=False).returncode]
        for process, output in beside:
            statuses.append(process.wait())
            output.seek(0)
            sys.stdout.write(output.read().decode(errors="replace"))
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
