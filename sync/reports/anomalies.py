"""Sensor anomalies: sensors whose values are unusual, or the same for too long.

A sensor is compared with its other hours, and with other sensors of its type (name and unit) at the
same time: a change of all of them, for example by the weather, is no anomaly of one. Usual values
are medians of all hours, which a few unusual hours do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sync.reports.shared import column
from sync.reports.shared.findings import Findings, Row
from sync.reports.shared.formats import ABSENT, decimal, plain, plural
from sync.reports.shared.frames import (
    INTEGER,
    REAL,
    TEXT,
    TIME,
    merged,
    numbered,
    of_each_gateway,
    schema,
    seconds,
    time_at,
)
from sync.reports.shared.readings import ROWS, SENSOR, readings
from sync.reports.shared.report import Problem, ProblemKind, Report, Series, Table
from sync.tables.partitions import coalesced, conform
from sync.tables.summaries import Summary

_BASIS: Final = {"hour": "same hour, other days", "all": "all hours", "type": "sensors of its type"}

TABLE: Final = Table(
    order=110,
    title="Sensor anomalies",
    about=(
        "Hours in which a sensor's median is far from its usual value at that hour of the day, or "
        "from other sensors of its type; the robust z says how far, in standard deviations. "
        "Flat lines are listed, too: the same value for too long, from a sensor that otherwise "
        "varies."
    ),
    columns=(
        column.text("gateway", "Gateway"),
        column.prose("source", "Device"),
        column.prose("sensor", "Sensor"),
        column.state(
            "state",
            "State",
            {"ok": "good", "flat": "wrong", "anomalous": "wrong"},
            {"anomalous": "unusual"},
        ),
        column.real("z", "Robust z", decimal),
        column.real("worst_value", "Value", decimal),
        column.real("usual", "Usual value", decimal),
        column.text("unit", "Unit"),
        column.time("worst_at", "Hour"),
        column.text("basis", "Compared with", _BASIS),
        column.number("anomalous_hours", "Unusual hours"),
        column.number("hours", "Hours"),
        column.time("flat_since", "Flat since"),
        column.time("flat_until", "Flat until"),
        column.number("flat_readings", "Flat readings"),
        column.real("flat_value", "Flat value", decimal),
        column.flag("constant", "Never varies"),
    ),
    empty="No sensor has sent a number.",
)
"""A sensor whose readings are numbers (`source` and `sensor` as in the report `sensors`).

