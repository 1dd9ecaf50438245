"""Tests of a full disk: new messages are refused, the rest works, and no restart is needed.

First, less than the gateway's reserve is free, so that stored messages are still delivered and
deleted. Then nothing is free, and the gateway still answers.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from edge.engine.store import database
from sync.common.fleet_folder import FleetFolder
from sync.segment import Identity, digest_of
from tests.helpers.fleet import HOST, identity, landed, make_fleet, segment
from tests.helpers.fleet import Client as FleetClient
from tests.helpers.fleet import client as fleet_client
from tests.helpers.fleet_command import fleet_command
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.folder import configure, fieldpost
from tests.helpers.gateway import Gateway, bind_session
from tests.helpers.processes import READY_S, Process, start
from tests.helpers.xmpp import CLIENT, Client, condition, log_message

MIB: Final = 1024 * 1024
DISK: Final = 16 * MIB
SMALL: Final = {
    "database_bytes": 64 * MIB,
    "database_reserve": MIB,
    "held_bytes": 8 * MIB,
    "outbox_bytes": 8 * MIB,
    "offline_total_bytes": 8 * MIB,
    "dead_bytes": MIB,
    "backlog_bytes": MIB,
    "recent_bytes": 0,
}
PING: Final = "<ping xmlns='urn:xmpp:ping'/>"
DISCO: Final = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
ROSTER: Final = "<query xmlns='jabber:iq:roster'/>"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "fieldpost-test", str(mount_point)]
    mounted = subprocess.run(command, capture_output=True, timeout=30, check=False)
    if mounted.returncode:
        reason = mounted.stderr.decode().strip()
        pytest.skip(f"a disk cannot be mounted ({reason}): `unshare --map-root-user --mount` helps")
    yield mount_point
    subprocess.run(["umount", "--lazy", mount_point], timeout=30, check=True)


@pytest.fixture
def gateway(disk: Path) -> Gateway:
    return Gateway(disk / "gateway", "writer", "pump", "absent", require_tls=False, **SMALL)


class OtherFiles:
    """Files of other programs on the same disk."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "others"

    def fill(self, free: int) -> None:
        """Fill the disk until this many bytes are free."""
        size = 0
        with self._file.open("wb", buffering=0) as file:
            try:
                while True:
                    size += file.write(bytes(4096))
            except OSError:
                pass
            file.truncate(max(0, size - free))

    def remove(self) -> None:
        self._file.unlink()


@pytest.fixture
def other_files(disk: Path) -> OtherFiles:
    return OtherFiles(disk)


async def check_requests(client: Client) -> None:
    for payload, to in ((PING, "gw.example"), (DISCO, "gw.example"), (ROSTER, None)):
        assert (await client.iq("get", payload, to)).get("type") == "result"


async def send_message(client: Client, text: str) -> str | None:
    """Send a plain message to the offline device; return the condition of an error."""
    client.send(f"<message id='m' to='absent@gw.example'><body>{text}</body></message>")
    client.send(f"<iq type='get' id='end' to='gw.example'>{PING}</iq>")
    error = None
    while (answer := await client.element()).get("id") != "end":
        error = condition(answer)
    return error


async def test_stored_messages_are_delivered_from_the_reserve(
    gateway: Gateway, own_process: Process, other_files: OtherFiles
) -> None:
    async with await bind_session(own_process, "writer") as writer:
        for number in range(3):
            assert await writer.assured(f"early{number}", log_message(number)) == "received"
        assert await send_message(writer, "early") is None
        other_files.fill(2 * MIB)
        assert await writer.assured("late", log_message(9)) == "resource-constraint"
        payload = f"<acknowledged xmlns='urn:xmpp:qos'>{log_message(9)}</acknowledged>"
        refused = await writer.iq("set", payload)
        assert condition(refused) == "resource-constraint"
        assert "the limit database_reserve = 1048576 is reached" in "".join(refused.itertext())
        assert await send_message(writer, "late") == "resource-constraint"
        await check_requests(writer)
        for number in range(3):
            assert await writer.deliver(f"early{number}") == "delivered"
        async with await bind_session(own_process, "absent") as absent:
            absent.send("<presence/>")
            while (stanza := await absent.element()).tag != f"{CLIENT}message":
                pass
            assert stanza.findtext(f"{CLIENT}body") == "early"
            await check_requests(absent)
        logged = list(gateway.events())
        assert [e["tags"]["n"] for e in logged if e["lane"] == "logs"] == ["0", "1", "2"]
        limits = {e["name"] for e in logged if e["kind"] == "limit"}
        assert limits == {"database_reserve"}
        other_files.remove()
        assert await writer.assured("late", log_message(9)) == "received"
        assert await writer.deliver("late") == "delivered"


