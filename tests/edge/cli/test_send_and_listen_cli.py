from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge.cli.commands import main
from tests.helpers.folder import fieldpost


def run_without_folder(*args: str, text: str = "") -> Result:
    return CliRunner().invoke(main, args, input=text, env={"FIELDPOST_DIR": ""})


@pytest.mark.parametrize(
    ("args", "problem"),
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
        (["send", "--node", "a", "--ttl", "5", "--qos", "2", "--dir", "d", "t"], "and --qos 1"),
        (["listen"], "by --dir, or a device by --as"),
        (["send", "--node", "a", "--mqtt", "text"], "need --as JID"),
        (["send", "--to", "a", "--mqtt", "text"], "--mqtt needs --node"),
        (["send", "--node", "a", "--retain", "text"], "--retain needs --mqtt"),
        (["listen", "--mqtt"], "--mqtt needs a NODE"),
        (["listen", "--qos", "1", "a"], "--qos needs --mqtt"),
        (["listen", "--dir", "d"], "name a NODE or FILTER"),
        (["listen", "--take", "q", "node", "--dir", "d"], "cannot be used together"),
        (["listen", "--as", "a@gw.example", "--ca", "c", "--key", "k"], "given together"),
        (["node", "create", "n", "--set", "title", "--dir", "d"], "is not OPTION=VALUE"),
    ],
)
def test_wrong_usage_has_status_2(args: list[str], problem: str) -> None:
    result = run_without_folder(*args)
    assert result.exit_code == 2, result.output
    assert problem in result.output


@pytest.mark.parametrize(
    ("args", "problem"),
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
def test_a_command_fails_in_one_line_without_a_gateway(
    folder: Path, args: list[str], problem: str
) -> None:
    result = fieldpost(folder, *args, text="line\n")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert problem in result.stderr


def test_a_stopped_gateway_lists_its_nodes(folder: Path) -> None:
    assert fieldpost(folder, "node", "list", "--json").stdout == ""
    assert fieldpost(folder, "node", "list").stdout.split()[:2] == ["node", "kind"]


@pytest.mark.parametrize(
    ("ca", "problem"),
    [("missing", "missing does not exist"), ("{}/pki/ca.pem", "the password is empty")],
)
def test_a_log_in_needs_its_files(folder: Path, ca: str, problem: str) -> None:
    credentials = ("--as", "pump1@gw.example", "--password-stdin")
    result = run_without_folder("listen", *credentials, "--ca", ca.format(folder), text="\n")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert problem in result.stderr
