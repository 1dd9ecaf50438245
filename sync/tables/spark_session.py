"""Create Spark sessions with the project's settings and limits.

Under `spark-submit`, the cluster determines master, memory, hosts and Python; only the settings
that the tables and the workers' memory depend on are set here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sync.common.errors import FleetError
from sync.common.text import os_error
from sync.tables.java import find_java

if TYPE_CHECKING:  # commands that only need the limits here start without pyspark
    from pyspark.sql import SparkSession

ANSI: Final = "spark.sql.ansi.enabled"
"""The option that makes an overflow an error in Spark; it is true by default."""

DRIVER_MEMORY: Final = "1g"
"""Heap of the Spark driver: enough for 2,000 ordinary segments and the sort buffers of a report."""

BATCH_FILES: Final = 2_000
"""Maximum number of files in a batch: the driver holds a row for each; a crash repeats a batch."""

SHUFFLE_PARTITIONS: Final = 8
"""Partitions after a shuffle: a fleet's tables are small, Spark's default 200 is for larger ones.
"""

TASK_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of files that one task reads: of segments, whose events it holds in memory, or of
the tables. A task that fails is repeated."""

SORTED_ROWS: Final = 65_536
"""Rows that a sort holds before it spills to disk: some 16 MB of events. With a heap of 1 GB, each
of two concurrent tasks has at least 54 MB, each of four 27 MB. If a sort took all of this, the
window functions before it in the same task would fail."""

QUICK_EVENTS: Final = 1_000_000
"""Number of events up to which a session is set up to start and plan fast, not to compute fast. The
number of new events determines the JVM's settings, the number of all events Spark's settings,
because a report reads the stored summaries of all events."""

QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""JVM options for the simplest compiler and garbage collector: with the defaults, half of the
processor time of a short report is spent on optimising code that runs once. The code cache is set
to 240 MB because the simplest compiler's default, 48 MB, is too small for all reports together."""

QUICK: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Spark settings for few rows: expressions are interpreted, because compiling some hundred of them
takes longer than evaluating them. Plans are not revised between stages: there is one stage."""

_RAISED: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE
)
"""A stack trace of Python in a text, with the error's first line as its group."""

_LOG4J: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}{UTC} %p %c: %m%n%ex
logger.loopback.name = org.apache.spark.util.Utils
logger.loopback.level = error
logger.scratch.name = org.apache.spark.SparkConf
logger.scratch.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


