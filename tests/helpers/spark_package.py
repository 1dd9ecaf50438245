"""Make the zip that `spark-submit` takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy" / "spark"


def spark_package(folder: Path) -> Path:
    subprocess.run([sys.executable, DEPLOY / "package.py", folder], check=True, timeout=600)
    return folder / "fieldpost-spark.zip"
