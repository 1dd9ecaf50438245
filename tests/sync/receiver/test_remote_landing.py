"""The landing in an object store that is away for a time, with and without a spool."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from sync.common.errors import LeaseError
from sync.common.fleet_folder import FleetFolder, archive_path, segment_path
from sync.receiver import remote_landing as module
from sync.receiver.landing import Outcome, VerifiedSegment, verify
from sync.receiver.limits import ReceiverLimits
from sync.receiver.remote_landing import RemoteLanding, Spool
from sync.storage import local, object_store
from sync.storage.locations import open_storage
from sync.storage.storage import Storage
from sync.uplink.interfaces import HighWatermark
from tests.helpers.fleet import EPOCH, GATEWAY, OTHER, identity, segment
from tests.helpers.fleet_tables import put
from tests.helpers.object_store import BUCKET, FAULTS, FaultyProxy, environment
from tests.helpers.stored import stored

LIMITS = ReceiverLimits(aside_files=1)


@pytest.fixture
def proxy(s3: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A proxy before the S3 server, which fails while its `share` is 1."""
    monkeypatch.setattr(object_store, "RETRIES", 0)
    with FaultyProxy(s3, Random(seed)).running() as running:
        running.kinds = ("503",)
        for name, value in environment(running.url).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def remote(proxy: FaultyProxy) -> Storage:
    return open_storage(f"s3://{BUCKET}/fleet")


@pytest.fixture
def spool(folder: FleetFolder) -> Iterator[Spool]:
    spool = Spool(folder.incoming / "spool", 10_000)
    with spool.opened():
        yield spool


@pytest.fixture
def landing(remote: Storage, spool: Spool) -> RemoteLanding:
    return RemoteLanding(remote, LIMITS, spool)


def numbered(number: int, text: str = "pump on") -> VerifiedSegment:
    return verify(segment(identity(number, number), text))


def landed(*segments: VerifiedSegment) -> dict[str, bytes]:
    return {f"landing/{segment_path(each.identity)}": each.data for each in segments}


