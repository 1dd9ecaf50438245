"""Estimate for a large fleet: formulas over measured and assumed inputs.

It measures nothing. `docs/explanation/scale.md` contains the tables that `python -m
benchmarks.scale` prints: copy them there after changing an input here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from benchmarks.report import number, table


class Input(NamedTuple):
    """An input: its value, meaning and unit, and the page of its measurement.

    `page` is empty if the value is assumed.
    """

    value: float
    text: str
    page: str = ""


class Result(NamedTuple):
    """A result of a formula over the symbols before it."""

    formula: str
    text: str


INPUTS: Final[dict[str, Input]] = {
    "G": Input(100_000, "gateways"),
    "r": Input(4_000, "readings per gateway and day"),
    "l": Input(240, "log events per gateway and day"),
    "h": Input(1_440, "heartbeats per gateway and day (default: one per minute)"),
    "T": Input(300, "seconds from an event until its lane is sealed (default of `segment_age`)"),
    "k": Input(3, "ratio of the busiest minute to the mean"),
    "u": Input(0.5, "target utilisation of a core"),
    "c": Input(60, "seconds between two batches of the ingest"),
    "D": Input(90, "retention of events in the tables, days"),
    "A": Input(30, "retention of segments in the archive, days"),
    "n": Input(1_024, "connections per receiver (limit `ReceiverLimits.connections`)"),
    "H": Input(0.04, "price of a core per hour"),
    "Y": Input(0.023, "price of a GB of object storage per month"),
    "Q": Input(5e-6, "price of a request that writes an object"),
    "b_r": Input(806, "bytes of a file with 14 readings", "segments"),
    "b_l": Input(597, "bytes of a file with 2 log events", "segments"),
    "b_h": Input(448, "bytes of a file with 5 heartbeats", "segments"),
    "a": Input(8.0, "bytes that each further event adds to a file", "segments"),
    "w": Input(3.46, "receiver: processor time per segment, ms", "landing"),
    "t": Input(1.69, "receiver: processor time per new connection, ms", "landing"),
    "f": Input(1.12, "ingest: processor time per small segment, ms", "ingest"),
    "e": Input(
        1.47,
        "ingest: processor time per further event, us (3.71 less `f` / 500)",
        "ingest",
    ),
    "d": Input(0.04, "ingest: time per lane in a landing on a disk, ms", "cluster"),
    "i": Input(808, "ingest: segments per second on two cores, of 500 events each", "cluster"),
    "p": Input(8.1, "bytes per event in the tables", "ingest"),
    "q": Input(134, "bytes per segment in the ledger", "ingest"),
}
"""The inputs, by symbol."""

RESULTS: Final[dict[str, Result]] = {
    "E": Result("G * (r + l + h)", "events per day"),
    "S": Result(
        "G * (86400 / (T + 86400 / r) + 86400 / (T + 86400 / l) + 86400 / (T + 86400 / h))",
        "segments per day: a lane is sealed T seconds after its first unsealed event",
    ),
    "N": Result("S / 86400", "requests per second"),
    "B": Result("S * (b_r + b_l + b_h) / 3 + max(0, E - 7 * S) * a", "bytes received per day"),
    "C_r": Result("N * k * w / 1000 / u", "cores for the receivers"),
    "R": Result("G / n", "receivers, if each gateway keeps its connection open"),
    "C_t": Result("G * t / 1000", "core seconds if all gateways connect at once"),
    "C_i": Result("(S * f / 1000 + E * e / 1000000) / 86400 / u", "cores for the ingest"),
    "L": Result("3 * G", "lanes in the landing"),
    "Z": Result("L * d / 1000", "seconds that an ingest takes to list a landing on a disk"),
    "I": Result("N * k / i", "ingests of two cores each for the busiest minute"),
    "F": Result("N * c", "files per batch"),
    "P": Result("E * p + S * q", "growth of the tables per day, bytes"),
    "V_t": Result("P * D", "size of the tables, bytes"),
    "V_a": Result("B * A", "size of the archive, bytes"),
    "V_f": Result("S * A", "files in the archive"),
    "M_c": Result("(C_r + C_i) * 730 * H", "cost per month: cores"),
    "M_s": Result("(V_t + V_a) / 1000000000 * Y", "cost per month: storage"),
    "M_q": Result(
        "2 * S * 30 * Q",
        "cost per month: requests, if each segment is landed and archived as an object",
    ),
}
"""The results, by symbol, in the order of computation."""

_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def estimate(**changes: float) -> dict[str, float]:
    """Compute all symbols; `changes` replace inputs."""
    values = {symbol: each.value for symbol, each in INPUTS.items()} | changes
    for symbol, result in RESULTS.items():
        values[symbol] = evaluate(result.formula, values)
    return values


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """Evaluate a formula of numbers, symbols, `+ - * /` and `max`; raises ValueError for anything
    else."""
    return _value(ast.parse(formula, mode="eval").body, values)


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id="max"), args=args):
            return max(_value(each, values) for each in args)
    raise ValueError(f"unsupported expression: {ast.dump(node)}")


def input_table() -> str:
    """Return the table of inputs."""
    rows = [
        (
            f"`{symbol}`",
            f"{each.value:,}",
            each.text,
            f"[{each.page}](../../benchmarks/results/{each.page}.md)" if each.page else "assumed",
        )
        for symbol, each in INPUTS.items()
    ]
    return table(("symbol", "value", "meaning", "source"), rows)


def result_table() -> str:
    """Return the table of results, for the default and for gateways that seal every hour."""
    now, hourly = estimate(), estimate(T=3_600)
    rows = [
        (
            f"`{symbol}`",
            result.text,
            f"`{result.formula}`",
            _short(now[symbol]),
            _short(hourly[symbol]),
        )
        for symbol, result in RESULTS.items()
    ]
    return table(("symbol", "meaning", "formula", "T = 300", "T = 3,600"), rows)


def _short(value: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{number(value / size)} {unit}"
    return number(value)


if __name__ == "__main__":
    print(input_table(), result_table(), sep="\n\n")
