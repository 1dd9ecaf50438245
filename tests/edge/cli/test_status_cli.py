from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge import __version__
from edge.build_kind import build_kind
from edge.config.limits import Limits
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES
from edge.engine.limits import source_usage
from edge.engine.log import refusals
from edge.engine.store import database, events, meta
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.accounts.store import accounts
from edge.features.presence.store import roster
from edge.features.presence.store.roster import RosterItem
from edge.features.pubsub.store import items
from edge.features.queues.store import queue_items
from edge.features.wills import store as wills
from edge.features.wills.store import Will
from edge.ops.gateway import control
from edge.ops.gateway.control import FrontStatus, ProcessStatus
from edge.ops.gateway.status import PROCESS_LIMITS
from tests.helpers import waiting
from tests.helpers.folder import change, configure, fieldpost

PUMP = "pump1@gw.example"
VALVE = "valve@gw.example"

NOT_COUNTED = {
    *("node_bytes", "last_items", "queue_requests", "commands", "command_time"),
    *("authenticate_failures", "authenticate_again", "authenticate_delay", "authenticate_time"),
    *("stranger_stanza_bytes", "stanza_bytes", "stanza_depth", "stanza_elements"),
    *("stanza_attributes", "stanzas_per_second", "stanzas_at_once", "bytes_per_second"),
    *("bytes_at_once", "stalled_time"),
    *("resume_time", "durable_session_time", "presence_bytes"),
    *("directed_presences", "offline_ttl", "held_ttl", "held_grace", "msgid_bytes"),
    *("outbox_ttl", "outbox_window", "retry_after", "retry_most", "retry_attempts"),
    *("capabilities", "refusal_window", "database_reserve"),
}
"""Limits whose use `fieldpost status` does not show, because they have no total: times, rates,
sizes of one stanza, and counts within one session."""


