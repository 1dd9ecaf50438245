"""The commands of the installed packages.

`edge` and `sync` are common names. An installation has them in the folder `lib` of this package, so
that they and other packages of these names do not replace each other
(docs/explanation/decisions/0062-names-in-the-wheel.md).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(__file__).parent / "lib"
"""The folder of `edge` and `sync`. A checkout has none: they are beside this package."""


def use_library(folder: Path = LIBRARY) -> None:
    """Put the folder first on the path of this process and of the Pythons that it starts."""
    if folder.is_dir():
        sys.path.insert(0, str(folder))
        others = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join((str(folder), *([others] if others else [])))
