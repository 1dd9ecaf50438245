from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from edge.cli.dead import LIST_LIMIT
from edge.engine.limits import usage
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.ops.data import dead_letters as admin
from edge.ops.transactions import changing
from tests.helpers import waiting
from tests.helpers.folder import change, fieldpost, query, system_events

SESSION = "valve@gw.example/fw"
DOUBTFUL = {"state": "in doubt", "session": SESSION, "outbox": 7}


@pytest.fixture
def folder(folder: Path) -> Path:
    with changing(folder) as tx:
        for name in ("pump1", "valve"):
            accounts.add(tx, name, (), trusted=True)
    return folder


def dead(folder: Path, *args: object, text: str | None = None) -> Result:
    return fieldpost(folder, "dead", *args, text=text)


def add_dead_letter(folder: Path, **fields: object) -> int:
    return change(folder, lambda tx: waiting.add_dead_letter(tx, **fields))  # type: ignore[arg-type]


def listed(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in dead(folder, "list", "--json").stdout.splitlines()]


def outbox(folder: Path) -> list[tuple[object, ...]]:
    sql = "SELECT id, recipient, source, msg_id, qos, state, session FROM outbox ORDER BY id"
    return query(folder, lambda tx: tx.rows(sql))


def logged(folder: Path) -> list[tuple[str | None, str | None]]:
    return [(row.name, row.level) for row in system_events(folder)]


def test_empty_list(folder: Path) -> None:
    for options in ((), ("--json",), ("--all",)):
        result = dead(folder, "list", *options)
        assert (result.exit_code, result.output) == (0, "")


def test_list_as_text_explains_doubt(folder: Path) -> None:
    add_dead_letter(folder)
    add_dead_letter(folder, msg_id=None, recipient=None, outbox=None, state="refused")
    plain = dead(folder, "list")
    assert plain.stderr == ""
    first, second = plain.stdout.splitlines()
    number, _stamp, *rest = first.split("  ")
    route = "pump1@gw.example/fw -> valve@gw.example"
    assert [number, *rest] == ["1", "failed", "level 2", "36 bytes", route, "msgId m1", "no answer"]
    assert second.endswith("pump1@gw.example/fw -> gw.example  no answer")
    add_dead_letter(folder, **DOUBTFUL)
    result = dead(folder, "list")
    assert "  in doubt  " in result.stdout.splitlines()[2]
    assert result.stderr == f"{admin.IN_DOUBT_HELP}\n"
    assert dead(folder, "list", "--json").stderr == ""


def test_list_as_json(folder: Path) -> None:
    add_dead_letter(folder, **DOUBTFUL)
    (dead_letter,) = listed(folder)
    assert isinstance(dead_letter.pop("time"), int)
    assert dead_letter == {
        "id": 1, "sender": "pump1@gw.example/fw", "msg_id": "m1",
        "destination": "valve@gw.example", "qos": 2, "bytes": 36, "reason": "no answer",
        "state": "in doubt", "recipient": "valve", "outbox": 7, "session": SESSION,
    }  # fmt: skip


def test_list_shows_the_latest_or_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.ops.transactions.PAGE", 7)  # so that several pages are read
    count = LIST_LIMIT + 3

    def unit(tx: Transaction) -> None:
        for number in range(count):
            waiting.add_dead_letter(tx, f"m{number}")

    change(folder, unit)
    result = dead(folder, "list", "--json")
    ids = [json.loads(line)["id"] for line in result.stdout.splitlines()]
    assert ids == list(range(4, count + 1))
    assert result.stderr == "3 older messages are not shown; --all shows all\n"
    whole = dead(folder, "list", "--json", "--all")
    assert [json.loads(line)["id"] for line in whole.stdout.splitlines()] == [*range(1, count + 1)]
    assert whole.stderr == ""


def test_show_prints_the_body(folder: Path) -> None:
    add_dead_letter(folder, body="<message>\n<body>ä\x1b[2J</body></message>".encode() + b"\xff")
    add_dead_letter(folder, **DOUBTFUL)
    result = dead(folder, "show", 1)
    assert result.exit_code == 0
    head, body = result.stdout.split("\n\n")
    assert head.startswith("id           1\nsender       pump1@gw.example/fw\nmsg_id       m1\n")
    assert "session      -" in head.splitlines()
    assert body == "<message>\n<body>ä\\x1b[2J</body></message>\\xff\n"
    dead_letter = json.loads(dead(folder, "show", 1, "--json").stdout)
    assert (dead_letter["id"], dead_letter["body"][-5:]) == (1, ">\\xff")
    assert admin.IN_DOUBT_HELP not in result.stdout
    assert admin.IN_DOUBT_HELP in dead(folder, "show", 2).stdout


