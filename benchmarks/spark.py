"""Spark for benchmarks: processor time of all its processes, and a cluster on this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

from sync.tables.spark_session import spark_session
from tests.helpers.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

EXECUTOR_MEMORY: Final = "1g"
"""Heap of an executor of the cluster."""


def warm(spark: SparkSession) -> None:
    """Start what the first job starts: Python workers, and their imports."""
    spark.range(64).repartition(8).mapInArrow(lambda batches: batches, "id long").collect()


def in_new_process(call: Callable[..., Result], *arguments: object) -> Result:
    """Call a function in a new process, because a second Spark session in one process hangs.

    Arguments and results are pickled.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(call, *arguments).result()


def processor() -> float:
    """Return the processor seconds of this process and of all that it has started."""
    used = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used


@contextmanager
def cluster(workers: int, folder: Path, cores: Sequence[str] = ()) -> Iterator[SparkSession]:
    """Run a session on a standalone cluster on this machine, with workers of one core each.

    `cores` is that of `spark_cluster`.
    """
    with spark_cluster(workers, folder, memory="2g", cores=cores) as running:
        extra = {"spark.master": running.master, "spark.executor.memory": EXECUTOR_MEMORY}
        with spark_session("fieldpost-benchmark", extra=extra) as session:
            yield session
