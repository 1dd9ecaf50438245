"""A storage in memory that keeps the promises of `Storage`, and asks before each call.

`ask` is called with the name of the call before anything is done: there a test interleaves several
who use one storage, or cuts one off. Times are set by `clock`. The lease is lost to whoever takes
it, as one that was not renewed is on a cluster, so that those who slept too long are there too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sync.common.errors import LeaseError
from sync.tables.storage import File


@dataclass
class Disk:
    """What is stored: bytes and time by path. `holder` has the lease."""

    files: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    holder: object = None
    clock: float = 0.0


class MemoryStorage:
    """One user's view of a disk; see `sync.tables.storage.Storage`."""

    def __init__(self, disk: Disk, ask: Callable[[str], None] = lambda call: None) -> None:
        self.disk = disk
        self._ask = ask

    def uri(self, path: str = "") -> str:
        return f"memory:/{path}".rstrip("/")

    def relative(self, uri: str) -> str:
        return PurePosixPath(uri).relative_to("memory:").as_posix()

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        """List in the order of names, and go on from the last: what comes before it is missed."""
        last = ""
        while True:
            self._ask("files")
            path = next((path for path in self._below(folder) if path > last), None)
            if path is None:
                return
            last = path
            below = PurePosixPath(path).relative_to(folder).parts
            if path.endswith(suffix) and not any(part.startswith((".", "_")) for part in below):
                data, modified = self.disk.files[path]
                yield File(path, len(data), modified)

    def folders(self, folder: str) -> list[str]:
        self._ask("folders")
        found = (PurePosixPath(path).relative_to(folder).parts for path in self._below(folder))
        return sorted({parts[0] for parts in found if len(parts) > 1})

    def exists(self, path: str) -> bool:
        self._ask("exists")
        return path in self.disk.files or bool(self._below(path))

    def read(self, path: str) -> bytes:
        self._ask("read")
        if path not in self.disk.files:
            raise FileNotFoundError(path)
        return self.disk.files[path][0]

    def create(self, path: str, data: bytes) -> None:
        self._ask("create")
        if path in self.disk.files:
            raise FileExistsError(path)
        self.disk.files[path] = (data, self.disk.clock)

    def move(self, moves: Mapping[str, str]) -> list[str]:
        return [source for source, target in moves.items() if not self._moved(source, target)]

    def _moved(self, source: str, target: str) -> bool:
        self._ask("move")
        if source in self.disk.files:
            data, _ = self.disk.files[source]
            if self.disk.files.get(target, (data, 0))[0] != data:
                return False
            self.disk.files[target] = self.disk.files.pop(source)
        return True

    def remove(self, path: str) -> None:
        self._ask("remove")
        for each in [path, *self._below(path)]:
            self.disk.files.pop(each, None)

    def make_durable(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path not in self.disk.files:
                raise FileNotFoundError(path)

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Take the lease, whoever has it."""
        self._ask("lease")
        self.disk.holder = self
        try:
            yield
        finally:
            if self.disk.holder is self:
                self.disk.holder = None

    def keep_lease(self) -> None:
        self._ask("keep_lease")
        if self.disk.holder is not self:
            msg = "another ingest has taken the lease"
            raise LeaseError(msg)

    def _below(self, folder: str) -> list[str]:
        top = f"{folder}/" if folder else ""
        return sorted(path for path in self.disk.files if path.startswith(top))
