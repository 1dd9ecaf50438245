"""`fieldpost uplink status` and `export`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge.cli.commands import main
from edge.config import load
from edge.engine import database
from edge.engine.database import Transaction
from edge.engine.events import LANES, LOGS, READINGS, SYSTEM, NewEvent
from edge.engine.group_commit import Store
from edge.features.eventlog.rules.eviction import BacklogQuota, hours_until_full
from edge.features.eventlog.store import epochs, segments, uplink_view
from edge.ops import current_time, pki
from edge.ops import uplink as admin
from edge.ops.transactions import changing
from edge.uplink.backlog import StoreBacklog, begin_epoch
from sync.common.enrolment import Enrolment, new_token, write_enrolment
from sync.segment import decode
from sync.uplink.batcher import BatchLimits
from sync.uplink.interfaces import Notice
from sync.uplink.sealer import Sealer
from tests.helpers.backlog import FixedState
from tests.helpers.segments import START
from tests.helpers.store import Clock, append, opened


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[Store]:
    async with opened(folder / database.FILE_NAME, Clock()) as store:
        yield store


async def call(*args: object) -> Result:
    """Run a command as another process would: beside the store that is open here."""
    given = [str(arg) for arg in args]
    return await asyncio.to_thread(CliRunner().invoke, main, given)


async def told(folder: Path) -> dict[str, object]:
    result = await call("uplink", "status", "--json", "--dir", folder)
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    return found


def backlog_of(folder: Path, store: Store) -> StoreBacklog:
    return StoreBacklog(store, load.load(folder), FixedState())


async def seal(folder: Path, store: Store, lane: str, count: int, a_segment: int = 2) -> None:
    """Write events and seal them all, some to a segment."""
    await store.run(lambda tx: append(tx, lane, count, NewEvent("log", text=f"of {lane}")))
    backlog = backlog_of(folder, store)
    limits = BatchLimits(a_segment, 300.0, 65_536)
    sealer = Sealer(
        "gw.example",
        backlog,
        FixedState(),
        limits,
        clock=lambda: 0.0,
        on_sealed=lambda: None,
        send_notice=backlog.log_notice,
    )
    await sealer.flush()


async def take(folder: Path, store: Store, count: int) -> None:
    """Let the centre take so many segments, the oldest first."""
    backlog = backlog_of(folder, store)
    for _ in range(count):
        waiting = await backlog.next_waiting()
        assert waiting is not None
        await backlog.acknowledge(waiting.digest)


async def test_status_of_a_new_gateway(folder: Path) -> None:
    found = await told(folder)
    assert (found["gateway"], found["taken"], found["told"], found["hours"]) == (
        "gw.example",
        None,
        None,
        None,
    )
    assert found["lanes"] == [
        {
            "lane": lane,
            "last": 0,
            "sealed": 0,
            "settled": 0,
            "segments": 0,
            "bytes": 0,
            "oldest": None,
            "share": share,
        }
        for lane, share in ((LOGS, 53687091), (READINGS, 161061274), (SYSTEM, 53687091))
    ]
    assert (found["aside"], found["dropped"], found["to"]) == ([], [], {})
    result = await call("uplink", "status", "--dir", folder)
    assert "no uplink configured" in result.output
    assert "created" in result.output


async def test_status_of_each_lane(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 7)
    await take(folder, store, 1)
    await store.run(lambda tx: append(tx, LOGS, 3, NewEvent("log")))
    backlog = backlog_of(folder, store)
    await backlog.log_notice(Notice("unreachable", "no route\x1b[2J"))
    found = await told(folder)
    assert isinstance(found["lanes"], list)
    (lane,) = (lane for lane in found["lanes"] if lane["lane"] == LOGS)
    assert (lane["last"], lane["sealed"], lane["settled"], lane["segments"]) == (10, 7, 2, 3)
    assert lane["oldest"] == START
    now = Clock()().wall
    assert (found["taken"], found["told"]) == (
        now,
        {"name": "unreachable", "text": "no route\x1b[2J", "time": now},
    )
    waiting = await backlog.next_waiting()
    assert waiting is not None
    await backlog.set_aside(waiting.digest, "conflict")
    found = await told(folder)
    assert found["aside"] == [
        {"lane": LOGS, "reason": "conflict", "segments": 1, "bytes": len(waiting.data)}
    ]
    await store.run(
        lambda tx: segments.evict(tx, BacklogQuota(0, dict.fromkeys(LANES, 0.3)), "backlog-full")
    )
    found = await told(folder)
    assert found["dropped"] == [{"lane": LOGS, "first": 5, "last": 7, "reason": "backlog-full"}]
    text = (await call("uplink", "status", "--dir", folder)).output
    assert "unreachable: no route\\x1b[2J" in text
    assert "rejected logs  1 segment, " in text
    assert "lost logs  5-7: backlog-full" in text


async def test_notice_shows_its_age_and_whether_it_is_resolved(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seal(folder, store, LOGS, 4)
    await backlog_of(folder, store).log_notice(Notice("conflict", "409 conflict: other bytes"))
    at = Clock()().wall
    monkeypatch.setattr(current_time, "now", lambda: Clock()()._replace(wall=at + 7_500_000))

    async def notice() -> str:
        text = (await call("uplink", "status", "--dir", folder)).output
        (line,) = (line for line in text.splitlines() if line.startswith("last notice"))
        return line

    assert "(2 h 5 min ago) conflict: 409" in await notice()
    assert "resolved" not in await notice()

    def took(tx: Transaction) -> None:
        tx.now = tx.now._replace(wall=at + 60_000)
        uplink_view.record_upload(tx)

    await store.run(took)
    assert (await notice()).endswith("other bytes; resolved by a later upload")
    monkeypatch.setattr(current_time, "now", lambda: Clock()()._replace(wall=at - 1000))
    assert "(in the future of this clock)" in await notice()


async def test_unsealed_events_are_shown(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 4)
    assert (await told(folder))["unsealed"] == {"events": 0, "since": None, "service": None}
    await store.run(lambda tx: append(tx, LOGS, 2, NewEvent("log")))
    await store.run(lambda tx: append(tx, READINGS, 1, NewEvent("reading")))
    now = Clock()()
    assert (await told(folder))["unsealed"] == {
        "events": 3,
        "since": now.wall,
        "service": now.service,
    }
    text = (await call("uplink", "status", "--dir", folder)).output
    assert re.search(
        r"^unsealed +3 events, the oldest logged .* ago; sealed by", text, re.MULTILINE
    )


async def test_time_until_the_backlog_is_full_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = admin.read(folder)
    monkeypatch.setattr(admin, "read", lambda *_args: found._replace(hours_until_full=1.0))
    text = (await call("uplink", "status", "--dir", folder)).output
    assert "bytes; full in 1 h without an upload" in text


async def test_epochs_and_their_waiting_segments_are_shown(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 4)
    await backlog_of(folder, store).begin_epoch("another-card")
    await seal(folder, store, LOGS, 2)
    found = await told(folder)
    assert isinstance(found["epochs"], list)
    assert [(epoch["reason"], epoch["segments"]) for epoch in found["epochs"]] == [
        ("another-card", 2),
        ("created", 2),
    ]
    (lane,) = (lane for lane in found["lanes"] if lane["lane"] == LOGS)  # type: ignore[attr-defined]
    assert (lane["last"], lane["sealed"], lane["settled"], lane["segments"]) == (2, 2, 0, 3)
    assert "another-card" in (await call("uplink", "status", "--dir", folder)).output


@pytest.mark.parametrize(
    ("room", "sealed", "seconds", "hours"),
    [(7200, 3600, 3600, 2.0), (-5, 10, 3600, 0.0), (100, 0, 7200, None), (100, 10, 3599, None)],
)
def test_time_until_the_backlog_is_full(
    room: int, sealed: int, seconds: float, hours: float | None
) -> None:
    assert hours_until_full(room, sealed, seconds) == hours


async def test_forecast_uses_the_latest_segments(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 2)
    await store.run(lambda tx: append(tx, LOGS, 1, NewEvent("log")))
    state = (await FixedState().state())._replace(sealed_at=START + 3_600_000)
    await store.run(lambda tx: begin_epoch(tx, load.load(folder), state, "restored"))
    found = await told(folder)
    waiting = await store.read(lambda tx: sum(segments.waiting_bytes(tx).values()))
    newest = await backlog_of(folder, store).next_waiting()
    assert newest is not None
    assert found["hours"] == pytest.approx(
        (268435456 - waiting) / (waiting - len(newest.data)), rel=1e-6
    )


async def test_route_is_shown_without_secrets(folder: Path) -> None:
    ca = pki.files(folder).ca.read_text()
    token = new_token()
    write_enrolment(
        folder / "enrol.json", Enrolment("gw.example", "https://centre.example:8443", token, ca)
    )
    path = folder / load.FILE_NAME
    text = path.read_text()
    path.write_text(text.replace('enrolment = ""', 'enrolment = "enrol.json"'))
    result = await call("uplink", "status", "--dir", folder)
    assert "url=https://centre.example:8443" in result.output
    assert token not in result.output
    key = pki.files(folder).server_key.read_text()
    shown = Enrolment("gw.example", "https://centre.example:8443", "", ca, ca, key)
    write_enrolment(folder / "enrol.json", shown)
    to = (await told(folder))["to"]
    assert isinstance(to, dict)
    assert to["certificate_ends"].endswith("Z")
    assert set(to) == {"url", "gateway", "certificate_ends"}
    torn = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    write_enrolment(folder / "enrol.json", replace(shown, certificate=torn))
    assert (await told(folder))["to"] == {"trouble": "enrol.json: `certificate` cannot be read"}
    (folder / "enrol.json").unlink()
    gone = "enrol.json does not exist"
    assert (await told(folder))["to"] == {"trouble": gone}
    (folder / "enrol.json").mkdir()
    assert (await told(folder))["to"] == {"trouble": "enrol.json: it is not a regular file"}
    (folder / "enrol.json").rmdir()
    (folder / "enrol.json").write_text("{}")
    assert (await told(folder))["to"].keys() == {"trouble"}  # type: ignore[attr-defined]
    path.write_text(text.replace('folder = ""', 'folder = "/mnt/share"'))
    assert (await told(folder))["to"] == {
        "folder": "/mnt/share",
        "trouble": "/mnt/share: the folder must exist and contain a file named fieldpost-segments",
    }
    path.write_text(text.replace('folder = ""', 'folder = "share"'))
    (folder / "share").mkdir()
    (folder / "share" / "fieldpost-segments").touch()
    assert (await told(folder))["to"] == {"folder": "share"}
    path.write_text(text.replace('folder = ""', 'folder = "file://elsewhere/share"'))
    assert (await told(folder))["to"]["trouble"].endswith("is not a path or a URL file:///PATH")  # type: ignore[index]


def test_folder_that_never_answers_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()
    monkeypatch.setattr(admin, "check_marked", lambda _root: gone.wait())
    assert admin._folder_problem(folder, "share", 0.01) == "share has not answered for 0.01 s"
    gone.set()


# Export.


def files(target: Path) -> dict[str, bytes]:
    return {
        path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*.seg")
    }


async def test_waiting_segments_are_exported_once(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    await seal(folder, store, LOGS, 6)
    await take(folder, store, 1)
    await store.run(lambda tx: append(tx, LOGS, 2, NewEvent("log")))
    target = tmp_path / "stick"
    result = await call("uplink", "export", target, "--dir", folder)
    assert result.exit_code == 0, result.output
    assert result.output == (
        f"2 segments written to {target}, 0 already there\n"
        "2 events are not exported: a running gateway seals events into segments after"
        " `uplink.segment_age`, and when it stops\n"
    )
    epoch = await backlog_of(folder, store).epoch()
    found = files(target)
    assert set(found) == {f"gw.example/{epoch}/logs/{name}.seg" for name in ("3-4", "5-6")}
    for name, data in found.items():
        assert f"/{decode(data).header.first_seq}-" in name
    for again in (found, found):
        result = await call("uplink", "export", target, "--dir", folder)
        assert result.output.startswith(f"0 segments written to {target}, 2 already there\n")
        assert files(target) == again
    result = await call("uplink", "export", target, "--all", "--dir", folder)
    assert result.output.startswith(f"1 segment written to {target}, 2 already there\n")
    states = await store.read(lambda tx: tx.rows("SELECT state FROM segments ORDER BY id"))
    assert states == [("acknowledged",), ("waiting",), ("waiting",)], "nothing has changed"


async def test_conflicting_file_is_kept_and_reported(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    await seal(folder, store, LOGS, 2)
    epoch = await backlog_of(folder, store).epoch()
    there = tmp_path / "stick" / "gw.example" / epoch / "logs" / "1-2.seg"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"others")
    result = await call("uplink", "export", tmp_path / "stick", "--dir", folder)
    assert result.exit_code == 1
    assert "1 file has the name of a segment but other contents" in result.output
    assert there.read_bytes() == b"others"


async def test_full_target_has_no_partial_file(
    folder: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seal(folder, store, LOGS, 4)
    written = 0
    fsync = os.fsync

    def full(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 6:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    result = await call("uplink", "export", tmp_path / "stick", "--dir", folder)
    monkeypatch.undo()
    assert result.exit_code == 1
    assert "No space left on device" in result.output
    for data in files(tmp_path / "stick").values():
        decode(data)
    assert not list((tmp_path / "stick").rglob(".*"))


async def test_folder_that_cannot_be_created_is_reported(folder: Path, tmp_path: Path) -> None:
    result = await call("uplink", "export", tmp_path / "no" / "stick", "--dir", folder)
    assert (result.exit_code, result.output.startswith("Error: ")) == (1, True)


def test_segments_of_older_epochs_are_exported(folder: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(folder / database.FILE_NAME, Clock()) as store:
            await seal(folder, store, LOGS, 2)
            await backlog_of(folder, store).begin_epoch("restored")

    asyncio.run(work())
    with changing(folder) as tx:
        assert len(epochs.latest(tx)) == 2
        assert tx.now.wall <= current_time.now().wall
    result = CliRunner().invoke(
        main, ["uplink", "export", str(tmp_path / "stick"), "--dir", str(folder)]
    )
    assert result.exit_code == 0
    assert len(files(tmp_path / "stick")) == 1
