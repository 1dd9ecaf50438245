"""The recipe for Spark of `query-the-tables.md`; `tests/docs` runs the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.helpers.committed import Committer
from tests.helpers.small_tables import at, event

pytestmark = pytest.mark.spark

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "query-the-tables.md").read_text("utf-8")


def test_the_recipe_for_spark(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Committer(tmp_path).commit([event("gw-001", time=at(0)), event("gw-001", time=at(-(10**6)))])
    recipe = re.search(r"^## Spark\n.*?^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert recipe is not None
    exec(recipe[1].replace("/srv/fleet/tables", str(tmp_path)), {})  # noqa: S102
    assert "| gw-001|logs|    1|" in capsys.readouterr().out
