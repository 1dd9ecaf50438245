"""Upgrades by install.sh in a folder as a machine: real gateways, started in place of systemd."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.deploy.test_deploy_package import SECONDS, install, machine
from tests.helpers.gateway import DOMAIN

SYSTEMCTL = f"""#!{sys.executable}
import os, pathlib, select, signal, subprocess, sys, time
root = pathlib.Path(__file__).parent
pid, word = root / "pid", sys.argv[1]
with open(root / "systemctl.log", "a") as log:
    print(*sys.argv[1:], file=log)
if word in ("stop", "restart") and pid.exists():
    gateway = os.pidfd_open(int(pid.read_text()))
    signal.pidfd_send_signal(gateway, signal.SIGTERM)
    assert select.select([gateway], [], [], 30)[0], "it does not stop"
    pid.unlink()
if word == "restart" and (root / "hang up").exists():
    os.kill(os.getppid(), signal.SIGHUP)
    sys.exit()
if word in ("start", "restart") and not pid.exists():
    release = root / os.readlink(root / "opt/fieldpost/current")[1:]
    ready = root / "ready"
    with open(ready, "wb") as out, open(root / "journal", "ab") as journal:
        gateway = subprocess.Popen(
            [release / "bin/fieldpost", "run", "--dir", root / "var/lib/fieldpost"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=journal, cwd="/",
        )
    end = time.monotonic() + 60
    while not ready.read_bytes().startswith(b"ready "):
        if gateway.poll() is not None or time.monotonic() > end:
            sys.exit(1)
        time.sleep(0.05)
    pid.write_text(str(gateway.pid))
"""
"""It starts and stops the gateway as `systemctl` does, and waits for its `ready` line."""

MIGRATION = "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT"
BROKEN = b"""
    database.connect(folder / database.FILE_NAME).close()
    raise SystemExit("this version is broken")
"""
"""The beginning of a `run` that migrates the database and then fails."""


class Machine:
    """A machine with an installed and running gateway."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.root, self.wheel = machine(folder), wheel
        self.copy = folder.with_name("copy")
        self.state = self.root / "var/lib/fieldpost"
        self.backup = self.state / "before-upgrade.backup"
        systemctl = self.root / "systemctl"
        systemctl.write_text(SYSTEMCTL, "utf-8")
        systemctl.chmod(0o755)
        self._systemctl = {"SYSTEMCTL": str(systemctl)}
        self._environment = os.environ | {
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "FIELDPOST_DIR": str(self.state),
        }

    @property
    def current(self) -> Path:
        """The folder of the version that runs; the link is that of a machine whose root is `/`."""
        link = (self.root / "opt/fieldpost/current").readlink()
        return self.root / link.relative_to("/")

    def install(self, wheel: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return install(self.root, *words, wheel, env=self._systemctl)

    def changed_wheel(self, *, migration: bool = False, broken: bool = False) -> Path:
        """Return a wheel of a newer version."""
        folder = self.root / f"wheel-{migration}-{broken}"
        folder.mkdir()
        changed = folder / self.wheel.name
        with zipfile.ZipFile(self.wheel) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                if broken and name == "fieldpost/lib/edge/app.py":
                    data = re.sub(rb"(?m)^def run\(.+\n", lambda found: found[0] + BROKEN, data)
                    assert BROKEN in data
                new.writestr(name, data)
            if migration:
                new.writestr("fieldpost/lib/edge/engine/migrations/9999_later.sql", MIGRATION)
        return changed

    def fieldpost(self, *words: str | Path, folder: Path | None = None) -> str:
        """Run a command of the current version, or of the release in `folder`."""
        done = subprocess.run(
            [(folder or self.current) / "bin/fieldpost", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def devices(self) -> list[str]:
        return [line.split()[0] for line in self.fieldpost("device", "list").splitlines()[1:]]

    def is_running(self) -> bool:
        return str(json.loads(self.fieldpost("status", "--json"))["state"]) == "running"

    def systemctl(self, word: str) -> None:
        command = [self._systemctl["SYSTEMCTL"], word]
        subprocess.run(command, env=self._environment, check=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Machine:
    """Install a gateway once for all tests, and keep a copy of the machine's files."""
    pi = Machine(tmp_path_factory.mktemp("machine") / "pi", wheel)
    try:
        done = pi.install(wheel, "--domain", DOMAIN, "--listen", "127.0.0.1:0")
        assert done.returncode == 0, done.stdout + done.stderr
        pi.fieldpost("device", "add", "pump1")
    finally:
        pi.systemctl("stop")
    shutil.copytree(pi.root, pi.copy, symlinks=True)
    return pi


@pytest.fixture
def pi(installed: Machine) -> Iterator[Machine]:
    """A machine as it was after the installation; its path is the same, as the release needs it."""
    shutil.rmtree(installed.root)
    shutil.copytree(installed.copy, installed.root, symlinks=True)
    try:
        installed.systemctl("start")
        yield installed
    finally:
        installed.systemctl("stop")


@pytest.mark.parametrize("migration", [True, False])
def test_a_version_that_does_not_start_is_replaced_by_the_old_one(
    pi: Machine, migration: bool
) -> None:
    release = pi.current
    unit = pi.root / "etc/systemd/system/fieldpost.service"
    unit.write_text("# of the old version\n", "utf-8")
    done = pi.install(pi.changed_wheel(migration=migration, broken=True))
    assert done.returncode == 1
    assert "the previous one runs again" in done.stderr
    assert "this version is broken" in (pi.root / "journal").read_text("utf-8")
    assert pi.current == release
    assert [path.name for path in release_folders(pi)] == [release.name]
    assert unit.read_text("utf-8") == "# of the old version\n"
    assert pi.is_running()
    assert pi.devices() == ["pump1"]
    assert pi.backup.exists() == migration
    kept = pi.state / "failed-upgrade"
    assert kept.exists() == migration
    assert (f"is in /var/lib/fieldpost/{kept.name}" in done.stderr) == migration
    if migration:  # devices may have connected before it failed
        assert kept.stat().st_mode & 0o777 == 0o700
        with closing(sqlite3.connect(kept / "fieldpost.db")) as database:
            assert database.execute("PRAGMA user_version").fetchone() == (9999,)
            assert database.execute("SELECT name FROM accounts").fetchall() == [("pump1",)]
    epochs = [line for line in pi.fieldpost("events").splitlines() if "uplink" in line]
    assert any("restored" in line for line in epochs) == migration


def test_the_backup_before_a_migration_is_of_the_old_version(pi: Machine) -> None:
    pi.backup.write_bytes(b"of an earlier upgrade")
    old = pi.current
    done = pi.install(pi.changed_wheel(migration=True))
    assert done.returncode == 0, done.stderr
    assert pi.is_running()
    assert pi.devices() == ["pump1"]
    assert pi.current != old
    assert pi.backup.stat().st_mode & 0o777 == 0o600
    restored = pi.root / "restored"
    pi.fieldpost("restore", pi.backup, "--dir", restored, folder=old)
    again = pi.install(pi.wheel)
    assert (again.returncode, "the previous one runs again" in again.stderr) == (1, True), (
        "an older version refuses the database"
    )
    assert pi.is_running()


def test_a_backup_that_fails_leaves_the_old_version_running(pi: Machine) -> None:
    release = pi.current
    configuration = pi.state / "fieldpost.toml"
    text = configuration.read_text("utf-8")
    configuration.write_text(text.replace('enrolment = ""', 'enrolment = "none.json"'), "utf-8")
    done = pi.install(pi.changed_wheel(migration=True))
    assert done.returncode == 1
    assert "the backup has failed; the current version is untouched" in done.stderr
    assert pi.current == release
    assert [path.name for path in release_folders(pi)] == [release.name]


def test_an_interrupted_upgrade_leaves_the_gateway_running(pi: Machine) -> None:
    (pi.root / "hang up").touch()
    done = pi.install(pi.changed_wheel(migration=True))
    assert done.returncode == -signal.SIGHUP
    assert pi.is_running()
    assert pi.devices() == ["pump1"]


def release_folders(pi: Machine) -> list[Path]:
    return sorted((pi.root / "opt/fieldpost/releases").iterdir())
