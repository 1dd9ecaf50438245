"""A gateway's folder in one file, and back: the database, the configuration, the keys.

The copy of the database is marked, so that it counts its events in a new epoch wherever it is
started: the gateway goes on, and numbers events that the copy knows nothing of. A backup is a zip
archive, whose own sums tell that it is whole. It holds secrets: it is its owner's alone.
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
from edge.engine import database, snapshot
from edge.engine.database import Transaction
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
"""The number of this layout; another one is refused."""

ABOUT: Final = "backup.json"
"""The member that tells what the file is."""

CHUNK: Final = 1024 * 1024
"""Bytes that are read at once."""

LAST: Final = 253_402_300_799_999
"""The end of the year 9999, in ms since 1970: no backup was made later."""

MEMBERS: Final = 10_000
"""Files in a backup: three for each device, and a dozen more."""

_FOLDERS: Final = ("pki", "devices")
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""What `zipfile` raises for a file that is none, or not whole."""


class About(NamedTuple):
    """What a backup says of itself; `made` is in ms since 1970 UTC."""

    gateway: str
    epoch: str
    made: int


def write(folder: Path, place: Path) -> About:
    """Write a backup of the gateway of `folder` to the new file `place`; it may be running.

    Beside the file, there must be room for a copy of the database meanwhile. Raises
    `FieldpostError`, and then nothing is there.
    """
    settings = load.load(folder)
    if place.exists():
        raise SetupError(f"{place} exists already")
    named = [load.FILE_NAME, settings.uplink.enrolment, settings.xmpp.component_secret]
    files = [_inside(folder, name) for name in named if name]
    with _telling_room(place), temporary_folder(place) as making:
        copy = making / database.FILE_NAME
        now = current_time.now()
        epoch = snapshot.copy(folder / database.FILE_NAME, copy, now, _mark_copy)
        about = About(settings.gateway.domain, epoch, now.wall)
        made = making / "made"
        with (
            _new(made, PRIVATE_FILE) as file,
            zipfile.ZipFile(
                file, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
            ) as archive,
        ):
            told = json.dumps({"backup": FORMAT, **about._asdict()})
            archive.writestr(zipfile.ZipInfo(ABOUT), told)
            archive.write(copy, database.FILE_NAME)
            for path in sorted({*files, *_below(folder)}):
                check_regular(path)
                archive.write(path, str(path.relative_to(folder)))
        move_into_place(made, place)
    return about


def restore(place: Path, folder: Path) -> About:
    """Make `folder`, which must be new or empty, out of the backup `place`.

    Raises `FieldpostError`, and then nothing is there.
    """
    folder = setup.empty(folder)
    with _telling_room(folder), temporary_folder(folder) as making:
        try:
            with zipfile.ZipFile(place) as archive:
                about = _read_about(archive)
                for member in _members(archive):
                    _extract(archive, member, making)
        except _DAMAGED as error:
            raise SetupError(f"{place} is no backup, or damaged: {error}") from error
        if load.load(making).gateway.domain != about.gateway:
            raise SetupError(f"{place} is damaged: it is of {about.gateway} and of another gateway")
        if not snapshot.check(making / database.FILE_NAME, current_time.now(), epochs.is_copy):
            raise SetupError(f"{database.FILE_NAME} is not a copy that a backup made")
        for path in (making, *(path for path in making.rglob("*") if path.is_dir())):
            fsync_folder(path)
        move_into_place(making, folder)
    return about


def _mark_copy(tx: Transaction) -> str:
    epochs.mark_copy(tx)
    return epochs.latest(tx, 1)[0].epoch


@contextmanager
def _telling_room(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"{place} cannot be made: {os_error(error)}") from error
    except StoreFull as error:
        text = "there is no room beside it for a copy of the database"
        raise SetupError(f"{place} cannot be made: {text}") from error


def _inside(folder: Path, name: str) -> Path:
    """Return the file that the configuration names: its name has to be good in any folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SetupError(f"{name} is not in {folder}: bring it there, so that it is backed up")
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise SetupError(f"{name} is not named relative to {folder}, as what is restored has to be")
    return path


def _below(folder: Path) -> list[Path]:
    """Return the files of keys and certificates; what is just being written is left out."""
    found = [path for name in _FOLDERS for path in sorted((folder / name).rglob("*"))]
    return [
        path
        for path in found
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _read_about(archive: zipfile.ZipFile) -> About:
    try:
        told = json.loads(archive.read(ABOUT))
        if told.pop("backup") != FORMAT:
            raise SetupError(f"the backup is of another version than {FORMAT}: use its fieldpost")
        texts = isinstance(told["gateway"], str) and isinstance(told["epoch"], str)
        if not texts or type(told["made"]) is not int or not 0 <= told["made"] <= LAST:
            raise ValueError(ABOUT)
        return About(**told)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise SetupError(f"it is no backup of a gateway: {ABOUT} is missing or wrong") from error


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files; raises `SetupError` for a name that a backup does not have."""
    members = [member for member in archive.infolist() if member.filename != ABOUT]
    for member in members:
        parts = member.filename.split("/")
        if len(members) > MEMBERS or member.is_dir() or {"", ".", ".."} & set(parts):
            raise SetupError(f"the backup has {member.filename!r}, which no backup has")
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
    """Open a new file to be written, and write its bytes to the disk at the end."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "w+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
