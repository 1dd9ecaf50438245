"""The commands in the README of deploy/raspberrypi work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from edge.config import load
from tests.helpers.wheel import ROOT

FOLDER = ROOT / "deploy" / "raspberrypi"
README = (FOLDER / "README.md").read_text("utf-8")
SECONDS = 60


def commands() -> list[list[str]]:
    """Return the commands in the console blocks, split into words, without `sudo`."""
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line[:2] == "$ "]
    parts = [part for line in lines for part in re.split(r" (?:&&|\|) ", line)]
    words = [shlex.split(part) for part in parts]
    return [command[1:] if command[0] == "sudo" else command for command in words]


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run(
        [program, *words[1:]], check=False, capture_output=True, text=True, timeout=SECONDS
    )


def test_options_of_the_install_script_exist() -> None:
    script = (FOLDER / "install.sh").read_text("utf-8")
    calls = [command for command in commands() if command[0].endswith("install.sh")]
    options = {word for command in calls for word in command if word.startswith("--")}
    assert {"--domain", "--constraint"} <= options
    assert options <= set(re.findall(r"--[a-z-]+", script.partition("set -euo")[0]))


def test_commands_of_the_gateway_exist() -> None:
    calls = [command for command in commands() if command[0] == "fieldpost"]
    assert ["fieldpost", "device", "add", "pump1"] in calls
    for command in calls:
        words = [word for word in command if word not in ("pump1",)]
        options = [word for word in words if word.startswith("--")]
        done = tool(*(word for word in words if word not in options), "--help")
        assert done.returncode == 0, done.stderr
        assert all(option in done.stdout for option in options)


def test_sed_command_sets_the_enrolment(tmp_path: Path) -> None:
    gateway = tmp_path / "gw"
    assert (
        tool("fieldpost", "init", "--dir", str(gateway), "--domain", "gw1.example").returncode == 0
    )
    [edit] = [command for command in commands() if command[0] == "sed"]
    assert edit[-1] == "/var/lib/fieldpost/fieldpost.toml"
    file = gateway / "fieldpost.toml"
    subprocess.run([*edit[:-1], file], check=True, timeout=SECONDS)
    assert load.parse(file.read_bytes()).uplink.enrolment == "enrolment.json"
