"""Back up a gateway's folder into one file and restore it: database, configuration and keys.

The copy of the database is marked as a copy. A gateway that starts with it begins a new epoch,
because the original continues to number events that the copy does not have. A backup is a zip
archive, whose checksums show that it is complete. It contains secrets, so only its owner can read
it.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, Final, NamedTuple

from edge.config import load
from edge.engine.store import database, snapshot
from edge.engine.store.database import Transaction
from edge.errors import SetupError, StoreFull
from edge.features.eventlog.store import epochs
from edge.ops import current_time, setup
from sync.common.durable_files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    PUBLIC_FILE,
    fsync_folder,
    move_into_place,
    temporary_folder,
)
from sync.common.regular_files import check_regular
from sync.common.text import os_error

FORMAT: Final = 1
"""The version of a backup's layout; a backup of another version is refused."""

MANIFEST: Final = "backup.json"
"""The file in the archive that describes the backup."""

CHUNK: Final = 1024 * 1024
"""Bytes copied in one read."""

MAX_TIME: Final = 253_402_300_799_999
"""The end of the year 9999 in ms since 1970, the last date that Python can format."""

MAX_MEMBERS: Final = 10_000
"""Maximum number of files in a backup, which has three for each device and a dozen others."""

_FOLDERS: Final = ("pki", "devices")
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""The errors of `zipfile` for an invalid or damaged archive."""


class Manifest(NamedTuple):
    """The description of a backup; `made` is in ms since 1970 UTC."""

    gateway: str
    epoch: str
    made: int


def write(folder: Path, place: Path) -> Manifest:
    """Write a backup of the running or stopped gateway in `folder` to the new file `place`.

    The disk of `place` needs temporary room for a copy of the database. If this raises
    `FieldpostError`, no file is left.
    """
    settings = load.load(folder)
    if place.exists():
        raise SetupError(f"{place} exists; choose a new file")
    named = [settings.uplink.enrolment, settings.xmpp.component_secret]
    # The configuration may be a link: Debian's package keeps it in /etc.
    files = [folder / load.FILE_NAME, *(_inside(folder, name) for name in named if name)]
    with _describing_errors(place), temporary_folder(place) as temporary:
        copy = temporary / database.FILE_NAME
        now = current_time.now()
        epoch = snapshot.copy(folder / database.FILE_NAME, copy, now, _mark_copy)
        about = Manifest(settings.gateway.domain, epoch, now.wall)
        new_file = temporary / "made"
        with (
            _new(new_file, PRIVATE_FILE) as file,
            zipfile.ZipFile(
                file, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
            ) as archive,
        ):
            manifest = json.dumps({"backup": FORMAT, **about._asdict()})
            archive.writestr(zipfile.ZipInfo(MANIFEST), manifest)
            archive.write(copy, database.FILE_NAME)
            for path in sorted({*files, *_below(folder)}):
                check_regular(path)
                archive.write(path, str(path.relative_to(folder)))
        move_into_place(new_file, place)
    return about


def restore(place: Path, folder: Path) -> Manifest:
    """Restore the backup `place` into `folder`, which must be new or empty.

    If this raises `FieldpostError`, nothing was restored, and `folder` is as it was before.
    """
    folder = setup.check_empty(folder)
    with _describing_errors(folder), temporary_folder(folder) as temporary:
        try:
            with zipfile.ZipFile(place) as archive:
                about = _read_manifest(archive)
                for member in _members(archive):
                    _extract(archive, member, temporary)
        except _DAMAGED as error:
            raise SetupError(f"{place} is not a backup, or it is damaged: {error}") from error
        if load.load(temporary).gateway.domain != about.gateway:
            raise SetupError(
                f"{place} is damaged: {MANIFEST} names {about.gateway}, but {load.FILE_NAME} names"
                " another gateway"
            )
        if not snapshot.check(temporary / database.FILE_NAME, current_time.now(), epochs.is_copy):
            raise SetupError(
                f"{place} is damaged or was changed: `fieldpost backup` did not write its"
                f" {database.FILE_NAME}"
            )
        for path in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
            fsync_folder(path)
        move_into_place(temporary, folder)
    return about


def _mark_copy(tx: Transaction) -> str:
    epochs.mark_copy(tx)
    return epochs.latest(tx, 1)[0].epoch


@contextmanager
def _describing_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"{place} cannot be created: {os_error(error)}") from error
    except StoreFull as error:
        text = "its disk has no room for a temporary copy of the database"
        raise SetupError(f"{place} cannot be created: {text}") from error


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file that the configuration names, which must be inside `folder`."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SetupError(f"{name} is not in {folder}; move it there, so that it is backed up")
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise SetupError(
            f"{name} must be relative to {folder}, so that it can be restored elsewhere"
        )
    return path


def _below(folder: Path) -> list[Path]:
    """Return all files in the folders of keys and certificates, except temporary ones."""
    found = [path for name in _FOLDERS for path in sorted((folder / name).rglob("*"))]
    return [
        path
        for path in found
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _read_manifest(archive: zipfile.ZipFile) -> Manifest:
    try:
        found = json.loads(archive.read(MANIFEST))
        if found.pop("backup") != FORMAT:
            raise SetupError(
                f"the format of the backup is not {FORMAT};"
                " use the version of fieldpost that wrote it"
            )
        texts = isinstance(found["gateway"], str) and isinstance(found["epoch"], str)
        if not texts or type(found["made"]) is not int or not 0 <= found["made"] <= MAX_TIME:
            raise ValueError(MANIFEST)
        return Manifest(**found)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise SetupError(
            f"the file is not a backup of a gateway: {MANIFEST} is missing or invalid"
        ) from error


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of the backup; raises `SetupError` for a name that is not safe."""
    members = [member for member in archive.infolist() if member.filename != MANIFEST]
    for member in members:
        parts = member.filename.split("/")
        if len(members) > MAX_MEMBERS or member.is_dir() or {"", ".", ".."} & set(parts):
            raise SetupError(
                f"the backup contains the invalid name {member.filename!r}, or more than"
                f" {MAX_MEMBERS} files"
            )
    return members


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    path = folder / member.filename
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    readable = (member.external_attr >> 16) & 0o004
    with (
        archive.open(member) as source,
        _new(path, PUBLIC_FILE if readable else PRIVATE_FILE) as file,
    ):
        shutil.copyfileobj(source, file, CHUNK)


@contextmanager
def _new(path: Path, mode: int) -> Iterator[IO[bytes]]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "w+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
