"""Queries for QoS support of sessions, verified hashes, and changes of capabilities."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.engine import sessions
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.features.discovery import service
from edge.xmpp.namespaces import CAPS, DISCO_INFO, QOS, QOS_ALL, QOS_IEEE, QOS_NF
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, provision
from tests.helpers.store import DOMAIN, EPOCH, Gateway, new_database

PUMP_2 = "pump1@gw.example/two"


class Known(Gateway):
    """A gateway whose hooks only record the sessions for which they run."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        super().__init__(new_database(folder), limits)
        provision(self)
        self.bind(VALVE)
        self.turns: list[str] = []
        self.router.context.hooks.available[:] = [
            lambda _context, _tx, sender: self.turns.append(sender.full)
        ]

    def learn(self, full: str = PUMP) -> list[Element]:
        """Learn a session's QoS support; return the query sent to it, if any."""

        def unit(tx: Transaction) -> None:
            session = sessions.find(tx, full)
            assert session is not None
            if session.qos is None:
                service.learn(self.router.context, tx, session)

        self.tx(unit)
        return [stanza for stanza in self.elements(full) if stanza.tag.endswith("iq")]

    def ask(self, full: str = PUMP) -> tuple[str, str | None]:
        """Learn a session that must be queried; return the query's id and node."""
        (iq,) = self.learn(full)
        assert (iq.get("type"), iq.get("to"), iq.get("from")) == ("get", full, DOMAIN)
        assert iq[0].tag == f"{{{DISCO_INFO}}}query"
        return iq.attrib["id"], iq[0].get("node")

    def qos(self, full: str = PUMP) -> str | None:
        session = self.tx(lambda tx: sessions.find(tx, full))
        assert session is not None
        return session.qos

    def late(self) -> None:
        """Run the timer hook when the timer fires next."""
        self.run_timers()
        assert self.due is not None
        self.clock.service = self.due
        self.run_timers()

    def ring(self) -> None:
        self.tx(lambda tx: service.on_timer(self.router.context, tx))


@pytest.fixture
def known(tmp_path: Path) -> Known:
    made = Known(tmp_path)
    made.send(PUMP, "<presence/>")
    made.elements(PUMP)
    made.turns.clear()
    return made


def features(*names: str) -> str:
    return "".join(f"<feature var='{name}'/>" for name in names)


def answer(
    id: str,
    content: str = features(QOS),
    to: str = DOMAIN,
    query: str = f"query xmlns='{DISCO_INFO}'",
) -> str:
    return f"<iq type='result' id='{id}' to='{to}'><{query}>{content}</{query.split()[0]}></iq>"