def status(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(fieldpost(folder, "status", "--json").stdout)
    return report


def used(folder: Path) -> dict[str, Any]:
    """Return the use of each limit, with its source if the limit is per source."""
    limits = status(folder)["limits"]
    return {
        name: (limit["used"], limit["of"]) if "of" in limit else limit["used"]
        for name, limit in limits.items()
        if "used" in limit
    }


def fill(tx: Transaction) -> None:
    """Store messages, items and events, most of them from pump1."""
    for name in ("pump1", "valve"):
        accounts.add(tx, name, (), trusted=True)
    for number in range(3):
        waiting.hold(tx, PUMP, f"g{number}", 100)
    waiting.hold(tx, VALVE, "v", 1000, "pump1")
    for number in range(2):
        waiting.queue(tx, PUMP, f"q{number}", "valve", 50)
    waiting.queue(tx, VALVE, "q", "pump1", 20)
    for _ in range(4):
        waiting.store(tx, PUMP, "valve", 10)
    waiting.store(tx, VALVE, "pump1", 500)
    waiting.add_dead_letter(tx, body=b"x" * 30)
    waiting.add_dead_letter(tx, state="in doubt", body=b"x" * 12)
    waiting.add_released_keys(tx, PUMP, latest=2, page=32)
    waiting.release(tx, PUMP, "1")
    waiting.release(tx, VALVE, "1")
    owner = roster.account_id(tx, "pump1")
    assert owner is not None
    for jid in (VALVE, "panel@gw.example"):
        roster.save(tx, owner, RosterItem(jid, listed=True))
    roster.save(tx, owner, RosterItem("untrusted@gw.example"))
    for full, name in ((PUMP, "pump1"), (f"{PUMP}/b", "pump1"), (VALVE, "valve")):
        tx.run(_DURABLE_SESSION, (full, name))
    wills.put(tx, "pump1", PUMP, Will("t", b"lost", NO_ATTRIBUTES))
    refusals.count(tx, Limits(), PUMP, "rate", 5)
    for _ in range(6):
        events.append(tx, events.READINGS, NewEvent("reading"))
    for state, size in (("waiting", 70), ("waiting", 7), ("acknowledged", 5)):
        tx.run(_SEGMENT, (size, state, size))
    meta.write(tx, meta.SERVICE, 4321.5)
    publish_and_subscribe(tx)


def publish_and_subscribe(tx: Transaction) -> None:
    """Create two nodes of pump1 with items, one of the valve, a queue and a shared subscription."""
    for name, owner in (("a", PUMP), ("b", PUMP), ("work", VALVE)):
        tx.run("INSERT INTO nodes (name, owner, config) VALUES (?, ?, '{}')", (name, owner))
    for node, jid in ((1, PUMP), (1, VALVE), (2, PUMP)):
        tx.run("INSERT INTO affiliations VALUES (?, ?, 'owner')", (node, jid))
    for node, item, size in ((1, "x", 9), (1, "y", 1), (2, "x", 40)):
        items.put(tx, node, item, PUMP, b"", size)
    tx.run("INSERT INTO queues (node) VALUES (3)")
    tx.run("INSERT INTO queues (share, filter, owner) VALUES ('pool', 'a/#', ?)", (VALVE,))
    members = (("pump1", 1, None, None), ("pump1", None, "#", None), ("valve", 3, None, 1))
    for name, *target in members:
        tx.run(_SUBSCRIPTION, (f"{name}{target[0]}", f"{name}@gw.example", *target, name))
    for queue, state, size in ((1, "ready", 5), (1, "dead", 6), (2, "locked", 70)):
        tx.run(_QUEUE_ITEM, (queue, PUMP, state, size))
        source_usage.count_new(tx, queue_items._COUNT_NEW, [(queue, PUMP, 1, size)])
    tx.run(_NOTIFICATION, (f"{VALVE}/fw", "valve"))


_DURABLE_SESSION = """
INSERT INTO durable_sessions (full, account, seconds)
SELECT ?, id, 60.0 FROM accounts WHERE name = ?
"""
_SUBSCRIPTION = """
INSERT INTO subscriptions (subid, account, jid, node, filter, queue)
SELECT ?, id, ?, ?, ?, ? FROM accounts WHERE name = ?
"""
_QUEUE_ITEM = """
INSERT INTO queue_items (queue, node, item, publisher, state, wall, since, bytes)
VALUES (?, 'work', 'i', ?, ?, 0, 0.0, ?)
"""
_NOTIFICATION = """
INSERT INTO notifications (account, jid, since, bytes, stanza)
SELECT id, ?, 0.0, 1, x'' FROM accounts WHERE name = ?
"""
_SEGMENT = """
INSERT INTO segments (epoch, lane, first, last, digest, state, bytes, data)
VALUES ('e', 'logs', ?1, 1, CAST(?1 AS BLOB), ?2, ?3, x'')
"""


def test_every_limit_is_shown_with_its_value(folder: Path) -> None:
    configure(folder, "limits", sessions=999)
    limits = status(folder)["limits"]
    assert {name: limit["allowed"] for name, limit in limits.items()} == {
        **msgspec.to_builtins(Limits()),
        "sessions": 999,
    }
    assert limits["held_ttl"] == {"allowed": 604800.0, "unit": "seconds of service"}
    table = fieldpost(folder, "status").stdout.split("\n\n")[2].splitlines()
    assert list(limits) == list(Limits.__struct_fields__)
    for name, limit in limits.items():
        (row,) = [line.split() for line in table if line.split()[:1] == [name]]
        figures = row[1 : 3 if "used" in limit else 2]
        assert figures[-1] == f"{limit['allowed']:g}" or figures[-1] == str(limit["allowed"])
        if "used" in limit:
            assert figures[0] == ("-" if limit["used"] is None else str(limit["used"]))


def test_fronts_are_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(folder)["fronts"] == []
    assert "front" not in fieldpost(folder, "status").stdout
    fronts = [
        FrontStatus(number=1, pid=41, restarts=0, connections=7, confined=True),
        FrontStatus(number=2, pid=42, restarts=1, connections=1, confined=False),
        FrontStatus(number=3, pid=None, restarts=2, connections=0, confined=True),
    ]
    running = ProcessStatus(
        version="1", boot="b", service=1.0, uptime=1.0, synchronised=True, used={},
        limits=msgspec.to_builtins(Limits()), fronts=fronts,
    )  # fmt: skip
    monkeypatch.setattr(control, "process_status", lambda _folder: running)
    found = status(folder)
    assert found["fronts"] == msgspec.to_builtins(fronts)
    assert found["health"] == "degraded"
    lines = fieldpost(folder, "status").stdout.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if re.match(r"front \d", line)] == [
        "7 connections; 0 restarts; pid 41",
        "1 connection; 1 restart; pid 42; not confined",
        "not running; 2 restarts",
    ]


def test_use_is_shown_for_every_counted_limit(folder: Path) -> None:
    limits = status(folder)["limits"]
    uncounted = {name for name, limit in limits.items() if "used" not in limit}
    assert uncounted == NOT_COUNTED, (
        "a limit of rows needs its query in `tables.py` of its feature; one that the"
        " process counts belongs in PROCESS_LIMITS of edge/ops/gateway/status.py; others in"
        " NOT_COUNTED"
    )
    unknown = {name for name, limit in limits.items() if limit.get("used", 0) is None}
    assert unknown == PROCESS_LIMITS


