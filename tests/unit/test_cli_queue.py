"""The `fieldpost queue` commands without a gateway: what they print, ask and change."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from edge.__main__ import main
from edge.engine import events
from edge.engine.database import Transaction
from edge.engine.events import Row
from edge.features.queues.store import queue_view, queues
from edge.ops import control, devices, setup
from edge.ops.transactions import changing, reading
from tests.helpers import queued
from tests.helpers.queued import FIRST, PUBLISHER, WORKER

T = TypeVar("T")

SHARE = "$share:pool:plant/#"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A gateway with the queue node `work`, which the worker is subscribed to, and a share."""
    made = tmp_path / "gw"
    setup.init(made, "gw.example")
    devices.add(made, "worker", "x", trusted=True)
    change(made, fill)
    return made


def fill(tx: Transaction) -> None:
    node, share = queued.node(tx), queued.share(tx)
    queued.fill(tx, node)
    queued.join(tx, node, takes=3)
    queued.fill(tx, share)
    queued.join(tx, share, qos=1)


def queue(folder: Path, *args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["queue", *args, "--dir", str(folder)], input=text)


def change(folder: Path, unit: Callable[[Transaction], T]) -> T:
    with changing(folder) as tx:
        return unit(tx)


def states(folder: Path, number: int = 1) -> dict[str, str]:
    with reading(folder) as tx:
        return queued.states(tx, number)


def logged(folder: Path, name: str) -> list[Row]:
    with reading(folder) as tx:
        return [row for row in events.read(tx, events.SYSTEM, 0, 100, 2**20) if row.name == name]


def shown(folder: Path, name: str, *args: str) -> dict[str, Any]:
    result = queue(folder, "show", name, "--json", *args)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(result: Result) -> str:
    """Return the one line that says why it failed."""
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    return line


def test_all_queues_are_listed(folder: Path) -> None:
    header, first, second = ok(queue(folder, "list")).splitlines()
    assert header.split() == ["queue", "ready", "locked", "delayed", "dead", "bytes", "members"]
    size = str(shown(folder, "work")["bytes"])
    assert first.split() == ["work", "2", "1", "1", "1", size, "1"]
    assert second.split() == [SHARE, "2", "1", "1", "1", size, "1"]
    rows = [json.loads(line) for line in ok(queue(folder, "list", "--json")).splitlines()]
    assert [(row["name"], row["items"], row["dead"]) for row in rows] == [
        ("work", 5, 1),
        (SHARE, 5, 1),
    ]


def test_more_queues_than_are_read_at_once_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.ops.queue.PAGE", 1)
    assert len(ok(queue(folder, "list")).splitlines()) == 3


def test_a_queue_is_shown_to_people(folder: Path) -> None:
    text = ok(queue(folder, "show", "work"))
    facts, members, items = text.split("\n\n")
    assert facts.splitlines()[:2] == [
        "work: queue node, least-loaded",
        "an item is locked for 60 s at most, and dead after 5 deliveries",
    ]
    assert facts.endswith(" bytes in 2 ready, 1 locked, 1 delayed, 1 dead")
    assert [line.split() for line in members.splitlines()] == [
        ["member", "level", "takes", "has", "there"],
        [WORKER, "0", "3", "0", "-"],
    ]
    held, one, two, late, bad = items.splitlines()
    assert held.startswith("locked  held  ")
    assert f"{PUBLISHER} -> work  " in held
    assert "priority 2" in held
    assert held.endswith(
        f"it went to {FIRST} 0 s ago, whose time for it ends in 60 s; delivery 1 of 5"
    )
    assert one.endswith(f"no gateway gives it out now; subscribed: {WORKER}")
    assert two.endswith("; 1 before it in line")
    assert late.endswith("it was published for later: ready in 30 s")
    assert bad.endswith("it is dead: given out 5 times")


def test_a_share_is_shown_in_either_way_of_writing_it(folder: Path) -> None:
    for name in (SHARE, "$share/pool/plant/#"):
        text = ok(queue(folder, "show", name))
        assert text.startswith(f"{SHARE}: share, least-loaded\n")
        assert "locked for" not in text.partition("\n\n")[0]