`state`: `flat`, `anomalous` or `ok`. `constant`: all its readings of the last `WINDOW_D` days were
equal; such a sensor is never flat. The `flat_` columns describe its longest flat line, if it has
one: the first and the last reading of it, the number of readings, and the value. `hours` is the
number of hours with readings, `anomalous_hours` the number of them with an unusual median. The
worst of these began at `worst_at`; its median `worst_value` differs from the `usual` median by `z`
robust standard deviations. `basis` says where the usual median is from: `hour` (the sensor at that
hour of other days), `all` (the sensor at any hour) or `type` (sensors of the same name and unit in
that hour)."""

HOURS: Final = schema(
    gateway=TEXT,
    source=TEXT,
    sensor=TEXT,
    unit=TEXT,
    name=TEXT,
    hour=TIME,
    readings=INTEGER,
    total=REAL,
    low=REAL,
    high=REAL,
    median=REAL,
    first=TIME,
    last=TIME,
    head=REAL,
    head_readings=INTEGER,
    head_until=TIME,
    tail=REAL,
    tail_readings=INTEGER,
    tail_since=TIME,
)
"""A sensor and an hour (UTC, by the gateway's clock) with readings that are numbers: how many,
their sum, the lowest, the highest, the median, the first and the last.

The hour began with the value `head`, in `head_readings` readings up to `head_until`, and ended with
the value `tail`, since `tail_since`: flat lines of more than an hour are assembled from these.
Medians cannot be merged: if an hour has two rows, because retention has removed some of its
events, it counts as two hours."""

SERIES: Final = schema(
    gateway=TEXT, source=TEXT, sensor=TEXT, at=REAL, mean=REAL, low=REAL, high=REAL
)
"""The mean, lowest and highest reading of a sensor in the hour from `at` (seconds since 1970)."""

FLAT_READINGS: Final = 30
"""Minimum readings of a flat line: fewer may be equal by chance."""

FLAT_S: Final = 21_600.0
"""Minimum seconds of a flat line: on a calm night, readings can be equal for hours."""

VARIES: Final = 0.5
"""A flat line is compared with the sensor's other hours at the same times of day. It counts only if
the value varied in at least this fraction of them: a lamp, for example, often rests at night."""

MIN_COMPARED: Final = 6
"""Minimum number of hours that a flat line is compared with (see `VARIES`), to judge it."""

WINDOW_D: Final = 28
"""Number of latest days that are evaluated: usual values change with the season."""

UNUSUAL_Z: Final = 6.0
"""Robust standard deviations from the usual value beyond which the median of an hour is unusual. Of
a hundred thousand medians of mere noise, none is."""

SIGMA: Final = 1.4826
"""The ratio of the standard deviation of a normal distribution to its median absolute deviation."""

MEAN_SIGMA: Final = 1.2533
"""The ratio of the standard deviation of a normal distribution to its mean absolute deviation. It
is used if the median absolute deviation is zero, because more than half of the hours are equal."""

MIN_DAYS: Final = 4
"""Minimum number of days on which a sensor has readings at an hour of the day (such as 9 to 10
o'clock), to take their median as the sensor's usual value at that hour."""

MIN_HOURS: Final = 24
"""Minimum hours with readings that a sensor needs, to take their median as its usual value."""

MIN_PEERS: Final = 3
"""Minimum number of sensors of a type (name and unit) with readings in an hour, to determine by how
much they all differ from their usual values: this common difference is no anomaly of a sensor."""

MIN_TYPE: Final = 20
"""Minimum number of sensors of a type (name and unit) with readings in an hour, to take their
median as the usual value of those with too few hours of their own (`MIN_DAYS`, `MIN_HOURS`)."""

RARE: Final = 0.05
"""If more than this fraction of the sensors that are compared with their type (`MIN_TYPE`) are
unusual in an hour, none counts: they are another sort of sensor with the same name, such as
freezers among rooms."""

PLOTTED_SENSORS: Final = 12
"""Maximum number of plotted sensors of a gateway, the first by name: a page has no room for more.
"""

PLOTTED_S: Final = 7 * 86_400.0
"""Seconds that are plotted, up to the end of a gateway's last hour with readings."""

_UNIT: Final = (*SENSOR, "unit")

_FLAT: Final = ProblemKind("sensor_flat", 230, "notice", "the value of sensors does not change")
_UNUSUAL: Final = ProblemKind("sensor_anomaly", 240, "notice", "values of sensors are unusual")


def hours(events: DataFrame) -> DataFrame:
    """Compute the rows of `HOURS` for each `day`."""
    numbers = readings(events).where(F.col("value").isNotNull())
    timed = numbers.withColumns(
        {
            "hour": F.date_trunc("hour", "time"),
            "unit": F.coalesce("unit", F.lit("")),
            "name": F.coalesce("name", F.lit("")),
        }
    )
    by = ("day", *SENSOR, "unit", "name", "hour")
    order = Window.partitionBy(*by).orderBy("epoch", "seq")
    same = F.col("value") == F.lag("value").over(order)
    runs = numbered(timed, same, order, "run")
    ends = runs.withColumn("final", F.max("run").over(Window.partitionBy(*by)))
    begins, finishes = F.col("run") == 1, F.col("run") == F.col("final")
    return ends.groupBy(*by).agg(
        F.count(F.lit(1)).alias("readings"),
        F.sum("value").alias("total"),
        F.min("value").alias("low"),
        F.max("value").alias("high"),
        F.median("value").alias("median"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.any_value(F.when(begins, F.col("value")), ignoreNulls=True).alias("head"),
        F.count_if(begins).alias("head_readings"),
        F.max(F.when(begins, F.col("time"))).alias("head_until"),
        F.any_value(F.when(finishes, F.col("value")), ignoreNulls=True).alias("tail"),
        F.count_if(finishes).alias("tail_readings"),
        F.min(F.when(finishes, F.col("time"))).alias("tail_since"),
    )


def anomalies(hours: DataFrame) -> DataFrame:
    """Compute the rows of `TABLE` from rows of `HOURS`, flat and anomalous sensors first."""
    latest = F.lit(hours.agg(F.max("day")).collect()[0][0])
    recent = hours.where(F.col("day") > F.date_sub(latest, WINDOW_D))
    known = recent.groupBy(*_UNIT).agg(
        (F.min("low") == F.max("high")).alias("constant"), F.count(F.lit(1)).alias("hours")
    )
    rows = merged(_UNIT, known, _flat_lines(recent), unusual_hours(recent))
    unusual = F.coalesce("anomalous_hours", F.lit(0))
    flat = F.col("flat_since").isNotNull()
    state = F.when(flat, "flat").otherwise(F.when(unusual > 0, "anomalous").otherwise("ok"))
    judged = rows.withColumns(
        {
            "state": state,
            "anomalous_hours": unusual,
            "source": F.nullif("source", F.lit("")),
            "unit": F.nullif("unit", F.lit("")),
        }
    )
    order = (F.col("state") == "ok", F.col("state") == "anomalous", F.desc(F.abs("z")))
    shown = of_each_gateway(conform(judged, TABLE.schema), *order, *map(F.col, SENSOR))
    return shown.orderBy(*order, *SENSOR).limit(ROWS)


def _flat_lines(hours: DataFrame) -> DataFrame:
    lines = _constant_lines(hours).where(
        (F.col("readings") >= FLAT_READINGS) & (F.col("until") - F.col("since") >= FLAT_S)
    )
    order = Window.partitionBy(*_UNIT).orderBy("hour")
    varied = (F.col("low") < F.col("high")) | (F.col("head") != F.lag("tail").over(order))
    others = hours.select(*_UNIT, seconds("hour").alias("at"), varied.alias("varied"))
    day_hour = F.pmod(F.floor(F.col("at") / 3_600) - F.floor(F.col("since") / 3_600), F.lit(24))
    outside = (F.col("at") + 3_600 <= F.col("since")) | (F.col("at") > F.col("until"))
    same = day_hour * 3_600 <= F.col("until") - F.col("since")
    compared = coalesced(lines.join(others, on=[*_UNIT], how="inner")).where(outside & same)
    judged = compared.groupBy(*_UNIT, "since", "until", "readings", "value").agg(
        F.count("varied").alias("compared"), F.count_if("varied").alias("varied")
    )
    flat = judged.where(
        (F.col("compared") >= MIN_COMPARED) & (F.col("varied") >= F.col("compared") * VARIES)
    )
    longest = F.struct(F.col("until") - F.col("since"), "since", "until", "readings", "value")
    worst = flat.groupBy(*_UNIT).agg(F.max(longest).alias("it"))
    return worst.select(
        *_UNIT,
        time_at("it.since").alias("flat_since"),
        time_at("it.until").alias("flat_until"),
        F.col("it.readings").alias("flat_readings"),
        F.col("it.value").alias("flat_value"),
    )


def _constant_lines(hours: DataFrame) -> DataFrame:
    """Assemble lines (consecutive readings of one value) from the heads and tails of hours.

    An hour with only one value is a head without a tail.
    """

    def part(place: int, name: str, since: str, until: str) -> Column:
        return F.struct(
            F.lit(place).alias("place"),
            F.col(name).alias("value"),
            F.col(f"{name}_readings").alias("readings"),
            seconds(since).alias("since"),
            seconds(until).alias("until"),
        )

    head = part(0, "head", "first", "head_until")
    tail = part(1, "tail", "tail_since", "last")
    constant = F.col("low") == F.col("high")
    parts = F.when(constant, F.array(head)).otherwise(F.array(head, tail))
    each = hours.select(*_UNIT, "hour", F.inline(parts))
    order = Window.partitionBy(*_UNIT).orderBy("hour", "place")
    continues = (F.col("place") == 0) & (F.col("value") == F.lag("value").over(order))
    lines = numbered(each, continues, order, "line")
    return lines.groupBy(*_UNIT, "line").agg(
        F.any_value("value").alias("value"),
        F.sum("readings").alias("readings"),
        F.min("since").alias("since"),
        F.max("until").alias("until"),
    )


def unusual_hours(hours: DataFrame) -> DataFrame:
    """Count the unusual hours of each sensor that has any, and describe the worst of them."""
    judged = _judged(_compared(hours))
    unusual = judged.where(F.abs("z") > UNUSUAL_Z)
    worst = F.struct(F.abs("z").alias("size"), "hour", "median", "usual", "z", "basis")
    counted = unusual.groupBy(*_UNIT).agg(
        F.count(F.lit(1)).alias("anomalous_hours"), F.max(worst).alias("it")
    )
    return counted.select(
        *_UNIT,
        "anomalous_hours",
        F.col("it.hour").alias("worst_at"),
        F.col("it.median").alias("worst_value"),
        F.round("it.usual", 6).alias("usual"),
        F.round("it.z", 1).alias("z"),
        F.col("it.basis").alias("basis"),
    )


def _compared(hours: DataFrame) -> DataFrame:
    """Add the `usual` value of each hour, its `basis`, and the differences `raw` and `off`.

    `raw` is the hour's median minus `usual`. `off` is `raw` minus the median `raw` of the type's
    sensors in that hour, or `raw` if there are fewer than `MIN_PEERS` or `basis` is `type`. Hours
    without a basis are left out.
    """
    own, at_hour = Window.partitionBy(*_UNIT), Window.partitionBy(*_UNIT, F.hour("hour"))
    peers = Window.partitionBy("name", "unit", "hour")
    basis = (
        F.when(F.count("median").over(at_hour) >= MIN_DAYS, "hour")
        .when(F.count("median").over(own) >= MIN_HOURS, "all")
        .otherwise(F.when(F.count("median").over(peers) >= MIN_TYPE, "type"))
    )
    usual = (
        F.when(F.col("basis") == "hour", F.median("median").over(at_hour))
        .when(F.col("basis") == "all", F.median("median").over(own))
        .otherwise(F.median("median").over(peers))
    )
    based = hours.withColumn("basis", basis).where(F.col("basis").isNotNull())
    raw = based.withColumn("usual", usual).withColumn("raw", F.col("median") - F.col("usual"))
    of_own = F.when(F.col("basis") != "type", F.col("raw"))
    enough = F.count(of_own).over(peers) >= MIN_PEERS
    common = F.when(of_own.isNotNull() & enough, F.median(of_own).over(peers)).otherwise(0.0)
    return raw.withColumn("off", F.col("raw") - common)


def _judged(compared: DataFrame) -> DataFrame:
    """Add `z`, the difference of each hour from the usual value, in robust standard deviations.

    `z` is computed from `raw` and from `off`, and the value closer to zero is taken: an hour is not
    unusual if all sensors of the type changed alike, or if the sensor kept its own usual value. `z`
    is zero if the difference is within the usual range of readings in an hour, or is not `RARE`.
    """
    own = Window.partitionBy(*_UNIT)
    peers = Window.partitionBy("name", "unit", "hour", F.col("basis") == "type")
    rise = F.col("median") - F.lag("median").over(own.orderBy("median"))
    steps = compared.withColumn("rise", rise).withColumns(
        {
            "step": F.min(F.when(F.col("rise") > 0, F.col("rise"))).over(own),
            "spread": F.median(F.col("high") - F.col("low")).over(own),
        }
    )
    raw, off = _z("raw"), _z("off")
    closer = F.when(F.abs(raw) < F.abs(off), raw).otherwise(off)
    beyond = F.least(F.abs("raw"), F.abs("off")) > F.col("spread")
    known = steps.withColumn("z", F.when(beyond, closer).otherwise(0.0))
    share = F.avg(F.when(F.abs("z") > UNUSUAL_Z, 1.0).otherwise(0.0)).over(peers)
    rare = (F.col("basis") != "type") | (share <= RARE)
    return known.withColumn("z", F.when(rare, F.col("z")).otherwise(0.0))


def _z(column: str) -> Column:
    """Return the difference in a column (`raw` or `off`) as a number of robust standard deviations.

    Unless `basis` is `type`, the standard deviation is taken to be at least `step`, the smallest
    difference between two of the sensor's medians, because that is the sensor's resolution.
    """
    own, at_hour = Window.partitionBy(*_UNIT), Window.partitionBy(*_UNIT, F.hour("hour"))
    peers = Window.partitionBy("name", "unit", "hour", F.col("basis") == "type")
    size = F.abs(column)
    middle = F.median(size).over(own)
    always = F.when(middle > 0, middle * SIGMA).otherwise(F.avg(size).over(own) * MEAN_SIGMA)
    by_hour = F.when(F.col("basis") == "hour", F.median(size).over(at_hour) * SIGMA)
    of_type = F.median(size).over(peers) * SIGMA
    own_scale = F.greatest(by_hour, always, F.col("step"))
    scale = F.when(F.col("basis") == "type", of_type).otherwise(own_scale)
    return F.when(scale > 0, F.col(column) / scale).otherwise(0.0)


def sensor_series(hours: DataFrame) -> DataFrame:
    """Compute the rows of `SERIES` from `HOURS`, limited by `PLOTTED_SENSORS` and `PLOTTED_S`."""
    of_gateway = Window.partitionBy("gateway")
    placed = hours.withColumns(
        {
            "at": seconds("hour"),
            "place": F.dense_rank().over(of_gateway.orderBy("source", "sensor")),
        }
    ).withColumn("end", F.max("at").over(of_gateway))
    recent = F.col("end") - F.col("at") < PLOTTED_S
    chosen = placed.where((F.col("place") <= PLOTTED_SENSORS) & recent)
    rows = chosen.groupBy("gateway", "source", "sensor", "at").agg(
        (F.sum("total") / F.sum("readings")).alias("mean"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
    )
    named = rows.withColumn("source", F.nullif("source", F.lit("")))
    return conform(named, SERIES).orderBy("gateway", "source", "sensor", "at")


def problems(findings: Findings) -> Iterator[Problem]:
    """Find sensors with a flat line or with unusual values."""
    for row in findings["anomalies"]:
        place = f"{plain(row['source'])}, {row['sensor']}"
        if row["state"] == "flat":
            yield _FLAT.of(
                row["gateway"],
                f"The value is {_value(row, 'flat_value')} since "
                f"{findings.moment(row['flat_since'])}, in "
                f"{plural(row['flat_readings'], 'reading')}.",
                "Check the sensor and its wiring: it sends readings, but its value does not "
                "change.",
                place,
            )
        if row["state"] == "anomalous":
            yield _UNUSUAL.of(
                row["gateway"],
                f"The value is {_value(row, 'worst_value')} in the hour from "
                f"{findings.moment(row['worst_at'])}; the usual value is {_value(row, 'usual')} "
                f"(robust z {decimal(row['z'])}).",
                "Check whether the measured value is real. If it is not, calibrate or replace the "
                "sensor.",
                place,
            )


def _value(row: Row, name: str) -> str:
    written = decimal(row[name])
    return written if written == ABSENT or not row["unit"] else f"{written} {row['unit']}"


DAILY: Final = Summary("anomalies", 1, HOURS, hours)

REPORT: Final = Report(
    "anomalies",
    (DAILY,),
    lambda context: anomalies(context.daily(DAILY)),
    TABLE,
    series=(
        Series(
            "sensor_series", (DAILY,), lambda context: sensor_series(context.daily(DAILY)), None
        ),
    ),
    problem_kinds=(_FLAT, _UNUSUAL),
    problems=problems,
)
