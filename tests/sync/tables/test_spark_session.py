"""The Spark session, as far as it can be tested without starting Spark; `tests/spark` starts it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from sync.common.errors import FleetError
from sync.tables.spark_session import (
    QUICK,
    QUICK_EVENTS,
    QUICK_JVM,
    settings,
    spark_errors,
    spark_for,
    spark_on_demand,
    spark_session,
    submitted_settings,
    summarise_error,
)


class JavaCause:
    """A throwable as py4j gives it: it has a cause, or none."""

    def __init__(self, text: str, cause: JavaCause | None = None) -> None:
        self._text = text
        self._cause = cause

    def getCause(self) -> JavaCause | None:
        return self._cause

    def toString(self) -> str:
        return self._text


class FromJava(Exception):
    """An error that came over from the JVM."""

    def __init__(self, java: JavaCause) -> None:
        super().__init__("An error occurred while calling o1.parquet")
        self.java_exception = java


class Late(Exception):
    """An error that Spark raised, once its session is over."""

    def __init__(self, told: str) -> None:
        super().__init__()
        self._desc = told

    def __str__(self) -> str:
        raise AssertionError


NO_SPACE = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("\n  first\nsecond"), "first"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 1000), "x" * 300),
        (Late("[CAST_OVERFLOW] too large\nmore"), "[CAST_OVERFLOW] too large"),
        (Late(""), "Late"),
        (FromJava(JavaCause("Job aborted", JavaCause(f"{NO_SPACE}\n\tat x"))), NO_SPACE),
    ],
    ids=["first line", "no text", "long", "session over", "session over, no text", "Java"],
)
def test_the_reason_of_an_error_in_one_line(error: Exception, reason: str) -> None:
    assert summarise_error(error) == reason


def test_what_spark_raises_is_told_in_one_line_and_traced_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("of the run before")

    def breaks() -> None:
        os.write(2, b"from the JVM\n")
        raise PySparkException("it broke\nmore")

    with (
        pytest.raises(FleetError, match=r"^Spark failed: it broke \(more in .*\.log\)$"),
        spark_errors(log),
    ):
        breaks()
    told = log.read_text()
    assert told.startswith("from the JVM\n")
    assert "Traceback" in told
    assert log.stat().st_mode & 0o777 == 0o600
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"


def test_our_own_errors_point_to_the_log_only_where_it_has_more(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with pytest.raises(FleetError, match=r"^plain$"), spark_errors(log):
        raise FleetError("plain")
    with pytest.raises(FleetError, match=r"^caused \(more in "), spark_errors(log):
        raise FleetError("caused") from ValueError("why")


def test_without_a_log_nothing_is_diverted(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FleetError, match=r"^Spark failed: it broke$"), spark_errors(None):
        raise PySparkException("it broke")
    assert "Traceback" in capfd.readouterr().err


def test_what_is_asked_for_is_laid_over_the_settings() -> None:
    assert settings({"spark.driver.memory": "4g"})["spark.driver.memory"] == "4g"


def test_the_raw_local_file_system_is_this_machines_alone() -> None:
    """S3A and YARN cast the local one to Hadoop's own kind: a ClassCastException with the raw."""
    assert settings()["spark.hadoop.fs.file.impl"].endswith(".RawLocalFileSystem")
    assert not [name for name in submitted_settings() if name.startswith("spark.hadoop.fs.")]


STARTS_NOT = """
import os, sys
from pathlib import Path
from sync.common.errors import FleetError
from sync.tables.spark_session import spark_session
before = dict(os.environ)
try:
    with spark_session("broken"):
        sys.exit("it started")
except FleetError as error:
    print(error)
sys.exit(os.environ != before)
"""


def test_a_java_that_does_not_run_spark_is_one_line(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] || exit 1\necho \'openjdk version "17.0.1"\' >&2\n'
    )
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", STARTS_NOT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"JAVA_HOME": str(java.parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Spark does not start: ")
    assert done.stdout.count("\n") == 1


def test_without_java_no_session_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FleetError, match="Spark needs Java"), spark_session("none"):
        pytest.fail("it started")


def test_under_spark_submit_the_cluster_keeps_its_own() -> None:
    submitted = submitted_settings()
    own = ("driver", "executor", "master", "local", "ui.")
    assert not [name for name in submitted if name.removeprefix("spark.").startswith(own)]
    assert submitted.items() <= settings().items()


def test_no_union_tells_how_it_is_partitioned() -> None:
    # Spark 4.3 gave a lane two rows in the report on completeness, one of them with the events
    # unexplained that the gateway had declared: test_simulated_fleet.py plants evictions.
    assert submitted_settings()["spark.sql.unionOutputPartitioning"] == "false"


class Sessions:
    """Records how sessions are started and ended in place of `spark_session`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[object] = []
        monkeypatch.setattr("sync.tables.spark_session.spark_session", self._session)

    @contextlib.contextmanager
    def _session(self, name: str, **settings: Any) -> Iterator[str]:
        self.log.append((name, settings))
        yield name
        self.log.append("ended")


def test_few_events_need_a_session_that_plans_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch)
    few, many = QUICK_EVENTS, QUICK_EVENTS + 1
    for events, new in ((0, 0), (few, few), (many, few), (many, many)):
        with spark_for("x", events, new):
            pass
    jvm = {"options": QUICK_JVM}
    assert [each for each in sessions.log if each != "ended"] == [
        ("x", {"extra": QUICK} | jvm),
        ("x", {"extra": QUICK} | jvm),
        ("x", {"extra": None} | jvm),
        ("x", {}),
    ]


def test_spark_starts_on_demand_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch)
    with spark_on_demand(lambda: spark_for("x", 0, 0)):
        assert sessions.log == []
    with spark_on_demand(lambda: spark_for("x", 2 * QUICK_EVENTS, 2 * QUICK_EVENTS)) as session:
        assert session() is session()
        assert sessions.log == [("x", {})]
    assert sessions.log == [("x", {}), "ended"]
