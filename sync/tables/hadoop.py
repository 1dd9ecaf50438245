"""Storage that Spark reaches through Hadoop's file systems: HDFS, and object stores as `s3a://`.

What is created must not be there before, and of several who try one may win. HDFS does that by a
rename, an object store by a conditional write
(docs/explanation/decisions/0023-storage-commits-and-leases.md); where
neither is known to hold, the storage is refused. All calls go through the driver's JVM.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from sync.common.errors import FleetError, LeaseError
from sync.tables.spark_session import summarise_error
from sync.tables.storage import File, LocalStorage, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LEASES: Final = "leases"
"""Where leases are kept, below the root: `leases/NUMBER.json`. The highest number counts."""

LEASE_S: Final = 900.0
"""Seconds until a lease that was not renewed is another's to take. It is renewed before each commit
and at the steps between, so one is lost only where a step takes longer and somebody else waits. The
clocks of drivers must agree far better than this."""

LOOKS: Final = 4
"""Looks for the newest lease, which its holder may replace between listing and reading."""

CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""Hadoop's word for a write that fails at its end when there is something by then: S3A has it from
Hadoop 3.4.2 on, unless `fs.s3a.create.conditional.enabled` is false."""

RENAMES: Final = ("hdfs",)
"""File systems whose rename is atomic and fails when its target exists."""

_MISSING: Final = "java.io.FileNotFoundException"


class Lease(NamedTuple):
    """Who may write until when (seconds since 1970); `number` orders it among all leases."""

    number: int
    owner: str
    host: str
    until: float


def storage_at(spark: SparkSession, uri: str) -> Storage:
    """Open what `uri` names: a plain path or `file:` as a local folder, all else through Hadoop.

    Raises FleetError when there is no such file system.
    """
    if urlsplit(uri).scheme in ("", "file"):
        path = uri.removeprefix("file:")
        return LocalStorage(Path(f"/{path.lstrip('/')}" if path != uri else path).resolve())
    try:
        return HadoopStorage(spark, uri)
    except OSError as error:
        msg = f"cannot open {error}"
        raise FleetError(msg) from error


