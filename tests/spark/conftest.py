"""One Spark for all the tests of this folder, warmed by one Arrow job."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from tests.helpers.jvm import FAST_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sync.central.folders import FleetFolder

SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from sync.central.session import spark_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with spark_session("fieldpost-tests", extra=SMALL, options=FAST_JVM) as session:
            session.range(4).mapInArrow(lambda batches: batches, "id long").collect()
            yield session


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    from tests.helpers.fleet_tables import fleet_folder

    return fleet_folder(tmp_path / "fleet")
