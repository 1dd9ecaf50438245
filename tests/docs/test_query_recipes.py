from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import pytest
from deltalake import DeltaTable

from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.simulate import write_fleet
from sync.common.fleet_folder import FleetFolder
from sync.storage.locations import open_storage
from sync.tables.arrow_schemas import EVENT_COLUMNS, SEGMENT_COLUMNS
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.local_ingest import ingest
from tests.helpers.object_store import BUCKET

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "query-the-tables.md").read_text("utf-8")
NOTEBOOK = json.loads((ROOT / "examples" / "fleet.ipynb").read_text("utf-8"))
RECIPES = re.findall(r"^## (.+?)$|^```(python|sql)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
EXAMPLE = "/srv/fleet/tables"
SETTINGS = FleetSettings(3, 2, 1, 1_763_596_800_000, readings=200, heartbeat=600.0, seal=3_600.0)
"""Three gateways from 2025-11-20 on."""


class Simulated(NamedTuple):
    """A fleet folder with the tables of a simulated fleet, and the truth about its totals."""

    folder: FleetFolder
    totals: dict[str, Any]

    @property
    def tables(self) -> str:
        return str(self.folder.tables)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    root = tmp_path_factory.mktemp("fleet")
    folder = fleet_folder(root / "fleet")
    truth = write_fleet(SETTINGS, root / "simulated")
    folder.landing.rmdir()
    (root / "simulated" / "segments").rename(folder.landing)
    assert ingest(folder).counts.events == truth["totals"]["events"]
    return Simulated(folder, truth["totals"])


def recipes(language: str) -> dict[str, str]:
    """Return the recipes by the section that they are in."""
    section, found = "The pair", {}
    for title, kind, text in RECIPES:
        section = title or section
        if kind == language:
            found[section] = text
    return found


@pytest.mark.parametrize("title", sorted(recipes("python").keys() - {"Spark"}))
def test_a_recipe_runs(fleet: Simulated, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(recipes("python")[title].replace(EXAMPLE, fleet.tables), {})  # noqa: S102
    assert "gw-00" in capsys.readouterr().out or title in ("The pair", "The past")


@pytest.fixture
def in_bucket(fleet: Simulated, s3: str) -> str:
    """The URI of the tables in a bucket."""
    tables = f"s3://{BUCKET}/fleet/tables"
    bucket = open_storage(tables)
    for file in filter(Path.is_file, fleet.folder.tables.rglob("*")):
        bucket.create(file.relative_to(fleet.folder.tables).as_posix(), file.read_bytes())
    return tables


def test_polars_pandas_and_duckdb_read_a_bucket(
    fleet: Simulated, in_bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for title in ("Polars", "pandas"):
        exec(recipes("python")[title].replace(EXAMPLE, in_bucket), {})  # noqa: S102
        assert "gw-00" in capsys.readouterr().out
    events = DeltaTable(f"{in_bucket}/events").to_pyarrow_dataset()
    with duckdb.connect() as connection:
        rows = connection.from_arrow(events).aggregate("count(*)").fetchall()
    assert rows == [(fleet.totals["events"],)]


def test_the_recipe_for_duckdb_with_its_extension(fleet: Simulated) -> None:
    with duckdb.connect() as connection:
        try:
            connection.execute("LOAD delta")
        except duckdb.Error:
            pytest.skip("DuckDB has no extension `delta` here")
        sql = recipes("sql")["DuckDB"].replace(EXAMPLE, fleet.tables)
        assert len(connection.sql(sql).fetchall()) == 9


def test_duckdb_and_pandas_read_the_simulated_totals(fleet: Simulated) -> None:
    totals = fleet.totals
    uris = {name: DeltaTable(f"{fleet.tables}/{name}") for name in ("events", "segments")}
    with duckdb.connect() as connection:
        events = connection.read_parquet(uris["events"].file_uris(), hive_partitioning=True)
        kinds = events.aggregate("lane, kind, count(*)", "lane, kind").fetchall()
        segments = connection.read_parquet(uris["segments"].file_uris())
        outcomes = dict(segments.aggregate("fate, count(*)", "fate").fetchall())
    assert sum(number for _, _, number in kinds) == totals["events"]
    assert set(kinds) == {
        (lane, kind, number)
        for lane, found in totals["lanes"].items()
        for kind, number in found.items()
    }
    assert outcomes["accepted"] == totals["segments"]
    assert outcomes.get("bad", 0) == totals["bad"]
    frame = uris["events"].to_pandas(columns=["gateway", "epoch", "lane", "seq"])
    assert (len(frame), len(frame.drop_duplicates())) == (totals["events"],) * 2
    assert frame["gateway"].nunique() == totals["gateways"]
    assert totals["events"] == totals["received"] > 1_000


def test_non_nullable_columns_have_no_nulls(fleet: Simulated) -> None:
    for name, columns in (("events", EVENT_COLUMNS), ("segments", SEGMENT_COLUMNS)):
        rows = DeltaTable(f"{fleet.tables}/{name}").to_pyarrow_table()
        full = {each.name for each in columns if not each.null}
        assert {each for each in full if rows[each].null_count} == set()


@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_the_notebook_answers_its_questions(
    fleet: Simulated, place: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    tables = fleet.tables if place == "folder" else request.getfixturevalue("in_bucket")
    monkeypatch.setenv("FIELDPOST_TABLES", tables)
    names: dict[str, Any] = {}
    answers = [
        answer
        for cell in NOTEBOOK["cells"]
        if cell["cell_type"] == "code"
        and (answer := run_cell("".join(cell["source"]), names)) is not None
    ]
    assert [type(each) for each in answers] == [pd.DataFrame] * 5
    missing, silent, late, measured, wrong = answers
    totals = fleet.totals
    assert int(missing["received"].sum()) == totals["received"]
    assert int(missing["missing"].sum()) == totals["missing"]
    assert len(silent) == totals["gateways"]
    assert int(silent["segments"].sum()) >= totals["segments"]
    assert (late["p50"] <= late["p95"]).all()
    assert int(measured["readings"].sum()) == totals["lanes"]["readings"]["reading"]
    assert len(wrong) > 0
    assert all(cell.get("outputs", []) == [] for cell in NOTEBOOK["cells"])


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; return the value of a last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
