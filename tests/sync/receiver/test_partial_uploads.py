"""Interrupted uploads on a real file system: ownership and limits."""

from __future__ import annotations

import errno
import hashlib
import os

import pytest

from sync.common.fleet_folder import FleetFolder
from sync.receiver.incoming_files import (
    IncomingFile,
    PartialUploads,
    UploadInProgressError,
    remove_abandoned,
)
from sync.receiver.limits import ReceiverLimits
from tests.helpers.fleet import GATEWAY, OTHER, segment

SUM = hashlib.sha256(b"").digest()
LIMITS = ReceiverLimits(partials_per_gateway=2, partial_max_age_s=60.0)


@pytest.fixture
def partials(folder: FleetFolder) -> PartialUploads:
    return create_uploads(folder)


def create_uploads(folder: FleetFolder) -> PartialUploads:
    partials = PartialUploads(folder, LIMITS)
    partials.clean()
    return partials


def begin(
    partials: PartialUploads, data: bytes = b"half", number: int = 0, gateway: str = GATEWAY
) -> None:
    with partials.open(gateway, bytes([number]) * 32, 0) as body:
        body.write(data)


def test_restarted_upload_discards_the_stored_part(partials: PartialUploads) -> None:
    begin(partials, b"wrong and long", 7)
    with partials.open(GATEWAY, bytes([7]) * 32, 0) as body:
        body.write(b"ok")
        assert body.take() == b"ok"


def test_upload_has_one_writer(folder: FleetFolder, partials: PartialUploads) -> None:
    with partials.open(GATEWAY, SUM, 0) as body:
        body.write(b"ab")
        for start in (0, 2):
            with pytest.raises(UploadInProgressError):
                create_uploads(folder).open(GATEWAY, SUM, start)
        assert partials.size(GATEWAY, SUM) == 2
        assert not remove_abandoned(body.path)
    create_uploads(folder).open(GATEWAY, SUM, 2).close()


def test_empty_or_taken_file_is_removed(folder: FleetFolder, partials: PartialUploads) -> None:
    partials.open(GATEWAY, SUM, 0).close()
    with partials.open(GATEWAY, SUM, 0) as body:
        body.write(b"wrong")
        assert body.take() == b"wrong"
    assert not [path for path in folder.incoming.rglob("*") if path.is_file()]


def test_file_with_failed_write_is_removed(
    partials: PartialUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, partials.open(GATEWAY, SUM, 0) as body:
        body.write(b"ab")
        patched.setattr(os, "write", refuse)
        with pytest.raises(OSError, match="space"):
            body.write(b"cd")
    assert partials.size(GATEWAY, SUM) == 0


def test_oldest_gateway_uploads_are_evicted(partials: PartialUploads, folder: FleetFolder) -> None:
    for number in range(4):
        begin(partials, number=number)
        path = folder.incoming / "partial" / GATEWAY / f"{(bytes([number]) * 32).hex()}.part"
        os.utime(path, (10**9 + number, 10**9 + number))
    begin(partials, gateway=OTHER)
    sizes = [partials.size(GATEWAY, bytes([number]) * 32) for number in range(4)]
    assert sizes == [0, 0, 4, 4]
    assert sorted(partials.sizes()) == [4, 4, 4]


def test_uploads_in_progress_are_not_removed(partials: PartialUploads) -> None:
    bodies = [partials.open(GATEWAY, bytes([number]) * 32, 0) for number in range(2)]
    with pytest.raises(UploadInProgressError):
        begin(partials, number=2)
    for body in bodies:
        body.close()


def test_expired_uploads_are_removed(partials: PartialUploads, folder: FleetFolder) -> None:
    for number in range(2):
        begin(partials, number=number)
    (old, _) = sorted((folder.incoming / "partial" / GATEWAY).iterdir())
    os.utime(old, (10**9, 10**9))
    with IncomingFile(old, kept=True, start=4):
        assert partials.clean() == 0, "it is being written"
    assert partials.clean() == 1
    assert partials.sizes() == [4]


def test_a_body_that_another_request_sends_has_a_file_of_its_own(
    folder: FleetFolder, partials: PartialUploads
) -> None:
    with partials.open(GATEWAY, SUM, 0) as first, partials.open_unnamed(GATEWAY) as second:
        first.write(b"ab")
        second.write(b"abcd")
        assert second.take() == b"abcd"
    assert partials.size(GATEWAY, SUM) == 2
    assert partials.sizes() == [2]


def test_short_writes_are_continued(
    partials: PartialUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda number, data: real(number, data[:7]))
    with partials.open(GATEWAY, SUM, 0) as body:
        body.write(segment())
        assert body.take() == segment()


def test_endlessly_removed_file_counts_as_in_progress(
    partials: PartialUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with pytest.raises(UploadInProgressError):
        partials.open(GATEWAY, SUM, 0)


def test_file_changed_by_another_process_is_continued(
    partials: PartialUploads, folder: FleetFolder
) -> None:
    begin(partials, b"ab")
    with create_uploads(folder).open(GATEWAY, bytes(32), 0) as body:
        body.write(b"cd")
    with partials.open(GATEWAY, bytes(32), 2) as body:
        body.write(b"e")
        assert body.take() == b"cde"
