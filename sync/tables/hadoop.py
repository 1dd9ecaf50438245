"""Storage in Hadoop's file systems: HDFS, and object stores such as `s3a://`.

Creating a file must fail if it exists, and only one of several concurrent writers may succeed. HDFS
guarantees that by rename, object stores by conditional writes
(docs/explanation/decisions/0023-storage-commits-and-leases.md); other storage is refused. All calls
go through the driver's JVM.
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
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from sync.common.errors import FleetError, LeaseError
from sync.tables.spark_session import summarise_error
from sync.tables.storage import File, LocalStorage, Storage

LEASES: Final = "leases"
"""The folder of leases below the root: `leases/NUMBER.json`. The highest number is valid."""

LEASE_S: Final = 900.0
"""Seconds after which a lease that was not renewed may be taken by another driver. It is renewed
before each commit and between steps, so it is lost only if a step takes longer and another driver
waits. The drivers' clocks must agree far better than this."""

LOOKS: Final = 4
"""Attempts to read the newest lease, which its holder may replace between listing and reading."""

CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""Hadoop's option for a write that fails at its end if the file exists by then. S3A has it from
Hadoop 3.4.2 on, unless `fs.s3a.create.conditional.enabled` is false."""

RENAMES: Final = ("hdfs",)
"""File systems whose rename is atomic and fails if the target exists."""

_MISSING: Final = "java.io.FileNotFoundException"


class Lease(NamedTuple):
    """The right to write until a time (seconds since 1970); `number` orders all leases."""

    number: int
    owner: str
    host: str
    until: float


def storage_at(spark: SparkSession, uri: str) -> Storage:
    """Open the storage at `uri`: a plain path or `file:` as a local folder, others through Hadoop.

    Raises FleetError if there is no such file system.
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
    """A folder in a Hadoop file system; see `sync.tables.storage.Storage`.

    `create` replaces the way to create a file exclusively in this file system.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        create: Callable[[Any, Any, bytes], None] | None = None,
    ) -> None:
        jvm: Any = spark._jvm
        self._new_path = jvm.org.apache.hadoop.fs.Path
        with _java_errors(root):
            top = self._new_path(root)
            self._fs = top.getFileSystem(spark._jsc.hadoopConfiguration())
            self._root = str(self._fs.makeQualified(top).toString()).rstrip("/")
        self._create = create
        self._held: Lease | None = None

    def uri(self, path: str = "") -> str:
        """Return the URI of a path; see `Storage`."""
        return f"{self._root}/{path}".rstrip("/")

    def relative(self, uri: str) -> str:
        """Return the path of a URI; see `Storage`."""
        if not uri.startswith(f"{self._root}/"):
            uri = str(self._fs.makeQualified(self._new_path(uri)).toString())
        return PurePosixPath(uri).relative_to(self._root).as_posix()

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """List the files; see `Storage`."""
        top = self.uri(folder)
        with contextlib.suppress(FileNotFoundError), _java_errors(top):
            found = self._fs.listFiles(self._new_path(top), True)
            while found.hasNext():
                status = found.next()
                path = self.relative(str(status.getPath().toString()))
                below = PurePosixPath(path).relative_to(folder).parts
                if path.endswith(suffix) and not any(part.startswith((".", "_")) for part in below):
                    yield File(path, status.getLen(), status.getModificationTime() / 1000)

    def folders(self, folder: str) -> list[str]:
        """List the folders; see `Storage`."""
        with contextlib.suppress(FileNotFoundError), _java_errors(self.uri(folder)):
            found = self._fs.listStatus(self._path(folder))
            return sorted(str(each.getPath().getName()) for each in found if each.isDirectory())
        return []

    def exists(self, path: str) -> bool:
        """Return whether the path exists; see `Storage`."""
        with _java_errors(self.uri(path)):
            return bool(self._fs.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        """Read; see `Storage`."""
        with _java_errors(self.uri(path)):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, path: str, data: bytes) -> None:
        """Create; see `Storage`. Raises FleetError if this file system cannot do it safely.

        A request whose answer was lost may be sent twice and then find its own file, so an existing
        file is compared. Two writers must not write the same `data` unless that is harmless.
        """
        create = self._create or self._exclusive_create(path)
        try:
            with _java_errors(self.uri(path)):
                create(self._fs, self._path(path), data)
        except OSError as error:
            try:
                there = self.read(path)
            except FileNotFoundError:
                raise error from None
            if there != data:
                raise FileExistsError(path) from None

    def move(self, moves: Mapping[str, str]) -> list[str]:
        """Rename, which an object store does by copying and deleting; see `Storage`."""
        return [source for source, target in moves.items() if not self._moved(source, target)]

    def _moved(self, source: str, target: str) -> bool:
        """Move a file; return False if a different file is at the target."""
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
        with _java_errors(self.uri(source)):
            self._fs.mkdirs(new.getParent())
            if not self._fs.rename(old, new):
                if not self._fs.exists(old):
                    raise FileNotFoundError(self.uri(source))
                msg = f"{self.uri(source)} cannot be moved to {self.uri(target)}"
                raise OSError(msg)

    def remove(self, path: str) -> None:
        """Delete; see `Storage`."""
        with _java_errors(self.uri(path)):
            self._fs.delete(self._path(path), True)

    def make_durable(self, paths: Iterable[str]) -> None:
        """Check that the files exist: these file systems keep closed files; see `Storage`."""
        for path in paths:
            with _java_errors(self.uri(path)):
                self._fs.getFileStatus(self._path(path))

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the newest lease for at most `LEASE_S` after it was last renewed; see `Storage`."""
        newest = self._newest()
        if newest is not None and newest.until > time.time():
            until = datetime.fromtimestamp(newest.until, UTC).isoformat(timespec="seconds")
            msg = (
                f"another ingest is at work on {self._root}, on host {newest.host}; wait until it "
                f"ends or, if it has crashed, until {until}"
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
        """Renew the lease; fails if another driver has taken it; see `Storage`."""
        if self._held is None:
            msg = f"nobody holds the lease on {self._root}"
            raise LeaseError(msg)
        self._held = self._write(self._held.number + 1, LEASE_S, self._held)

    def _write(self, number: int, length_s: float, before: Lease | None = None) -> Lease:
        """Create a lease; fails if another driver was faster."""
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
        msg = f"another ingest is at work on {self._root}; wait until it ends"
        raise LeaseError(msg)

    def _exclusive_create(self, path: str) -> Callable[[Any, Any, bytes], None]:
        """Choose how to create files exclusively. Raises FleetError if no way is known."""
        if self._fs.hasPathCapability(self._path(path), CONDITIONAL):
            return _conditionally
        if urlsplit(self._root).scheme in RENAMES:
            return _by_rename
        msg = (
            f"{self._root} cannot create files exclusively: tables need HDFS, or an "
            "object store with conditional writes (s3a of Hadoop 3.4.2 or newer)"
        )
        raise FleetError(msg)

    def _path(self, path: str) -> Any:
        return self._new_path(self.uri(path))


def _lease_path(number: int) -> str:
    return f"{LEASES}/{number:010d}.json"


def _conditionally(fs: Any, path: Any, data: bytes) -> None:
    """Write; the store refuses at the end if the file exists by then."""
    stream = fs.createFile(path).recursive().must(CONDITIONAL, True).build()
    stream.write(bytearray(data))
    stream.close()


def _by_rename(fs: Any, path: Any, data: bytes) -> None:
    """Write to another name and rename, which fails if the target exists."""
    part = path.getParent().suffix(f"/.{secrets.token_hex(8)}.part")
    stream = fs.createFile(part).recursive().build()
    stream.write(bytearray(data))
    stream.hsync()
    stream.close()
    if not fs.rename(part, path):
        fs.delete(part, False)
        raise FileExistsError(str(path))


@contextlib.contextmanager
def _java_errors(name: str) -> Iterator[None]:
    """Translate Java exceptions to Python's."""
    try:
        yield
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getName())
        text = f"{name}: {summarise_error(error)}"
        if kind == _MISSING:
            raise FileNotFoundError(text) from error
        raise OSError(text) from error