class HadoopStorage:
    """A folder in a file system of Hadoop's; see `sync.tables.storage.Storage`.

    `create` replaces the way in which this kind of file system creates what must not be there.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        create: Callable[[Any, Any, bytes], None] | None = None,
    ) -> None:
        jvm: Any = spark._jvm
        self._new_path = jvm.org.apache.hadoop.fs.Path
        with _told(root):
            top = self._new_path(root)
            self._fs = top.getFileSystem(spark._jsc.hadoopConfiguration())
            self._root = str(self._fs.makeQualified(top).toString()).rstrip("/")
        self._create = create
        self._held: Lease | None = None

    def uri(self, path: str = "") -> str:
        """Name a path; see `Storage`."""
        return f"{self._root}/{path}".rstrip("/")

    def relative(self, uri: str) -> str:
        """Cut the root off; see `Storage`."""
        if not uri.startswith(f"{self._root}/"):
            uri = str(self._fs.makeQualified(self._new_path(uri)).toString())
        return PurePosixPath(uri).relative_to(self._root).as_posix()

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """Walk the folder; see `Storage`."""
        top = self.uri(folder)
        with contextlib.suppress(FileNotFoundError), _told(top):
            found = self._fs.listFiles(self._new_path(top), True)
            while found.hasNext():
                status = found.next()
                path = self.relative(str(status.getPath().toString()))
                below = PurePosixPath(path).relative_to(folder).parts
                if path.endswith(suffix) and not any(part.startswith((".", "_")) for part in below):
                    yield File(path, status.getLen(), status.getModificationTime() / 1000)

    def folders(self, folder: str) -> list[str]:
        """List the folders; see `Storage`."""
        with contextlib.suppress(FileNotFoundError), _told(self.uri(folder)):
            found = self._fs.listStatus(self._path(folder))
            return sorted(str(each.getPath().getName()) for each in found if each.isDirectory())
        return []

    def exists(self, path: str) -> bool:
        """Look; see `Storage`."""
        with _told(self.uri(path)):
            return bool(self._fs.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        """Read; see `Storage`."""
        with _told(self.uri(path)):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, path: str, data: bytes) -> None:
        """Create; see `Storage`. Raises FleetError where this file system cannot do it safely.

        A request whose answer was lost may be sent twice and then meet what it made itself: what is
        there is compared. So `data` must not be what another could write, unless that is as good.
        """
        create = self._create or self._way(path)
        try:
            with _told(self.uri(path)):
                create(self._fs, self._path(path), data)
        except OSError as error:
            try:
                there = self.read(path)
            except FileNotFoundError:
                raise error from None
            if there != data:
                raise FileExistsError(path) from None

    def move(self, moves: Mapping[str, str]) -> list[str]:
        """Rename, which an object store does by a copy and a removal; see `Storage`."""
        return [source for source, target in moves.items() if not self._moved(source, target)]

    def _moved(self, source: str, target: str) -> bool:
        """Move a file; False where other bytes are at the target."""
        try:
            if self.exists(target):
                if self.read(source) != self.read(target):
                    return False
                self.remove(source)
                return True
            self._rename(source, target)
        except FileNotFoundError:
            if self.exists(source):
                raise
        return True

    def _rename(self, source: str, target: str) -> None:
        old, new = self._path(source), self._path(target)
        with _told(self.uri(source)):
            self._fs.mkdirs(new.getParent())
            if not self._fs.rename(old, new):
                if not self._fs.exists(old):
                    raise FileNotFoundError(self.uri(source))
                msg = f"{self.uri(source)} cannot be moved to {self.uri(target)}"
                raise OSError(msg)

    def remove(self, path: str) -> None:
        """Delete; see `Storage`."""
        with _told(self.uri(path)):
            self._fs.delete(self._path(path), True)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See that the files are there: these file systems keep what was closed; see `Storage`."""
        for path in paths:
            with _told(self.uri(path)):
                self._fs.getFileStatus(self._path(path))

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the newest lease for at most `LEASE_S` since it was last kept; see `Storage`."""
        newest = self._newest()
        if newest is not None and newest.until > time.time():
            until = datetime.fromtimestamp(newest.until, UTC).isoformat(timespec="seconds")
            msg = (
                f"another ingest is at work on {self._root}, on {newest.host}; wait for it to end, "
                f"or if it is dead, until {until}"
            )
            raise LeaseError(msg)
        self._held = self._write(newest.number + 1 if newest else 0, LEASE_S)
        try:
            yield
        finally:
            held, self._held = self._held, None
            with contextlib.suppress(LeaseError):
                self._write(held.number + 1, 0, held)

    def keep_lease(self) -> None:
        """Renew the lease, which fails when another has taken it; see `Storage`."""
        if self._held is None:
            msg = f"nobody holds the lease on {self._root}"
            raise LeaseError(msg)
        self._held = self._write(self._held.number + 1, LEASE_S, self._held)

    def _write(self, number: int, length_s: float, before: Lease | None = None) -> Lease:
        """Create a lease: its number is free unless another was faster."""
        lease = Lease(number, secrets.token_hex(8), socket.gethostname(), time.time() + length_s)
        try:
            self.create(_lease_path(number), json.dumps(lease._asdict()).encode())
        except FileExistsError:
            msg = f"another ingest has taken the lease on {self._root}"
            raise LeaseError(msg) from None
        if before is not None:
            self.remove(_lease_path(before.number))
        return lease

    def _newest(self) -> Lease | None:
        for _ in range(LOOKS):
            paths = [file.path for file in self.files(LEASES, ".json")]
            if not paths:
                return None
            with contextlib.suppress(FileNotFoundError):
                return Lease(**json.loads(self.read(max(paths))))
        msg = f"another ingest is at work on {self._root}; wait for it to end"
        raise LeaseError(msg)

    def _way(self, path: str) -> Callable[[Any, Any, bytes], None]:
        """Choose how to create what must not be there; FleetError where no way is known."""
        if self._fs.hasPathCapability(self._path(path), CONDITIONAL):
            return _conditionally
        if urlsplit(self._root).scheme in RENAMES:
            return _by_rename
        msg = (
            f"{self._root} cannot create a file only if there is none: tables need HDFS, or an "
            "object store with conditional writes (s3a of Hadoop 3.4.2 or newer)"
        )
        raise FleetError(msg)

    def _path(self, path: str) -> Any:
        return self._new_path(self.uri(path))


def _lease_path(number: int) -> str:
    return f"{LEASES}/{number:010d}.json"


def _conditionally(fs: Any, path: Any, data: bytes) -> None:
    """Write; the store refuses at the end if there is something by then."""
    stream = fs.createFile(path).recursive().must(CONDITIONAL, True).build()
    stream.write(bytearray(data))
    stream.close()


def _by_rename(fs: Any, path: Any, data: bytes) -> None:
    """Write beside the name and rename, which fails when the name is taken."""
    part = path.getParent().suffix(f"/.{secrets.token_hex(8)}.part")
    stream = fs.createFile(part).recursive().build()
    stream.write(bytearray(data))
    stream.hsync()
    stream.close()
    if not fs.rename(part, path):
        fs.delete(part, False)
        raise FileExistsError(str(path))


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Turn what Java raises into the error that Python has for it."""
    try:
        yield
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getName())
        text = f"{name}: {summarise_error(error)}"
        if kind == _MISSING:
            raise FileNotFoundError(text) from error
        raise OSError(text) from error
