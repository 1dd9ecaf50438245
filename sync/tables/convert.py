"""Convert the tables of versions before Delta Lake: the same data files under another log.

The old log has a manifest for each batch, `manifests/QUERY/BATCH.json`, that lists the files that
the batch added; the newest file in `manifests/gathered` has those of older batches. A manifest of
maintenance replaces files. Data files are linked, not rewritten, and the old log is removed last,
so that an interrupted conversion can be repeated.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from deltalake import Transaction
from deltalake.transaction import AddAction

from sync.common.durable_files import replace_file
from sync.common.errors import FleetError
from sync.tables.data_files import action_of
from sync.tables.delta import DAY, EVENTS, MANIFESTS, RETIRED, SEGMENTS, FleetTables, delta_errors
from sync.tables.storage import LocalStorage
from sync.tables.summaries.index import FOLDER, KEPT, content_of

CONVERTED: Final = "converted"
"""The application transaction of a table that is converted."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The numbers of days, and of files of both tables, that were converted."""

    days: int = 0
    events: int = 0
    segments: int = 0


@dataclass(slots=True)
class _Day:
    """A day of events: the batches that each live file is of, and what was in removed files.

    `removed` has for each retention a hash of the batches, and the number of rows.
    """

    files: dict[str, frozenset[str]] = field(default_factory=dict)
    removed: list[tuple[str, int]] = field(default_factory=list)

    def replace(self, gone: set[str]) -> frozenset[str]:
        """Remove files; return the batches whose events were in them."""
        taken = [self.files.pop(path) for path in sorted(gone & self.files.keys())]
        return frozenset().union(*taken)


def convert(storage: LocalStorage) -> Conversion:
    """Convert the tables in `storage`, if they are of an older version.

    Raises LeaseError while an ingest runs, FleetError if a manifest cannot be read, and OSError if
    a file is missing; the old tables are complete then.
    """
    tables = FleetTables(storage)
    with tables.lease(), delta_errors():
        if not storage.exists(MANIFESTS):
            return Conversion()
        manifests = _read_manifests(storage.root / MANIFESTS)
        days, segments, written = _replay(manifests)
        added: list[AddAction] = []
        retired, contents = {}, {}
        for day, found in days.items():
            actions = [_link(storage.root, EVENTS, path, written, day) for path in found.files]
            rows = sum(json.loads(each.stats)["numRecords"] for each in actions)
            retired[f"{RETIRED}/{day}"] = sum(number for _, number in found.removed)
            contents[day] = _contents(found, rows)
            added += actions
        _rename_summaries(storage.root / FOLDER, contents)
        batches = {each["query"]: each["batch"] for each in manifests}  # in order: the last ones
        tables.create_missing()
        ledger = [_link(storage.root, SEGMENTS, path, written) for path in segments]
        _commit(tables, SEGMENTS, ledger, batches)
        _commit(tables, EVENTS, added, batches | retired)
        storage.remove("data")
        storage.remove(MANIFESTS)
    return Conversion(sum(bool(each.files) for each in days.values()), len(added), len(ledger))


def _read_manifests(folder: Path) -> list[dict[str, Any]]:
    """Read all manifests: batches first, then maintenance, each in order."""
    found: dict[tuple[bool, str, int], dict[str, Any]] = {}
    try:
        merged = sorted(folder.glob("gathered/*.gz"))
        lines = gzip.decompress(merged[-1].read_bytes()).splitlines()[1:] if merged else []
        for text in (*lines, *(path.read_bytes() for path in folder.glob("*/*.json"))):
            each = json.loads(text)
            if "query" in each:
                each = {"kind": "batch", "events": {}, "replaces": (), "retired": {}, **each}
                found.setdefault((each["kind"] != "batch", each["query"], each["batch"]), each)
        return [found[key] for key in sorted(found)]
    except (EOFError, OSError, ValueError, KeyError) as error:
        msg = f"a manifest in {folder} cannot be read: {error!r}"
        raise FleetError(msg) from error


def _replay(
    manifests: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, _Day], list[str], dict[str, int]]:
    """Return the days, the files of segments, and when each file was written (ms since 1970)."""
    days: dict[str, _Day] = {}
    segments: dict[str, None] = {}
    written: dict[str, int] = {}
    for each in manifests:
        gone = set(each["replaces"])
        left = {day: found.replace(gone) for day, found in days.items()} if gone else {}
        for day, number in each["retired"].items():
            days[day].removed.append((_hash(left[day]), number))
        for day, paths in each["events"].items():
            of = left.get(day) or frozenset({f"{each['query']}/{each['batch']}"})
            days.setdefault(day, _Day()).files.update(dict.fromkeys(paths, of))
            written |= dict.fromkeys(paths, _ms(each["committed_at"]))
        segments |= dict.fromkeys(each["segments"])
        written |= dict.fromkeys(each["segments"], _ms(each["committed_at"]))
        segments = {path: None for path in segments if path not in gone}
    return days, list(segments), written


def _contents(day: _Day, rows: int) -> dict[str, str]:
    """Return the present contents of a day's summaries by the old ones."""
    parts = [*day.removed, (_hash(frozenset().union(*day.files.values())), rows)]
    contents, first = {}, 0
    for old, number in parts:
        contents[old] = content_of(first, first + number)
        first += number
    return contents


def _rename_summaries(folder: Path, contents: Mapping[str, Mapping[str, str]]) -> None:
    """Name the contents that stored summaries were computed from as they are named now."""
    for path in folder.glob(f"*/{KEPT}"):
        with contextlib.suppress(ValueError, KeyError, TypeError):  # it is computed again
            document = json.loads(path.read_bytes())
            for entry in document["kept"]:
                entry[3] = contents.get(entry[2], {}).get(entry[3], entry[3])
            replace_file(path, json.dumps(document).encode() + b"\n")


def _link(
    root: Path, name: str, path: str, written: Mapping[str, int], day: str | None = None
) -> AddAction:
    """Link a data file into the folder of its table; return the action that adds it."""
    target = f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.parquet"
    target = target if day is None else f"{DAY}={day}/{target}"
    link = root / name / target
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not link.exists():
        os.link(root / path, link)
    return action_of(target, link.stat().st_size, pq.read_metadata(link), written[path], day)


def _commit(
    tables: FleetTables, name: str, actions: Sequence[AddAction], batches: Mapping[str, int]
) -> None:
    """Add all files in one commit, unless an interrupted conversion has done so."""
    table = tables.existing(name)
    if table.transaction_version(CONVERTED) is None:
        transactions = [Transaction(*each) for each in {**batches, CONVERTED: 1}.items()]
        with tables.journaled(name):
            tables.append(table, name, actions, transactions, {})


def _ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def _hash(batches: Iterable[str]) -> str:
    """Return how the old version named the content of these batches."""
    keys = sorted((query, int(batch)) for query, _, batch in (b.partition("/") for b in batches))
    text = "\n".join(f"{query}/{batch}" for query, batch in keys)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
