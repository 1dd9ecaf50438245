"""Errors of the `fieldpost-fleet` command itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_EXTRA = """
import sys
for name in ("deltalake", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"):
    sys.modules[name] = None
from sync.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("command", "package"), [("ingest", "pyspark"), ("alerts", "pyarrow"), ("compact", "pyarrow")]
)
def test_a_missing_extra_is_named_with_the_way_to_install_it(
    tmp_path: Path, command: str, package: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, command, "--dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: {package} is not installed; run `pip install 'fieldpost[fleet]'` with the pip of"
        f" {sys.prefix}\n"
    )
