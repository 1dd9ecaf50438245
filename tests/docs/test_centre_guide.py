from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from sync.cli.main import cli
from sync.receiver.limits import ReceiverLimits
from tests.helpers.command_tree import leaves
from tests.helpers.fleet_command import fleet_command
from tests.helpers.processes import start

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "run-the-centre.md").read_text("utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE)]


def test_the_commands_work_in_their_documented_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 5
    for words in COMMANDS:
        here = [word.replace("/srv/fleet", str(tmp_path / "fleet")) for word in words]
        if here[1] == "serve":
            here[here.index("--listen") + 1] = "127.0.0.1:0"
            with start(*here) as process:
                assert process.addresses.keys() == {"https"}
                assert process.terminate() == 0
            continue
        assert here[0] == "fieldpost-fleet"
        done = fleet_command(*here[1:])
        assert (done.returncode, done.stderr) == (0, ""), words
    assert (tmp_path / "gw.example.json").stat().st_mode & 0o777 == 0o600


def test_documented_limits_are_the_defaults() -> None:
    limits = asdict(ReceiverLimits())
    listed = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", TEXT, re.MULTILINE))
    assert len(listed) >= 10
    assert {name: int(value) for name, value in listed.items()} == {n: limits[n] for n in listed}


@pytest.mark.parametrize("words", [("serve",), ("import",), ("gateway", "add")])
def test_each_option_is_documented(words: tuple[str, ...]) -> None:
    options = {
        name for each in leaves(cli)[words].params for name in each.opts if name.startswith("--")
    }
    assert {name for name in options if f"{name} " not in TEXT and f"{name}`" not in TEXT} == set()
