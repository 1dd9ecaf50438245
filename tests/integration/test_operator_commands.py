from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edge.errors import SetupError
from edge.ops.gateway import control
from edge.ops.gateway.control import MAX_REQUEST_BYTES
from edge.ops.gateway.operator_requests import FinishItem, ItemReport, RequestRefused, TakeItem
from edge.server.operator_channel import MAX_LISTENERS, MAX_UNREAD_BYTES
from firmware_sim.device import Device, ReceivedMessage, ReceiveOptions
from tests.helpers.folder import fieldpost
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import log_in

SOON_S = 30.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    return Gateway(tmp_path_factory.mktemp("gw") / "gateway", "pump1", "valve1")


def output(gateway: Gateway, *words: object, text: str | None = None) -> str:
    result = fieldpost(gateway.folder, *words, text=text)
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(gateway: Gateway, *words: object, text: bytes | None = None) -> str:
    result = fieldpost(gateway.folder, *words, text=text)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    return result.stderr


def nodes(gateway: Gateway) -> dict[str, dict[str, Any]]:
    lines = output(gateway, "node", "list", "--json").splitlines()
    return {one["name"]: one for one in map(json.loads, lines)}


def test_nodes_are_created_listed_configured_and_deleted(
    gateway: Gateway, process: Process
) -> None:
    assert output(gateway, "node", "create", "plant/a") == "plant/a is created\n"
    options = ("--queue", "--owner", "pump1", "--set", "queue_lock_timeout=5")
    output(gateway, "node", "create", "work", *options)
    found = nodes(gateway)
    assert (found["plant/a"]["queue"], found["plant/a"]["owner"]) == (False, DOMAIN)
    assert (found["work"]["queue"], found["work"]["owner"]) == (True, f"pump1@{DOMAIN}")
    assert "plant/a  node   gw.example" in output(gateway, "node", "list")
    output(gateway, "node", "configure", "work", "--set", "pubsub#title=Jobs")
    settings = output(gateway, "node", "configure", "work").splitlines()
    assert {"title=Jobs", "queueing=1", "queue_lock_timeout=5"} <= set(settings)
    for name in ("plant/a", "work"):
        assert output(gateway, "node", "delete", name, "--yes") == f"{name} is deleted\n"
    assert nodes(gateway) == {}


def test_refusals_are_one_line(gateway: Gateway, process: Process) -> None:
    output(gateway, "node", "create", "used")
    assert "exists already" in refusal(gateway, "node", "create", "used")
    assert "there is no such account" in refusal(gateway, "send", "--to", "nobody", "text")
    foreign = refusal(gateway, "send", "--to", "a@other.example", "text")
    assert "serves only its own domain" in foreign
    for text in (5000 * "[", 5000 * "9"):
        assert "not JSON" in refusal(gateway, "send", "--node", "used", "--format", "json", text)
    assert "no queue node" in refusal(gateway, "listen", "--take", "used")
    text = '"' * MAX_REQUEST_BYTES
    assert "a request has at most" in refusal(gateway, "send", "--node", "used", text)
    for words in (("send", "--node", "used"), ("send", "--to"), ("node", "create")):
        assert "is not UTF-8" in refusal(gateway, *words, "\udcff")
    assert "is not UTF-8" in refusal(gateway, "send", "--node", "used", text=b"\xff")
    output(gateway, "node", "delete", "used", "--yes")


async def test_a_message_that_its_device_refuses_is_a_dead_letter(
    gateway: Gateway, process: Process, tmp_path: Path
) -> None:
    """Nobody else is informed, because the operator has no account."""
    receive = ReceiveOptions(tmp_path / "inbox", ignore, trusts=lambda _sender: False)
    async with Device(
        f"valve1@{DOMAIN}/fw", PASSWORD, outbox_path=tmp_path / "outbox", ca_file=gateway.ca,
        host="127.0.0.1", port=port_of(process), receive=receive,
    ):  # fmt: skip
        await asyncio.to_thread(output, gateway, "send", "--to", "valve1", "bad")
        async with asyncio.timeout(SOON_S):
            while not (found := await asyncio.to_thread(list_dead_letters, gateway)):  # noqa: ASYNC110
                await asyncio.sleep(0)
    (dead_letter,) = found
    assert dead_letter["sender"] == DOMAIN


def ignore(_message: ReceivedMessage, _db: sqlite3.Connection) -> None:
    """Write nothing."""


def list_dead_letters(gateway: Gateway) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output(gateway, "dead", "list", "--json").splitlines()]


