"""The folder transport: names, atomicity, failing shares."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from sync.segment import encode, identity_path
from sync.uplink.folder_transport import MARKER, FolderTransport, parse_folder
from sync.uplink.interfaces import HighWatermark, WaitingSegment
from sync.uplink.responses import Acknowledgement, Conflict, Rejection, TemporaryFailure
from tests.helpers.segments import EPOCH, header, readings

GATEWAY = header().gateway


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / MARKER).touch()
    return tmp_path


def segment(first: int = 1, last: int = 5, **changes: Any) -> WaitingSegment:
    head = header(first, last, **changes)
    events = [e._replace(seq=first + i) for i, e in enumerate(readings(last - first + 1))]
    data = encode(head, events)
    return WaitingSegment(head.identity, data[-32:], data)


def files(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*.*") if p.is_file())


def readings_until(last: int, segment: WaitingSegment) -> dict[str, HighWatermark]:
    return {"readings": HighWatermark(last, segment.digest)}


async def test_segment_is_written_once_under_its_name(root: Path) -> None:
    transport, one = FolderTransport(root), segment()
    assert await transport.put(one) == Acknowledgement(one.digest, True)
    assert await transport.put(one) == Acknowledgement(one.digest, False)
    assert files(root) == [f"{identity_path(one.identity)}.seg"]
    assert (root / files(root)[0]).read_bytes() == one.data
    await transport.close()


async def test_conflicting_segment_is_saved_beside(root: Path) -> None:
    transport, one, other = FolderTransport(root), segment(), segment(boot="another")
    await transport.put(one)
    for _ in range(2):
        assert isinstance(await transport.put(other), Conflict)
    name = identity_path(one.identity)
    kept = files(root)
    assert (root / f"{name}.seg").read_bytes() == one.data
    assert len(kept) == 2
    assert (root / kept[0]).read_bytes() == other.data
    assert await transport.high_watermarks(GATEWAY, EPOCH) == readings_until(5, one)


@pytest.mark.parametrize("state", ["nothing", "an unmarked folder"])
async def test_missing_share_is_a_temporary_failure(tmp_path: Path, state: str) -> None:
    root = tmp_path / "share"
    if state != "nothing":
        root.mkdir()
    transport = FolderTransport(root)
    for answer in (await transport.put(segment()), await transport.high_watermarks(GATEWAY, EPOCH)):
        assert isinstance(answer, TemporaryFailure)
        assert MARKER in answer.text
    assert state != "nothing" or not root.exists()
    assert files(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "open", "link"])
async def test_failed_write_is_temporary_and_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    transport, one = FolderTransport(root), segment()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        assert isinstance(await transport.put(one), TemporaryFailure)
    assert files(root) == []
    assert await transport.put(one) == Acknowledgement(one.digest, True)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
async def test_hard_links_are_not_required(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_links(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    transport, one, other = FolderTransport(root), segment(), segment(boot="another")
    assert await transport.put(one) == Acknowledgement(one.digest, True)
    assert await transport.put(one) == Acknowledgement(one.digest, False)
    assert isinstance(await transport.put(other), Conflict)
    assert len(files(root)) == 2


async def test_abandoned_temporary_is_removed(root: Path) -> None:
    transport, one = FolderTransport(root), segment()
    path = root / f"{identity_path(one.identity)}.seg"
    path.parent.mkdir(parents=True)
    path.with_name(f".{path.name}.0123").write_bytes(one.data[:100])
    assert await transport.put(one) == Acknowledgement(one.digest, True)
    assert files(root) == [path.relative_to(root).as_posix()]


async def test_high_watermarks_ignore_truncated_files(root: Path) -> None:
    transport = FolderTransport(root)
    assert await transport.high_watermarks(GATEWAY, EPOCH) == {}
    shipped = [segment(1, 5), segment(6, 10), segment(11, 12)]
    for one in shipped:
        await transport.put(one)
    assert await transport.high_watermarks(GATEWAY, EPOCH) == readings_until(12, shipped[2])
    last = root / f"{identity_path(shipped[2].identity)}.seg"
    last.write_bytes(shipped[2].data[:-40] + bytes(40))
    assert await transport.high_watermarks(GATEWAY, EPOCH) == readings_until(10, shipped[1])
    assert isinstance(await transport.put(shipped[2]), Conflict)  # the complete one is beside it
    for name in files(root):
        (root / name).write_bytes(b"")
    assert await transport.high_watermarks(GATEWAY, EPOCH) == {}


async def test_huge_file_takes_no_memory(root: Path) -> None:
    transport, one, huge = FolderTransport(root), segment(), segment(6, 10)
    await transport.put(one)
    endless = root / f"{identity_path(huge.identity)}.seg"
    endless.touch()
    os.truncate(endless, 2**42)
    assert await transport.high_watermarks(GATEWAY, EPOCH) == readings_until(5, one)
    assert isinstance(await transport.put(huge), Conflict)


async def test_hanging_share_blocks_one_thread(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed, hung, fsync = threading.Event(), threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        hung.set()
        resumed.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    transport, one = FolderTransport(root, timeout_s=0.01), segment()
    try:
        first = await transport.put(one)
        await asyncio.to_thread(hung.wait)
        again = await transport.high_watermarks(GATEWAY, EPOCH)
    finally:
        resumed.set()
    assert isinstance(first, TemporaryFailure)
    assert isinstance(again, TemporaryFailure)
    assert not isinstance(again, Rejection)
    assert "does not respond" in again.text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("outbox", "/gw/outbox"),
        ("/mnt/stick", "/mnt/stick"),
        ("file:///mnt/a%20stick", "/mnt/a stick"),
        ("file://localhost/mnt/stick", "/mnt/stick"),
    ],
)
def test_folder_is_a_path_or_a_url(text: str, path: str) -> None:
    assert parse_folder(text, Path("/gw")) == Path(path)


@pytest.mark.parametrize("text", ["file://server/share", "file:relative", "file:"])
def test_url_of_another_machine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="file:///PATH"):
        parse_folder(text, Path("/gw"))
