"""The zip of `make spark-package` on a cluster of a master and two workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from sync.common.fleet_folder import FleetFolder
from sync.tables.delta import local_tables
from sync.tables.java import find_java
from sync.tables.tables import read_events
from tests.helpers.fleet_tables import Lane, land, put, some_events, waiting_segments
from tests.helpers.jvm import FAST_JVM
from tests.helpers.spark_package import DEPLOY, spark_package

pytestmark = pytest.mark.spark

SPARK = Path(pyspark.__file__).parent
LIMIT_S = 600


@contextmanager
def daemon(name: str, marker: str, environ: dict[str, str], *args: str) -> Iterator[str]:
    """Run one of Spark's daemons; yield the first line of its log that contains `marker`."""
    process = subprocess.Popen(
        [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if marker in line), "")
        assert line, f"{name} never logged {marker!r}"
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        yield line
    finally:
        process.terminate()
        process.wait(timeout=LIMIT_S)
        limit.cancel()
    rest.join(LIMIT_S)
    process.stderr.close()


@pytest.mark.long
def test_an_ingest_on_a_cluster(spark: SparkSession, fleet: FleetFolder, tmp_path: Path) -> None:
    package = spark_package(tmp_path / "dist")
    lanes = [Lane(gateway=f"gw-{at:03}.example") for at in range(5)]
    for lane in lanes:
        for _ in range(4):
            land(fleet, lane.seal(some_events(50)))
    put(fleet.landing / "x.seg", b"spoiled" * 9)
    java = find_java(os.environ, tmp_path / "java")
    environ = os.environ | {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "scratch"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": FAST_JVM,
    }
    address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log_line = stack.enter_context(
            daemon("master.Master", "Starting Spark master at", environ, *address)
        )
        master = log_line.rpartition(" at ")[2].strip()
        small = ("--cores", "1", "--memory", "600m", "--work-dir")
        for number in range(2):
            args = (*address, *small, str(tmp_path / f"worker-{number}"), master)
            stack.enter_context(daemon("worker.Worker", "Successfully registered", environ, *args))
        done = subprocess.run(
            [
                *(SPARK / "bin" / "spark-submit", "--master", master),
                *("--conf", "spark.driver.host=127.0.0.1"),
                *("--conf", "spark.driver.bindAddress=127.0.0.1"),
                *("--conf", "spark.ui.enabled=false"),
                *("--conf", "spark.executor.memory=512m"),
                *("--py-files", package, DEPLOY / "fleet.py", "ingest", "--json"),
                *("--landing", f"file:{fleet.landing}", "--tables", f"file:{fleet.tables}"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env=environ,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    assert '"segments": 20, "events": 1000, "duplicates": 0, "quarantined": 1' in done.stdout
    # two executors, one on each worker, did the work
    assert all(list(tmp_path.glob(f"worker-{number}/app-*/*")) for number in range(2))
    events = read_events(spark, local_tables(fleet.tables).snapshot())
    rows = sorted(tuple(row) for row in events.select("gateway", "seq").collect())
    assert rows == sorted((lane.gateway, seq) for lane in lanes for seq in range(1, 201))
    assert waiting_segments(fleet) == set()
