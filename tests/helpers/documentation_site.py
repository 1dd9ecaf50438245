"""The documentation's site, built from this checkout as `make docs` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_S = 300


def missing() -> str:
    """Return why the site cannot be built here; "" if it can."""
    lacking = [name for name in ("mkdocs", "material") if find_spec(name) is None]
    return f"{' and '.join(lacking)} not installed (the extra `docs`)" if lacking else ""


def build_site(folder: Path) -> Path:
    """Build the site in `folder` and return it; fail if mkdocs has anything to report."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder
