from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from edge.config import load
from edge.engine.store import database
from edge.engine.store.database import Transaction
from edge.engine.store.events import LANES, LOGS, READINGS, SYSTEM, NewEvent
from edge.engine.store.group_commit import Store
from edge.features.eventlog.rules.eviction import BacklogQuota, hours_until_full
from edge.features.eventlog.store import segments, uplink_view
from edge.ops import current_time
from edge.ops.certificates import pki
from edge.ops.gateway import uplink as admin
from edge.uplink.backlog import StoreBacklog, begin_epoch
from sync.common.enrolment import Enrolment, new_token, write_enrolment
from sync.segment import decode
from sync.uplink.batcher import BatchLimits
from sync.uplink.interfaces import Notice
from sync.uplink.sealer import Sealer
from tests.helpers.backlog import FixedState
from tests.helpers.folder import configure, fieldpost
from tests.helpers.segments import START
from tests.helpers.store import Clock, append, opened


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[Store]:
    async with opened(folder / database.FILE_NAME, Clock()) as store:
        yield store


async def call(folder: Path, *args: object) -> Result:
    """Run a command while this process has the store open, as another process would."""
    return await asyncio.to_thread(fieldpost, folder, "uplink", *args)


async def status(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((await call(folder, "status", "--json")).output)
    return report


async def status_text(folder: Path) -> str:
    return (await call(folder, "status")).output


def backlog_of(folder: Path, store: Store) -> StoreBacklog:
    return StoreBacklog(store, load.load(folder), FixedState())


async def seal(folder: Path, store: Store, lane: str, count: int, per_segment: int = 2) -> None:
    """Write events and seal them all, `per_segment` to a segment."""
    await store.run(lambda tx: append(tx, lane, count, NewEvent("log", text=f"of {lane}")))
    backlog = backlog_of(folder, store)
    limits = BatchLimits(per_segment, 300.0, 65_536)
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


async def acknowledge(folder: Path, store: Store, count: int) -> None:
    """Acknowledge so many segments, the oldest first, as the centre does."""
    backlog = backlog_of(folder, store)
    for _ in range(count):
        waiting = await backlog.next_waiting()
        assert waiting is not None
        await backlog.acknowledge(waiting.digest)


async def test_status_of_a_new_gateway(folder: Path) -> None:
    report = await status(folder)
    assert report.items() >= {
        "gateway": "gw.example", "taken": None, "told": None, "hours": None, "aside": [],
        "dropped": [], "to": {},
    }.items()  # fmt: skip
    zeros = dict.fromkeys(("last", "sealed", "settled", "segments", "bytes"), 0)
    assert report["lanes"] == [
        {"lane": lane, **zeros, "oldest": None, "share": share}
        for lane, share in ((LOGS, 53687091), (READINGS, 161061274), (SYSTEM, 53687091))
    ]
    text = await status_text(folder)
    assert "no uplink configured" in text
    assert "created" in text


async def test_status_of_each_lane(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 7)
    await acknowledge(folder, store, 1)
    await store.run(lambda tx: append(tx, LOGS, 3, NewEvent("log")))
    backlog = backlog_of(folder, store)
    await backlog.log_notice(Notice("unreachable", "no route\x1b[2J"))
    report = await status(folder)
    (lane,) = (lane for lane in report["lanes"] if lane["lane"] == LOGS)
    assert (lane["last"], lane["sealed"], lane["settled"], lane["segments"]) == (10, 7, 2, 3)
    assert lane["oldest"] == START
    now = Clock()().wall
    assert report["taken"] == now
    assert report["told"] == {"name": "unreachable", "text": "no route\x1b[2J", "time": now}
    waiting = await backlog.next_waiting()
    assert waiting is not None
    await backlog.set_aside(waiting.digest, "conflict")
    aside = {"lane": LOGS, "reason": "conflict", "segments": 1, "bytes": len(waiting.data)}
    assert (await status(folder))["aside"] == [aside]
    quota = BacklogQuota(0, dict.fromkeys(LANES, 0.3))
    await store.run(lambda tx: segments.evict(tx, quota, "backlog-full"))
    lost = {"lane": LOGS, "first": 5, "last": 7, "reason": "backlog-full"}
    assert (await status(folder))["dropped"] == [lost]
    text = await status_text(folder)
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
        (line,) = re.findall(r"^last notice.*", await status_text(folder), re.MULTILINE)
        return str(line)

    assert "(2 h 5 min ago) conflict: 409" in await notice()
    assert "resolved" not in await notice()

    def record_upload(tx: Transaction) -> None:
        tx.now = tx.now._replace(wall=at + 60_000)
        uplink_view.record_upload(tx)

    await store.run(record_upload)
    assert (await notice()).endswith("other bytes; resolved by a later upload")
    monkeypatch.setattr(current_time, "now", lambda: Clock()()._replace(wall=at - 1000))
    assert "(in the future of this clock)" in await notice()


async def test_unsealed_events_are_shown(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 4)
    assert (await status(folder))["unsealed"] == {"events": 0, "since": None, "service": None}
    await store.run(lambda tx: append(tx, LOGS, 2, NewEvent("log")))
    await store.run(lambda tx: append(tx, READINGS, 1, NewEvent("reading")))
    now = Clock()()
    expected = {"events": 3, "since": now.wall, "service": now.service}
    assert (await status(folder))["unsealed"] == expected
    pattern = r"^unsealed +3 events, the oldest logged .* ago; sealed by"
    assert re.search(pattern, await status_text(folder), re.MULTILINE)


async def test_time_until_the_backlog_is_full_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = admin.read(folder)
    monkeypatch.setattr(admin, "read", lambda *_args: report._replace(hours_until_full=1.0))
    assert "bytes; full in 1 h without an upload" in await status_text(folder)


async def test_epochs_and_their_waiting_segments_are_shown(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 4)
    await backlog_of(folder, store).begin_epoch("another-card")
    await seal(folder, store, LOGS, 2)
    report = await status(folder)
    epochs = [(epoch["reason"], epoch["segments"]) for epoch in report["epochs"]]
    assert epochs == [("another-card", 2), ("created", 2)]
    (lane,) = (lane for lane in report["lanes"] if lane["lane"] == LOGS)
    assert (lane["last"], lane["sealed"], lane["settled"], lane["segments"]) == (2, 2, 0, 3)
    assert "another-card" in await status_text(folder)


@pytest.mark.parametrize(
    ("free_bytes", "sealed_bytes", "seconds", "hours"),
    [(7200, 3600, 3600, 2.0), (-5, 10, 3600, 0.0), (100, 0, 7200, None), (100, 10, 3599, None)],
)
def test_time_until_the_backlog_is_full(
    free_bytes: int, sealed_bytes: int, seconds: float, hours: float | None
) -> None:
    assert hours_until_full(free_bytes, sealed_bytes, seconds) == hours


async def test_forecast_uses_the_latest_segments(folder: Path, store: Store) -> None:
    await seal(folder, store, LOGS, 2)
    await store.run(lambda tx: append(tx, LOGS, 1, NewEvent("log")))
    state = (await FixedState().state())._replace(sealed_at=START + 3_600_000)
    await store.run(lambda tx: begin_epoch(tx, load.load(folder), state, "restored"))
    report = await status(folder)
    waiting = await store.read(lambda tx: sum(segments.waiting_bytes(tx).values()))
    newest = await backlog_of(folder, store).next_waiting()
    assert newest is not None
    hours = (268435456 - waiting) / (waiting - len(newest.data))
    assert report["hours"] == pytest.approx(hours, rel=1e-6)


async def test_route_is_shown_without_secrets(folder: Path) -> None:
    file, files = folder / "enrol.json", pki.files(folder)
    ca, token = files.ca.read_text(), new_token()
    write_enrolment(file, Enrolment("gw.example", "https://centre.example:8443", token, ca))
    configure(folder, "uplink", enrolment="enrol.json")
    text = await status_text(folder)
    assert "url=https://centre.example:8443" in text
    assert token not in text
    key = files.server_key.read_text()
    enrolment = Enrolment("gw.example", "https://centre.example:8443", "", ca, ca, key)
    write_enrolment(file, enrolment)
    to = (await status(folder))["to"]
    assert to["certificate_ends"].endswith("Z")
    assert set(to) == {"url", "gateway", "certificate_ends"}
    torn = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    write_enrolment(file, replace(enrolment, certificate=torn))
    assert (await status(folder))["to"] == {"trouble": "enrol.json: `certificate` cannot be read"}
    file.write_text("{}")
    assert (await status(folder))["to"].keys() == {"trouble"}


async def test_folder_of_an_uplink_is_shown(folder: Path) -> None:
    configure(folder, "uplink", folder="/mnt/share")
    assert (await status(folder))["to"] == {
        "folder": "/mnt/share",
        "trouble": "/mnt/share: the folder must exist and contain a file named fieldpost-segments",
    }
    configure(folder, "uplink", folder="share")
    (folder / "share").mkdir()
    (folder / "share" / "fieldpost-segments").touch()
    assert (await status(folder))["to"] == {"folder": "share"}
    configure(folder, "uplink", folder="file://elsewhere/share")
    assert (await status(folder))["to"]["trouble"].endswith("is not a path or a URL file:///PATH")


def test_folder_that_never_answers_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(admin, "check_marked", lambda _root: released.wait())
    assert admin._folder_problem(folder, "share", 0.01) == "share has not answered for 0.01 s"
    released.set()


def files(target: Path) -> dict[str, bytes]:
    return {
        path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*.seg")
    }


async def test_waiting_segments_are_exported_once(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    await seal(folder, store, LOGS, 6)
    await acknowledge(folder, store, 1)
    await store.run(lambda tx: append(tx, LOGS, 2, NewEvent("log")))
    target = tmp_path / "stick"
    result = await call(folder, "export", target)
    assert result.exit_code == 0, result.output
    assert result.output == (
        f"2 segments written to {target}, 0 already there\n"
        "2 events are not exported: a running gateway seals events into segments after"
        " `uplink.segment_age`, and when it stops\n"
    )
    epoch = await backlog_of(folder, store).epoch()
    exported = files(target)
    assert set(exported) == {f"gw.example/{epoch}/logs/{name}.seg" for name in ("3-4", "5-6")}
    for name, data in exported.items():
        assert f"/{decode(data).header.first_seq}-" in name
    for expected in (exported, exported):
        result = await call(folder, "export", target)
        assert result.output.startswith(f"0 segments written to {target}, 2 already there\n")
        assert files(target) == expected
    result = await call(folder, "export", target, "--all")
    assert result.output.startswith(f"1 segment written to {target}, 2 already there\n")
    states = await store.read(lambda tx: tx.rows("SELECT state FROM segments ORDER BY id"))
    assert states == [("acknowledged",), ("waiting",), ("waiting",)], "nothing has changed"


async def test_conflicting_file_is_kept_and_reported(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    await seal(folder, store, LOGS, 2)
    epoch = await backlog_of(folder, store).epoch()
    conflicting = tmp_path / "stick" / "gw.example" / epoch / "logs" / "1-2.seg"
    conflicting.parent.mkdir(parents=True)
    conflicting.write_bytes(b"others")
    result = await call(folder, "export", tmp_path / "stick")
    assert result.exit_code == 1
    assert "1 file has the name of a segment but other contents" in result.output
    assert conflicting.read_bytes() == b"others"


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
    result = await call(folder, "export", tmp_path / "stick")
    monkeypatch.undo()
    assert result.exit_code == 1
    assert "No space left on device" in result.output
    for data in files(tmp_path / "stick").values():
        decode(data)
    assert not list((tmp_path / "stick").rglob(".*"))


async def test_folder_that_cannot_be_created_is_reported(folder: Path, tmp_path: Path) -> None:
    result = await call(folder, "export", tmp_path / "no" / "stick")
    assert (result.exit_code, result.output.startswith("Error: ")) == (1, True)


async def test_segments_of_older_epochs_are_exported(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    await seal(folder, store, LOGS, 2)
    await backlog_of(folder, store).begin_epoch("restored")
    assert (await call(folder, "export", tmp_path / "stick")).exit_code == 0
    assert len(files(tmp_path / "stick")) == 1
