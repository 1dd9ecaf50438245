from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from edge.config import annotated_file, load
from tests.helpers.wheel import ROOT

FOLDER = ROOT / "deploy" / "raspberrypi"
README = (FOLDER / "README.md").read_text("utf-8")
SECONDS = 60


def commands() -> list[list[str]]:
    """Return the commands in the console blocks, split into words, without `sudo`."""
    joined = README.replace("\\\n", "")
    blocks = re.findall(r"```console\n(.*?)```", joined, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line[:2] == "$ "]
    parts = [part for line in lines for part in re.split(r" (?:&&|\|) ", line)]
    words = [shlex.split(part) for part in parts]
    return [command[1:] if command[0] == "sudo" else command for command in words]


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run(
        [program, *words[1:]], check=False, capture_output=True, text=True, timeout=SECONDS
    )


def test_commands_of_the_gateway_exist() -> None:
    calls = [command for command in commands() if command[0] == "fieldpost"]
    assert ["fieldpost", "device", "add", "pump1"] in calls
    for command in calls:
        options = {word for word in command if word.startswith("--")}
        done = tool(*(word for word in command if word not in {"pump1", *options}), "--help")
        assert done.returncode == 0, done.stderr
        assert all(option in done.stdout for option in options)


def test_sed_command_sets_the_enrolment(tmp_path: Path) -> None:
    file = tmp_path / load.FILE_NAME
    file.write_text(annotated_file.render("gw1.example"), "utf-8")
    [edit] = [command for command in commands() if command[0] == "sed"]
    assert edit[-1] == "/etc/fieldpost/fieldpost.toml"
    subprocess.run([*edit[:-1], file], check=True, timeout=SECONDS)
    assert load.parse(file.read_bytes()).uplink.enrolment == "enrolment.json"
