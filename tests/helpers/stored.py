"""The content of a storage, for comparison."""

from __future__ import annotations

from sync.storage.storage import Storage


def stored(storage: Storage, folder: str = "") -> dict[str, bytes]:
    """Return the files below a folder, by their paths."""
    return {file.path: storage.read(file.path) for file in storage.files(folder)}