def settings(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all settings of a session on this machine; `extra` takes precedence."""
    return (
        {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.lightweightPlanChangeValidation": "false",
            "spark.python.sql.dataFrameDebugging.enabled": "false",
            "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        }
        | submitted_settings()
        | dict(extra or {})
    )


def submitted_settings() -> dict[str, str]:
    """Return the settings that apply wherever Spark runs; they override those of `spark-submit`.

    Unions do not report their partitioning: in Spark 4.1 to 4.3, they would give wrong rows if one
    of their parts is read again (SPARK-59122). Spark reads and writes no files of the fleet itself.
    """
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.unionOutputPartitioning": "false",
        "spark.shuffle.spill.numElementsForceSpillThreshold": str(SORTED_ROWS),
        # Reading ahead takes 2 MB of heap for each spilled file, and a sort merges all at once.
        "spark.unsafe.sorter.spill.read.ahead.enabled": "false",
    }


def require_java() -> None:
    """Raise FleetError unless Spark runs already or finds a suitable Java."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="fieldpost-java-") as folder:
            find_java(os.environ, Path(folder))


@contextlib.contextmanager
def spark_session(
    name: str, *, extra: Mapping[str, str] | None = None, options: str = ""
) -> Iterator[SparkSession]:
    """Run Spark in this process within the block, and end it with its JVM.

    `name` is the application's; `options` go to the JVM. Under `spark-submit` the session is the
    cluster's, and so are its Java and Python. Raises FleetError if no Java is suitable or Spark
    does not start.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started this process and the JVM
        session = _create(name, submitted_settings())
        try:
            yield session
        finally:
            session.stop()
        return
    with tempfile.TemporaryDirectory(prefix="fieldpost-spark-") as folder:
        scratch = Path(folder)
        java = find_java(os.environ, scratch / "java")
        with _environment(java):
            session = _start(name, scratch, settings(extra), options)
            try:
                yield session
            finally:
                _stop(session)


def spark_for(name: str, events: int, new: int) -> AbstractContextManager[SparkSession]:
    """Return `spark_session` with settings for tables of `events` events, of which `new` are new.

    An event is new until the stored daily summaries include it.
    """
    if new > QUICK_EVENTS:
        return spark_session(name)
    extra = QUICK if events <= QUICK_EVENTS else None
    return spark_session(name, extra=extra, options=QUICK_JVM)


@contextlib.contextmanager
def spark_on_demand(
    start: Callable[[], AbstractContextManager[SparkSession]],
) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that starts a session at its first call; the block ends it."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(start()))


def _start(name: str, scratch: Path, conf: Mapping[str, str], options: str) -> SparkSession:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    jvm = f"-Duser.timezone=UTC -Dlog4j2.configurationFile={log4j.as_uri()} {options}".strip()
    own = {
        "spark.master": "local[*]",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": jvm,
    }
    return _create(name, own | dict(conf))


def _create(name: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).config(map=dict(conf))
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise FleetError(f"Spark does not start: {summarise_error(error)}") from error


def _stop(session: SparkSession) -> None:
    """Stop Spark and wait for its JVM, which would otherwise outlive the block for a moment."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(timeout=60)
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextlib.contextmanager
def _environment(java_home: Path) -> Iterator[None]:
    wanted = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    before = {key: os.environ[key] for key in wanted if key in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key in wanted:
            os.environ.pop(key, None)
        os.environ.update(before)


@contextlib.contextmanager
def spark_errors(log: Path | None) -> Iterator[None]:
    """Convert each error of Spark in the `with` block to a FleetError with a text of one line.

    Stack traces of errors, and what the JVM and its workers write to stderr, go to the file `log`,
    which is overwritten at the start. If `log` is None, nothing is redirected.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    with _stderr_into(log):
        try:
            yield
        except (PySparkException, Py4JError) as error:
            _trace(error, log)
            raise FleetError(f"Spark failed: {summarise_error(error)}{_where(log)}") from error
        except FleetError as error:
            _trace(error, log)
            if error.__cause__ is None:
                raise
            raise FleetError(f"{error}{_where(log)}") from error


@contextlib.contextmanager
def configured(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Apply the settings `wanted` within the block, and restore the previous ones after it."""
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def without_overflow_errors(spark: SparkSession) -> AbstractContextManager[None]:
    """Turn overflow errors in the block into null or wrong values.

    A gateway may send a number of any size. If one overflows, that gateway's results are wrong, but
    those of all other gateways are computed.
    """
    return configured(spark, {ANSI: "false"})


def _trace(error: BaseException, log: Path | None) -> None:
    """Append the error's stack trace to the log, if this is possible; without a log, to stderr."""
    text = "".join(traceback.format_exception(error))
    if log is None:
        sys.stderr.write(text)
        return
    with (
        contextlib.suppress(OSError),
        log.open("a", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.write(text)


def _where(log: Path | None) -> str:
    return f" (more in {log})" if log else ""


@contextlib.contextmanager
def _stderr_into(log: Path | None) -> Iterator[None]:
    if log is None:
        yield
        return
    sys.stderr.flush()
    log.unlink(missing_ok=True)
    kept = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def summarise_error(error: BaseException) -> str:
    """Return the first line of an error's text, or its type if there is none, up to 300 characters.

    For an error of the JVM, it is the text of the innermost cause; for one of a task in Python, the
    error that the task raised.
    """
    if isinstance(error, OSError):
        return os_error(error)[:300]
    java = getattr(error, "java_exception", None)
    try:
        text = str(error)
    except AssertionError:  # Spark asks its session for the text, and the session may have ended
        text = str(getattr(error, "_desc", ""))
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        text = str(java.toString())
    raised = _RAISED.findall(text)
    text = raised[-1] if raised else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
