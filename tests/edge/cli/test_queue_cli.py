from __future__ import annotations

import json
import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.queues.store import overview, queue_items, queues
from edge.features.queues.store.queue_items import NewQueuedItem
from edge.ops.gateway import control
from tests.helpers import queue_rows
from tests.helpers.folder import change, configure, fieldpost, query, system_events
from tests.helpers.queue_rows import FIRST, PUBLISHER, WORKER

SHARE = "$share:pool:plant/#"


@pytest.fixture
def folder(folder: Path) -> Path:
    """A gateway with the queue node `work` and a shared subscription, both with a member."""
    change(folder, lambda tx: accounts.add(tx, "worker", (), trusted=True))
    change(folder, fill)
    return folder


def fill(tx: Transaction) -> None:
    node, share = queue_rows.node(tx), queue_rows.share(tx)
    queue_rows.fill(tx, node)
    queue_rows.join(tx, node, takes=3)
    queue_rows.fill(tx, share)
    queue_rows.join(tx, share, qos=1)


def queue(folder: Path, *args: str, text: str | None = None) -> Result:
    return fieldpost(folder, "queue", *args, text=text)


def states(folder: Path, number: int = 1) -> dict[str, str]:
    return query(folder, lambda tx: queue_rows.states(tx, number))


def show_json(folder: Path, name: str, *args: str) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(ok(queue(folder, "show", name, "--json", *args)))
    return view


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def stderr(result: Result) -> str:
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    return line


def test_all_queues_are_listed(folder: Path) -> None:
    header, first, second = ok(queue(folder, "list")).splitlines()
    assert header.split() == ["queue", "ready", "locked", "delayed", "dead", "bytes", "members"]
    size = str(show_json(folder, "work")["bytes"])
    assert first.split() == ["work", "2", "1", "1", "1", size, "1"]
    assert second.split() == [SHARE, "2", "1", "1", "1", size, "1"]
    rows = [json.loads(line) for line in ok(queue(folder, "list", "--json")).splitlines()]
    totals = [(row["name"], row["items"], row["dead"]) for row in rows]
    assert totals == [("work", 5, 1), (SHARE, 5, 1)]


def test_queues_of_several_pages_are_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.ops.transactions.PAGE", 1)
    assert len(ok(queue(folder, "list")).splitlines()) == 3


def test_show_prints_the_queue_its_members_and_its_items(folder: Path) -> None:
    text = ok(queue(folder, "show", "work"))
    facts, members, items = text.split("\n\n")
    assert facts.splitlines()[:2] == [
        "work: queue node, least-loaded",
        "an item is locked for at most 60 s, and dead after 5 deliveries",
    ]
    assert facts.endswith(" bytes in 2 ready, 1 locked, 1 delayed, 1 dead")
    assert [line.split() for line in members.splitlines()] == [
        ["member", "QoS", "accepts", "has", "connected"],
        [WORKER, "0", "3", "0", "-"],
    ]
    held, one, two, late, bad = items.splitlines()
    assert held.startswith("locked  held  ")
    assert f"{PUBLISHER} -> work  " in held
    assert "priority 2" in held
    assert held.endswith(f"delivered to {FIRST} 0 s ago, the lock ends in 60 s; delivery 1 of 5")
    assert one.endswith(f"which of the subscribers are connected: {WORKER}")
    assert two.endswith("; 1 ready item before it in the queue")
    assert late.endswith("ready in 30 s")
    assert bad.endswith("dead: given out 5 times")


def test_show_accepts_both_spellings_of_a_shared_subscription(folder: Path) -> None:
    for name in (SHARE, "$share/pool/plant/#"):
        text = ok(queue(folder, "show", name))
        assert text.startswith(f"{SHARE}: shared subscription, least-loaded\n")
        assert "locked for" not in text.partition("\n\n")[0]


def test_show_says_that_a_queue_is_full(folder: Path) -> None:
    assert show_json(folder, "work")["full"] is None
    configure(folder, "limits", items_per_queue=5)
    assert show_json(folder, "work")["full"] == "items_per_queue"
    facts = ok(queue(folder, "show", "work")).partition("\n\n")[0]
    text = "no more items are accepted: the limit items_per_queue = 5 is reached"
    assert facts.splitlines()[-1] == text


def test_show_prints_json(folder: Path) -> None:
    view = show_json(folder, "work")
    assert (view["name"], view["ready"], view["max_deliveries"]) == ("work", 2, 5)
    assert view["service"] == view["items_shown"][0]["locked"]
    (member,) = view["members"]
    assert (member["jid"], member["requests"], member["there"]) == (WORKER, 3, None)
    assert [(item["item"], item["why"], item["before"]) for item in view["items_shown"]] == [
        ("held", "locked", 0),
        ("one", "not_known", 0),
        ("two", "not_known", 1),
        ("late", "delayed", 0),
        ("bad", "dead", 0),
    ]
    assert view["items_shown"][0]["holder"] == FIRST


def test_show_limits_items_of_each_state_or_shows_one(folder: Path) -> None:
    assert len(show_json(folder, "work", "--limit", "1")["items_shown"]) == 4
    assert show_json(folder, "work", "--limit", "0")["items_shown"] == []
    assert ok(queue(folder, "show", "work", "--limit", "1")).endswith(
        "\nand 1 more: --limit shows more of each state\n"
    )
    (item,) = show_json(folder, "work", "--item", "two", "--limit", "0")["items_shown"]
    assert (item["item"], item["before"]) == ("two", 1)
    (line,) = ok(queue(folder, "show", "work", "--item", "two")).splitlines()
    assert line.startswith("ready  two  ")


