"""Spark for benchmarks: processor time of all its processes, and a cluster on this machine."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

from sync.tables.java import find_java
from sync.tables.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

START_S: Final = 120.0
"""Seconds until a Spark daemon is ready, and until it has ended."""

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
def cluster(workers: int, folder: Path) -> Iterator[SparkSession]:
    """Run a session on a standalone cluster on this machine, with workers of one core each."""
    import pyspark

    java = find_java(os.environ, folder / "java")
    environ = os.environ | {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "PYSPARK_PYTHON": sys.executable,
    }
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        text = stack.enter_context(
            _daemon("master.Master", "Starting Spark master at", environ, *here)
        )
        master = text.rpartition(" at ")[2].strip()
        for number in range(workers):
            words = ("--cores", "1", "--memory", "2g", "--work-dir", str(folder / f"w{number}"))
            ready = _daemon(
                "worker.Worker", "Successfully registered", environ, *here, *words, master
            )
            stack.enter_context(ready)
        extra = {"spark.master": master, "spark.executor.memory": EXECUTOR_MEMORY}
        yield stack.enter_context(spark_session("fieldpost-benchmark", extra=extra))


@contextmanager
def _daemon(name: str, text: str, environ: Mapping[str, str], *words: str) -> Iterator[str]:
    """Run a Spark daemon; yield the first line that contains `text`."""
    command = [f"{environ['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}"]
    process = subprocess.Popen(
        [*command, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environ),
    )
    assert process.stderr is not None
    limit = threading.Timer(START_S, process.kill)
    limit.start()
    try:
        line = next((line for line in process.stderr if text in line), "")
        limit.cancel()
        if not line:
            raise RuntimeError(f"{name} did not print {text!r}")
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        yield line
    finally:
        limit.cancel()
        process.terminate()
        process.wait(START_S)
    rest.join(START_S)
    process.stderr.close()
