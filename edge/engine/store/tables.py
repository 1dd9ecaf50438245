"""The declarations of temporary tables and of queries for operators, by the engine and features.

A feature declares its temporary tables, and the queries about its rows that operators need, in
`edge/features/NAME/tables.py` as `TABLES`. Such a module imports this one alone, so that a command
reads all declarations without importing the features. Lasting tables are in `migrations`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple


class Tables(NamedTuple):
    """The temporary tables of a feature, and its queries for operators (`usage`).

    A query reads no more rows than the limits of its table allow, and no large bodies. The handling
    of messages uses cheaper queries.

    Attributes:
        temporary: statements that create the temporary tables. These are of one connection, and end
            with the process: commands beside the gateway do not see the gateway's rows.
        totals: the query for the usage of one or two options of `[limits]`: one row, with the value
            of each option.
        largest: the query for the usage of one or two options that limit each source, account or
            lane; its rows are (owner, value of each option).
        waiting: queries for numbers of waiting rows, by the name of the number in the status.
        waiting_by_account: queries for numbers of waiting messages; the rows are (account, number).
        by_session: the query for the numbers of messages for sessions; the rows are (full address,
            number of those that only this session may receive and that were not sent, number of
            those that were sent to it and are not finished).
        latest: the query for the service second of the newest row, if rows are written so often
            that it can be later than the saved one.
    """

    temporary: str = ""
    totals: Mapping[tuple[str, ...], str] = {}
    largest: Mapping[tuple[str, ...], str] = {}
    waiting: Mapping[str, str] = {}
    waiting_by_account: Mapping[str, str] = {}
    by_session: str = ""
    latest: str = ""


ENGINE: Final = Tables(
    temporary="""
CREATE TEMPORARY TABLE sessions (
    generation INTEGER PRIMARY KEY,
    full TEXT NOT NULL UNIQUE,
    bare TEXT NOT NULL,
    account TEXT NOT NULL,
    grant INTEGER, -- the account's grant at log-in; NULL if the log-in was to another server
    detached INTEGER NOT NULL DEFAULT 0, -- lost its connection and can be resumed
    available INTEGER NOT NULL DEFAULT 0,
    accepts INTEGER NOT NULL DEFAULT 0, -- messages for its account
    rank INTEGER NOT NULL DEFAULT 0, -- among the account's sessions
    gets_items INTEGER NOT NULL DEFAULT 1, -- of nodes and queues
    qos TEXT, -- its protocol's name of the supported quality of service; '' for none
    adopts INTEGER NOT NULL, -- custody of earlier sessions of its account
    resends INTEGER NOT NULL, -- what was not answered in time
    ordered INTEGER NOT NULL, -- releases in the order of the answers
    window INTEGER, -- maximum messages that were sent to it and are not finished
    ids INTEGER, -- number of its ids for these messages
    relays INTEGER NOT NULL, -- gets what other sessions send to its address
    protocol TEXT NOT NULL, -- in the event log; '' for XMPP
    version TEXT NOT NULL, -- of the protocol; '' if it has only one
    transport TEXT NOT NULL, -- of the protocol, if it is not TCP
    since REAL NOT NULL -- service seconds: when it was bound
) STRICT;
CREATE INDEX temp.sessions_by_bare ON sessions (bare);
CREATE TEMPORARY TABLE in_flight (
    kind TEXT NOT NULL,
    id INTEGER NOT NULL, -- of a row whose message was sent to the session
    generation INTEGER NOT NULL,
    PRIMARY KEY (generation, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX temp.in_flight_by_row ON in_flight (kind, id);
CREATE TEMPORARY TABLE folded (
    kind TEXT NOT NULL, -- of the event
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    topic TEXT NOT NULL,
    tags TEXT NOT NULL, -- a JSON object
    count INTEGER NOT NULL, -- occurrences since the last log
    last REAL NOT NULL, -- service seconds
    due REAL NOT NULL, -- service seconds from which it may be logged
    PRIMARY KEY (kind, name, source, topic, tags)
) STRICT;
CREATE TEMPORARY TABLE fullness (
    one INTEGER PRIMARY KEY CHECK (one = 1), -- the database has no room for new messages
    since REAL NOT NULL -- service seconds
) STRICT;
""",
    totals={
        ("refusal_sources",): "SELECT count(*) FROM refusals",
        ("durable_sessions",): "SELECT count(*) FROM durable_sessions WHERE seconds > 0",
    },
    largest={
        ("unsealed_events",): "SELECT lane, last - sealed FROM lane_counters",
        ("durable_sessions_per_account",): """
SELECT a.name, count(*) FROM durable_sessions AS d JOIN accounts AS a ON a.id = d.account
WHERE d.seconds > 0 GROUP BY d.account
""",
    },
    waiting={"events_unsealed": "SELECT sum(last - sealed) FROM lane_counters"},
    latest="""
SELECT max((
    SELECT b.since FROM event_batches AS b WHERE b.lane = l.lane ORDER BY b.last DESC LIMIT 1
)) FROM lanes AS l
""",
)


@cache
def declared() -> tuple[Tables, ...]:
    """Return the declarations of the engine and of all features, by the names of the features."""
    package = import_module("edge.features")
    features = (found for found in pkgutil.iter_modules(package.__path__) if found.ispkg)
    names = sorted(f"{package.__name__}.{found.name}.tables" for found in features)
    return (ENGINE, *(import_module(name).TABLES for name in names if find_spec(name)))


@cache
def temporary() -> str:
    """Return the statements that create all temporary tables."""
    return "".join(tables.temporary for tables in declared())