def test_show_reports_a_gateway_that_does_not_answer(folder: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(folder / control.SOCKET))
        listening.listen()
        thread = threading.Thread(target=lambda: listening.accept()[0].close())
        thread.start()
        result = queue(folder, "show", "work")
        thread.join()
    assert "the gateway closed the connection" in result.stderr
    assert ok(result).split("\n\n")[1].endswith("  -")


def test_show_reports_a_queue_without_subscribers(folder: Path) -> None:
    change(folder, lambda tx: tx.run("DELETE FROM subscriptions"))
    text = ok(queue(folder, "show", "work"))
    assert "\n\nno subscribers\n\n" in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nix", "there is no queue node nix; see `fieldpost queue list`"),
        ("$share:no:a", "there is no shared subscription with members $share:no:a"),
        ("$share:a+:b", "the name of a share must not contain"),
    ],
)
def test_an_unknown_queue_is_an_error(folder: Path, name: str, message: str) -> None:
    for command in (("show",), ("purge", "--yes"), ("requeue", "--all", "--yes")):
        assert message in stderr(queue(folder, command[0], name, *command[1:]))


def test_an_unknown_item_is_an_error(folder: Path) -> None:
    for command in ("show work --item nix", "unlock work nix --yes", "requeue work nix"):
        assert stderr(queue(folder, *command.split())) == "Error: there is no item 'nix' in work"


def test_control_characters_in_an_item_id_are_escaped(folder: Path) -> None:
    def enqueue(tx: Transaction) -> None:
        row = queues.get(tx, 1)
        assert row is not None
        queue_items.enqueue(tx, row, NewQueuedItem("work", "\x1b[2J\nx", PUBLISHER, b""))

    change(folder, enqueue)
    text = ok(queue(folder, "show", "work"))
    assert "\\x1b[2J\\nx" in text
    assert "\x1b" not in text


def test_unlock_ends_the_lock_and_logs_an_event(folder: Path) -> None:
    assert ok(queue(folder, "unlock", "work", "held", "--yes")) == "held is unlocked\n"
    (item,) = query(folder, lambda tx: overview.items_named(tx, 1, "held", 1))
    assert (item.state, item.until) == ("locked", 0.0)
    (event,) = system_events(folder, "unlocked")
    assert (event.kind, event.topic, event.source) == ("queue", "work", None)
    assert event.text == "by the operator"
    assert event.tags == {"item": "held", "holder": FIRST}


def test_unlock_refuses_unlocked_items_and_shared_subscriptions(folder: Path) -> None:
    error = stderr(queue(folder, "unlock", "work", "bad", "--yes"))
    assert error == "Error: item 'bad' is not locked, but dead"
    assert "is a shared subscription" in stderr(queue(folder, "unlock", SHARE, "held", "--yes"))
    assert system_events(folder, "unlocked") == []


def test_requeue_makes_all_named_items_ready_or_none(folder: Path) -> None:
    error = stderr(queue(folder, "requeue", "work", "bad", "one"))
    assert error == "Error: item 'one' is not dead, but ready"
    assert states(folder)["bad"] == "dead"
    assert ok(queue(folder, "requeue", "work", "bad", "bad")) == "1 requeued\n"
    assert states(folder)["bad"] == "ready"
    (event,) = system_events(folder, "requeued")
    assert (event.value, event.level, event.tags) == (1.0, "Notice", {"item": "bad"})


def test_requeue_all_makes_all_dead_items_ready_in_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.ops.data.queue.BATCH", 2)
    change(folder, lambda tx: tx.run("UPDATE queue_items SET state = 'dead', reason = 'x'"))
    assert ok(queue(folder, "requeue", "work", "--all", "--yes")) == "5 requeued\n"
    assert set(states(folder).values()) == {"ready"}
    assert set(states(folder, 2).values()) == {"dead"}
    assert [event.value for event in system_events(folder, "requeued")] == [2.0, 2.0, 1.0]
    assert ok(queue(folder, "requeue", "work", "--all", "--yes")) == "0 requeued\n"
    assert len(system_events(folder, "requeued")) == 3


@pytest.mark.parametrize("args", [(), ("bad", "--all")])
def test_requeue_takes_either_items_or_all(folder: Path, args: tuple[str, ...]) -> None:
    assert queue(folder, "requeue", "work", *args, "--yes").exit_code == 2


def test_purge_deletes_all_items_in_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.ops.data.queue.BATCH", 2)
    assert ok(queue(folder, "purge", "work", "--yes")) == "5 deleted\n"
    assert states(folder) == {}
    events = [(event.value, event.unit, event.level) for event in system_events(folder, "purged")]
    assert events == [(count, "items", "Warning") for count in (2.0, 2.0, 1.0)]
    assert ok(queue(folder, "purge", "work", "--yes")) == "0 deleted\n"
    assert len(system_events(folder, "purged")) == 3


def test_purge_keeps_delivered_items_of_shared_subscriptions(folder: Path) -> None:
    assert ok(queue(folder, "purge", SHARE, "--yes")) == "4 deleted\n"
    assert states(folder, 2) == {"held": "locked"}
    assert len(states(folder)) == 5


@pytest.mark.parametrize(
    "args",
    [("unlock", "work", "held"), ("purge", "work"), ("requeue", "work", "--all"),
     ("requeue", SHARE, "bad")],
)  # fmt: skip
def test_unsafe_commands_ask_for_confirmation(folder: Path, args: tuple[str, ...]) -> None:
    before = states(folder), states(folder, 2)
    for answer in ("n\n", ""):
        assert queue(folder, *args, text=answer).exit_code == 1
    assert (states(folder), states(folder, 2)) == before
    result = queue(folder, *args, text="y\n")
    assert (result.exit_code, "?" in result.stderr) == (0, True), result.output
    assert system_events(folder, {"unlock": "unlocked", "purge": "purged"}.get(args[0], "requeued"))
