"""Notifications of the gateway's events: which events, their content, recipients and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.config.options import Log, Xmpp
from edge.engine.log import refusals
from edge.engine.sessions import sessions
from edge.engine.store import events
from edge.engine.store.database import Transaction
from edge.engine.store.events import NewEvent
from edge.features.eventlog import service
from edge.features.eventlog.rules.levels import LEVELS
from edge.xmpp.namespaces import EVENTLOG
from tests.helpers.people import DELAY, PUMP, VALVE, VALVE_BARE, provision
from tests.helpers.store import DOMAIN, EPOCH, Gateway, new_database, read_element

T = TypeVar("T")

WARNING = NewEvent("system", name="heat", level="Warning", text="60 degrees")
LOG = f"{{{EVENTLOG}}}log"


class NotifiedGateway(Gateway):
    """A gateway that notifies the valve's account, as `app` sets it up."""

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        xmpp: Xmpp | None = None,
        *,
        accounts: bool = True,
        notify: Sequence[str] = (VALVE_BARE,),
        **options: Any,
    ) -> None:
        super().__init__(new_database(folder), limits, xmpp=xmpp, accounts=accounts)
        log = Log(notify=list(notify), **options)
        self.notify = service.notifier(self.router.context, log)
        provision(self)
        self.bind(VALVE)
        self.send(VALVE, "<presence/>")
        self.elements(VALVE)

    def commit(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit of work as the store does, with the notifier before its commit."""

        def notified_unit(tx: Transaction) -> T:
            tx.before_commit(self.notify)
            return unit(tx)

        return super().commit(notified_unit)

    def log_events(self, *new_events: NewEvent) -> None:
        """Log events."""

        self.tx(lambda tx: [events.append(tx, events.SYSTEM, event) for event in new_events])

    def received_logs(self, full: str = VALVE) -> list[Element]:
        """Return the log events sent to a session."""
        return [log for stanza in self.elements(full) for log in stanza.findall(LOG)]

    def ids(self, full: str = VALVE) -> list[str | None]:
        return [log.get("id") for log in self.received_logs(full)]

    def logged_refusals(self) -> list[tuple[str | None, str | None]]:
        found = self.events("system")
        return [(event.source, event.name) for event in found if event.kind == "limit"]


def tags_of(log: Element) -> list[tuple[str, ...]]:
    """Return the attributes of each tag: name, value and type."""
    return [tuple(tag.attrib.values()) for tag in log[1:]]


Notified = Callable[..., NotifiedGateway]


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[Notified]:
    """A function that makes the test's gateway, which is closed at the end."""
    with ExitStack() as stack:
        yield lambda limits=None, **options: stack.enter_context(
            closing(NotifiedGateway(tmp_path, limits, **options))
        )


@pytest.fixture
def gateway(notified: Notified) -> NotifiedGateway:
    return notified()


def test_notification_has_all_details_of_the_event(gateway: NotifiedGateway) -> None:
    tags = {"destination": VALVE_BARE, "msgId": "m'1", "attempts": "10"}
    event = NewEvent("message", PUMP, name="dead", level="Error", text="it <failed>", qos=2)
    gateway.log_events(event._replace(value=61.5, unit="°C", tags=tags))
    (send,) = gateway.sends(VALVE)
    message = read_element(send.stanza)
    assert message.attrib == {
        "to": VALVE_BARE,
        "from": DOMAIN,
        "id": f"{EPOCH}-1-log",
        "type": "normal",
        "{http://www.w3.org/XML/1998/namespace}lang": "en",
    }
    log = message.find(LOG)
    assert log is not None
    assert log.attrib == {
        "timestamp": "2025-10-09T09:10:00.000Z",
        "id": "dead",
        "type": "Error",
        "level": "Major",
        "object": VALVE_BARE,
        "subject": PUMP,
        "facility": "fieldpost",
        "module": "message",
    }
    first = log[0]
    assert first.tag == f"{{{EVENTLOG}}}message"
    assert first.text == f"dead: a message from {PUMP} to {VALVE_BARE}: 61.5 °C (it <failed>)"
    assert message.findtext("{jabber:client}body") == first.text
    assert tags_of(log) == [
        ("value", "61.5", "xs:double"),
        ("unit", "°C", "xs:string"),
        ("qos", "2", "xs:int"),
        ("destination", VALVE_BARE, "xs:string"),
        ("msgId", "m'1", "xs:string"),
        ("attempts", "10", "xs:long"),
    ]


def test_limit_event_has_source_rule_figure_and_count(gateway: NotifiedGateway) -> None:
    bare = PUMP.partition("/")[0]
    context = gateway.router.context
    gateway.tx(lambda tx: refusals.log_source(context, tx, bare, "held_bytes", 4096))
    (log,) = gateway.received_logs()
    assert (log.get("id"), log.get("type"), log.get("level")) == ("held_bytes", "Warning", "Medium")
    assert (log.get("object"), log.get("subject"), log.get("module")) == (bare, bare, "limit")
    assert log[0].text == f"held_bytes refused 1 from {bare}"
    assert tags_of(log) == [("count", "1", "xs:long"), ("limit", "4096", "xs:long")]


@pytest.mark.parametrize(
    ("event", "object_", "subject", "text"),
    [
        (
            NewEvent("message", PUMP, name="expired", text="too late"),
            PUMP, PUMP, f"expired: a message from {PUMP} (too late)",
        ),
        (
            NewEvent("message", PUMP, "work", "queue_dead", text="expired", tags={"item": "job-7"}),
            "work", PUMP, f"queue_dead of job-7 at work, from {PUMP} (expired)",
        ),
        (
            NewEvent("queue", topic="work", name="purged", value=8.0, unit="items", text="by x"),
            "work", DOMAIN, "purged at work: 8 items (by x)",
        ),
        (
            NewEvent("system", name="heat", value=61.5, unit="°C"),
            DOMAIN, DOMAIN, f"heat at {DOMAIN}: 61.5 °C",
        ),
    ],
    ids=["message without a destination", "item of a node", "queue", "gateway"],
)  # fmt: skip
def test_notification_describes_the_event_and_its_object(
    gateway: NotifiedGateway, event: NewEvent, object_: str, subject: str, text: str
) -> None:
    gateway.log_events(event._replace(level="Warning"))
    (log,) = gateway.received_logs()
    assert (log.get("object"), log.get("subject"), log[0].text) == (object_, subject, text)


@pytest.mark.parametrize("level", list(LEVELS)[1:])
def test_events_at_or_above_a_level_are_notified(notified: Notified, level: str) -> None:
    gateway = notified(notify_level=level)
    gateway.log_events(*(NewEvent("system", name=one, level=one) for one in LEVELS))
    assert gateway.ids() == list(LEVELS[LEVELS.index(level) :])


def test_event_without_a_level_is_informational_and_heartbeats_are_excluded(
    notified: Notified,
) -> None:
    gateway = notified(notify_level="Informational")
    gateway.log_events(NewEvent("system", name="start"), NewEvent("system", name="heartbeat"))
    (log,) = gateway.received_logs()
    assert (log.get("id"), log.get("type"), log.get("level")) == ("start", "Informational", "Minor")


def test_events_of_devices_are_not_notified(gateway: NotifiedGateway) -> None:
    log = f"<log xmlns='{EVENTLOG}' type='Emergency'><message>x</message></log>"
    gateway.send(PUMP, f"<message to='{DOMAIN}'>{log}</message>")
    assert len(gateway.events("logs")) == 1
    assert gateway.received_logs() == []


def test_absent_account_is_notified_later(gateway: NotifiedGateway) -> None:
    gateway.end(VALVE)
    gateway.log_events(WARNING)
    gateway.bind(VALVE)
    gateway.send(VALVE, "<presence/>")
    (stanza,) = (one for one in gateway.elements(VALVE) if one.find(LOG) is not None)
    assert [delay.get("from") for delay in stanza.iter(DELAY)] == [DOMAIN]


# Notifications cause no notifications


def test_notification_above_the_offline_limit_is_logged(notified: Notified) -> None:
    limits = Limits(offline_messages=1, offline_ttl=1e6)
    gateway = notified(limits, notify=["pump1@gw.example", VALVE_BARE])
    for _ in range(3):
        gateway.log_events(WARNING)
    assert gateway.ids() == ["heat"] * 3
    assert gateway.logged_refusals() == [(DOMAIN, "offline_messages")]
    gateway.clock.service += 60
    gateway.run_timers()
    assert gateway.logged_refusals() == [(DOMAIN, "offline_messages")] * 2
    assert gateway.received_logs() == []


@pytest.mark.parametrize("recipient", ["nobody@gw.example", "valve@gw.example"])
def test_notification_without_a_recipient_is_logged(notified: Notified, recipient: str) -> None:
    notify = [recipient, "pump1@gw.example"]
    gateway = notified(xmpp=Xmpp(offline="refuse"), notify=notify)
    gateway.send(PUMP, "<presence/>")
    gateway.end(VALVE)
    gateway.log_events(WARNING)
    assert gateway.ids(PUMP) == ["heat"]
    assert gateway.logged_refusals() == [(DOMAIN, "nobody_there")]


def test_rerouted_notification_causes_no_notification(notified: Notified) -> None:
    gateway = notified(limits=Limits(offline_messages=1))
    gateway.log_events(WARNING, WARNING, WARNING)
    unacknowledged = [send.message for send in gateway.sends(VALVE)]
    assert len(unacknowledged) == 3
    gateway.end(VALVE, *unacknowledged)
    assert gateway.logged_refusals() == [(DOMAIN, "offline_messages")]
    assert gateway.count("SELECT count(*) FROM offline") == 2


# Limits


def test_notifications_above_the_limit_are_counted(notified: Notified) -> None:
    gateway = notified(notify_most=3)
    for _ in range(4):
        gateway.log_events(WARNING, WARNING)
    gateway.clock.service += 59.9
    gateway.log_events(WARNING)
    assert gateway.ids() == ["heat", "heat", "heat", "notices"]
    gateway.clock.service += 0.1
    gateway.run_timers()
    (summary,) = gateway.received_logs()
    assert summary.get("id") == "notices"
    assert tags_of(summary) == [("count", "5", "xs:long"), ("limit", "3", "xs:long")]
    assert sum(event.value or 0 for event in gateway.events("system", "notices")) == 6
    gateway.log_events(WARNING)
    assert gateway.ids() == ["heat"], "the next minute"


def test_excluded_events_do_not_count(notified: Notified) -> None:
    gateway = notified(notify_most=1)
    gateway.log_events(*[NewEvent("system", name="start")] * 5, WARNING)
    assert gateway.ids() == ["heat"]


# Components and rollback


def test_component_sends_to_the_address(notified: Notified) -> None:
    gateway = notified(notify=["olga@users.example"], accounts=False)
    gateway.log_events(WARNING)
    (send,) = (one for one in gateway.sent if one.generation == sessions.WITHOUT_SESSION)
    assert read_element(send.stanza).get("to") == "olga@users.example"


def test_rolled_back_transaction_causes_no_notification(gateway: NotifiedGateway) -> None:
    def unit(tx: Transaction) -> None:
        events.append(tx, events.SYSTEM, WARNING)
        raise KeyError

    with pytest.raises(KeyError):
        gateway.tx(unit)
    assert gateway.received_logs() == []
    gateway.log_events(WARNING)
    assert gateway.ids() == ["heat"]


@pytest.mark.parametrize(
    ("value", "type_"),
    [("12", "xs:long"), ("", "xs:string"), ("1.5", "xs:string"), ("9" * 19, "xs:string")],
)
def test_type_of_a_tag_follows_its_value(gateway: NotifiedGateway, value: str, type_: str) -> None:
    gateway.log_events(WARNING._replace(tags={"t": value}))
    (log,) = gateway.received_logs()
    assert tags_of(log) == [("t", value, type_)]
