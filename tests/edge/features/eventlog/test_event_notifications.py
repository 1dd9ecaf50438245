"""Notifications of the gateway's events: which events, their content, recipients and limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.config.options import Log, Xmpp
from edge.engine import database, events, refusals, sessions
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.eventlog import service
from edge.features.eventlog.rules.levels import LEVELS
from edge.xmpp.namespaces import EVENTLOG
from tests.helpers.people import PUMP, VALVE, VALVE_BARE, provision
from tests.helpers.store import DOMAIN, EPOCH, Gateway, new_database, read_element

T = TypeVar("T")

WARNING = NewEvent("system", name="heat", level="Warning", text="60 degrees")
LOG = f"{{{EVENTLOG}}}log"


class Telling(Gateway):
    """A gateway that notifies the valve's account, as `app` sets it up."""

    def __init__(
        self,
        folder: Path,
        log: Log | None = None,
        limits: Limits | None = None,
        xmpp: Xmpp | None = None,
        *,
        accounts: bool = True,
    ) -> None:
        super().__init__(new_database(folder), limits, xmpp=xmpp, accounts=accounts)
        self.teller = service.notifier(self.router.context, log or Log(notify=[VALVE_BARE]))
        provision(self)
        self.bind(VALVE)
        self.send(VALVE, "<presence/>")
        self.elements(VALVE)

    def tx(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit of work as the store does."""
        with database.transaction(self.connection, self.clock()) as tx:
            tx.before_commit(self.teller)
            outcome = unit(tx)
        self.due = tx.due
        self.sent += tx.sends
        return outcome

    def note(self, *noted: NewEvent) -> None:
        """Log events."""

        def unit(tx: Transaction) -> None:
            for event in noted:
                events.append(tx, events.SYSTEM, event)

        self.tx(unit)

    def told(self, full: str = VALVE) -> list[Element]:
        """Return the log events sent to a session."""
        found = [stanza.find(LOG) for stanza in self.elements(full)]
        return [log for log in found if log is not None]

    def ids(self) -> list[str | None]:
        return [log.get("id") for log in self.told()]


@pytest.fixture
def telling(tmp_path: Path) -> Telling:
    return Telling(tmp_path)


def test_notification_has_all_details_of_the_event(telling: Telling) -> None:
    telling.note(
        NewEvent(
            "message",
            PUMP,
            name="dead",
            level="Error",
            text="it <failed>",
            qos=2,
            tags={"destination": VALVE_BARE, "msgId": "m'1", "attempts": "10"},
        )
    )
    (send,) = telling.sends(VALVE)
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
    first, *tags = log
    assert first.tag == f"{{{EVENTLOG}}}message"
    assert first.text == f"dead: a message from {PUMP} to {VALVE_BARE} (it <failed>)"
    assert message.findtext("{jabber:client}body") == first.text
    assert [tuple(tag.attrib.values()) for tag in tags] == [
        ("qos", "2", "xs:int"),
        ("destination", VALVE_BARE, "xs:string"),
        ("msgId", "m'1", "xs:string"),
        ("attempts", "10", "xs:long"),
    ]


def test_limit_event_has_source_rule_figure_and_count(telling: Telling) -> None:
    bare = PUMP.partition("/")[0]
    telling.tx(lambda tx: refusals.log_source(telling.router.context, tx, bare, "held_bytes", 4096))
    (log,) = telling.told()
    assert (log.get("id"), log.get("type"), log.get("level")) == ("held_bytes", "Warning", "Medium")
    assert (log.get("object"), log.get("subject"), log.get("module")) == (bare, bare, "limit")
    assert log[0].text == f"held_bytes refused 1 from {bare}"
    found = {tag.get("name"): (tag.get("value"), tag.get("type")) for tag in log[1:]}
    assert found == {"count": ("1", "xs:long"), "limit": ("4096", "xs:long")}


def test_message_event_without_a_destination_is_about_its_sender(telling: Telling) -> None:
    telling.note(NewEvent("message", PUMP, name="expired", level="Warning", text="too late"))
    (log,) = telling.told()
    assert (log.get("object"), log.get("subject")) == (PUMP, PUMP)
    assert log[0].text == f"expired: a message from {PUMP} (too late)"


def test_event_of_a_node_names_it(telling: Telling) -> None:
    telling.note(
        NewEvent(
            "message", PUMP, "work", "queue_dead", level="Warning", text="expired",
            tags={"item": "job-7", "deliveries": "5"},
        ),
        NewEvent(
            "queue", topic="work", name="purged", value=8.0, unit="items", level="Warning",
            text="by the operator",
        ),
    )  # fmt: skip
    dead, purged = telling.told()
    assert (dead.get("object"), dead.get("subject")) == ("work", PUMP)
    assert dead[0].text == f"queue_dead of job-7 at work, from {PUMP} (expired)"
    assert (purged.get("object"), purged.get("subject")) == ("work", DOMAIN)
    assert purged[0].text == "purged at work: 8 items (by the operator)"


def test_value_is_shown_with_its_unit(telling: Telling) -> None:
    telling.note(NewEvent("system", name="heat", value=61.5, unit="°C", level="Warning"))
    (log,) = telling.told()
    assert log[0].text == f"heat at {DOMAIN}: 61.5 °C"
    tags = [tuple(tag.attrib.values()) for tag in log[1:]]
    assert tags == [("value", "61.5", "xs:double"), ("unit", "°C", "xs:string")]


def test_event_of_the_gateway_is_about_the_gateway(telling: Telling) -> None:
    telling.note(WARNING)
    (log,) = telling.told()
    assert (log.get("object"), log.get("subject")) == (DOMAIN, DOMAIN)
    assert log[0].text == f"heat at {DOMAIN} (60 degrees)"
    assert len(log) == 1


@pytest.mark.parametrize("level", list(LEVELS)[1:])
def test_events_from_a_level_on_are_notified(tmp_path: Path, level: str) -> None:
    told = Telling(tmp_path, Log(notify=[VALVE_BARE], notify_level=level))  # type: ignore[arg-type]
    told.note(*(NewEvent("system", name=one, level=one) for one in LEVELS))
    types = list(LEVELS)
    assert told.ids() == types[types.index(level) :]


def test_event_without_a_level_is_informational_and_heartbeats_are_excluded(
    tmp_path: Path,
) -> None:
    told = Telling(tmp_path, Log(notify=[VALVE_BARE], notify_level="Informational"))
    told.note(NewEvent("system", name="start"), NewEvent("system", name="heartbeat"))
    (log,) = told.told()
    assert (log.get("id"), log.get("type"), log.get("level")) == ("start", "Informational", "Minor")


def test_events_of_devices_are_not_notified(telling: Telling) -> None:
    xml = (
        f"<message to='{DOMAIN}'><log xmlns='{EVENTLOG}' type='Emergency'><message>x</message>"
        "</log></message>"
    )
    telling.send(PUMP, xml)
    assert len(telling.events("logs")) == 1
    assert telling.told() == []


def test_several_accounts_are_notified(tmp_path: Path) -> None:
    telling = Telling(tmp_path, Log(notify=[VALVE_BARE, "pump1@gw.example"]))
    telling.send(PUMP, "<presence/>")
    telling.note(WARNING)
    assert [len(telling.told(full)) for full in (VALVE, PUMP)] == [1, 1]


def test_absent_account_is_notified_later(telling: Telling) -> None:
    telling.end(VALVE)
    telling.note(WARNING)
    telling.bind(VALVE)
    telling.send(VALVE, "<presence/>")
    (stanza,) = (one for one in telling.elements(VALVE) if one.find(LOG) is not None)
    delay = stanza.find("{urn:xmpp:delay}delay")
    assert delay is not None
    assert delay.get("from") == DOMAIN


# Notifications cause no notifications


def refused(telling: Telling) -> list[tuple[str | None, str | None]]:
    return [
        (event.source, event.name) for event in telling.events("system") if event.kind == "limit"
    ]


def test_notification_without_room_is_logged(tmp_path: Path) -> None:
    pump = "pump1@gw.example"
    telling = Telling(
        tmp_path, Log(notify=[pump, VALVE_BARE]), Limits(offline_messages=1, offline_ttl=1e6)
    )
    for _ in range(3):
        telling.note(WARNING)
    assert telling.ids() == ["heat"] * 3
    assert refused(telling) == [(DOMAIN, "offline_messages")]
    telling.clock.service += 60
    telling.run_timers()
    assert refused(telling) == [(DOMAIN, "offline_messages")] * 2
    assert telling.told() == []


@pytest.mark.parametrize("who", ["nobody@gw.example", "valve@gw.example"])
def test_notification_without_a_recipient_is_logged(tmp_path: Path, who: str) -> None:
    xmpp = Xmpp(offline="refuse")
    telling = Telling(tmp_path, Log(notify=[who, "pump1@gw.example"]), xmpp=xmpp)
    telling.send(PUMP, "<presence/>")
    telling.end(VALVE)
    telling.note(WARNING)
    assert [log.get("id") for log in telling.told(PUMP)] == ["heat"]
    assert refused(telling) == [(DOMAIN, "nobody_there")]


def test_returned_notification_causes_no_other(tmp_path: Path) -> None:
    telling = Telling(tmp_path, limits=Limits(offline_messages=1))
    telling.note(WARNING, WARNING, WARNING)
    unread = [send.stanza for send in telling.sends(VALVE)]
    assert len(unread) == 3
    telling.end(VALVE, *unread)
    assert refused(telling) == [(DOMAIN, "offline_messages")]
    assert telling.count("SELECT count(*) FROM offline") == 2


# Limits


def test_notifications_above_the_limit_are_counted(tmp_path: Path) -> None:
    telling = Telling(tmp_path, Log(notify=[VALVE_BARE], notify_most=3))
    for _ in range(4):
        telling.note(WARNING, WARNING)
    assert telling.ids() == ["heat", "heat", "heat", "notices"]
    telling.clock.service += 60
    telling.run_timers()
    (closing,) = telling.told()
    tags = {tag.get("name"): tag.get("value") for tag in closing[1:]}
    assert (closing.get("id"), tags) == ("notices", {"count": "4", "limit": "3"})
    assert sum(event.value or 0 for event in telling.events("system", "notices")) == 5
    telling.note(WARNING)
    assert telling.ids() == ["heat"], "the next minute"


def test_window_begins_with_its_first_event(tmp_path: Path) -> None:
    telling = Telling(tmp_path, Log(notify=[VALVE_BARE], notify_most=1))
    telling.note(WARNING)
    telling.clock.service += 59.9
    telling.note(WARNING)
    assert telling.ids() == ["heat", "notices"]
    telling.clock.service += 0.1
    telling.note(WARNING)
    assert telling.ids() == ["heat"]


def test_excluded_events_do_not_count(tmp_path: Path) -> None:
    telling = Telling(tmp_path, Log(notify=[VALVE_BARE], notify_most=1))
    telling.note(*[NewEvent("system", name="start")] * 5, WARNING)
    assert telling.ids() == ["heat"]


# Components and rollback


def test_component_sends_to_the_address(tmp_path: Path) -> None:
    log = Log(notify=["olga@users.example"])
    telling = Telling(tmp_path, log, accounts=False)
    telling.note(WARNING)
    (send,) = (one for one in telling.sent if one.generation == sessions.COMPONENT_LINK)
    assert read_element(send.stanza).get("to") == "olga@users.example"


def test_rolled_back_transaction_notifies_nobody(telling: Telling) -> None:
    def unit(tx: Transaction) -> None:
        events.append(tx, events.SYSTEM, WARNING)
        raise KeyError

    with pytest.raises(KeyError):
        telling.tx(unit)
    assert telling.told() == []
    telling.note(WARNING)
    assert telling.ids() == ["heat"]


@pytest.mark.parametrize(
    ("value", "type_"),
    [("12", "xs:long"), ("", "xs:string"), ("1.5", "xs:string"), ("9" * 19, "xs:string")],
)
def test_type_of_a_tag_follows_its_value(telling: Telling, value: str, type_: str) -> None:
    telling.note(WARNING._replace(tags={"t": value}))
    (log,) = telling.told()
    assert log[1].attrib == {"name": "t", "value": value, "type": type_}
