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


class Given(NamedTuple):
    """An input: its value, meaning and unit, and the page of its measurement.

    `page` is empty if the value is assumed.
    """

    value: float
    text: str
    page: str = ""


class Derived(NamedTuple):
    """A result of a formula over the symbols before it."""

    formula: str
    text: str


GIVEN: Final[dict[str, Given]] = {
    "G": Given(100_000, "gateways"),
    "r": Given(4_000, "readings of a gateway in a day"),
    "l": Given(240, "logs of a gateway in a day"),
    "h": Given(1_440, "heartbeats of a gateway in a day (one a minute, the default)"),
    "T": Given(300, "seconds from an event until its lane is sealed (`segment_age`, its default)"),
    "k": Given(3, "the busiest minute, as a multiple of the mean"),
    "u": Given(0.5, "share of a core that is to be busy"),
    "c": Given(60, "seconds from one batch of the ingest to the next"),
    "D": Given(90, "days for which events stay in the tables"),
    "A": Given(30, "days for which segments stay in the archive"),
    "n": Given(1_024, "connections of a receiver (its limit, `ReceiverLimits.connections`)"),
    "H": Given(0.04, "money for an hour of a core"),
    "Y": Given(0.023, "money for a GB of object storage in a month"),
    "Q": Given(5e-6, "money for a request that writes an object"),
    "b_r": Given(806, "bytes of a file of 14 readings", "segments"),
    "b_l": Given(597, "bytes of a file of 2 logs", "segments"),
    "b_h": Given(448, "bytes of a file of 5 heartbeats", "segments"),
    "a": Given(8.0, "bytes that a further event adds to a file", "segments"),
    "w": Given(3.46, "receiver: processor time of a segment, ms", "landing"),
    "t": Given(1.69, "receiver: processor time of a new connection, ms", "landing"),
    "f": Given(2.59, "ingest: processor time of a small segment, ms", "ingest"),
    "e": Given(
        1.9, "ingest: processor time of a further event, us (7.08 at 500, less `f`)", "ingest"
    ),
    "d": Given(1.43, "ingest: time of a folder in the landing, in each batch, ms", "ingest"),
    "p": Given(8.1, "bytes of an event in the tables", "ingest"),
    "q": Given(132, "bytes of a segment in the ledger", "ingest"),
}
"""The inputs, by symbol."""

DERIVED: Final[dict[str, Derived]] = {
    "E": Derived("G * (r + l + h)", "events in a day"),
    "S": Derived(
        "G * (86400 / (T + 86400 / r) + 86400 / (T + 86400 / l) + 86400 / (T + 86400 / h))",
        "segments in a day: a lane is sealed T after the first event since it last was",
    ),
    "N": Derived("S / 86400", "requests in a second"),
    "B": Derived("S * (b_r + b_l + b_h) / 3 + max(0, E - 7 * S) * a", "bytes received in a day"),
    "C_r": Derived("N * k * w / 1000 / u", "cores of receivers"),
    "R": Derived("G / n", "receivers, where each gateway keeps its connection"),
    "C_t": Derived("G * t / 1000", "core seconds when all gateways connect at once"),
    "C_i": Derived("(S * f / 1000 + E * e / 1000000) / 86400 / u", "cores of the ingest"),
    "L": Derived("3 * G", "folders in the landing"),
    "Z": Derived("L * d / 1000", "seconds for which a batch looks through the landing"),
    "F": Derived("N * c", "files in a batch"),
    "P": Derived("E * p + S * q", "bytes that the tables grow by in a day"),
    "V_t": Derived("P * D", "bytes of tables"),
    "V_a": Derived("B * A", "bytes of archive"),
    "V_f": Derived("S * A", "files of archive"),
    "M_c": Derived("(C_r + C_i) * 730 * H", "money a month: cores"),
    "M_s": Derived("(V_t + V_a) / 1000000000 * Y", "money a month: storage"),
    "M_q": Derived(
        "2 * S * 30 * Q", "money a month: each segment landed and archived as an object"
    ),
}
"""The results, by symbol, in the order of computation."""

_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def reckon(**changes: float) -> dict[str, float]:
    """Compute all symbols; `changes` replace inputs."""
    values = {symbol: given.value for symbol, given in GIVEN.items()} | changes
    for symbol, derived in DERIVED.items():
        values[symbol] = work_out(derived.formula, values)
    return values


def work_out(formula: str, values: Mapping[str, float]) -> float:
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
    raise ValueError(ast.dump(node))


def given_table() -> str:
    """Return the table of inputs."""
    rows = [
        (
            f"`{symbol}`",
            f"{given.value:,}",
            given.text,
            f"[{given.page}](../../benchmarks/results/{given.page}.md)"
            if given.page
            else "assumed",
        )
        for symbol, given in GIVEN.items()
    ]
    return table(("symbol", "value", "what", "from"), rows)


def derived_table() -> str:
    """Return the table of results, for the default and for gateways that seal every hour."""
    now, hourly = reckon(), reckon(T=3_600)
    rows = [
        (
            f"`{symbol}`",
            derived.text,
            f"`{derived.formula}`",
            _short(now[symbol]),
            _short(hourly[symbol]),
        )
        for symbol, derived in DERIVED.items()
    ]
    return table(("symbol", "what", "formula", "T = 300", "T = 3,600"), rows)


def _short(value: float) -> str:
    """Format a large number with its unit."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{number(value / size)} {unit}"
    return number(value)


if __name__ == "__main__":
    print(given_table(), derived_table(), sep="\n\n")