async def test_published_items_reach_a_listener(gateway: Gateway, process: Process) -> None:
    output(gateway, "node", "create", "plant/b", "--set", "publish_model=open")
    words = ("listen", "plant/#", "--count", "4", "--json", "--dir", str(gateway.folder))
    listening = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edge", *words, stdout=PIPE, stderr=PIPE
    )
    assert listening.stdout is not None
    assert listening.stderr is not None
    async with asyncio.timeout(SOON_S):
        assert await listening.stderr.readline() == b"listening to plant/#\n"
        output(gateway, "send", "--node", "plant/b", "--format", "json", '{"watts": 7}')
        output(gateway, "send", "--node", "plant/b", "--lines", "--qos", "0", text="one\ntwo\n")
        async with await log_in(port_of(process), gateway.ca, "pump1", PASSWORD) as pump:
            item = "<item id='i'><x xmlns='urn:x'/></item>"
            answer = await pump.iq(
                "set",
                "<pubsub xmlns='http://jabber.org/protocol/pubsub'>"
                f"<publish node='plant/b'>{item}</publish></pubsub>",
                to=f"pubsub.{DOMAIN}",
            )
            assert answer.get("type") == "result"
        lines = (await listening.stdout.read()).splitlines()
        assert await listening.wait() == 0
    first, second, third, fourth = map(json.loads, lines)
    assert (first["node"], first["publisher"], first["json"]) == ("plant/b", DOMAIN, {"watts": 7})
    assert [second["text"], third["text"]] == ["one", "two"]
    assert (fourth["item"], fourth["publisher"]) == ("i", f"pump1@{DOMAIN}/fw")
    assert fourth["payload"] == "<x xmlns='urn:x'/>"
    output(gateway, "node", "delete", "plant/b", "--yes")


def test_items_of_a_queue_are_taken_once(gateway: Gateway, process: Process) -> None:
    output(gateway, "node", "create", "jobs", "--queue")
    output(gateway, "send", "--node", "jobs", "--lines", text="one\ntwo\nthree\n")
    output(gateway, "send", "--node", "jobs", "--delay", 3600, "later")
    report = json.loads(output(gateway, "queue", "show", "jobs", "--json"))
    states = [item["state"] for item in report["items_shown"]]
    assert states == ["ready", "ready", "ready", "delayed"]
    assert re.search(r"Z \(in 3\d{3} s\)$", report["items_shown"][-1]["sentence"])
    words = ("listen", "--take", "jobs", "--idle", "0.1")
    assert output(gateway, *words, "--count", 1) == "jobs  one\n"
    assert output(gateway, *words) == "jobs  two\njobs  three\n"
    assert nodes(gateway)["jobs"]["items"] == 1
    taken = [e["tags"]["item"] for e in gateway.events("system") if e["name"] == "taken"]
    assert len(taken) == 3
    output(gateway, "node", "delete", "jobs", "--yes")


def test_an_unfinished_item_is_delivered_again(gateway: Gateway, process: Process) -> None:
    output(gateway, "node", "create", "jobs", "--queue", "--set", "queue_lock_timeout=1")
    output(gateway, "send", "--node", "jobs", "again")
    first = control.perform(gateway.folder, TakeItem("jobs")).item
    assert first is not None
    assert control.perform(gateway.folder, TakeItem("jobs")).item is None
    (line,) = output(gateway, "listen", "--take", "jobs", "--json", "--count", 1).splitlines()
    found = json.loads(line)
    assert (found["item"], found["redeliveries"]) == (first.item, 1)
    with pytest.raises(RequestRefused, match="there is no item"):
        control.perform(gateway.folder, FinishItem("jobs", first.item))
    output(gateway, "node", "delete", "jobs", "--yes")


def test_four_commands_may_listen(gateway: Gateway, process: Process) -> None:
    """Other requests are answered; when a listener ends, another may listen."""
    with ExitStack() as stack:
        for _ in range(MAX_LISTENERS - 1):
            stack.enter_context(control.listening(gateway.folder, ["#"]))
        with control.listening(gateway.folder, ["#"]):
            assert "4 commands listen already" in refusal(gateway, "listen", "#")
            assert nodes(gateway) == {}
        deadline = time.monotonic() + SOON_S
        while True:  # until the gateway knows that one has ended
            try:
                stack.enter_context(control.listening(gateway.folder, ["#"]))
                break
            except RequestRefused:
                assert time.monotonic() < deadline


def until_disconnected(items: Iterator[ItemReport]) -> Iterator[ItemReport]:
    """Return the items before the gateway ends the connection, which it must."""
    try:
        yield from items
    except SetupError as error:
        assert "read too slowly" in str(error)  # noqa: PT017
    else:
        pytest.fail("the items ended")


def test_a_listener_that_does_not_read_is_disconnected(gateway: Gateway, process: Process) -> None:
    """It does not delay publishers, and the end is reported to it."""
    output(gateway, "node", "create", "plant/c")
    text, count = "x" * 50_000, 150
    with control.listening(gateway.folder, ["plant/c"], SOON_S) as items:
        output(gateway, "send", "--node", "plant/c", "--lines", text=f"{text}\n" * count)
        received = list(until_disconnected(items))
    assert sum(len(item.payload) for item in received) < 2 * MAX_UNREAD_BYTES
    with control.listening(gateway.folder, ["plant/c"], SOON_S) as items:
        output(gateway, "send", "--node", "plant/c", "again")
        assert b"again" in next(items).payload
    output(gateway, "node", "delete", "plant/c", "--yes")
