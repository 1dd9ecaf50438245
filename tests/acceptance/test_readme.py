"""The README's commands, run as it gives them by somebody new."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.helpers.gateway import port_of
from tests.helpers.processes import start
from tests.helpers.xmpp import log_in

README = Path(__file__).parents[2] / "README.md"
COMMAND_S = 60


def gateway_commands() -> list[list[str]]:
    """Return the commands of the block that names this test."""
    text = README.read_text("utf-8")
    block = re.search(r"run by tests/acceptance/test_readme\.py.*?```console\n(.*?)```", text, re.S)
    assert block is not None
    lines = [line.removeprefix("$ ") for line in block[1].splitlines()]
    return [shlex.split(line) for line in lines]


def run_in(folder: Path, command: list[str]) -> str:
    """Run a command of the project as somebody in `folder` would, and return what it prints."""
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=COMMAND_S,
    )
    return done.stdout


async def test_the_first_steps_lead_to_a_gateway_that_a_device_logs_in_to(tmp_path: Path) -> None:
    install, init, add, run = gateway_commands()
    assert install == ["pip", "install", "."]
    run_in(tmp_path, init)
    jid, password = run_in(tmp_path, add).split()
    folder = tmp_path / "gateway"
    assert jid == "pump1@gw.example"

    configuration = folder / "fieldpost.toml"
    text = configuration.read_text("utf-8")
    assert 'listen = "127.0.0.1:5222"' in text
    configuration.write_text(text.replace("127.0.0.1:5222", "127.0.0.1:0"), "utf-8")
    assert run == ["fieldpost", "run", "--dir", "gateway"]
    with start(*run[:3], os.fspath(folder)) as process:
        async with await log_in(
            port_of(process), folder / "pki" / "ca.pem", "pump1", password
        ) as client:
            assert client.full == "pump1@gw.example/fw"
        assert process.terminate() == 0
