"""The index of stored summaries: one JSON file in each folder, without which its rows do not count.

`summaries/ATTEMPT/kept.json` below the tables' folder names the files of its folder, their days and
the content that the rows were computed from. It is created last and never changed. Rows of the same
content are equal, so it does not matter which of two is read. A file may have the rows of several
days: when one of them is computed again, its old rows stay in the file and do not count. All of
this is a cache: what is lost or damaged is computed again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sync.storage.storage import File, Storage

FOLDER: Final = "summaries"
"""The folder of all `ATTEMPT/SUMMARY/of=DAY/FILE`. Each computation has a random ATTEMPT; DAY is
the first of the days that a file may have."""

GRACE_S: Final = 3_600
"""Seconds for which replaced files are kept: a report that began before the replacement may still
read them for minutes."""

ORPHAN_S: Final = 86_400
"""Seconds after which the folder of an interrupted report is removed: no report takes a day."""

KEPT: Final = "kept.json"

_VERSION: Final = 2


class Key(NamedTuple):
    """The key of stored rows: the summary's name and shape, the day, and the events summarised.

    A day's events are numbered in the order in which batches appended them. Retention removes all
    events that a day has. So a range of numbers identifies them: `content`, see `content_of`.
    """

    name: str
    shape: str
    day: str
    content: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The files with the rows of a `Key`, if any: their sizes by path below the tables' folder.

    Other keys of the same attempt may have the same files.
    `attempt` names their folder; `kept_at` is when they became valid, in seconds since 1970.
    """

    attempt: str
    files: Mapping[str, int]
    kept_at: float


Index = Mapping[Key, Entry]
"""The entries whose files are complete."""


def content_of(first: int, end: int) -> str:
    """Return the `Key.content` of the rows `first` to `end` - 1 of a day, counted from 0."""
    return f"{first}-{end}"


def _attempt_of(path: str) -> str:
    """Return the ATTEMPT in the path of a file below the tables' folder (see `FOLDER`)."""
    return path.split("/")[1]


def retired_contents(stored: Iterable[str], retired: int) -> list[str]:
    """Return the ranges (`Key.content`) that together cover the `retired` first rows of a day.

    Retention removed these rows, in one or more runs; each run stored a summary of the rows that it
    removed. `stored` are the ranges of the stored summaries. If one is missing, the last range that
    is returned covers its rows and all later retired rows, and is not in `stored`.
    """
    ends: dict[int, int] = {}
    for content in stored:
        first, _, end = content.partition("-")
        if end.isdecimal() and int(end) <= retired:
            ends[int(first)] = max(int(end), ends.get(int(first), 0))
    contents, at = [], 0
    while at < retired:
        end_of_part = ends.get(at, retired)
        contents.append(content_of(at, end_of_part))
        at = end_of_part
    return contents


def read_index(tables: Storage) -> Index:
    """Read the index."""
    return dict(_all(tables))


def add_entries(tables: Storage, attempt: str, files: Mapping[Key, Mapping[str, int]]) -> None:
    """Make all files in the folder `attempt` valid at once, by writing its index durably.

    `files` has the sizes of durable files, by path. Raises OSError if the index cannot be written.
    """
    kept = [[*key, dict(sizes)] for key, sizes in files.items()]
    document = json.dumps({"version": _VERSION, "kept": kept})
    tables.create(f"{FOLDER}/{attempt}/{KEPT}", document.encode() + b"\n")


def remove_replaced(tables: Storage, wanted: Iterable[Key]) -> None:
    """Remove the files of replaced rows and of interrupted reports.

    `wanted` are the keys in use. `GRACE_S` after the rows of a wanted key became valid, they
    replace all others of the same summary and day. Rows of other summaries are kept. A file is
    removed when the rows of all its days are replaced.

    Raises OSError if a file cannot be removed.
    """
    now, kept = time.time(), list(_all(tables))
    index = dict(kept)
    used = {key: index[key] for key in wanted if key in index}
    since = {(key.name, key.day): entry.kept_at for key, entry in used.items()}
    staying: set[str] = set()
    paths: set[str] = set()
    for key, entry in kept:
        replaced = now - since.get((key.name, key.day), now) > GRACE_S
        if used.get(key) is entry or not replaced:
            staying.add(entry.attempt)
            paths.update(entry.files)
    tables.remove({path for _, entry in kept for path in entry.files} - paths)
    for attempt in {entry.attempt for _, entry in kept} - staying:
        tables.remove_folder(f"{FOLDER}/{attempt}")
    _remove_orphans(tables, now)


def _remove_orphans(tables: Storage, now: float) -> None:
    """Remove interrupted attempts: they have no `kept.json` and no recent files."""
    newest: dict[str, float] = {}
    complete = set()
    for file in tables.files(FOLDER):
        attempt = _attempt_of(file.path)
        newest[attempt] = max(newest.get(attempt, 0.0), file.modified)
        if file.path.endswith(f"/{KEPT}"):
            complete.add(attempt)
    for attempt, modified in newest.items():
        if attempt not in complete and now - modified > ORPHAN_S:
            tables.remove_folder(f"{FOLDER}/{attempt}")


def _all(tables: Storage) -> Iterator[tuple[Key, Entry]]:
    """Yield all entries in a stable order; a key may occur more than once."""
    files = {file.path: file for file in tables.files(FOLDER)}
    for path, file in sorted(files.items()):
        if path.endswith(f"/{KEPT}"):
            yield from _entries(tables, file, files)


def _entries(tables: Storage, file: File, files: Mapping[str, File]) -> Iterator[tuple[Key, Entry]]:
    attempt = _attempt_of(file.path)
    try:
        document = json.loads(tables.read(file.path))
        if document["version"] != _VERSION:
            return
        for *key, sizes in document["kept"]:
            if all(path in files and files[path].size == size for path, size in sizes.items()):
                yield Key(*key), Entry(attempt, sizes, file.modified)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
