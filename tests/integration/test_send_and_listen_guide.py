from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.processes import Process

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "send-and-listen.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (.+)$", GUIDE, re.MULTILINE)
WAIT_S = 60.0


class Terminal:
    """Runs the guide's commands in a folder."""

    def __init__(self, folder: Path, gateway: Gateway, process: Process) -> None:
        self._folder = folder
        self._process = process
        programs = Path(sys.executable).parent
        path = f"{programs}:{os.environ['PATH']}"
        self._environment = {**os.environ, "FIELDPOST_DIR": str(gateway.folder), "PATH": path}

    def type(self, command: str) -> str:
        """Run a command to its end and return its output."""
        with self.start(command) as running:
            out, err = running.communicate(timeout=WAIT_S)
        assert running.returncode == 0, f"{command}\n{err}"
        return out

    @contextmanager
    def start(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command in the background; kill it in the end."""
        port = self._process.host_port("mqtts" if "--mqtt" in command else "xmpp")[1]
        line = command.replace("--host 127.0.0.1", f"--host 127.0.0.1 --port {port}")
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        ) as running:  # fmt: skip
            try:
                yield running
            finally:
                running.kill()


def test_the_commands_of_the_guide_print_the_documented_output(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump1", "valve1")
    (tmp_path / "password.txt").write_text(f"{PASSWORD}\n")
    (tmp_path / "ca.pem").write_bytes(gateway.ca.read_bytes())
    gateway.configure_section("mqtt", listen_tls="127.0.0.1:0")
    node, queue, nodes, configure, listen_command, *sends = COMMANDS[:-9]
    later, first, fill, take, rest, as_pump, as_valve, by_pump, by_valve = COMMANDS[-9:]
    with gateway.run() as process, ExitStack() as stack:
        terminal = Terminal(tmp_path, gateway, process)
        for command in (node, queue):
            terminal.type(command)
        assert re.findall(r"^\S+ +(?:node|queue) ", terminal.type(nodes), re.MULTILINE)
        terminal.type(configure)
        listening = stack.enter_context(terminal.start(listen_command))
        assert listening.stderr is not None
        assert listening.stderr.readline() == "listening to plant/#\n"
        for send in sends:
            terminal.type(send)
        out, _ = listening.communicate(timeout=WAIT_S)
        assert out == 'plant/boiler  {"temp": 71.5}\nplant/boiler  by hand\n'
        for send in (later, first, fill):
            terminal.type(send)
        assert terminal.type(take) == "jobs  first\n"
        assert terminal.type(rest) == "jobs  one\njobs  two\n"
        terminal.type(as_pump)
        assert terminal.type(as_valve) == "gw.example  open\n"
        terminal.type(by_pump)
        shown = "plant/boiler (application/octet-stream, payload-format=1)  71.5\n"
        assert terminal.type(by_valve) == shown
