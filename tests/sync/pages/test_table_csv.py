"""The CSV files of a report, read back with four libraries."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

from sync.pages.table_csv import table_csv
from sync.reports.sensors import TABLE
from sync.reports.shared.registry import REPORTS
from sync.reports.shared.report import Report

CONTROLS = "".join(map(chr, [*range(1, 32), *range(127, 160), 0x2028, 0x2029]))
NAMES = [
    *(f"a{each}b" for each in CONTROLS),
    *(f"a{each}" for each in CONTROLS + " "),
    *("a\r\nb", 'a"b', "a,b", 'a",\r\n"b', "it's", "größe", "\U0010ffff"),
]
ROW = {
    **dict.fromkeys(TABLE.schema.fieldNames()),
    "gateway": "gw.example",
    "source": "p@gw.example",
    "readings": 3,
    "interval_s": -1.5,
    "last": datetime(9999, 12, 31, 20, 59, 59, 999_000, UTC),
}
NAME = "sensor"


def by_csv(file: Path) -> list[str]:
    with file.open(encoding="utf-8", newline="") as opened:
        return [row[NAME] for row in csv.DictReader(opened)]


def by_pandas(file: Path) -> list[str]:
    return list(pd.read_csv(file, keep_default_na=False, encoding="utf-8")[NAME])


def by_polars(file: Path) -> list[str]:
    return pl.read_csv(file, infer_schema=False)[NAME].to_list()


def by_duckdb(file: Path) -> list[str]:
    query = "SELECT sensor FROM read_csv(?, all_varchar=true, header=true, delim=',', quote='\"')"
    return [name for (name,) in duckdb.execute(query, [str(file)]).fetchall()]


@pytest.mark.parametrize("read", [by_csv, by_pandas, by_polars, by_duckdb])
def test_names_with_control_characters_are_read_back(
    read: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "sensors.csv"
    text = table_csv(TABLE, [ROW | {NAME: name} for name in NAMES])
    file.write_bytes(text.encode())
    assert read(file) == NAMES


def test_a_nul_which_ends_a_cell_for_some_readers_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "sensors.csv"
    file.write_bytes(table_csv(TABLE, [ROW | {NAME: "a\0b"}]).encode())
    assert by_csv(file) == by_pandas(file) == ["a\u2400b"]


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"]  # noqa: RUF001


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_is_no_formula_unless_asked_for(text: str, tmp_path: Path) -> None:
    file, rows = tmp_path / "sensors.csv", [ROW | {NAME: text}]
    file.write_bytes(table_csv(TABLE, rows).encode())
    assert by_csv(file) == [f"'{text}"]
    file.write_bytes(table_csv(TABLE, rows, formulas=True).encode())
    assert by_csv(file) == [text]


def test_numbers_and_absent_values_stay_as_they_are() -> None:
    [row] = csv.DictReader(io.StringIO(table_csv(TABLE, [ROW | {NAME: "a"}]), newline=""))
    assert (row["readings"], row["interval_s"], row["told_until"]) == ("3", "-1.5", "")
    assert row["last"] == "9999-12-31T20:59:59.999000+00:00"


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_every_text_column_of_every_report_is_written_so(report: Report) -> None:
    table = report.table
    texts = [each.name for each in table.columns if each.type.typeName() == "string"]
    row = dict.fromkeys(each.name for each in table.columns) | dict.fromkeys(texts, "=a\rb")
    [read] = csv.DictReader(io.StringIO(table_csv(table, [row]), newline=""))
    assert {read[name] for name in texts} <= {"'=a\rb"}
