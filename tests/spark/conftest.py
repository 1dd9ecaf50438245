"""One Spark session for all tests of this folder."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sync.common.fleet_folder import FleetFolder
from tests.helpers.fleet_command import Command, fleet_command
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.jvm import FAST_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LONG = os.environ.get("FIELDPOST_TEST_LONG") == "1"

SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.codegen.cache.maxEntries": "100",
}
"""By default, Spark keeps the plans of 1,000 queries, and as many compiled classes.
Those of all reports together fill the heap."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Compiling code that runs once over ten rows takes half of all time. `make test-long` compiles, as
users do, and so do the processes of the normal run."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from sync.tables.spark_session import spark_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        settings = SMALL if LONG else SMALL | INTERPRETED
        with spark_session("fieldpost-tests", extra=settings, options=FAST_JVM) as session:
            session.range(4).mapInArrow(lambda batches: batches, "id long").collect()
            yield session


@pytest.fixture(scope="module", autouse=True)
def free_caches() -> Iterator[None]:
    """Free what the tests of a module have cached."""
    yield
    from pyspark.sql import SparkSession

    if session := SparkSession.getActiveSession():
        session.catalog.clearCache()


@pytest.fixture
def command_in_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run commands in this process with the tests' running Spark session."""

    @contextlib.contextmanager
    def session(name: str, **_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("sync.tables.spark_session.spark_session", session)
    return fleet_command


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")