def test_requeue_sends_messages_again(folder: Path) -> None:
    for msg_id in ("m1", "m2", "m3"):
        add_dead_letter(folder, msg_id=msg_id)
    result = dead(folder, "requeue", 2, 1, 2)
    assert (result.exit_code, result.output) == (0, "2 is requeued\n1 is requeued\n")
    assert [row["id"] for row in listed(folder)] == [3]
    assert [(row[1], row[3], row[5]) for row in outbox(folder)] == [
        ("valve", "m2", "queued"),
        ("valve", "m1", "queued"),
    ]
    assert logged(folder) == [("requeued", "Notice")] * 2
    assert query(folder, usage.waiting)["outbox"] == 2


def test_requeue_is_all_or_nothing(folder: Path) -> None:
    add_dead_letter(folder)
    add_dead_letter(folder, recipient=None, outbox=None, state="refused")
    add_dead_letter(folder, recipient="gone")
    for wrong, text in ((2, "was not for a device"), (3, "does not exist"), (9, "dead letter 9")):
        result = dead(folder, "requeue", 1, wrong)
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert result.stderr.startswith("Error: ")
        assert text in result.stderr
    assert len(listed(folder)) == 3
    assert outbox(folder) == logged(folder) == []


def test_message_in_doubt_is_sent_again_after_confirmation(folder: Path) -> None:
    for number in (7, 8):
        add_dead_letter(folder, **{**DOUBTFUL, "outbox": number})
    refused = dead(folder, "requeue", 1, "--may-repeat", text="n\n")
    assert refused.exit_code == 1
    assert admin.IN_DOUBT_HELP in refused.stderr
    assert "act on it twice?" in refused.stderr
    assert dead(folder, "requeue", 1, "--may-repeat").exit_code == 1  # no answer on standard input
    assert outbox(folder) == []
    assert dead(folder, "requeue", 1, "--may-repeat", text="y\n").exit_code == 0
    without_prompt = dead(folder, "requeue", 2, "--may-repeat", "--yes")
    assert without_prompt.output == "2 is requeued\n"
    assert [row[5] for row in outbox(folder)] == ["queued", "queued"]
    assert listed(folder) == []


def test_drop_asks_for_confirmation(folder: Path) -> None:
    add_dead_letter(folder, **DOUBTFUL)
    for msg_id in ("m2", "m3"):
        add_dead_letter(folder, msg_id=msg_id)
    refused = dead(folder, "drop", 1, 2, text="y\nn\n")
    assert refused.exit_code == 1
    assert admin.IN_DOUBT_HELP in refused.stderr
    assert refused.stderr.count("delete it permanently?") == 2
    assert len(listed(folder)) == 3
    assert dead(folder, "drop", 1, text="y\n").exit_code == 0
    assert dead(folder, "drop", 2, 9, "--yes").exit_code == 1
    assert [row["id"] for row in listed(folder)] == [2, 3]
    assert dead(folder, "drop", 2, 3, "--yes").output == "2 is deleted\n3 is deleted\n"
    assert listed(folder) == []
    assert outbox(folder) == []
    assert logged(folder) == [("dropped", "Warning")] * 3


@pytest.mark.parametrize("number", [3, 10**20])
@pytest.mark.parametrize("command", [("show",), ("requeue",), ("drop",), ("drop", "--yes")])
def test_missing_dead_letter_is_reported(
    folder: Path, command: tuple[object, ...], number: int
) -> None:
    result = dead(folder, *command, number)
    error = f"Error: dead letter {number} does not exist\n"
    assert (result.exit_code, result.stderr) == (1, error)


def test_show_encodes_a_message_of_the_gateway(folder: Path) -> None:
    row = add_dead_letter(folder)
    body = msgspec.msgpack.encode(["plant", "i1", b"<v xmlns='urn:v'/>", None, 0])
    sql = "UPDATE dead SET kind = 'item delivery', body = ? WHERE id = ?"
    change(folder, lambda tx: tx.run(sql, (body, row)))
    assert "<item id='i1'><v xmlns='urn:v'/></item>" in dead(folder, "show", row).stdout
