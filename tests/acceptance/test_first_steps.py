"""The commands of the README and of the tutorial, run in their order as a newcomer types them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.helpers.gateway import port_of
from tests.helpers.processes import Process, free_port, start
from tests.helpers.wheel import DEVICE, build
from tests.helpers.xmpp import log_in

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
[FIRST_STEPS] = re.findall(
    rf"run by tests/.*/{Path(__file__).name}.*?```(.*?)```", README, re.DOTALL
)
[FIRMWARE] = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
COMMAND_S = 300


def commands(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, re.MULTILINE)


class Newcomer:
    """Types commands in a folder, on ports that are free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in ("5222", "5223", "8443")}
        self.running: dict[str, Process] = {}
        self.programs = Path(sys.executable).parent
        self.activation = ""

    def adapt(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text

    def change_ports(self) -> None:
        path = self.folder / "gateway" / "fieldpost.toml"
        path.write_text(self.adapt(path.read_text("utf-8")), "utf-8")

    def environment(self) -> dict[str, str]:
        """Return variables with which `pip` finds nothing but what lies in the folder."""
        path = f"{self.programs}:{os.environ['PATH']}"
        return {"PATH": path, "PYTHONPATH": "", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}

    def type(self, command: str) -> str:
        """Run a command to its end and return what it prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.activation + self.adapt(command)],
            cwd=self.folder,
            env=os.environ | self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def activate(self, command: str) -> None:
        """Type a command that changes the shell, in this terminal and in each that is opened."""
        self.type(command)
        self.activation = f"{command}; "

    def start(self, name: str, command: str) -> None:
        line = f"cd {shlex.quote(str(self.folder))}; {self.activation}exec {self.adapt(command)}"
        self.running[name] = start("bash", "-euc", line, env=self.environment())

    def stop(self, name: str) -> None:
        with self.running.pop(name) as process:
            assert process.terminate() == 0


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    typist = Newcomer(tmp_path)
    yield typist
    for process in typist.running.values():
        process.close()


async def test_the_readme_commands_let_a_device_log_in(newcomer: Newcomer) -> None:
    install, init, add, run = commands(FIRST_STEPS)
    assert install == "pip install ./firmware_sim/device ."
    newcomer.type(init)
    newcomer.change_ports()
    jid, password = newcomer.type(add).split()
    assert jid == "pump1@gw.example"
    newcomer.start("gateway", run)
    port, ca = port_of(newcomer.running["gateway"]), newcomer.folder / "gateway" / "pki" / "ca.pem"
    assert str(port) == newcomer.ports["5222"]
    async with await log_in(port, ca, "pump1", password) as client:
        assert client.full == "pump1@gw.example/fw"
    newcomer.stop("gateway")


def provide_packages(site: Path) -> None:
    """Link the packages of the test environment, less our own, into another environment."""
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and "fieldpost" not in path.name:
            target = site / path.name
            if not target.exists():
                target.symlink_to(path)


def test_the_tutorial_commands_produce_a_report(newcomer: Newcomer) -> None:
    venv, activate, install, init, add, run, firmware, events, *centre = commands(TUTORIAL)
    install_fleet, enrol, serve, name, reload, status, ingest, report = centre
    for project in (DEVICE, ROOT):
        build(newcomer.folder, project)
    newcomer.programs = Path(sys.base_prefix) / "bin"
    newcomer.type(venv)
    [site] = newcomer.folder.glob("venv/lib/python*/site-packages")
    provide_packages(site)
    newcomer.activate(activate)
    newcomer.type(install)

    newcomer.type(init)
    newcomer.change_ports()
    assert newcomer.type(add).split() == ["pump1@gw.example"]
    newcomer.start("gateway", run)

    (newcomer.folder / "pump.py").write_text(newcomer.adapt(FIRMWARE), "utf-8")
    assert newcomer.type(firmware) == "delivered: 4\n"
    logged = newcomer.type(events)
    assert "The pump runs." in logged
    assert logged.count("temperature") == 3

    newcomer.type(install_fleet)
    newcomer.type(enrol)
    newcomer.start("centre", serve)
    newcomer.type(name)
    assert newcomer.type(reload) == "changed: uplink.enrolment\n"
    newcomer.stop("gateway")
    shown = newcomer.type(status)
    for line in (r"to +url=https://localhost", "backlog +0 of ", "unsealed +0 events"):
        assert re.search(rf"^{line}", shown, re.MULTILINE), shown
    landed = list((newcomer.folder / "fleet" / "landing").rglob("*.seg"))
    assert {path.parent.name for path in landed} == {"readings", "logs", "system"}

    assert "; 0 duplicates skipped, 0 quarantined" in newcomer.type(ingest)
    if LONG:  # Spark needs a minute; tests/spark run this command too
        newcomer.type(report)
        assert (newcomer.folder / "report" / "index.html").is_file()
    newcomer.stop("centre")
