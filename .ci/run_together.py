"""Run two commands at the same time, and print the output of the second after that of the first.

Usage: run_together.py COMMAND COMMAND. Each is one string, split as a shell splits words. The exit
status is 0 if both succeed, else 1.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile


def main(argv: list[str]) -> int:
    """Run the commands of the command line."""
    if len(argv) != 3:
        sys.stderr.write("usage: run_together.py COMMAND COMMAND\n")
        return 2
    with tempfile.TemporaryFile() as output:
        beside = subprocess.Popen(shlex.split(argv[2]), stdout=output, stderr=subprocess.STDOUT)
        try:
            first = subprocess.run(shlex.split(argv[1]), check=False).returncode
            second = beside.wait()
        finally:
            beside.kill()
        output.seek(0)
        sys.stdout.write(output.read().decode(errors="replace"))
    return 1 if first or second else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
