"""The commands of the README and of the tutorial, run in their order as a newcomer types them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.helpers.gateway import port_of
from tests.helpers.processes import Process, free_port, start
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

    def adapt(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text

    def change_ports(self) -> None:
        path = self.folder / "gateway" / "fieldpost.toml"
        path.write_text(self.adapt(path.read_text("utf-8")), "utf-8")

    def type(self, command: str) -> str:
        """Run a command to its end and return what it prints."""
        program = Path(sys.executable)
        line = re.sub(r"\b(fieldpost(?:-fleet)?) (?!run)", rf"{program.parent}/\1 ", command)
        line = re.sub(r"^python ", f"{program} ", self.adapt(line))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, name: str, command: str) -> None:
        words = self.adapt(command).split()
        folders = {"gateway", "fleet"}
        self.running[name] = start(*(self.folder / w if w in folders else w for w in words))

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


def test_the_tutorial_commands_produce_a_report(newcomer: Newcomer) -> None:
    init, add, run, firmware, events, enrol, serve, name, status, ingest, report = commands(
        TUTORIAL
    )
    newcomer.type(init)
    newcomer.change_ports()
    assert newcomer.type(add).split() == ["pump1@gw.example"]
    newcomer.start("gateway", run)

    (newcomer.folder / "pump.py").write_text(newcomer.adapt(FIRMWARE), "utf-8")
    assert newcomer.type(firmware) == "delivered: 4\n"
    logged = newcomer.type(events)
    assert "The pump runs." in logged
    assert logged.count("temperature") == 3

    newcomer.type(enrol)
    newcomer.start("centre", serve)
    newcomer.type(name)
    newcomer.stop("gateway")
    newcomer.start("gateway", run)
    newcomer.stop("gateway")
    assert "https://localhost" in newcomer.type(status)
    landed = list((newcomer.folder / "fleet" / "landing").rglob("*.seg"))
    assert {path.parent.name for path in landed} == {"readings", "logs", "system"}

    if LONG:  # Spark needs a minute; tests/spark run these two commands too
        newcomer.type(ingest)
        newcomer.type(report)
        assert (newcomer.folder / "report" / "index.html").is_file()
    newcomer.stop("centre")