def test_without_a_spool_a_store_that_is_away_refuses_at_once(
    remote: Storage, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    landing = RemoteLanding(remote, LIMITS, None)
    landing.catch_up()
    assert landing.land(numbered(1)) == (Outcome.NEW, None)
    proxy.share = 1.0
    for _ in range(3):
        with pytest.raises(OSError, match="503"):
            landing.land(numbered(2))
    with pytest.raises(OSError, match="503"):
        landing.find(identity(1, 1))
    with pytest.raises(OSError, match="503"):
        landing.high_watermarks(GATEWAY, EPOCH)
    assert not landing.is_accepting(1)
    failed = proxy.faults.total()
    assert failed == object_store.ATTEMPTS, "one call alone tries"
    landing.catch_up()
    assert proxy.faults.total() == failed + 1
    proxy.share = 0.0
    landing.catch_up()
    assert landing.is_accepting(1)
    assert landing.land(numbered(2)).outcome is Outcome.NEW
    assert landing.find(identity(1, 1)) == numbered(1).digest
    assert (landing.spooled_bytes(), landing.clean()) == (0, 0)
    assert stored(remote) == landed(numbered(1), numbered(2))
    texts = [record.__dict__["facts"]["text"] for record in caplog.records]
    assert len(texts) == 2, "one line when it fails, one when it answers"
    assert "503" in texts[0]
    assert texts[1] == "the storage of the landing answers again"


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths of the segments that are created in the store, in order."""
    create, paths = object_store.ObjectStorage.create, list[str]()

    def record(self: object_store.ObjectStorage, path: str, data: bytes) -> bool:
        is_new = create(self, path, data)
        paths.append(path)
        return is_new

    monkeypatch.setattr(object_store.ObjectStorage, "create", record)
    return paths


def test_spooled_segments_land_in_the_order_of_their_arrival(
    folder: FleetFolder,
    remote: Storage,
    landing: RemoteLanding,
    proxy: FaultyProxy,
    created: list[str],
) -> None:
    proxy.share, numbers = 1.0, (30, 1, 2)
    for at, number in enumerate(numbers):
        assert landing.land(numbered(number)) == (Outcome.NEW, None)
        assert landing.land(numbered(number)) == (Outcome.SAME, None)
        [path] = folder.incoming.rglob(f"*.{number}-{number}.*.seg")
        os.utime(path, (at, at))
    size = sum(len(numbered(number).data) for number in numbers)
    assert (landing.spooled_bytes(), landing.is_accepting(1)) == (size, True)
    proxy.only = "PUT"
    landing.catch_up()  # the store answers, and fails again
    assert (landing.spooled_bytes(), created, stored(remote)) == (size, [], {})
    proxy.share = 0.0
    landing.catch_up()
    assert landing.spooled_bytes() == 0
    assert created == [f"landing/{segment_path(identity(each, each))}" for each in numbers]
    assert stored(remote) == landed(*map(numbered, numbers))
    assert not [*folder.incoming.rglob("*.seg")]


def test_a_restarted_receiver_lands_what_is_spooled(
    folder: FleetFolder, remote: Storage, proxy: FaultyProxy
) -> None:
    proxy.share = 1.0
    for number in (1, 2):
        spool, other = (Spool(folder.incoming / "spool", 10_000) for _ in range(2))
        with spool.opened():
            RemoteLanding(remote, LIMITS, spool).land(numbered(number))
            with pytest.raises(LeaseError):
                other.opened().__enter__()
    proxy.share = 0.0
    remote.create(f"landing/{segment_path(identity(1, 1))}", numbered(1).data)  # killed after it
    spool = Spool(folder.incoming / "spool", 10_000)
    with spool.opened():
        landing = RemoteLanding(remote, LIMITS, spool)
        assert landing.spooled_bytes() == len(numbered(1).data) + len(numbered(2).data)
        landing.catch_up()
        assert landing.spooled_bytes() == 0
    assert stored(remote) == landed(numbered(1), numbered(2))


def test_conflicts_of_spooled_segments_are_all_set_aside(
    remote: Storage, landing: RemoteLanding, proxy: FaultyProxy
) -> None:
    proxy.share = 1.0
    texts = ("pump on", "pump a", "pump b")
    for text in texts:
        assert landing.land(numbered(1, text)).outcome is Outcome.NEW
    proxy.share = 0.0
    landing.catch_up()
    [first] = stored(remote, "landing").values()
    others = [*stored(remote, "aside").values()]
    assert sorted([first, *others]) == sorted(numbered(1, text).data for text in texts)
    assert landing.land(numbered(1, "pump c")) == (Outcome.OTHER, None), "aside_files is 1"


def test_the_spool_is_bounded(
    folder: FleetFolder, remote: Storage, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(folder.incoming / "spool", 2 * len(numbered(1).data))
    with spool.opened():
        landing = RemoteLanding(remote, LIMITS, spool)
        proxy.share = 1.0
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", _refuse)
            with pytest.raises(OSError, match="No space left"):
                landing.land(numbered(9))
        for number in (1, 2):
            landing.land(numbered(number))
        with pytest.raises(OSError, match="the spool of"):
            landing.land(numbered(3))
        assert not landing.is_accepting(1)
        proxy.share = 0.0
        landing.catch_up()
        assert landing.spooled_bytes() == 0


def _refuse(_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_epochs_are_not_compared_while_segments_of_them_are_spooled(
    landing: RemoteLanding, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.share = 1.0
    landing.land(numbered(1))
    proxy.share = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(module, "time", clock(0, 10))
        landing.catch_up()  # it has no time to land the segment
    with pytest.raises(OSError, match="wait in the spool"):
        landing.high_watermarks(GATEWAY, EPOCH)
    assert landing.high_watermarks(OTHER, EPOCH) == {}
    assert landing.high_watermarks(GATEWAY, f"{EPOCH[:-1]}1") == {}
    landing.catch_up()
    mark = HighWatermark(1, numbered(1).digest)
    assert landing.high_watermarks(GATEWAY, EPOCH) == {"logs": mark}


def clock(*times: int) -> SimpleNamespace:
    """Return a module `time` whose clock shows one time after the other."""
    remaining = iter(times)
    return SimpleNamespace(monotonic=lambda: next(remaining))


def test_an_unreadable_spooled_file_delays_no_other(
    folder: FleetFolder,
    remote: Storage,
    landing: RemoteLanding,
    proxy: FaultyProxy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    proxy.share = 1.0
    bad = put(folder.incoming / "spool" / GATEWAY / "x.seg", b"x", at=1)
    landing.land(numbered(1))
    proxy.share = 0.0
    for _ in range(2):
        landing.catch_up()
    assert stored(remote) == landed(numbered(1))
    assert spool_faults(caplog) == [f"{GATEWAY}/x.seg"], "one line, not one for each attempt"
    assert landing.spooled_bytes() == 1
    bad.unlink()
    landing.catch_up()
    assert landing.spooled_bytes() == 0


def spool_faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the paths in the log lines about spooled files."""
    return [
        record.__dict__["facts"]["path"]
        for record in caplog.records
        if record.getMessage() == "spool"
    ]


def test_a_spooled_file_that_cannot_be_removed_lands_once_and_delays_no_other(
    remote: Storage,
    landing: RemoteLanding,
    proxy: FaultyProxy,
    created: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy.share = 1.0
    for number in (1, 2):
        landing.land(numbered(number))
    proxy.share = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", keep_first(Path.unlink))
        for _ in range(3):
            landing.catch_up()
    assert stored(remote) == landed(numbered(1), numbered(2))
    assert len(created) == 2, "no segment is uploaded twice"
    [path] = spool_faults(caplog)
    assert ".1-1." in path
    assert landing.spooled_bytes() == len(numbered(1).data)
    assert set(landing.high_watermarks(GATEWAY, EPOCH)) == {"logs"}, "it has landed"
    assert landing.land(numbered(3)).outcome is Outcome.NEW
    landing.catch_up()
    assert landing.spooled_bytes() == 0


def keep_first(unlink: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement of `Path.unlink` that cannot remove the segment 1."""

    def refuse_or_unlink(path: Path, missing_ok: bool = False) -> None:
        if ".1-1." in path.name:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        unlink(path, missing_ok)

    return refuse_or_unlink


def test_a_folder_of_the_spool_that_is_not_synced_at_once_hides_no_segment(
    remote: Storage,
    landing: RemoteLanding,
    proxy: FaultyProxy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy.share = 1.0
    with monkeypatch.context() as patched:
        patched.setattr(local, "fsync_folder", _refuse)
        with pytest.raises(OSError, match="No space left"):
            landing.land(numbered(1))
    assert landing.land(numbered(1)).outcome is Outcome.SAME
    assert landing.spooled_bytes() == len(numbered(1).data)
    proxy.share = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(local, "fsync_folder", _refuse)
        landing.catch_up()
    assert len(spool_faults(caplog)) == 1
    assert landing.spooled_bytes() == 0
    assert stored(remote) == landed(numbered(1))


def test_landing_a_full_spool_is_interrupted_to_start_and_stop_soon(
    remote: Storage, landing: RemoteLanding, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.share = 1.0
    for number in range(1, 6):
        landing.land(numbered(number))
    proxy.share = 0.0
    monkeypatch.setattr(module, "time", clock(*range(0, 100, 2)))
    landing.catch_up()
    assert len(stored(remote)) == 2
    for _ in range(2):
        landing.catch_up()
    assert len(stored(remote)) == 5


def test_a_store_that_fails_at_random_loses_and_doubles_nothing(
    remote: Storage,
    folder: FleetFolder,
    proxy: FaultyProxy,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two receivers take the segments of one gateway, and an ingest moves them."""
    monkeypatch.setattr(object_store, "TIMEOUT", timedelta(seconds=1))
    dice = Random(seed)
    faulty = open_storage(f"s3://{BUCKET}/fleet")
    proxy.kinds, proxy.share = FAULTS, 0.2
    with ExitStack() as stack:
        receivers = []
        for name in ("a", "b"):
            spool = Spool(folder.incoming / name, 100_000)
            stack.enter_context(spool.opened())
            receivers.append(RemoteLanding(faulty, LIMITS, spool))
        for number in range(1, 21):
            for _ in range(dice.choice((1, 2))):
                dice.choice(receivers).land(numbered(number))
            if dice.random() < 0.2:
                dice.choice(receivers).catch_up()
            if dice.random() < 0.3:
                path = segment_path(identity(number, number))
                with suppress(OSError):
                    faulty.move({f"landing/{path}": f"archive/{archive_path(path)}"})
        assert proxy.faults
        proxy.share = 0.0
        for receiver in receivers:
            while receiver.spooled_bytes():
                receiver.catch_up()
    found = stored(remote)
    assert {*found.values()} == {numbered(number).data for number in range(1, 21)}
    assert not stored(remote, "aside")
