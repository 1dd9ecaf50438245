"""The zip of `make spark-package`; `tests/spark` submits it to a cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.helpers.spark_package import DEPLOY, spark_package

LIMIT_S = 600
PARTS = (
    *("alerts", "cli", "common", "ingest", "pages"),
    *("receiver", "reports", "segment", "tables"),
)


def test_the_package_has_all_that_the_commands_need(tmp_path: Path) -> None:
    package = spark_package(tmp_path / "dist")
    names = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[1] for name in names} == {"__init__.py", *PARTS}
    assert spark_package(tmp_path / "again").read_bytes() == package.read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(package)!r}); sys.argv = ['x', 'ingest', '--help']\n"
        "import sync, sync.ingest.ingest, sync.tables.hadoop, sync.tables.maintenance\n"
        "print(sync.__file__)\n"
        f"exec(open({str(DEPLOY / 'fleet.py')!r}).read())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(package))
    assert "--landing" in done.stdout
