"""Storage in Hadoop's file systems: HDFS, and object stores such as `s3a://`.

Segments and data files are accessed here, through the driver's JVM. The tables' logs are accessed
by delta-rs, which commits by a conditional write or a rename that fails if the target exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from sync.common.errors import FleetError
from sync.tables.spark_session import summarise_error
from sync.tables.storage import File, LocalStorage, Storage, is_local

_ERRORS: Final[dict[str, type[OSError]]] = {
    "java.io.FileNotFoundException": FileNotFoundError,
    "org.apache.hadoop.fs.FileAlreadyExistsException": FileExistsError,
}


def storage_at(spark: SparkSession | None, uri: str) -> Storage:
    """Open the storage at `uri`: a plain path or `file:` as a local folder, others through Hadoop.

    A local folder needs no Spark. Raises FleetError if there is no such file system, or no `spark`.
    """
    if is_local(uri):
        path = uri.removeprefix("file:")
        return LocalStorage(Path(f"/{path.lstrip('/')}" if path != uri else path).resolve())
    if spark is None:
        raise FleetError(f"{uri} is not a local folder, so it needs Spark")
    try:
        return HadoopStorage(spark, uri)
    except OSError as error:
        raise FleetError(f"cannot open {error}") from error


class HadoopStorage:
    """A folder in a Hadoop file system; see `sync.tables.storage.Storage`.

    In these file systems a closed file is durable, and there are no locks. In an object store, a
    rename copies and deletes.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._new_path = jvm.org.apache.hadoop.fs.Path
        with _java_errors(root):
            top = self._new_path(root)
            self._fs = top.getFileSystem(spark._jsc.hadoopConfiguration())
            self._root = str(self._fs.makeQualified(top).toString()).rstrip("/")

    def uri(self, path: str = "") -> str:
        return f"{self._root}/{path}".rstrip("/")

    def relative(self, uri: str) -> str:
        if not uri.startswith(f"{self._root}/"):
            uri = str(self._fs.makeQualified(self._new_path(uri)).toString())
        return PurePosixPath(uri).relative_to(self._root).as_posix()

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        top = self.uri(folder)
        with contextlib.suppress(FileNotFoundError), _java_errors(top):
            found = self._fs.listFiles(self._new_path(top), True)
            while found.hasNext():
                status = found.next()
                path = self.relative(str(status.getPath().toString()))
                below = PurePosixPath(path).relative_to(folder).parts
                if path.endswith(suffix) and not any(part.startswith((".", "_")) for part in below):
                    yield File(path, status.getLen(), status.getModificationTime() / 1000)

    def exists(self, path: str) -> bool:
        with _java_errors(self.uri(path)):
            return bool(self._fs.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        with _java_errors(self.uri(path)):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, path: str, data: bytes) -> None:
        with _java_errors(self.uri(path)):
            stream = self._fs.createFile(self._path(path)).recursive().overwrite(False).build()
            stream.write(bytearray(data))
            if stream.hasCapability("hsync"):
                stream.hsync()
            stream.close()

    def move(self, moves: Mapping[str, str]) -> list[str]:
        return [source for source, target in moves.items() if not self._moved(source, target)]

    def _moved(self, source: str, target: str) -> bool:
        """Move a file, unless it is gone; return False if a different file is at the target."""
        old, new = self._path(source), self._path(target)
        try:
            if self.exists(target):
                if self.read(source) != self.read(target):
                    return False
                self.remove(source)
                return True
            with _java_errors(self.uri(source)):
                self._fs.mkdirs(new.getParent())
                if not self._fs.rename(old, new) and self._fs.exists(old):
                    raise OSError(f"{self.uri(source)} cannot be moved to {self.uri(target)}")
        except FileNotFoundError:
            if self.exists(source):
                raise
        return True

    def remove(self, path: str) -> None:
        with _java_errors(self.uri(path)):
            self._fs.delete(self._path(path), True)

    def make_durable(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _java_errors(self.uri(path)):
                self._fs.getFileStatus(self._path(path))

    def lease(self, wait_s: float = 0.0) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _path(self, path: str) -> Any:
        return self._new_path(self.uri(path))


@contextlib.contextmanager
def _java_errors(name: str) -> Iterator[None]:
    """Raise a Java exception in the block as an OSError whose text begins with `name`."""
    try:
        yield
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getName())
        raise _ERRORS.get(kind, OSError)(f"{name}: {summarise_error(error)}") from error
