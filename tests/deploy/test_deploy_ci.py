from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).parents[2] / ".ci"
SECONDS = 60
WHOLE = (
    "edge/xmpp/stanza.py",
    "edge/features/custody/rules.py",
    "edge/features/outbox/rules.py",
    "edge/features/messages/rules.py",
    "edge/features/eventlog/rules/levels.py",
    "edge/features/presence/rules/subscriptions.py",
    "edge/features/pubsub/rules/subscription.py",
    "edge/features/queues/rules/locks.py",
    "edge/jid.py",
    "edge/precis.py",
    "edge/topics.py",
    "sync/segment/cbor_guard.py",
    "sync/uplink/batcher.py",
)


def run(script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, CI / script, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def covered(lines: int, branches: int = 0, of: int = 100) -> dict[str, Any]:
    """Return a file's summary in the coverage report: `of` lines and 10 branches."""
    return {
        "summary": {
            "covered_lines": lines,
            "missing_lines": of - lines,
            "covered_branches": branches,
            "missing_branches": 10 - branches,
        },
        "missing_lines": list(range(lines + 1, of + 1)),
        "missing_branches": [[1, 2]] if branches < 10 else [],
    }


def floor(folder: Path, files: dict[str, dict[str, Any]], branch: bool = True) -> tuple[int, str]:
    all_files = {name: covered(100, 10) for name in WHOLE} | {"edge/text.py": covered(100, 10)}
    all_files["edge/app.py"] = covered(70, 7)
    return check(folder, all_files | files, branch)


def check(folder: Path, files: dict[str, dict[str, Any]], branch: bool = True) -> tuple[int, str]:
    report = folder / "coverage.json"
    report.write_text(json.dumps({"meta": {"branch_coverage": branch}, "files": files}), "utf-8")
    done = run("coverage_floor.py", report)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("file", "summary", "complaint"),
    [
        ("edge/text.py", covered(98, 9), ""),
        ("edge/xmpp/jid.py", covered(100, 9), "edge/xmpp/jid.py: branches 1->2 not run"),
        ("edge/text.py", covered(98, 8), "other files: 96.36 %"),
        ("edge/app.py", covered(55, 5), "slow files: 54.55 %"),
    ],
)
def test_low_coverage_fails(
    tmp_path: Path, file: str, summary: dict[str, Any], complaint: str
) -> None:
    status, stderr = floor(tmp_path, {file: summary})
    assert status == bool(complaint)
    assert complaint in stderr


def test_missing_critical_part_fails(tmp_path: Path) -> None:
    status, stderr = check(tmp_path, {})
    assert (status, stderr.count("checks nothing")) == (1, len(WHOLE))


def test_report_without_branches_fails(tmp_path: Path) -> None:
    status, stderr = floor(tmp_path, {}, branch=False)
    assert status == 1
    assert "no branch coverage" in stderr


PASSED = '<testcase classname="tests.unit.test_a" name="test_one"/>'
SKIPPED = (
    '<testcase classname="tests.unit.test_a" name="test_two[x]">'
    '<skipped type="pytest.skip" message="no gcc"/></testcase>'
)


@pytest.mark.parametrize(
    ("cases", "expected", "status", "complaint"),
    [
        (PASSED, "", 0, ""),
        (SKIPPED, "", 1, "unexpected skip: tests.unit.test_a::test_two[x]: no gcc"),
        (PASSED + SKIPPED, "tests.unit.test_b::*", 1, "unexpected skip"),
        (SKIPPED, "# why\ntests.unit.test_a::test_two*  # no gcc there\n", 0, ""),
        ("", "", 1, "no test ran"),
    ],
)
def test_only_expected_skips_pass(
    tmp_path: Path, cases: str, expected: str, status: int, complaint: str
) -> None:
    report, patterns = tmp_path / "junit.xml", tmp_path / "expected"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", "utf-8")
    patterns.write_text(expected, "utf-8")
    done = run("skips.py", report, patterns)
    assert done.returncode == status
    assert complaint in done.stderr
