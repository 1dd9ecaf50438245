from __future__ import annotations

from pathlib import Path

import pytest

from sync.common.errors import FleetError
from sync.tables.locations import FleetStorage, StorageOptions
from sync.tables.storage import LocalStorage
from tests.helpers.fleet_tables import fleet_folder


def test_uris_replace_parts_of_the_fleet_folder(tmp_path: Path) -> None:
    fleet = fleet_folder(tmp_path / "a:b")
    opened: list[str] = []

    def storage_at(uri: str) -> LocalStorage:
        opened.append(uri)
        return LocalStorage(tmp_path)

    named = StorageOptions(fleet.root, None, None)
    named.check()
    own = FleetStorage.of(fleet)
    storage = named.open(storage_at)
    assert storage.segments.uri() == own.segments.uri()
    assert storage.tables.uri() == own.tables.uri()
    assert named.log("x.log") == fleet.tables / "x.log"
    assert opened == []

    both = StorageOptions(None, "s3a://bucket/fleet/landing/", "s3a://bucket/tables")
    both.check()
    both.open(storage_at)
    assert both.log("x.log") is None
    one = StorageOptions(fleet.root, None, "s3a://bucket/tables")
    one.check()
    assert one.open(storage_at).segments.uri() == own.segments.uri()
    assert opened == ["s3a://bucket/fleet", "s3a://bucket/tables", "s3a://bucket/tables"]


@pytest.mark.parametrize(
    ("landing", "tables", "text"),
    [
        (None, None, "--dir"),
        ("s3a://bucket/landing", None, "--dir"),
        ("s3a://bucket/other", "s3a://bucket/tables", "named `landing`"),
    ],
)
def test_incomplete_options_are_refused(landing: str | None, tables: str | None, text: str) -> None:
    with pytest.raises(FleetError, match=text):
        StorageOptions(None, landing, tables).check()