async def test_a_completely_full_disk_is_reported_and_survived(
    gateway: Gateway, own_process: Process, other_files: OtherFiles
) -> None:
    async with await bind_session(own_process, "writer") as writer:
        assert await writer.assured("early", log_message(1)) == "received"
        other_files.fill(0)
        for number in range(30):
            outcome = await writer.assured(f"late{number}", log_message(9))
            assert outcome == "resource-constraint"
        refused = fieldpost(gateway.folder, "send", "hi", "--to", "pump")
        assert (refused.exit_code, "free disk space" in refused.stderr) == (1, True)
        await check_requests(writer)
        assert (await writer.deliver("early")) in {"delivered", "resource-constraint"}
        async with await bind_session(own_process, "pump") as pump:
            await check_requests(pump)
        list(gateway.events())
        other_files.remove()
        assert await writer.assured("late", log_message(2)) == "received"
        assert await writer.deliver("late") == "delivered"
        assert await writer.deliver("early") == "delivered", "also when it is repeated"
    logged = [e["tags"]["n"] for e in gateway.events("logs")]
    assert sorted(logged) == ["1", "2"]


async def read_health(process: Process) -> tuple[int, dict[str, Any]]:
    def get() -> tuple[int, dict[str, Any]]:
        connection = HTTPConnection(*process.host_port("web"), timeout=20)
        with closing(connection):
            connection.request("GET", "/health")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    return await asyncio.to_thread(get)


async def test_every_view_says_that_a_full_disk_refuses_messages(
    gateway: Gateway, other_files: OtherFiles
) -> None:
    configure(gateway.folder, "web", listen="127.0.0.1:0")
    other_files.fill(2 * MIB)
    with gateway.run() as process:
        assert "health=failing" in process.stdout
        process.wait_for_stderr("; free disk space")
        cause = r"(1\.9|2\.0) MiB are free on the disk, and new messages need more than"
        assert re.search(cause, process.stderr)  # the gateway itself has written some pages
        status, report = await read_health(process)
        (problem,) = report["problems"]
        assert (status, report["status"]) == (503, "failing")
        assert "new messages are refused" in problem["text"]
        found = json.loads(gateway.command("status", "--json"))
        assert (found["health"], len(found["problems"])) == ("failing", 1)
        assert f"    -> {problem['remedy']}" in gateway.command("status")
        for qos in ("0", "1"):
            refused = fieldpost(gateway.folder, "send", "hi", "--to", "pump", "--qos", qos)
            assert (refused.exit_code, problem["remedy"] in refused.stderr) == (1, True)
        diagnosis = fieldpost(gateway.folder, "doctor", "--json")
        assert problem["remedy"] in [
            each["remedy"] for each in json.loads(diagnosis.stdout)["findings"]
        ]
        other_files.remove()
        assert await read_health(process) == (200, report | {"status": "ok", "problems": []})
        process.wait_for_stderr("disk: resolved: ")
        assert process.terminate() == 0
    with gateway.run() as process:
        assert "health=" not in process.stdout


