"""Two builds of the same files give the same bytes, in whatever folder and environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.helpers.wheel import ROOT

SECONDS = 900
COMPILED = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "1", "MYPYC_OPT_LEVEL": "0"}


def copy_of_the_checkout(folder: Path, mode: int) -> Path:
    """Copy the files that git knows, as a user has them whose umask gives them this mode."""
    known = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS,
    )  # fmt: skip
    for name in filter(None, known.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
            (folder / name).chmod(mode)
    return folder


def build(source: Path, out: Path, target: str, **variables: str) -> bytes:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", out, "-t", target],
        cwd=source, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **variables},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=SECONDS,
    )  # fmt: skip
    [built] = out.iterdir()
    return built.read_bytes()


def hashes(wheel: bytes) -> dict[str, str]:
    """Return the SHA-256 of each file in a wheel, so that a failure names what differs."""
    with zipfile.ZipFile(BytesIO(wheel)) as files:
        return {name: hashlib.sha256(files.read(name)).hexdigest() for name in files.namelist()}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, str]]]:
    """Two copies in folders of different lengths, and an environment for each."""
    folder = tmp_path_factory.mktemp("copies")
    return [
        (copy_of_the_checkout(folder / "one", 0o644), {"TZ": "UTC", "PYTHONHASHSEED": "1"}),
        (copy_of_the_checkout(folder / "another", 0o600), {"TZ": "Asia/Kathmandu"}),
    ]


@pytest.mark.parametrize(
    ("project", "target"), [(".", "wheel"), (".", "sdist"), ("firmware_sim/device", "wheel")]
)
def test_two_builds_are_the_same_bytes(
    project: str, target: str, copies: list[tuple[Path, dict[str, str]]], tmp_path: Path
) -> None:
    one, another = (
        build(copy / project, tmp_path / copy.name, target, **variables)
        for copy, variables in copies
    )
    assert one == another


@pytest.mark.long
def test_two_compiled_builds_are_the_same_bytes(
    copies: list[tuple[Path, dict[str, str]]], tmp_path: Path
) -> None:
    one, another = (
        build(copy, tmp_path / copy.name, "wheel", **variables, **COMPILED)
        for copy, variables in copies
    )
    assert hashes(one) == hashes(another)
    assert one == another