def test_a_queue_is_shown_to_programs(folder: Path) -> None:
    found = shown(folder, "work")
    assert (found["name"], found["ready"], found["max_deliveries"]) == ("work", 2, 5)
    assert found["service"] == found["items_shown"][0]["locked"], "the moment that it is told of"
    (member,) = found["members"]
    assert (member["jid"], member["requests"], member["there"]) == (WORKER, 3, None)
    assert [(item["item"], item["why"], item["before"]) for item in found["items_shown"]] == [
        ("held", "locked", 0),
        ("one", "not_known", 0),
        ("two", "not_known", 1),
        ("late", "delayed", 0),
        ("bad", "dead", 0),
    ]
    assert found["items_shown"][0]["holder"] == FIRST


def test_so_many_items_of_each_state_are_shown_or_one(folder: Path) -> None:
    assert len(shown(folder, "work", "--limit", "1")["items_shown"]) == 4
    assert shown(folder, "work", "--limit", "0")["items_shown"] == []
    assert ok(queue(folder, "show", "work", "--limit", "1")).endswith(
        "\nand 1 more: --limit prints more of each state\n"
    )
    (item,) = shown(folder, "work", "--item", "two", "--limit", "0")["items_shown"]
    assert (item["item"], item["before"]) == ("two", 1)
    (line,) = ok(queue(folder, "show", "work", "--item", "two")).splitlines()
    assert line.startswith("ready  two  ")


def test_a_gateway_that_does_not_say_who_is_there_is_told(folder: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(folder / control.SOCKET))
        listening.listen()
        thread = threading.Thread(target=lambda: listening.accept()[0].close())
        thread.start()
        result = queue(folder, "show", "work")
        thread.join()
    assert "the gateway is busy, or of another version" in result.stderr
    assert ok(result).split("\n\n")[1].endswith("  -")


def test_a_queue_that_nobody_is_subscribed_to_says_so(folder: Path) -> None:
    change(folder, lambda tx: tx.run("DELETE FROM subscriptions"))
    text = ok(queue(folder, "show", "work"))
    assert "\n\nnobody is subscribed\n\n" in text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nix", "nix is not a node that is a queue: `fieldpost queue list` names all"),
        ("$share:no:a", "is not a share that has members"),
        ("$share:a+:b", "the name of a share must not contain"),
    ],
)
def test_what_is_not_there_is_told(folder: Path, name: str, why: str) -> None:
    for command in (("show",), ("purge", "--yes"), ("requeue", "--all", "--yes")):
        assert why in failed(queue(folder, command[0], name, *command[1:]))


def test_an_item_that_is_not_there_is_told(folder: Path) -> None:
    for command in ("show work --item nix", "unlock work nix --yes", "requeue work nix"):
        assert failed(queue(folder, *command.split())) == "Error: there is no item 'nix' in work"


def test_a_device_cannot_forge_a_line(folder: Path) -> None:
    def enqueue(tx: Transaction) -> None:
        found = queues.get(tx, 1)
        assert found is not None
        queues.enqueue(tx, found, "work", "\x1b[2J\nx", PUBLISHER, b"")

    change(folder, enqueue)
    text = ok(queue(folder, "show", "work"))
    assert "\\x1b[2J\\nx" in text
    assert "\x1b" not in text


def test_a_lock_is_ended_and_the_gateway_does_the_rest(folder: Path) -> None:
    assert ok(queue(folder, "unlock", "work", "held", "--yes")) == "held is unlocked\n"
    with reading(folder) as tx:
        (item,) = queue_view.named(tx, 1, "held", 1)
        assert (item.state, item.until) == ("locked", 0.0)
    (event,) = logged(folder, "unlocked")
    assert (event.kind, event.topic, event.source, event.text) == (
        "queue",
        "work",
        None,
        "by the operator",
    )
    assert event.tags == {"item": "held", "holder": FIRST}


@pytest.mark.parametrize(
    ("deliveries", "most", "left"), [(5, 5, 4), (1, 5, 1), (2, 2, 1), (1, 1, 1)]
)
def test_what_an_operator_unlocks_is_not_dead_by_that(
    folder: Path, deliveries: int, most: int, left: int
) -> None:
    def unit(tx: Transaction) -> None:
        tx.run("UPDATE queues SET max_deliveries = ?", (most,))
        tx.run("UPDATE queue_items SET deliveries = ? WHERE item = 'held'", (deliveries,))

    change(folder, unit)
    ok(queue(folder, "unlock", "work", "held", "--yes"))
    (item,) = shown(folder, "work", "--item", "held")["items_shown"]
    assert (item["deliveries"], item["deliveries"] - item["spared"]) == (deliveries, left)


