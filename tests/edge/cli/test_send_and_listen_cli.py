"""The options of `fieldpost node`, `send` and `listen`, and what needs no running gateway."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge.cli.commands import main
from edge.ops import setup


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a gateway that does not run."""
    made = tmp_path_factory.mktemp("gw") / "gateway"
    setup.init(made, "gw.example", "127.0.0.1:0")
    return made


def fieldpost(*words: object, text: str = "") -> Result:
    words_ = [str(word) for word in words]
    return CliRunner().invoke(main, words_, input=text, env={"FIELDPOST_DIR": ""})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["send", "text"], "--to or --node"),
        (["send", "--to", "a", "--node", "b", "text"], "--to or --node"),
        (["send", "--to", "a", "text"], "by --dir, or a device by --as"),
        (["send", "--to", "a", "--lines", "text"], "takes no TEXT"),
        (["send", "--to", "a", "--ca", "c", "text"], "need --as JID"),
        (["send", "--to", "a", "--as", "gw.example", "text"], "is not a device's JID"),
        (["send", "--to", "a", "--as", "a@gw.example", "text"], "--as needs --ca"),
        (["send", "--to", "a", "--as", "a@gw.example", "--ca", "c", "text"], "--password-stdin"),
        (["send", "--to", "a", "--outbox", "o", "--dir", "d", "text"], "--outbox needs --as"),
        (["send", "--to", "a", "--ttl", "5", "--dir", "d", "text"], "need a queue (--node)"),
        (
            ["send", "--node", "a", "--ttl", "5", "--qos", "2", "--dir", "d", "t"],
            "need a queue (--node) and --qos 1",
        ),
        (["listen"], "by --dir, or a device by --as"),
        (["listen", "--dir", "d"], "name a NODE or FILTER"),
        (["listen", "--take", "q", "node", "--dir", "d"], "cannot be used together"),
        (["listen", "--as", "a@gw.example", "--ca", "c", "--key", "k"], "given together"),
        (["node", "create", "n", "--set", "title", "--dir", "d"], "is not OPTION=VALUE"),
    ],
)
def test_wrong_usage_has_status_2(words: list[str], problem: str) -> None:
    result = CliRunner().invoke(main, words, env={"FIELDPOST_DIR": ""})
    assert result.exit_code == 2, result.output
    assert problem in result.output


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["send", "--node", "a", "text"], "is not running; start it"),
        (["send", "--to", "a", "--lines"], "is not running; start it"),
        (["send", "--node", "a", "--format", "json", "{"], "this is not JSON"),
        (["send", "--node", "a", "--format", "xml", "<a>"], "this is not one XML element"),
        (["listen", "#", "--json"], "is not running; start it"),
        (["listen", "--take", "a"], "is not running; start it"),
        (["node", "create", "a", "--queue", "--owner", "pump1"], "is not running; start it"),
        (["node", "configure", "a", "--set", "title=A"], "is not running; start it"),
        (["node", "configure", "a"], "there is no node a"),
        (["node", "delete", "a", "--yes"], "is not running; start it"),
    ],
)
def test_what_a_stopped_gateway_cannot_do(folder: Path, words: list[str], problem: str) -> None:
    result = fieldpost(*words, "--dir", folder, text="line\n")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert problem in result.stderr


def test_a_stopped_gateway_lists_its_nodes(folder: Path) -> None:
    assert fieldpost("node", "list", "--json", "--dir", folder).stdout == ""
    assert fieldpost("node", "list", "--dir", folder).stdout.split()[:2] == ["node", "kind"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--ca", "missing"], "missing does not exist"),
        (["--ca", "{folder}/pki/ca.pem"], "the password is empty"),
    ],
)
def test_a_log_in_needs_its_files(folder: Path, words: list[str], problem: str) -> None:
    found = [word.format(folder=folder) for word in words]
    who = ("--as", "pump1@gw.example", "--password-stdin")
    result = fieldpost("listen", *who, *found, text="\n")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert problem in result.stderr
