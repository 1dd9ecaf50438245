"""A standalone Spark cluster on loopback: a master and workers from PySpark's own jars."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import pyspark

from sync.tables.java import find_java

HOME: Final = Path(pyspark.__file__).parent

START_S: Final = 600.0
"""Seconds until a Spark daemon is ready, and until it has ended, on a loaded machine."""

_HERE: Final = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class Worker(NamedTuple):
    """A worker; its executors and their Python processes are its descendants."""

    process: subprocess.Popen[str]
    folder: Path

    def tree(self) -> list[psutil.Process]:
        """Return the worker's process, and all that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self.process.pid)
            return [worker, *worker.children(recursive=True)]
        return []

    def has_port(self, port: int) -> bool:
        """Return whether one of its processes has this local port."""
        for each in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(found.laddr.port == port for found in each.net_connections("tcp")):
                    return True
        return False

    def kill(self) -> None:
        """End all its processes by SIGKILL, as if the machine failed."""
        for each in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


class Cluster(NamedTuple):
    """A running cluster: the master's URL, its workers, and the environment for its clients."""

    master: str
    workers: Sequence[Worker]
    environment: Mapping[str, str]


@contextmanager
def spark_cluster(
    workers: int,
    folder: Path,
    *,
    memory: str = "600m",
    options: str = "",
    cores: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Run a master and workers of one core each within the block.

    Each worker has a folder of its own below `folder`, for all files of its executors, and `memory`
    for them. `options` go to each JVM. `cores` are lists of processors, as `taskset` takes them:
    of each worker with its executors, and the last one of the master.
    """
    environ = os.environ | {
        "JAVA_HOME": str(find_java(os.environ, folder / "java")),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": options,
    }
    pins: list[tuple[str, ...]] = [("taskset", "--cpu-list", each) for each in cores]
    pins = pins or [()] * (workers + 1)
    with ExitStack() as stack:
        _, line = stack.enter_context(
            _daemon("master.Master", "Starting Spark master at", environ, pins[-1], *_HERE)
        )
        url = line.rpartition(" at ")[2].strip()
        started = []
        for number in range(workers):
            own = folder / f"worker-{number}"
            words = ("--cores", "1", "--memory", memory, "--work-dir", str(own / "work"), url)
            scratch = {"SPARK_LOCAL_DIRS": str(own / "scratch")}
            environment, ready = environ | scratch, "Successfully registered"
            process, _ = stack.enter_context(
                _daemon("worker.Worker", ready, environment, pins[number], *_HERE, *words)
            )
            started.append(Worker(process, own))
        yield Cluster(url, started, environ)


@contextmanager
def _daemon(
    name: str, text: str, environ: Mapping[str, str], pin: Sequence[str], *words: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a Spark daemon; yield its process, and the first line that contains `text`."""
    command = [f"{HOME}/bin/spark-class", f"org.apache.spark.deploy.{name}"]
    process = subprocess.Popen(
        [*pin, *command, *words],
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
        yield process, line
    finally:
        limit.cancel()
        process.terminate()
        process.wait(START_S)
    rest.join(START_S)
    process.stderr.close()
