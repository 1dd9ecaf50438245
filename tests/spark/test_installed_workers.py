"""Spark's workers with installed wheels, beside another distribution whose package is `sync`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.installation import Installation, other_packages
from tests.helpers.wheel import build

pytestmark = [pytest.mark.long, pytest.mark.spark]

WORK = """
import fieldpost
fieldpost.use_library()
from sync.tables.spark_session import spark_session

def imported(_):
    import sync.segment
    return sync.segment.__file__

with spark_session("names") as spark:
    print(*spark.sparkContext.parallelize([1], 1).map(imported).collect())
"""


def test_workers_import_the_installed_packages(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "venv")
    installation.install(build(tmp_path), *other_packages(tmp_path / "others"))
    found = installation.run("python3", "-c", WORK).strip()
    assert Path(found).is_relative_to(installation.site / "fieldpost" / "lib")