@pytest.mark.parametrize("free", [0, 8])
def test_a_start_on_a_disk_without_room_names_cause_and_remedy(
    gateway: Gateway, other_files: OtherFiles, free: int
) -> None:
    other_files.fill(free)
    done = fieldpost(gateway.folder, "run")
    assert done.exit_code == 1
    assert "the disk is full; free disk space: `df " in done.stderr
    diagnosis = json.loads(fieldpost(gateway.folder, "doctor", "--json").stdout)
    wrong = [each for each in diagnosis["findings"] if each["verdict"] == "wrong"]
    assert {"name": "disk"}.items() <= wrong[-1].items()
    assert wrong[-1]["remedy"].startswith("free disk space")


def test_a_disk_that_is_too_small_for_any_message_is_refused(gateway: Gateway) -> None:
    gateway.configure(database_reserve=12 * MIB)
    done = fieldpost(gateway.folder, "run")
    assert done.exit_code == 1
    assert "limits.database_reserve: 12.0 MiB must stay free" in done.stderr
    gateway.configure(database_reserve=10 * MIB)
    with gateway.run() as process:
        gateway.configure(database_reserve=12 * MIB)
        assert "limits.database_reserve" in fieldpost(gateway.folder, "reload").output
        assert process.terminate() == 0


async def test_a_disk_that_fills_up_loses_no_answered_message(
    gateway: Gateway, own_process: Process, other_files: OtherFiles
) -> None:
    async with await bind_session(own_process, "writer") as writer:
        answered = []
        for number in range(24):
            other_files.fill(max(0, 18 - number) * MIB // 2)
            if await writer.assured(str(number), log_message(number)) != "received":
                break
            answered.append(number)
        assert 3 < len(answered) < 24
        other_files.remove()
        for number in answered:
            assert await writer.deliver(str(number)) == "delivered"
    assert [int(e["tags"]["n"]) for e in gateway.events("logs")] == answered
    assert (gateway.folder / database.FILE_NAME).stat().st_size < DISK


async def test_the_space_limits_hold_during_a_long_read_transaction(tmp_path: Path) -> None:
    """First only held messages are accepted, then only reads, and after it everything."""
    bounds = {**SMALL, "database_bytes": 40 * MIB, "wal_bytes": 6 * MIB}
    gateway = Gateway(tmp_path / "gateway", "writer", require_tls=False, **bounds)
    path = gateway.folder / database.FILE_NAME
    with gateway.run() as process, closing(sqlite3.connect(path, isolation_level=None)) as other:
        async with await bind_session(process, "writer") as writer:
            for number in range(20):
                assert await writer.assured(f"held{number}", log_message(number)) == "received"
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM meta").fetchone()
            while (outcome := await exchange(writer, 30)) == "delivered":
                assert on_disk(path) < 20 * MIB
            assert outcome == "resource-constraint"
            assert 6 * MIB < on_disk(path) < 12 * MIB
            for number in range(20):
                assert await writer.deliver(f"held{number}") == "delivered"
            grow(path, 40 * MIB)
            assert await writer.deliver("unknown") in {"item-not-found", "resource-constraint"}
            await check_requests(writer)
            before = on_disk(path)
            assert await exchange(writer, 31) == "resource-constraint"
            assert on_disk(path) == before
            other.execute("ROLLBACK")
            assert await exchange(writer, 32) == "delivered"
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr, process.stderr


async def exchange(client: Client, number: int) -> str:
    """Send a large message; return `delivered`, or the condition of the error."""
    name = f"big{number}"
    outcome = await client.assured(name, log_message(number, "E" * 8000))
    return await client.deliver(name) if outcome == "received" else outcome


def on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def grow(path: Path, size: int) -> None:
    """Write from another process until the WAL is long."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as other:
        other.execute("CREATE TABLE filler (bytes BLOB)")
        while on_disk(path) < size:
            other.execute("INSERT INTO filler VALUES (randomblob(1000000))")
            other.execute("DELETE FROM filler")


async def test_a_stop_with_a_full_disk_is_reported_in_one_line(
    gateway: Gateway, other_files: OtherFiles
) -> None:
    with gateway.run() as process:
        async with await bind_session(process, "writer") as writer:
            assert await writer.assured("early", log_message(1)) == "received"
            other_files.fill(0)
            assert await writer.assured("late", log_message(9)) == "resource-constraint"
            assert process.terminate() == 1
        *_warnings, last = process.stderr.splitlines()
        assert last.startswith("Error: the closing event was not written: the database:")
        assert "; free disk space: `df " in last
        assert "Traceback" not in process.stderr
    other_files.remove()
    with gateway.run() as process:
        async with await bind_session(process, "writer") as writer:
            assert await writer.deliver("early") == "delivered"
        assert process.terminate() == 0


def test_a_fleet_folder_on_a_read_only_disk_is_named(disk: Path) -> None:
    fleet = fleet_folder(disk / "fleet")
    subprocess.run(["mount", "-o", "remount,ro", disk], timeout=30, check=True)
    done = fleet_command("ingest", "--dir", fleet.root)
    text = f"Error: {fleet.root} is on a read-only file system; mount it read-write\n"
    assert (done.returncode, done.stderr) == (1, text)


class RunningReceiver(NamedTuple):
    process: Process
    fleet: FleetFolder
    client: FleetClient


@pytest.fixture
async def receiver(disk: Path) -> AsyncIterator[RunningReceiver]:
    """Run a receiver that keeps no reserve, so that its own writes meet the full disk."""
    tokens, fleet = make_fleet(disk / "fleet"), FleetFolder(disk / "fleet")
    words = ("--dir", fleet.root, "--listen", f"{HOST}:0", "--reserve", "0")
    with start("fieldpost-fleet", "serve", *words) as process:
        address = process.host_port("https")
        async with fleet_client(address, tokens, fleet.pki / "ca.pem") as connected:
            yield RunningReceiver(process, fleet, connected)


def long_segment(number: int) -> tuple[Identity, bytes]:
    """Return a segment of more than half a mebibyte, which a receiver writes in several parts."""
    name = identity(number, number)
    return name, segment(name, random.Random(number).randbytes(MIB * 3 // 4).hex())


async def test_a_receiver_on_a_full_disk_refuses_segments_until_there_is_room(
    receiver: RunningReceiver, other_files: OtherFiles
) -> None:
    process, fleet, centre = receiver
    stored = dict(long_segment(number) for number in range(1, 4))
    first, *others = stored
    assert (await centre.put(stored[first], first)).status == 201
    other_files.fill(0)
    for name in others:
        refused = await centre.put(stored[name], name)
        assert (refused.status, refused.body["reason"]) == (507, "full")
        assert refused.headers["retry-after"] == "300"
    assert (await centre.head(first)).headers["x-fieldpost-digest"] == digest_of(
        stored[first]
    ).hex()
    assert landed(fleet) == {first: stored[first]}
    other_files.remove()
    for name in others:
        assert (await centre.put(stored[name], name)).status == 201
    assert landed(fleet) == stored
    assert process.terminate() == 0
    assert '"event": "storage", "text": "[Errno 28] the disk has no room for' in process.stderr


async def test_a_disk_that_fills_up_during_an_upload_leaves_no_part_of_it(
    receiver: RunningReceiver, other_files: OtherFiles
) -> None:
    process, fleet, centre = receiver
    name, data = long_segment(1)

    async def body() -> AsyncIterator[bytes]:
        yield data[: MIB // 2]
        async with asyncio.timeout(READY_S):
            while not list(fleet.incoming.rglob("*.part")):  # else it finds the disk full before
                await centre.head(name)
        await asyncio.to_thread(other_files.fill, 0)
        yield data[MIB // 2 :]

    refused = await centre.put(data, name, body(), Content_Length=str(len(data)))
    assert (refused.status, refused.body["reason"]) == (507, "full")
    process.wait_for_stderr("No space left on device")
    assert landed(fleet) == {}
    assert list(fleet.incoming.rglob("*.part")) == []
    other_files.remove()
    assert (await centre.put(data, name)).status == 201
    assert landed(fleet) == {name: data}
    assert process.terminate() == 0
