from __future__ import annotations

from pathlib import Path

import pytest

from sync.common.errors import FleetError
from sync.storage.local import LocalStorage
from sync.storage.locations import FleetStorage, StorageOptions, open_storage
from tests.helpers.fleet_tables import fleet_folder


def test_uris_replace_parts_of_the_fleet_folder(tmp_path: Path) -> None:
    fleet = fleet_folder(tmp_path / "a:b")
    own, other = FleetStorage.of(fleet), tmp_path / "other"

    named = StorageOptions(fleet.root, None, None)
    named.check()
    assert uris(named.open()) == uris(own)
    assert named.log("x.log") == fleet.tables / "x.log"

    both = StorageOptions(None, f"{other}/landing/", f"file:{other}/tables")
    both.check()
    assert uris(both.open()) == (f"{other}", f"{other}/tables")
    assert both.log("x.log") is None
    one = StorageOptions(fleet.root, None, f"{other}")
    one.check()
    assert uris(one.open()) == (own.segments.uri(), f"{other}")


def uris(storage: FleetStorage) -> tuple[str, str]:
    return storage.segments.uri(), storage.tables.uri()


def test_local_uris_open_and_unusable_ones_are_refused(tmp_path: Path) -> None:
    for uri in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        opened = open_storage(uri)
        assert isinstance(opened, LocalStorage)
        assert opened.root == tmp_path.resolve()
    for uri in (
        "nowhere://bucket/tables",
        "hdfs://host/tables",
        "http://host/tables",
        "memory:///",
    ):
        with pytest.raises(FleetError, match=f"cannot open {uri}"):
            open_storage(uri)


@pytest.mark.parametrize(
    ("landing", "tables", "text"),
    [
        (None, None, "--dir"),
        ("s3://bucket/landing", None, "--dir"),
        ("s3://bucket/other", "s3://bucket/tables", "named `landing`"),
    ],
)
def test_incomplete_options_are_refused(landing: str | None, tables: str | None, text: str) -> None:
    with pytest.raises(FleetError, match=text):
        StorageOptions(None, landing, tables).check()
