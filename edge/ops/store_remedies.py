"""Remedies for errors of the database."""

from __future__ import annotations

from pathlib import Path

from edge.engine.rules.space_rules import DATABASE_REMEDY
from edge.engine.store import database
from edge.errors import StoreBroken, StoreBusy, StoreDamaged, StoreError, StoreFull


def store_remedy(error: StoreError, folder: Path) -> str:
    """Return what to do about an error of the database in `folder`."""
    if isinstance(error, StoreFull):
        if error.rule == "disk":
            return f"free disk space: `df {folder}` shows it"
        return DATABASE_REMEDY
    if isinstance(error, StoreBusy):
        return "another process uses it: try again, or end that process"
    if isinstance(error, StoreDamaged):
        return database.restore_advice(folder)
    if isinstance(error, StoreBroken):
        return "see the kernel's log (`dmesg`): the disk may fail or be read-only"
    return "see `fieldpost doctor`"