def error(id: str, type_: str, condition: str = "item-not-found") -> str:
    return (
        f"<iq type='error' id='{id}' to='{DOMAIN}'><error type='{type_}'>"
        f"<{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )


def ver(*names: str) -> str:
    text = "".join(f"{name}<" for name in sorted(names))
    return b64encode(sha1(text.encode(), usedforsecurity=False).digest()).decode()


def caps(ver: str, hash_: str = "sha-1", inner: str = "") -> str:
    return (
        f"<presence>{inner}<c xmlns='{CAPS}' hash='{hash_}' node='urn:fw' ver='{ver}'/></presence>"
    )


# Queries


@pytest.mark.parametrize(
    ("names", "qos"),
    [
        ((QOS,), QOS),
        (("x", QOS_NF), QOS_NF),
        ((QOS_IEEE, QOS_NF), QOS_NF),
        (tuple(reversed(QOS_ALL)), QOS),
        ((QOS_IEEE,), QOS_IEEE),
        (("urn:xmpp:qos:1",), ""),
        ((), ""),
    ],
)
def test_session_without_capabilities_is_queried(
    known: Known, names: tuple[str, ...], qos: str
) -> None:
    id, node = known.ask()
    assert node is None
    assert (known.qos(), known.turns) == (None, [])
    assert known.send(PUMP, answer(id, features(*names))) is None
    assert (known.qos(), known.turns) == (qos, [PUMP])


def test_session_has_one_query_at_a_time(known: Known) -> None:
    id, _node = known.ask()
    assert known.learn() == []
    known.send(PUMP, answer(id))
    assert known.learn() == []
    assert known.send(PUMP, answer(id, "")) is None
    assert (known.qos(), known.turns) == (QOS, [PUMP]), "the query is answered"


def test_each_session_is_known_separately(known: Known) -> None:
    known.send(PUMP_2, "<presence/>")
    known.turns.clear()
    first, _ = known.ask(PUMP)
    second, _ = known.ask(PUMP_2)
    known.send(PUMP_2, answer(second, ""))
    assert (known.qos(PUMP), known.qos(PUMP_2), known.turns) == (None, "", [PUMP_2])
    known.send(PUMP, answer(first))
    assert (known.qos(PUMP), known.qos(PUMP_2)) == (QOS, "")


@pytest.mark.parametrize("presence", [None, "<presence type='unavailable'/>", -1])
def test_ineligible_session_gets_no_messages(known: Known, presence: str | int | None) -> None:
    if presence is None:
        known.bind(PUMP)
    elif presence == -1:
        known.send(PUMP, "<presence><priority>-1</priority></presence>")
    else:
        known.send(PUMP, str(presence))
    known.elements(PUMP)
    id, _ = known.ask()
    known.send(PUMP, answer(id))
    assert (known.qos(), known.turns) == (QOS, [])


@pytest.mark.parametrize("type_", ["cancel", "auth", "modify"])
def test_session_without_discovery_has_no_qos(known: Known, type_: str) -> None:
    id, _ = known.ask()
    known.send(PUMP, error(id, type_, "service-unavailable"))
    assert (known.qos(), known.turns) == ("", [PUMP])


def test_empty_answer_means_no_qos(known: Known) -> None:
    id, _ = known.ask()
    known.send(PUMP, f"<iq type='result' id='{id}' to='{DOMAIN}'/>")
    assert known.qos() == ""


# Silent sessions


def test_silent_session_is_queried_again_with_growing_delays(known: Known) -> None:
    id, _ = known.ask()
    waits: list[float] = []
    asked: list[Element] = []
    for _ in range(service.MAX_QUERIES):
        before = known.clock.service
        known.late()
        waits.append(known.clock.service - before)
        assert known.turns == [PUMP]
        known.turns.clear()
        if known.due is None:
            asked = known.learn()
            assert [iq.get("id") for iq in asked] == [id] * len(asked)
    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0]
    assert asked == []
    assert (known.qos(), known.turns) == ("", [PUMP])


def test_delay_is_limited(tmp_path: Path) -> None:
    known = Known(tmp_path, Limits(retry_after=100.0, retry_most=150.0))
    known.send(PUMP, "<presence/>")
    known.elements(PUMP)
    for wait in (100.0, 150.0, 150.0):
        known.ask()
        before = known.clock.service
        known.late()
        assert known.clock.service - before == wait


def test_session_without_waiting_messages_is_not_queried_again(known: Known) -> None:
    known.ask()
    known.late()
    assert known.turns == [PUMP]
    assert known.due is None
    assert known.sends(PUMP) == []


@pytest.mark.parametrize("content", [error("{id}", "wait"), error("{id}", "continue"), ""])
def test_invalid_answer_is_ignored(known: Known, content: str) -> None:
    id, _ = known.ask()
    none = f"<iq type='error' id='{id}' to='{DOMAIN}'/>"
    known.send(PUMP, content.replace("{id}", id) or none)
    assert (known.qos(), known.learn()) == (None, [])
    known.late()
    assert known.ask() == (id, None)


def test_detached_session_gets_more_time(known: Known) -> None:
    id, _ = known.ask()
    generation = known.generation(PUMP)
    known.tx(lambda tx: known.lifecycle.detach(tx, generation))
    for _ in range(service.MAX_QUERIES + 1):
        known.late()
        assert (known.turns, known.sends(PUMP)) == ([], [])
    known.tx(lambda tx: known.lifecycle.resume(tx, generation))
    known.late()
    assert known.turns == [PUMP]
    assert known.ask() == (id, None)


