from __future__ import annotations

import re

import pytest

from edge.config.limits import Limits
from edge.engine.limits import usage
from edge.engine.store.tables import declared
from edge.features.eventlog import tables as eventlog
from tests.helpers import waiting
from tests.helpers.store import Gateway

WITH_BODIES = {"offline": "o", "held": "held", "segments": "segments"}
"""Tables whose scan would read all bodies, and their aliases in the queries."""


LARGEST = [sql for tables in declared() for sql in tables.largest.values()]
SEGMENTS = [*eventlog.TABLES.totals.values(), *eventlog.TABLES.waiting.values()]


@pytest.mark.parametrize("sql", [*LARGEST, *SEGMENTS])
def test_rows_with_bodies_are_read_through_an_index(gateway: Gateway, sql: str) -> None:
    plan = [row[3] for row in gateway.connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    names = {*WITH_BODIES, *WITH_BODIES.values()}
    steps = [step for step in plan if (match := re.match(r"(?:SCAN|SEARCH) (\w+)", step))
             and match[1] in names]  # fmt: skip
    assert all("INDEX" in step for step in steps), plan


def test_each_query_is_for_an_existing_limit_of_one_feature(gateway: Gateway) -> None:
    limits = gateway.tx(usage.limits)
    queries = [names for tables in declared() for names in (*tables.totals, *tables.largest)]
    named = [name for names in queries for name in names]
    assert limits.keys() == set(named) <= set(Limits.__struct_fields__)
    assert len(set(named)) == len(named)
    assert {used.value for used in limits.values()} == {0}


def test_messages_of_a_removed_device_count_only_in_the_total(gateway: Gateway) -> None:
    gateway.add("valve")
    gateway.tx(lambda tx: waiting.queue(tx, "pump1@gw.example", "m1", "valve", 70))
    assert gateway.tx(usage.limits)["outbox_bytes_per_account"] == (70, "valve")
    gateway.connection.execute("DELETE FROM accounts")
    limits = gateway.tx(usage.limits)
    assert limits["outbox_bytes_per_account"] == (0, None)
    assert limits["outbox_bytes"] == (70, None)
