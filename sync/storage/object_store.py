"""Storage in an object store: S3 and what speaks S3, Azure Blob Storage, Google Cloud Storage.

Credentials, region and endpoint come from the environment, by the names that delta-rs uses too:
`AWS_...`, `AZURE_...` and `GOOGLE_...`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from sync.storage.storage import HIDDEN, PATIENCE, File

if TYPE_CHECKING:  # these exist for type checkers only
    from obstore import Attributes, GetOptions, PutMode, UpdateVersion

_T = TypeVar("_T")

TIMEOUT: Final = timedelta(seconds=30)
"""Time that one request may take. The largest, a data file of some MB, takes a few seconds."""

CONNECT_TIMEOUT: Final = timedelta(seconds=5)
"""Time in which a connection to the store must be made."""

RETRIES: Final = 8
"""Maximum repetitions of a request that the store refused by a 5xx status or did not answer."""

ATTEMPTS: Final = 3
"""Maximum attempts to create, change or remove files. The library does not repeat a conditional put
whose answer did not come, because the put may have succeeded; here, equal content means that it
has."""

READERS: Final = 16
"""Files that are read at once: each waits for the store for some 20 ms."""

LISTED: Final = 1_000
"""Files in one answer of a listing, and in one request to remove files: the maximum of S3."""

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
}
"""The content types of files, by suffix: a browser shows a page only if the store names its type.
"""


class ObjectStorage:
    """A prefix of a bucket; see `sync.storage.storage.Storage`.

    A file is durable and visible when its put is answered. There are no folders and no lease. A
    move copies the file, so the copy has a new time of modification.
    """

    def __init__(self, uri: str, patience: timedelta = PATIENCE) -> None:
        """Open the prefix `uri`. A request is not repeated after the time `patience`.

        Raises OSError for a URI or a configuration that is not valid.
        """
        self._root = uri.rstrip("/")
        self._patience = patience
        with _store_errors(uri):
            self._store = from_url(
                self._root,
                client_options={
                    "timeout": min(TIMEOUT, patience),
                    "connect_timeout": CONNECT_TIMEOUT,
                    # The library takes this from the environment only if there are no options.
                    "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": patience},
            )

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[str, timedelta]]:
        """Pickle the arguments alone: a worker has credentials of its own."""
        return ObjectStorage, (self._root, self._patience)

    def uri(self, path: str = "") -> str:
        return f"{self._root}/{path}".rstrip("/")

    def files(self, folder: str = "", suffix: str = "") -> Iterator[File]:
        start = len(folder) + 1 if folder else 0
        with _store_errors(self.uri(folder)):
            for found in obstore.list(self._store, folder or None, chunk_size=LISTED):
                for each in found:
                    parts = each["path"][start:].split("/")
                    if each["path"].endswith(suffix) and not any(
                        part.startswith(HIDDEN) for part in parts
                    ):
                        modified = each["last_modified"].timestamp()
                        yield File(each["path"], each["size"], round(modified, 3))

    def exists(self, path: str) -> bool:
        with contextlib.suppress(FileNotFoundError), _store_errors(self.uri(path)):
            obstore.head(self._store, path)
            return True
        return False

    def read(self, path: str, start: int = 0) -> bytes:
        options: GetOptions = {}
        if start:
            options["range"] = {"suffix": -start} if start < 0 else {"offset": start}
        with _store_errors(self.uri(path)):
            try:
                return obstore.get(self._store, path, options=options).bytes().to_bytes()
            except BaseError:
                if start and obstore.head(self._store, path)["size"] <= max(start, 0):
                    return b""  # a store refuses a range that has no bytes
                raise

    def read_each(self, files: Iterable[File]) -> Iterator[tuple[File, bytes]]:
        remaining = iter(files)
        with ThreadPoolExecutor(READERS, "read") as pool:
            while chosen := list(islice(remaining, READERS)):
                contents = pool.map(self._read_if_there, chosen)
                for file, content in zip(chosen, contents, strict=True):
                    if content is not None:
                        yield file, content

    def _read_if_there(self, file: File) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self.read(file.path)
        return None

    def create(self, path: str, data: bytes) -> bool:
        return self._repeat(lambda: self._create(path, data))

    def _create(self, path: str, data: bytes) -> bool:
        try:
            self._put(path, data, "create")
        except FileExistsError:
            if self.read(path) != data:
                raise
            return False
        return True

    def make_durable(self, paths: Iterable[str]) -> None:
        """Do nothing: a file is durable when it is visible."""

    def clean(self, folder: str) -> int:
        return 0

    def replace(self, path: str, data: bytes, instead_of: Collection[bytes] | None = None) -> None:
        if instead_of is None:
            self._put(path, data, "overwrite")
        else:
            self._repeat(lambda: self._change(path, data, instead_of))

    def _change(self, path: str, data: bytes, instead_of: Collection[bytes]) -> None:
        """Replace a file unless another process has changed it; an ETag tells that."""
        content = None
        with contextlib.suppress(FileNotFoundError), _store_errors(self.uri(path)):
            found = obstore.get(self._store, path)
            mode: UpdateVersion = {"e_tag": found.meta["e_tag"]}
            if version := found.meta["version"]:
                mode["version"] = version
            content = found.bytes().to_bytes()
        if content is None:
            self._create(path, data)
        elif content != data:
            if content not in instead_of:
                raise FileExistsError(f"{self.uri(path)} has other content")
            self._put(path, data, mode)

    def _put(self, path: str, data: bytes, mode: PutMode) -> None:
        kind = TYPES.get(PurePosixPath(path).suffix)
        attributes: Attributes | None = {"Content-Type": kind} if kind else None
        with _store_errors(self.uri(path)):
            obstore.put(self._store, path, data, mode=mode, attributes=attributes)

    def move(self, moves: Mapping[str, str]) -> list[str]:
        return [source for source, target in moves.items() if not self._move(source, target)]

    def _move(self, source: str, target: str) -> bool:
        """Move a file, unless it is gone; return False if a different file is at the target."""
        try:
            content = self.read(source)
        except FileNotFoundError:
            return True
        try:
            self.create(target, content)
        except FileExistsError:
            return False
        self.remove([source])
        return True

    def remove(self, paths: Iterable[str]) -> None:
        remaining = iter(paths)
        while chosen := list(islice(remaining, LISTED)):
            self._repeat(partial(self._delete, chosen))

    def remove_folder(self, path: str) -> None:
        with _store_errors(self.uri(path)):
            for found in obstore.list(self._store, path, chunk_size=LISTED):
                self.remove(each["path"] for each in found)

    def _delete(self, paths: list[str]) -> None:
        """Delete files. Some stores fail at the first that does not exist."""
        try:
            with _store_errors(self.uri(paths[0])):
                obstore.delete(self._store, paths)
        except FileNotFoundError:
            if len(paths) > 1:
                for path in paths:
                    self._delete([path])

    def _repeat(self, call: Callable[[], _T]) -> _T:
        """Call until the store does not fail: at most `ATTEMPTS` times, and within the patience."""
        give_up_at = time.monotonic() + self._patience.total_seconds()
        for _ in range(ATTEMPTS - 1):
            try:
                return call()
            except (FileExistsError, FileNotFoundError):
                raise
            except OSError:
                if time.monotonic() > give_up_at:
                    raise
        return call()

    def lease(self, wait_s: float = 0.0) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@contextlib.contextmanager
def _store_errors(uri: str) -> Iterator[None]:
    """Raise an error of the library as an OSError of one line that begins with `uri`."""
    try:
        yield
    except AlreadyExistsError as error:
        raise FileExistsError(f"{uri} exists") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{uri} does not exist") from error
    except (BaseError, ValueError) as error:
        text = str(error).partition("\n\nDebug source")[0]  # that has dozens of lines
        raise OSError(f"{uri}: {' '.join(text.split())[:300]}") from error
