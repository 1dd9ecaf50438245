from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from sync.reports import sessions
from tests.helpers.small_tables import at, checked_rows, event, events

pytestmark = pytest.mark.spark

MQTT = {"protocol": "mqtt", "version": "5.0"}
WEBSOCKET = {**MQTT, "transport": "websocket"}


def session(name: str, source: str | None = "pump1@gw", **columns: Any) -> dict[str, Any]:
    return event(lane="system", kind="session", name=name, source=source, **columns)


def report(spark: SparkSession, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    daily = sessions.DAILY.compute(events(spark, rows))
    return checked_rows(sessions.sessions(daily), sessions.TABLE.schema)


def test_sessions_are_counted_by_protocol_and_version(spark: SparkSession) -> None:
    old = {**MQTT, "version": "3.1.1"}
    assert report(
        spark,
        session("began", value=2.0, time=at(5), tags={"ago_s": "1"}),
        session("began", "pump2@gw", time=at(3), tags={}),
        session("ended", "pump2@gw", value=7.0, time=at(86_400), tags={"reason": "closed"}),
        session("began", "cam1@gw", value=3.0, tags=MQTT),
        session("began", "cam1@gw", value=4.0, time=at(86_400), tags=MQTT),
        session("began", "cam1@gw", tags=old),
        session("began", "cam1@gw", value=6.0, tags={"protocol": "mqtt"}),
        session("began", "app1@gw", value=5.0, tags=WEBSOCKET),
        event(kind="session", name="began", source="pump3@gw", tags=MQTT),
        event(lane="system", kind="share", name="began", source="pump3@gw", tags=MQTT),
    ) == [
        ("gw", "mqtt", None, None, 1, 6, 0, 0, "", 0, 0),
        ("gw", "mqtt", "3.1.1", None, 1, 1, 0, 0, "", 0, 0),
        ("gw", "mqtt", "5.0", None, 1, 7, 0, 0, "", 0, 86_400),
        ("gw", "mqtt", "5.0", "websocket", 1, 5, 0, 0, "", 0, 0),
        ("gw", "xmpp", None, None, 2, 3, 0, 0, "", 3, 86_400),
    ]


def test_failed_log_ins_are_counted_without_their_address(spark: SparkSession) -> None:
    def failed(name: str, source: str, **columns: Any) -> dict[str, Any]:
        return event(lane="system", kind="limit", name=name, source=source, **columns)

    rows = (
        failed("authentication", "192.0.2.1", value=2.0, tags=MQTT),
        failed("authentication_limit", "192.0.2.2", value=3.0, tags=MQTT),
        failed("authentication", "192.0.2.1", tags={"mechanism": "PLAIN"}),
        failed("rate", "192.0.2.1", tags=MQTT),
        session("began", "cam1@gw", tags=MQTT),
    )
    assert report(spark, *rows) == [
        ("gw", "mqtt", "5.0", None, 1, 1, 0, 5, "", 0, 0),
        ("gw", "xmpp", None, None, 0, 0, 0, 1, "", 0, 0),
    ]
    daily = sessions.DAILY.compute(events(spark, rows))
    assert [row.source for row in daily.orderBy("source").collect()] == [None, None, "cam1@gw"]


def test_lost_connections_are_counted_and_their_devices_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "NAMED", 2)
    lost = [
        session("ended", f"d{number}@gw", value=float(number), tags={**MQTT, "reason": reason})
        for number, reason in enumerate(sessions.LOST)
    ]
    closed = session("ended", "d9@gw", value=90.0, tags={**MQTT, "reason": "closed"})
    assert report(spark, *lost, closed, session("ended", None, tags={"reason": "lost"})) == [
        ("gw", "mqtt", "5.0", None, 0, 0, 6, 0, "d3@gw, d2@gw", 0, 0),
        ("gw", "xmpp", None, None, 0, 0, 1, 0, "", 0, 0),
    ]


def test_a_gateway_cannot_invent_rows(spark: SparkSession) -> None:
    invented = [
        session("began", value=-1.0, tags=dict.fromkeys(("protocol", "version", "transport"), text))
        for text in ("a", "b", "c")
    ]
    versions = [session("began", tags={"protocol": "mqtt", "version": f"v{n}"}) for n in range(3)]
    assert report(spark, *invented, *versions) == [
        ("gw", sessions.OTHER, None, None, 1, 3, 0, 0, "", 0, 0),
        ("gw", "mqtt", None, None, 1, 3, 0, 0, "", 0, 0),
    ]
