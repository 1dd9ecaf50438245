"""Make the commits of Delta tables on a local disk durable, because delta-rs does not.

Before a commit, a journal is written that names the tables and their versions. After a power cut,
`repair` removes damaged commits after these versions, and checkpoints, which can be written again.
Nothing depends on removed commits: a segment is moved out of the landing, or an old file deleted,
only when the commits are durable and the journal is removed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sync.common.durable_files import fsync_folder, replace_file
from sync.storage.local import LocalStorage

JOURNAL: Final = "journal.json"
"""The file of the journal, below the tables' folder."""

UNFINISHED_SECONDS: Final = 3600.0
"""Age after which `repair` removes the file of an unfinished commit; a younger file may belong to a
running driver."""

_LOG: Final = "_delta_log"
_LAST: Final = "_last_checkpoint"


@contextlib.contextmanager
def journaled(storage: LocalStorage, names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Make the `with` block's commits to the tables `names` durable; call `repair` first.

    Yields a function that makes the commits to one table durable at once. If the block raises, the
    journal stays for the next `repair`.
    """
    repair(storage)
    before = {name: _last_version(storage.root / name / _LOG) for name in names}
    journal = storage.root / JOURNAL
    replace_file(journal, json.dumps(before).encode())
    yield lambda name: _make_durable(storage, name, before[name])
    _finish(storage, before)


def repair(storage: LocalStorage) -> None:
    """Remove damaged commits that an interrupted process left; make the others durable."""
    try:
        before: dict[str, int] = json.loads((storage.root / JOURNAL).read_bytes())
    except FileNotFoundError:
        return
    for name, version in before.items():
        log = storage.root / name / _LOG
        _remove_unfinished(log)
        for path in _newer(log, version):
            if path.suffix != ".json":
                path.unlink(missing_ok=True)  # another driver may have removed it
        for number in range(version + 1, _last_version(log) + 1):
            if not _is_whole(storage.root / name, _commit(log, number)):
                for later in range(_last_version(log), number - 1, -1):
                    _commit(log, later).unlink(missing_ok=True)
                break
    _finish(storage, before)


def _finish(storage: LocalStorage, before: dict[str, int]) -> None:
    for name, version in before.items():
        _make_durable(storage, name, version)
    (storage.root / JOURNAL).unlink(missing_ok=True)
    fsync_folder(storage.root)


def _make_durable(storage: LocalStorage, name: str, version: int) -> None:
    """Fsync the commits after a version, the files that they add, and all folders above."""
    log = storage.root / name / _LOG
    paths = _newer(log, version)
    for path in paths:
        if path.suffix == ".json":
            paths += [storage.root / name / each["path"] for each in _additions(path)]
    storage.make_durable([path.relative_to(storage.root).as_posix() for path in paths])
    if log.exists():
        fsync_folder(log)


def _remove_unfinished(log: Path) -> None:
    """Remove old files of unfinished commits, whose names end in `#` and a number."""
    for path in log.glob("*#*"):
        with contextlib.suppress(FileNotFoundError):  # another driver may have finished it
            if time.time() - path.stat().st_mtime > UNFINISHED_SECONDS:
                path.unlink()


def _is_whole(table: Path, commit: Path) -> bool:
    try:
        return bool(commit.stat().st_size) and all(
            (table / each["path"]).stat().st_size == each["size"] for each in _additions(commit)
        )
    except (OSError, ValueError):
        return False


def _additions(commit: Path) -> list[dict[str, Any]]:
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    return [each["add"] for each in actions if "add" in each]


def _newer(log: Path, version: int) -> list[Path]:
    """List the commits and checkpoints after a version, and the file that names the checkpoint."""
    if not log.exists():
        return []
    found = [path for path in log.iterdir() if _number(path) > version and "#" not in path.name]
    last = log / _LAST
    if any(path.suffix != ".json" for path in found) and last.exists():
        found.insert(0, last)  # it must not name a checkpoint that is gone
    return found


def _last_version(log: Path) -> int:
    paths = log.glob("*.json") if log.exists() else []
    return max((_number(path) for path in paths), default=-1)


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


def _number(path: Path) -> int:
    """Return the version in the name of a commit or a checkpoint; -1 for other files."""
    stem = path.name.partition(".")[0]
    return int(stem) if stem.isdecimal() else -1