def test_what_is_not_locked_or_is_a_shares_is_not_unlocked(folder: Path) -> None:
    assert failed(queue(folder, "unlock", "work", "bad", "--yes")) == (
        "Error: item 'bad' is not locked, but dead"
    )
    assert "is a share" in failed(queue(folder, "unlock", SHARE, "held", "--yes"))
    assert logged(folder, "unlocked") == []


def test_dead_items_wait_again_all_that_are_named_or_none(folder: Path) -> None:
    assert failed(queue(folder, "requeue", "work", "bad", "one")) == (
        "Error: item 'one' is not dead, but ready"
    )
    assert states(folder)["bad"] == "dead"
    assert ok(queue(folder, "requeue", "work", "bad", "bad")) == "1 requeued\n"
    assert states(folder)["bad"] == "ready"
    (event,) = logged(folder, "requeued")
    assert (event.value, event.level, event.tags) == (1.0, "Notice", {"item": "bad"})


def test_all_that_are_dead_wait_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.ops.queue.BATCH", 2)
    change(folder, lambda tx: tx.run("UPDATE queue_items SET state = 'dead', reason = 'x'"))
    assert ok(queue(folder, "requeue", "work", "--all", "--yes")) == "5 requeued\n"
    assert set(states(folder).values()) == {"ready"}
    assert set(states(folder, 2).values()) == {"dead"}
    assert [event.value for event in logged(folder, "requeued")] == [2.0, 2.0, 1.0]
    assert ok(queue(folder, "requeue", "work", "--all", "--yes")) == "0 requeued\n"
    assert len(logged(folder, "requeued")) == 3


@pytest.mark.parametrize("args", [(), ("bad", "--all")])
def test_which_are_to_wait_again_must_be_said(folder: Path, args: tuple[str, ...]) -> None:
    assert queue(folder, "requeue", "work", *args, "--yes").exit_code == 2


def test_the_items_of_a_queue_are_deleted(folder: Path) -> None:
    assert ok(queue(folder, "purge", "work", "--yes")) == "5 deleted\n"
    assert states(folder) == {}
    (event,) = logged(folder, "purged")
    assert (event.value, event.unit, event.level) == (5.0, "items", "Warning")


def test_many_items_are_deleted_in_several_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.ops.queue.BATCH", 2)
    assert ok(queue(folder, "purge", "work", "--yes")) == "5 deleted\n"
    assert [event.value for event in logged(folder, "purged")] == [2.0, 2.0, 1.0]
    assert ok(queue(folder, "purge", "work", "--yes")) == "0 deleted\n"
    assert len(logged(folder, "purged")) == 3


def test_what_members_of_a_share_have_stays_theirs(folder: Path) -> None:
    assert ok(queue(folder, "purge", SHARE, "--yes")) == "4 deleted\n"
    assert states(folder, 2) == {"held": "locked"}
    assert len(states(folder)) == 5


@pytest.mark.parametrize(
    "args",
    [
        ("unlock", "work", "held"),
        ("purge", "work"),
        ("requeue", "work", "--all"),
        ("requeue", SHARE, "bad"),
    ],
)
def test_what_is_unsafe_asks_first(folder: Path, args: tuple[str, ...]) -> None:
    before = states(folder), states(folder, 2)
    for answer in ("n\n", ""):
        assert queue(folder, *args, text=answer).exit_code == 1
    assert (states(folder), states(folder, 2)) == before
    result = queue(folder, *args, text="y\n")
    assert result.exit_code == 0, result.output
    assert "?" in result.stderr
    assert logged(folder, {"unlock": "unlocked", "purge": "purged"}.get(args[0], "requeued"))


def test_without_a_database_it_is_told(tmp_path: Path) -> None:
    for command in ("list", "show work", "purge work --yes"):
        assert "does not exist" in failed(queue(tmp_path, *command.split()))
