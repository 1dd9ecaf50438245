"""The landing on a real file system: atomic, durable, never replaced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from threading import Barrier, Event, Thread

import pytest

from sync.common.errors import FleetError
from sync.common.fleet_folder import FleetFolder, parse_segment_path, segment_path
from sync.receiver.incoming_files import IncomingFile
from sync.receiver.landing import MAX_SYNCED, Landing, LandingResult, Outcome
from sync.receiver.limits import ReceiverLimits
from sync.segment import Identity, SegmentError, digest_of
from tests.helpers.fleet import EPOCH, GATEWAY, contents, identity, segment

NAME = f"{GATEWAY}/{EPOCH}/logs/1-3.seg"


@pytest.fixture
def landing(folder: FleetFolder) -> Landing:
    landing = Landing(folder, "serve", ReceiverLimits(aside_files=2, aside_bytes=10_000))
    landing.clean()
    return landing


def land(landing: Landing, data: bytes) -> LandingResult:
    with landing.open_temporary() as incoming:
        incoming.write(data)
        return landing.land(landing.verify(incoming), incoming)


def test_conflict_is_set_aside_and_replaces_nothing(folder: FleetFolder, landing: Landing) -> None:
    land(landing, segment())
    for _ in range(3):
        landed = land(landing, segment(text="pump off"))
        assert landed.outcome is Outcome.OTHER
        assert landed.aside is not None
        assert landed.aside.read_bytes() == segment(text="pump off")
    assert len(contents(folder.aside)) == 1
    assert (folder.landing / NAME).read_bytes() == segment()


@pytest.mark.parametrize(
    "limits",
    [
        ReceiverLimits(aside_files=2, aside_bytes=10_000),
        ReceiverLimits(aside_files=9, aside_bytes=2 * len(segment())),
    ],
)
def test_aside_is_limited_in_number_and_bytes(folder: FleetFolder, limits: ReceiverLimits) -> None:
    landing = Landing(folder, "serve", limits)
    landing.clean()
    land(landing, segment())
    landed = [land(landing, segment(text=text)) for text in ("pump a ", "pump b ", "pump c ")]
    assert {each.outcome for each in landed} == {Outcome.OTHER}
    assert [each.aside is not None for each in landed] == [True, True, False]
    assert len(contents(folder.aside)) == 2


def test_aside_limits_apply_per_gateway(folder: FleetFolder, landing: Landing) -> None:
    other = identity(gateway="other.example")
    for name in (identity(), other):
        land(landing, segment(name))
    for text in "abc":
        land(landing, segment(text=text))
    assert land(landing, segment(other, "a")).aside is not None
    assert len(contents(folder.aside)) == 3


@pytest.mark.parametrize(("text", "outcome"), [("pump on", "same"), ("pump off", "other")])
def test_archived_segment_is_found(
    folder: FleetFolder, landing: Landing, text: str, outcome: str
) -> None:
    assert landing.find(identity()) is None
    land(landing, segment())
    assert landing.find(identity()) == (digest_of(segment()), len(segment()))
    assert landing.find(identity(1, 4)) is None
    (folder.archive / NAME).parent.mkdir(parents=True)
    (folder.landing / NAME).rename(folder.archive / NAME)
    assert landing.find(identity()) == (digest_of(segment()), len(segment()))
    assert land(landing, segment(text=text)).outcome.value == outcome
    assert contents(folder.landing) == {}
    assert [*contents(folder.archive)] == [NAME]


def test_damaged_stored_file_is_a_conflict(folder: FleetFolder, landing: Landing) -> None:
    land(landing, segment())
    spoiled = bytearray(segment())
    spoiled[5] ^= 1
    (folder.landing / NAME).write_bytes(spoiled)
    landed = land(landing, segment())
    assert landed.outcome is Outcome.OTHER
    assert landed.aside is not None
    assert landed.aside.read_bytes() == segment()


@pytest.mark.parametrize("call", ["write", "fsync", "link", "mkdir"])
def test_failing_disk_leaves_nothing_half_written(
    folder: FleetFolder, landing: Landing, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(OSError, match="No space left"):
            land(landing, segment())
    assert contents(folder.incoming) == contents(folder.landing) == {}
    assert land(landing, segment()).outcome is Outcome.NEW


def test_endlessly_moving_file_is_an_error(
    folder: FleetFolder, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_exists(*_: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(os, "link", raise_exists)
    with pytest.raises(OSError, match="was moved"):
        land(landing, segment())
    assert contents(folder.incoming) == contents(folder.landing) == {}


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


def test_short_writes_are_continued(
    folder: FleetFolder, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda number, data: real(number, data[:7]))
    assert land(landing, segment()).outcome is Outcome.NEW
    assert (folder.landing / NAME).read_bytes() == segment()


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
    """Return the folders of a segment, up to the landing or the archive."""
    return [str(above) for above in path.parents[:4]]


def test_file_and_folders_are_synced_before_acknowledgement(
    folder: FleetFolder, landing: Landing, synced: list[str]
) -> None:
    folders = folders_above(folder.landing / NAME)
    land(landing, segment())
    assert synced[0].endswith(".part")
    assert synced[-len(folders) :] == folders
    assert folders[-1] == str(folder.landing)
    synced.clear()
    land(landing, segment())
    assert synced[1:] == folders, "the outcome `same` needs a durable file, too"


def test_found_segment_syncs_once(folder: FleetFolder, landing: Landing, synced: list[str]) -> None:
    path, archived = folder.landing / NAME, folder.archive / NAME
    for each in (path, archived):
        each.parent.mkdir(parents=True)
    path.write_bytes(segment())  # left by a receiver that stopped before it was durable
    for expected in (folders_above(path), []):
        assert landing.find(identity()) is not None
        assert synced == expected
        synced.clear()
    path.rename(archived)
    for expected in (folders_above(archived), []):
        assert landing.find(identity()) is not None
        assert synced == expected
        synced.clear()


def test_replaced_file_syncs_again(
    folder: FleetFolder, landing: Landing, synced: list[str]
) -> None:
    path = folder.landing / NAME
    land(landing, segment())
    landing.find(identity())
    before = path.stat()
    for _ in range(100_000):  # until the clock of the file system has advanced
        path.rename(folder.root / "away")
        (folder.root / "away").rename(path)
        if path.stat().st_ctime_ns != before.st_ctime_ns:
            break
    assert path.stat().st_ino == before.st_ino
    synced.clear()
    landing.find(identity())
    assert synced == folders_above(path)


def test_failed_sync_is_repeated(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    land(landing, segment())
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                landing.find(identity())
    assert landing.find(identity()) is not None


def test_sync_cache_is_limited(
    folder: FleetFolder,
    synced: list[str],
    monkeypatch: pytest.MonkeyPatch,
    scale: Callable[[int, int], int],
) -> None:
    limit = scale(8, MAX_SYNCED)
    monkeypatch.setattr("sync.receiver.landing.MAX_SYNCED", limit)
    landing = Landing(folder, "serve", ReceiverLimits(aside_files=2, aside_bytes=10_000))
    lane_folder = (folder.landing / NAME).parent
    lane_folder.mkdir(parents=True)
    for number in range(1, limit + 2):
        (lane_folder / f"{number}-{number}.seg").write_bytes(segment())
        landing.find(identity(number, number))
    synced.clear()
    landing.find(identity(2, 2))
    assert synced == []
    landing.find(identity(1, 1))
    assert synced == folders_above(folder.landing / NAME)


def test_one_of_many_concurrent_landings_is_new(landing: Landing, folder: FleetFolder) -> None:
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
    assert (folder.landing / NAME).read_bytes() == segment(text=winner)


def test_concurrent_ingest_loses_or_repeats_nothing(folder: FleetFolder, landing: Landing) -> None:
    stop = Event()
    archived = folder.archive / NAME
    archived.parent.mkdir(parents=True)

    def move() -> None:
        while not stop.is_set():
            if (folder.landing / NAME).exists() and not archived.exists():
                archived.hardlink_to(folder.landing / NAME)
                (folder.landing / NAME).unlink()

    mover = Thread(target=move)
    mover.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            outcomes = list(pool.map(lambda _: land(landing, segment()).outcome, range(60)))
            contradicted = list(pool.map(lambda _: land(landing, segment(text="x")), range(20)))
    finally:
        stop.set()
        mover.join(10)
    assert outcomes.count(Outcome.NEW) == 1
    assert outcomes.count(Outcome.SAME) == 59
    assert {each.outcome for each in contradicted} == {Outcome.OTHER}
    assert [*contents(folder.landing), *contents(folder.archive)] == [NAME]


def test_start_removes_files_of_dead_processes(folder: FleetFolder, landing: Landing) -> None:
    abandoned = folder.incoming / "serve" / "0123.part"
    abandoned.write_bytes(b"half")
    other_command = folder.incoming / "import" / "0123.part"
    other_command.parent.mkdir()
    other_command.write_bytes(b"half")
    assert landing.clean() == 1
    assert not abandoned.exists()
    assert other_command.exists()


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