def test_new_gateway_uses_nothing(folder: Path) -> None:
    counts = used(folder)
    for name in ("database_bytes", "wal_bytes", *PROCESS_LIMITS):
        counts.pop(name)
    assert set(counts.values()) == {0}


def test_source_that_uses_most_is_named(folder: Path) -> None:
    change(folder, fill)
    counts = used(folder)
    assert 0 < counts.pop("database_bytes") < 1024 * 1024
    assert counts.pop("wal_bytes") == 0
    assert {name: counts.pop(name) for name in PROCESS_LIMITS} == dict.fromkeys(PROCESS_LIMITS)
    assert counts == {
        "durable_sessions": 3,
        "durable_sessions_per_account": (2, "pump1"),
        "will_bytes": 149,
        "will_bytes_per_account": (149, "pump1"),
        "held_messages": 4,
        "held_bytes": 1300,
        "held_messages_per_source": (3, PUMP),
        "held_bytes_per_source": (1000, VALVE),
        "outbox_messages": 3,
        "outbox_bytes": 120,
        "outbox_messages_per_account": (2, "pump1"),
        "outbox_bytes_per_account": (1020, "pump1"),
        "outbox_messages_per_source": (2, PUMP),
        "outbox_bytes_per_source": (100, PUMP),
        "offline_total_messages": 5,
        "offline_total_bytes": 540,
        "offline_messages": (4, "valve"),
        "offline_bytes": (500, "pump1"),
        "offline_messages_per_source": (4, PUMP),
        "offline_bytes_per_source": (500, VALVE),
        "dead_messages": 2,
        "dead_bytes": 42,
        "released_keys": (35, PUMP),
        "roster_items": (2, "pump1"),
        "refusal_sources": 1,
        "unsealed_events": (6, "readings"),
        "backlog_bytes": 77,
        "recent_bytes": 5,
        "nodes": 3,
        "nodes_per_account": (2, PUMP),
        "affiliations": (2, "a"),
        "subscriptions": 3,
        "subscriptions_per_account": (2, "pump1"),
        "items": 3,
        "items_bytes": 50,
        "items_per_source": (3, PUMP),
        "items_bytes_per_source": (50, PUMP),
        "items_per_node": (2, "a"),
        "queue_items": 3,
        "queue_bytes": 81,
        "queue_items_per_source": (2, PUMP),
        "queue_bytes_per_source": (70, VALVE),
        "items_per_queue": (2, "work"),
        "queue_bytes_per_queue": (70, "$share:pool:a/#"),
        "notifications_per_account": (1, "valve"),
    }


def test_waiting_objects_and_unknown_values(folder: Path) -> None:
    change(folder, fill)
    report = status(folder)
    assert report["waiting"] == {
        "held": 4,
        "outbox": 3,
        "offline": 5,
        "dead": 2,
        "in_doubt": 1,
        "events_unsealed": 7,  # a refusal is logged at once
        "segments": 2,
        "queued": 3,
        "queued_dead": 1,
    }
    unknown = dict.fromkeys(("trouble", "boot", "uptime", "synchronised", "sessions", "paused"))
    assert report.items() >= {
        **unknown, "gateway": "gw.example", "state": "not running", "changed": False,
        "version": __version__, "service": 4321.5,
        "database_bytes": (folder / database.FILE_NAME).stat().st_size,
    }.items()  # fmt: skip
    lines = fieldpost(folder, "status").stdout.splitlines()
    assert lines[0] == f"gw.example: not running, fieldpost {__version__} ({build_kind()})"
    assert set(lines) >= {
        "uptime    -",
        "service   1 h 12 min",
        f"epoch     {report['epoch']}",
        "held      4 messages awaiting the sender's `deliver`",
        "dead      2 dead letters, 1 in doubt",
        "queued    3 items in queues, 1 dead",
        "WAL       0 bytes",
    }


def test_source_cannot_control_the_terminal(folder: Path) -> None:
    change(folder, lambda tx: waiting.hold(tx, "\x1b[2J@users.example", "1"))
    assert "\x1b" not in fieldpost(folder, "status").stdout


@pytest.mark.parametrize(
    ("version", "text"),
    [(2, "has an older version; start the gateway to migrate it"), (9999, "schema version 9999")],
)
def test_database_of_another_version_is_refused(folder: Path, version: int, text: str) -> None:
    change(folder, lambda tx: tx.run(f"PRAGMA user_version = {version}"))
    for command in (("status",), ("device", "list")):
        result = fieldpost(folder, *command)
        assert result.exit_code == 1
        assert text in result.stderr
