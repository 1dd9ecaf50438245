"""The gateway's wheel beside other distributions whose packages are named `edge` and `sync`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.installation import Installation, other_packages


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return other_packages(tmp_path_factory.mktemp("others"))


@pytest.mark.parametrize("order", ["others first", "others last"])
def test_no_package_breaks_or_hides_another(
    order: str, others: list[Path], wheel: Path, device_wheel: Path, tmp_path: Path
) -> None:
    installation, ours = Installation(tmp_path / "venv"), [wheel, device_wheel]
    for wheels in (others, ours) if order == "others first" else (ours, others):
        installation.install(*wheels)
    check_others(installation)
    check_ours(installation, tmp_path)


def check_others(installation: Installation) -> None:
    code = "import edge, sync; print(edge.WHOSE, sync.WHOSE, sep=', ')"
    assert installation.run("python3", "-c", code) == "the other edge, the other sync\n"


def check_ours(installation: Installation, folder: Path) -> None:
    gateway, fleet = folder / "gateway", ("--dir", folder / "fleet")
    assert installation.run("fieldpost", "--version").startswith("fieldpost, version ")
    installation.run("fieldpost", "init", "--dir", gateway, "--domain", "gw.example")
    installation.run("fieldpost", "config", "check", "--dir", gateway)
    installation.run("python3", "-m", "fieldpost", "device", "list", "--dir", gateway)
    enrolment = ("--url", "https://centre.example", "--out", folder / "enrolment.json")
    installation.run("fieldpost-fleet", "gateway", "add", "gw.example", *fleet, *enrolment)
    child = "os.execv(sys.executable, [sys.executable, '-m', 'sync.cli', '--help'])"
    code = f"import fieldpost, os, sys; fieldpost.use_library(); {child}"
    assert "Operate the centre" in installation.run("python3", "-c", code)
