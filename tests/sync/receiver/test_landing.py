"""The landing on a disk and in an object store: atomic, durable, never replaced."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Barrier, Event, Thread

import pytest

from sync.common.errors import FleetError
from sync.common.fleet_folder import (
    FleetFolder,
    archive_path,
    parse_segment_path,
    segment_path,
)
from sync.receiver.incoming_files import IncomingFile
from sync.receiver.landing import Landing, LandingResult, Outcome, verify
from sync.receiver.limits import ReceiverLimits
from sync.segment import Identity, SegmentError, digest_of
from sync.storage import local as module
from sync.storage.local import LocalStorage
from sync.storage.storage import Storage
from sync.uplink.interfaces import HighWatermark
from tests.helpers.fleet import EPOCH, GATEWAY, contents, identity, segment
from tests.helpers.stored import stored

NAME = f"{GATEWAY}/{EPOCH}/logs/1-3.seg"
LANDED = f"landing/{NAME}"
ARCHIVED = f"archive/{GATEWAY}/{EPOCH}/logs/r9223372036854775804.1-3.seg"
LIMITS = ReceiverLimits(aside_files=2, aside_bytes=10_000)


@pytest.fixture
def landing(segments: Storage) -> Landing:
    return Landing(segments, LIMITS)


@pytest.fixture
def local(folder: FleetFolder) -> Landing:
    return Landing(LocalStorage(folder.root), LIMITS)


def land(landing: Landing, data: bytes) -> LandingResult:
    return landing.land(verify(data))


def test_conflict_is_set_aside_and_replaces_nothing(segments: Storage, landing: Landing) -> None:
    land(landing, segment())
    for _ in range(3):
        landed = land(landing, segment(text="pump off"))
        assert landed.outcome is Outcome.OTHER
        [(path, data)] = stored(segments, "aside").items()
        assert (landed.aside, data) == (segments.uri(path), segment(text="pump off"))
    assert stored(segments, "landing") == {LANDED: segment()}


@pytest.mark.parametrize(
    "limits",
    [
        ReceiverLimits(aside_files=2, aside_bytes=10_000),
        ReceiverLimits(aside_files=9, aside_bytes=2 * len(segment())),
    ],
)
def test_aside_is_limited_in_number_and_bytes(segments: Storage, limits: ReceiverLimits) -> None:
    landing = Landing(segments, limits)
    land(landing, segment())
    landed = [land(landing, segment(text=text)) for text in ("pump a ", "pump b ", "pump c ")]
    assert {each.outcome for each in landed} == {Outcome.OTHER}
    assert [each.aside is not None for each in landed] == [True, True, False]
    assert len(stored(segments, "aside")) == 2
    assert land(landing, segment(text="pump a ")).aside is not None, "it is there already"


def test_aside_limits_apply_per_gateway(segments: Storage, landing: Landing) -> None:
    other = identity(gateway="other.example")
    for name in (identity(), other):
        land(landing, segment(name))
    for text in "abc":
        land(landing, segment(text=text))
    assert land(landing, segment(other, "a")).aside is not None
    assert len(stored(segments, "aside")) == 3


@pytest.mark.parametrize(("text", "outcome"), [("pump on", "same"), ("pump off", "other")])
def test_archived_segment_is_found(
    segments: Storage, landing: Landing, text: str, outcome: str
) -> None:
    assert landing.find(identity()) is None
    land(landing, segment())
    assert landing.find(identity()) == digest_of(segment())
    assert landing.find(identity(1, 4)) is None
    segments.move({LANDED: ARCHIVED})
    assert landing.find(identity()) == digest_of(segment())
    assert land(landing, segment(text=text)).outcome.value == outcome
    assert stored(segments, "landing") == {}
    assert stored(segments, "archive") == {ARCHIVED: segment()}


def test_archived_segment_takes_precedence_over_one_in_the_landing(
    segments: Storage, landing: Landing
) -> None:
    """The receiver that landed another one was killed before it looked into the archive."""
    segments.create(ARCHIVED, segment())
    segments.create(LANDED, segment(text="pump off"))
    assert land(landing, segment()).outcome is Outcome.SAME
    assert land(landing, segment(text="pump off")).outcome is Outcome.OTHER
    assert stored(segments, "landing") == {}
    assert stored(segments, "archive") == {ARCHIVED: segment()}


def test_damaged_stored_file_is_a_conflict(segments: Storage, landing: Landing) -> None:
    spoiled = bytearray(segment())
    spoiled[5] ^= 1
    segments.create(LANDED, bytes(spoiled))
    assert land(landing, segment()).outcome is Outcome.OTHER
    assert [*stored(segments, "aside").values()] == [segment()]


@pytest.mark.parametrize("size", [0, 31])
def test_truncated_file_has_a_padded_digest(segments: Storage, landing: Landing, size: int) -> None:
    segments.create(LANDED, segment()[:size])
    assert landing.find(identity()) == segment()[:size].ljust(32, b"\0")


def test_high_watermarks_list_the_archive_no_further_than_its_newest_segment(
    segments: Storage, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = [identity(10**at, 10**at + 2) for at in range(1, 6)]
    for name in lane:
        land(landing, segment(name))
        path = segment_path(name)
        segments.move({f"landing/{path}": f"archive/{archive_path(path)}"})
    found = digest_of(segment(lane[-1]))
    listed = type(segments).files

    def one(self: Storage, folder: str = "", suffix: str = "") -> object:
        return islice(listed(self, folder, suffix), 1)

    monkeypatch.setattr(type(segments), "files", one)
    assert landing.high_watermarks(GATEWAY, EPOCH) == {"logs": HighWatermark(100_002, found)}


def test_high_watermarks_include_names_of_older_versions(
    segments: Storage, landing: Landing
) -> None:
    older, newer = identity(93, 95), identity(1, 3)
    segments.create(f"archive/{segment_path(older)}", segment(older))
    segments.create(f"archive/{archive_path(segment_path(newer))}", segment(newer))
    mark = HighWatermark(95, digest_of(segment(older)))
    assert landing.high_watermarks(GATEWAY, EPOCH) == {"logs": mark}


def test_high_watermark_of_a_segment_that_moves_is_found(
    segments: Storage, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, segment())
    listed = type(segments).files

    def list_and_move(self: Storage, folder: str = "", suffix: str = "") -> object:
        yield from listed(self, folder, suffix)
        if folder.startswith("archive"):
            segments.move({LANDED: ARCHIVED})

    monkeypatch.setattr(type(segments), "files", list_and_move)
    mark = HighWatermark(3, digest_of(segment()))
    assert landing.high_watermarks(GATEWAY, EPOCH) == {"logs": mark}


def test_high_watermark_of_a_segment_that_disappears_is_unknown(
    segments: Storage, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, segment())

    def read(_: Storage, path: str, _start: int = 0) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(type(segments), "read", read)
    with pytest.raises(OSError, match="was removed meanwhile"):
        landing.high_watermarks(GATEWAY, EPOCH)


@pytest.mark.parametrize("call", ["fsync", "link", "mkdir"])
def test_failing_disk_leaves_nothing_half_written(
    folder: FleetFolder, local: Landing, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(OSError, match="No space left"):
            land(local, segment())
    assert contents(folder.landing) == {}
    assert land(local, segment()).outcome is Outcome.NEW


def test_endlessly_moving_file_is_an_error(
    segments: Storage, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_missing(_: Storage, path: str, _data: bytes) -> bool:
        raise FileNotFoundError(path)

    monkeypatch.setattr(type(segments), "create", raise_missing)
    with pytest.raises(OSError, match="was moved"):
        land(landing, segment())


def test_a_segment_that_the_ingest_refuses_meanwhile_lands_anew(
    segments: Storage, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments.create(LANDED, b"spoiled")
    read, moved = type(segments).read, list[str]()

    def move_and_read(self: Storage, path: str, start: int = 0) -> bytes:
        if not moved:
            moved.append(path)
            segments.move({LANDED: "quarantine/x.seg"})
        return read(self, path, start)

    monkeypatch.setattr(type(segments), "read", move_and_read)
    assert land(landing, segment()).outcome is Outcome.NEW


@pytest.mark.parametrize("part", ["incoming", "landing", "aside", "archive", "quarantine"])
def test_folders_must_be_in_one_file_system(folder: FleetFolder, part: str) -> None:
    other = Path("/dev/shm")  # noqa: S108
    if other.stat().st_dev == folder.root.stat().st_dev:
        pytest.skip("no second file system is available")
    for below in (folder.root / part).iterdir():
        below.rmdir()
    (folder.root / part).rmdir()
    (folder.root / part).symlink_to(other)
    with pytest.raises(FleetError, match="one file system"):
        folder.require()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of files and folders that are synced, in order."""
    real, paths = os.fsync, list[str]()

    def record(number: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        real(number)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def folders_above(path: Path) -> list[str]:
    """Return the folders of a segment, up to the fleet folder."""
    return [str(above) for above in path.parents[:5]]


def test_file_and_folders_are_synced_before_acknowledgement(
    folder: FleetFolder, local: Landing, synced: list[str]
) -> None:
    folders = folders_above(folder.landing / NAME)
    land(local, segment())
    assert next(path for path in synced if path.endswith(".part")) == synced[3]
    assert synced[-len(folders) :] == folders
    assert folders[-1] == str(folder.root)
    for data in (segment(), segment(identity(4, 6))):
        synced.clear()
        land(local, data)
        assert synced[1:] == folders[:1], "the folders above are durable"
    synced.clear()
    module._sync_above.cache_clear()  # another process
    land(local, segment())
    assert synced[1:] == folders, "the outcome `same` needs a durable file, too"


def test_found_segment_is_durable(folder: FleetFolder, local: Landing, synced: list[str]) -> None:
    for path in (folder.root / LANDED, folder.root / ARCHIVED):
        path.parent.mkdir(parents=True)
        path.write_bytes(segment())  # left by a process that stopped before it was durable
        synced.clear()
        assert local.find(identity()) is not None
        assert synced == [str(path), *folders_above(path)]
        path.unlink()


def test_one_of_many_concurrent_landings_is_new(segments: Storage, landing: Landing) -> None:
    texts = ["pump on", "pump off"] * 4
    barrier = Barrier(len(texts))

    def race(text: str) -> Outcome:
        barrier.wait(10)
        return land(landing, segment(text=text)).outcome

    with ThreadPoolExecutor(len(texts)) as pool:
        outcomes = list(pool.map(race, texts))
    assert outcomes.count(Outcome.NEW) == 1
    assert outcomes.count(Outcome.SAME) == 3
    assert outcomes.count(Outcome.OTHER) == 4
    winner = texts[outcomes.index(Outcome.NEW)]
    assert stored(segments, "landing") == {LANDED: segment(text=winner)}


def test_concurrent_ingest_loses_or_repeats_nothing(segments: Storage, landing: Landing) -> None:
    stop = Event()

    def move() -> None:
        while not stop.is_set():
            segments.move({LANDED: ARCHIVED})

    mover = Thread(target=move)
    mover.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            outcomes = list(pool.map(lambda _: land(landing, segment()).outcome, range(60)))
            contradicted = list(pool.map(lambda _: land(landing, segment(text="x")), range(20)))
    finally:
        stop.set()
        mover.join(60)
    assert outcomes.count(Outcome.NEW) <= 1
    assert {*outcomes} <= {Outcome.NEW, Outcome.SAME}
    assert {each.outcome for each in contradicted} == {Outcome.OTHER}
    assert stored(segments, "landing") == {}
    assert stored(segments, "archive") == {ARCHIVED: segment()}
    assert {*stored(segments, "aside").values()} == {segment(text="x")}


def test_files_of_dead_processes_are_removed(folder: FleetFolder, local: Landing) -> None:
    lane = (folder.landing / NAME).parent
    lane.mkdir(parents=True)
    for age in (0, 3_700):
        path = lane / f".{age}.part"
        path.write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert local.clean() == 1
    assert [path.name for path in lane.iterdir()] == [".0.part"]


def test_closed_file_refuses_writes(tmp_path: Path) -> None:
    incoming = IncomingFile(tmp_path / "a.part")
    incoming.close()
    incoming.close()
    with pytest.raises(ValueError, match="closed"):
        incoming.write(b"late")
    assert contents(tmp_path) == {}


def test_segment_path_round_trip() -> None:
    assert segment_path(identity()) == PurePosixPath(NAME)
    assert parse_segment_path(PurePosixPath(NAME)) == identity()


@pytest.mark.parametrize(
    "invalid", [Identity("..", EPOCH, "logs", 1, 2), Identity(GATEWAY, EPOCH, "logs", 3, 2)]
)
def test_segment_path_checks_the_identity(invalid: Identity) -> None:
    with pytest.raises(SegmentError):
        segment_path(invalid)


@pytest.mark.parametrize("path", [NAME[:-4], f"x/{NAME}", NAME.replace("1-3", "01-3"), "1-3.seg"])
def test_invalid_segment_path_is_refused(path: str) -> None:
    with pytest.raises(SegmentError):
        parse_segment_path(PurePosixPath(path))