def test_overdue_answers_are_handled_in_batches(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.features.discovery.store.BATCH_SIZE", 1)
    known.send(PUMP_2, "<presence/>")
    known.turns.clear()
    known.ask(PUMP)
    known.ask(PUMP_2)
    known.late()
    assert len(known.turns) == 1
    assert known.due == known.clock.service
    known.run_timers()
    assert sorted(known.turns) == [PUMP, PUMP_2]


def test_query_ends_with_its_session(known: Known) -> None:
    known.ask()
    known.end(PUMP)
    known.run_timers()
    assert known.due is None
    assert known.count("SELECT count(*) FROM asked") == 0


# Answers that count


def test_other_session_cannot_answer(known: Known) -> None:
    id, _ = known.ask()
    known.send(VALVE, "<presence/>")
    known.ask(VALVE)
    for who in (VALVE, UNTRUSTED):
        assert known.send(who, answer(id, "")) is None
    known.send(VALVE, error(id, "cancel"))
    assert (known.qos(), known.qos(VALVE)) == (None, None)
    known.send(PUMP, answer(id))
    assert known.qos() == QOS


@pytest.mark.parametrize("forged", ["0-1-i", f"{EPOCH}-99-i", "01JZ9-1-i", f"{EPOCH}-x-i"])
def test_unexpected_answer_is_ignored(known: Known, forged: str) -> None:
    id, _ = known.ask()
    assert id == f"{EPOCH}-1-i"
    assert known.send(PUMP, answer(forged)) is None
    assert known.qos() is None


def test_answer_to_another_address_is_relayed(known: Known) -> None:
    id, _ = known.ask()
    known.send(PUMP, answer(id, features("x"), to=VALVE))
    (passed,) = known.elements(VALVE)
    assert (passed.get("id"), passed.get("from"), passed.get("to")) == (id, PUMP, VALVE)
    for nowhere in ("@", "pump1@gw.example", "other.example"):
        assert known.send(PUMP, answer(id, to=nowhere)) is None
    assert known.qos() is None


def test_answer_to_an_older_query_is_ignored(known: Known) -> None:
    old, _ = known.ask()
    known.send(PUMP, caps("new"))
    known.elements(PUMP)
    new, node = known.ask()
    assert (old != new, node) == (True, "urn:fw#new")
    known.send(PUMP, answer(old, ""))
    assert known.qos() is None
    known.send(PUMP, answer(new))
    assert known.qos() == QOS


# Announced capabilities


def test_verified_hash_needs_one_query(known: Known) -> None:
    announced = caps(ver(QOS, "x"), inner="<show>away</show>")
    known.send(PUMP, announced)
    known.elements(PUMP)
    id, node = known.ask()
    assert node == f"urn:fw#{ver(QOS, 'x')}"
    known.send(PUMP, answer(id, features("x", QOS)))
    known.send(VALVE, announced.replace("urn:fw", "urn:another"))
    known.turns.clear()
    assert known.learn(VALVE) == []
    assert (known.qos(VALVE), known.turns) == (QOS, [VALVE])


@pytest.mark.parametrize(
    ("announced", "content"),
    [
        (caps(ver(QOS)), features(QOS, "more")),
        (caps(ver(QOS), hash_="sha-256"), features(QOS)),
        (caps(ver(QOS), hash_="md5"), features(QOS)),
        (caps(ver(QOS, QOS)), features(QOS, QOS)),
        (f"<presence><c xmlns='{CAPS}' node='urn:fw' ver='1.0'/></presence>", features(QOS)),
    ],
)
def test_unverified_answer_counts_for_its_session_only(
    known: Known, announced: str, content: str
) -> None:
    for full in (PUMP, VALVE):
        known.send(full, announced)
        known.elements(full)
        id, _ = known.ask(full)
        known.send(full, answer(id, content))
        assert known.qos(full) == QOS
    assert known.count("SELECT count(*) FROM capabilities") == 0


def test_differently_divided_answer_poisons_nothing(known: Known) -> None:
    announced = caps(ver("a", QOS))
    known.send(UNTRUSTED, announced)
    known.elements(UNTRUSTED)
    id, _ = known.ask(UNTRUSTED)
    form = (
        "<x xmlns='jabber:x:data'><field var='FORM_TYPE' type='hidden'>"
        f"<value>{QOS}</value></field></x>"
    )
    known.send(UNTRUSTED, answer(id, features("a") + form))
    assert known.qos(UNTRUSTED) == "", "the answer counts for its own session"
    known.send(PUMP, announced)
    assert known.learn() == []
    assert known.qos() == QOS


def test_verified_hashes_are_limited_to_the_recently_used(tmp_path: Path) -> None:
    known = Known(tmp_path, Limits(capabilities=2))

    def meet(name: str) -> bool:
        """Return whether a device of this kind is queried."""
        known.bind(PUMP)
        known.send(PUMP, caps(ver(name)))
        known.elements(PUMP)
        asked = known.learn()
        if asked:
            known.send(PUMP, answer(asked[0].attrib["id"], features(name)))
        known.end(PUMP)
        return bool(asked)

    assert [meet("a"), meet("b"), meet("a"), meet("c")] == [True, True, False, True]
    assert known.count("SELECT count(*) FROM capabilities") == 2
    assert [meet("a"), meet("c"), meet("b")] == [False, False, True]


def test_session_that_does_not_know_its_node_is_queried_for_all_features(known: Known) -> None:
    known.send(PUMP, caps("v"))
    known.elements(PUMP)
    id, node = known.ask()
    assert node == "urn:fw#v"
    known.send(PUMP, error(id, "cancel"))
    (again,) = known.elements(PUMP)
    assert (again.get("id"), again[0].get("node")) == (id, None)
    known.send(PUMP, answer(id))
    assert known.qos() == QOS


def test_session_that_refuses_both_queries_has_no_qos(known: Known) -> None:
    known.send(PUMP, caps("v"))
    known.elements(PUMP)
    id, _ = known.ask()
    known.send(PUMP, error(id, "cancel"))
    assert known.qos() is None
    known.elements(PUMP)
    known.send(PUMP, error(id, "cancel"))
    assert known.qos() == ""


# Changes


def know(known: Known, presence: str, *names: str) -> None:
    known.send(PUMP, presence)
    known.elements(PUMP)
    id, _ = known.ask()
    known.send(PUMP, answer(id, features(*names)))
    known.turns.clear()


def test_other_capabilities_make_a_session_unknown(known: Known) -> None:
    know(known, caps("one"), QOS)
    known.send(PUMP, caps("two"))
    assert (known.qos(), known.turns) == (None, [PUMP])
    known.elements(PUMP)
    _id, node = known.ask()
    assert node == "urn:fw#two"


@pytest.mark.parametrize("presence", [caps("one"), "<presence/>", "<presence type='unavailable'/>"])
def test_same_or_no_capabilities_change_nothing(known: Known, presence: str) -> None:
    know(known, caps("one"), QOS)
    known.send(PUMP, presence)
    assert (known.qos(), known.turns) == (QOS, [])


def test_session_that_announces_later_is_queried_anew(known: Known) -> None:
    know(known, "<presence/>")
    assert known.qos() == ""
    known.send(PUMP, caps("one"))
    assert (known.qos(), known.turns) == (None, [PUMP])


def test_ineligible_session_runs_no_hooks_for_available(known: Known) -> None:
    know(known, caps("one"), QOS)
    known.send(PUMP, caps("two", inner="<priority>-1</priority>"))
    assert (known.qos(), known.turns) == (None, [])


def test_hooks_run_whatever_session_answers(known: Known) -> None:
    found: list[Sender] = []
    available = known.router.context.hooks.available
    available[:] = [lambda _context, _tx, sender: found.append(sender)]
    id, _ = known.ask()
    known.send(PUMP, answer(id))
    assert [(one.full, one.provisioned) for one in found] == [(PUMP, True)]
