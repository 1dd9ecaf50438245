"""The batches that the events of each day came from, according to the manifests.

Compaction changes files and not events, so it changes nothing here. Retention removes events: what
these came from is kept apart from what is left, so that stored summaries of removed events stay
valid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sync.tables.manifest import Manifest

_Batch = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A part of a day's events: a hash of its `content`, and its files, none if it was removed."""

    content: str
    files: tuple[str, ...] = ()


def sources(manifests: Sequence[Manifest]) -> dict[str, tuple[Source, ...]]:
    """Return the parts of every day that has or had events, by day (UTC, `YYYY-MM-DD`), sorted.

    Each retention makes one part of what it removed; the present events are the last part.
    """
    there: dict[str, dict[str, frozenset[_Batch]]] = {}
    taken: dict[str, list[Source]] = {}
    batches = [each for each in manifests if each.kind == "batch"]
    maintenance = sorted(
        (each for each in manifests if each.kind != "batch"), key=lambda each: each.batch
    )
    for each in [*batches, *maintenance]:
        gone = set(each.replaces)
        for day in there if gone else ():
            left = _replace(there[day], gone)
            if left and each.kind == "retired":
                taken.setdefault(day, []).append(Source(_content(left)))
            if left and each.kind == "compacted":
                there[day].update(dict.fromkeys(each.events.get(day, ()), left))
        if each.kind == "batch":
            for day, paths in each.events.items():
                of = frozenset({(each.query, each.batch)})
                there.setdefault(day, {}).update(dict.fromkeys(paths, of))
    return {
        day: (*taken.get(day, ()), *_live(files))
        for day, files in sorted(there.items())
        if files or day in taken
    }


def _replace(files: dict[str, frozenset[_Batch]], gone: set[str]) -> frozenset[_Batch]:
    """Remove files; return the batches whose events were in them."""
    taken = [files.pop(path) for path in sorted(gone & files.keys())]
    return frozenset().union(*taken)


def _live(files: dict[str, frozenset[_Batch]]) -> tuple[Source, ...]:
    if not files:
        return ()
    return (Source(_content(frozenset().union(*files.values())), tuple(sorted(files))),)


def _content(batches: Iterable[_Batch]) -> str:
    text = "\n".join(f"{query}/{batch}" for query, batch in sorted(batches))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
