"""QoS support of sessions: queries, verified hashes, and changes of capabilities."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.engine import sessions
from edge.engine.database import Transaction
from edge.features.discovery import service
from edge.xmpp.namespaces import CAPS, DISCO_INFO, QOS, QOS_ALL, QOS_IEEE, QOS_NF
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, provision
from tests.helpers.store import DOMAIN, EPOCH, STANZAS, Gateway, new_database

PUMP_2 = "pump1@gw.example/two"


class Learning(Gateway):
    """A gateway whose hooks only record the sessions for which they run."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        super().__init__(new_database(folder), limits)
        provision(self)
        self.bind(VALVE)
        self.turns: list[str] = []
        self.router.context.hooks.on_available[:] = [
            lambda _context, _tx, sender: self.turns.append(sender.full)
        ]

    def announce(self, presence: str, full: str = PUMP) -> None:
        """Send a presence, and drop what the session is sent then."""
        self.send(full, presence)
        self.elements(full)

    def learn(self, full: str = PUMP) -> list[Element]:
        """Learn a session's QoS support; return the query sent to it, if any."""

        def unit(tx: Transaction) -> None:
            session = sessions.find(tx, full)
            assert session is not None
            if session.qos is None:
                service.learn(self.router.context, tx, session)

        self.tx(unit)
        return [stanza for stanza in self.elements(full) if stanza.tag.endswith("iq")]

    def query(self, full: str = PUMP) -> tuple[str, str | None]:
        """Learn a session that must be queried; return the query's id and node."""
        (iq,) = self.learn(full)
        assert (iq.get("type"), iq.get("to"), iq.get("from")) == ("get", full, DOMAIN)
        assert iq[0].tag == f"{{{DISCO_INFO}}}query"
        return iq.attrib["id"], iq[0].get("node")

    def qos(self, full: str = PUMP) -> str | None:
        session = self.tx(lambda tx: sessions.find(tx, full))
        assert session is not None
        return session.qos

    def fire_timer(self) -> None:
        """Run the timer hook when the timer fires next."""
        self.run_timers()
        assert self.due is not None
        self.clock.service = self.due
        self.run_timers()


@pytest.fixture
def learning(tmp_path: Path) -> Learning:
    made = Learning(tmp_path)
    made.announce("<presence/>")
    made.turns.clear()
    return made


def features(*names: str) -> str:
    return "".join(f"<feature var='{name}'/>" for name in names)


def answer(id: str, content: str = features(QOS), to: str = DOMAIN) -> str:
    query = f"<query xmlns='{DISCO_INFO}'>{content}</query>"
    return f"<iq type='result' id='{id}' to='{to}'>{query}</iq>"


def error(id: str, type_: str) -> str:
    condition = f"<item-not-found xmlns='{STANZAS}'/>"
    content = f"<error type='{type_}'>{condition}</error>"
    return f"<iq type='error' id='{id}' to='{DOMAIN}'>{content}</iq>"


def ver(*names: str) -> str:
    text = "".join(f"{name}<" for name in sorted(names))
    return b64encode(sha1(text.encode(), usedforsecurity=False).digest()).decode()


def caps(ver: str, hash_: str = "sha-1") -> str:
    return f"<presence><c xmlns='{CAPS}' hash='{hash_}' node='urn:fw' ver='{ver}'/></presence>"


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
    learning: Learning, names: tuple[str, ...], qos: str
) -> None:
    id, node = learning.query()
    assert node is None
    assert (learning.qos(), learning.turns) == (None, [])
    assert learning.send(PUMP, answer(id, features(*names))) is None
    assert (learning.qos(), learning.turns) == (qos, [PUMP])


def test_session_has_one_query_at_a_time(learning: Learning) -> None:
    id, _node = learning.query()
    assert learning.learn() == []
    learning.send(PUMP, answer(id))
    assert learning.learn() == []
    assert learning.send(PUMP, answer(id, "")) is None
    assert (learning.qos(), learning.turns) == (QOS, [PUMP]), "the query is answered"


@pytest.mark.parametrize(
    "presence",
    [None, "<presence type='unavailable'/>", "<presence><priority>-1</priority></presence>"],
)
def test_ineligible_session_gets_nothing(learning: Learning, presence: str | None) -> None:
    if presence is None:
        learning.bind(PUMP)
    else:
        learning.announce(presence)
    id, _ = learning.query()
    learning.send(PUMP, answer(id))
    assert (learning.qos(), learning.turns) == (QOS, [])


@pytest.mark.parametrize("type_", ["cancel", "auth", "modify"])
def test_session_without_discovery_has_no_qos(learning: Learning, type_: str) -> None:
    id, _ = learning.query()
    learning.send(PUMP, error(id, type_))
    assert (learning.qos(), learning.turns) == ("", [PUMP])


def test_silent_session_is_queried_again_with_growing_delays(learning: Learning) -> None:
    id, _ = learning.query()
    waits, ids = [], []
    for _ in range(service.MAX_QUERIES):
        before = learning.clock.service
        learning.fire_timer()
        waits.append(learning.clock.service - before)
        assert (learning.turns, learning.due) == ([PUMP], None)
        assert learning.sends(PUMP) == [], "it is queried again only if something waits for it"
        learning.turns.clear()
        ids += [iq.get("id") for iq in learning.learn()]
    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0]
    assert ids == [id] * (service.MAX_QUERIES - 1)
    assert (learning.qos(), learning.turns) == ("", [PUMP])


@pytest.mark.parametrize(
    "content",
    [error("ID", "wait"), error("ID", "continue"), f"<iq type='error' id='ID' to='{DOMAIN}'/>"],
)
def test_invalid_answer_is_ignored(learning: Learning, content: str) -> None:
    id, _ = learning.query()
    learning.send(PUMP, content.replace("ID", id))
    assert (learning.qos(), learning.learn()) == (None, [])
    learning.fire_timer()
    assert learning.query() == (id, None)


def test_detached_session_gets_more_time(learning: Learning) -> None:
    id, _ = learning.query()
    learning.detach(PUMP)
    for _ in range(service.MAX_QUERIES + 1):
        learning.fire_timer()
        assert (learning.turns, learning.sends(PUMP)) == ([], [])
    learning.resume(PUMP)
    learning.fire_timer()
    assert learning.turns == [PUMP]
    assert learning.query() == (id, None)


def test_overdue_answers_are_handled_in_batches(
    learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.features.discovery.store.BATCH_SIZE", 1)
    learning.send(PUMP_2, "<presence/>")
    learning.turns.clear()
    learning.query(PUMP)
    learning.query(PUMP_2)
    learning.fire_timer()
    assert len(learning.turns) == 1
    assert learning.due == learning.clock.service
    learning.run_timers()
    assert sorted(learning.turns) == [PUMP, PUMP_2]


def test_query_ends_with_its_session(learning: Learning) -> None:
    learning.query()
    learning.end(PUMP)
    learning.run_timers()
    assert learning.due is None
    assert learning.count("SELECT count(*) FROM asked") == 0


# Answers that count


def test_other_session_cannot_answer(learning: Learning) -> None:
    id, _ = learning.query()
    learning.send(VALVE, "<presence/>")
    learning.query(VALVE)
    for who in (VALVE, UNTRUSTED):
        assert learning.send(who, answer(id, "")) is None
    learning.send(VALVE, error(id, "cancel"))
    assert (learning.qos(), learning.qos(VALVE)) == (None, None)
    learning.send(PUMP, answer(id))
    assert learning.qos() == QOS


@pytest.mark.parametrize("forged", ["0-1-i", f"{EPOCH}-99-i", "01JZ9-1-i", f"{EPOCH}-x-i"])
def test_unexpected_answer_is_ignored(learning: Learning, forged: str) -> None:
    id, _ = learning.query()
    assert id == f"{EPOCH}-1-i"
    assert learning.send(PUMP, answer(forged)) is None
    assert learning.qos() is None


def test_answer_to_another_address_is_relayed(learning: Learning) -> None:
    id, _ = learning.query()
    learning.send(PUMP, answer(id, features("x"), to=VALVE))
    (passed,) = learning.elements(VALVE)
    assert (passed.get("id"), passed.get("from"), passed.get("to")) == (id, PUMP, VALVE)
    for nowhere in ("@", "pump1@gw.example", "other.example"):
        assert learning.send(PUMP, answer(id, to=nowhere)) is None
    assert learning.qos() is None


def test_answer_to_an_older_query_is_ignored(learning: Learning) -> None:
    old, _ = learning.query()
    learning.announce(caps("new"))
    new, node = learning.query()
    assert (old != new, node) == (True, "urn:fw#new")
    learning.send(PUMP, answer(old, ""))
    assert learning.qos() is None
    learning.send(PUMP, answer(new))
    assert learning.qos() == QOS


# Announced capabilities


def test_verified_hash_needs_one_query(learning: Learning) -> None:
    announced = caps(ver(QOS, "x")).replace("<c ", "<show>away</show><c ")
    learning.announce(announced)
    id, node = learning.query()
    assert node == f"urn:fw#{ver(QOS, 'x')}"
    learning.send(PUMP, answer(id, features("x", QOS)))
    learning.send(VALVE, announced.replace("urn:fw", "urn:another"))
    learning.turns.clear()
    assert learning.learn(VALVE) == []
    assert (learning.qos(VALVE), learning.turns) == (QOS, [VALVE])


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
    learning: Learning, announced: str, content: str
) -> None:
    for full in (PUMP, VALVE):
        learning.announce(announced, full)
        id, _ = learning.query(full)
        learning.send(full, answer(id, content))
        assert learning.qos(full) == QOS
    assert learning.count("SELECT count(*) FROM capabilities") == 0


def test_differently_divided_answer_poisons_nothing(learning: Learning) -> None:
    announced = caps(ver("a", QOS))
    learning.announce(announced, UNTRUSTED)
    id, _ = learning.query(UNTRUSTED)
    form_type = f"<field var='FORM_TYPE' type='hidden'><value>{QOS}</value></field>"
    form = f"<x xmlns='jabber:x:data'>{form_type}</x>"
    learning.send(UNTRUSTED, answer(id, features("a") + form))
    assert learning.qos(UNTRUSTED) == "", "the answer counts for its own session"
    learning.send(PUMP, announced)
    assert learning.learn() == []
    assert learning.qos() == QOS


def test_verified_hashes_are_limited_to_the_recently_used(tmp_path: Path) -> None:
    learning = Learning(tmp_path, Limits(capabilities=2))

    def is_queried(name: str) -> bool:
        """Return whether a device of this kind is queried."""
        learning.bind(PUMP)
        learning.announce(caps(ver(name)))
        asked = learning.learn()
        if asked:
            learning.send(PUMP, answer(asked[0].attrib["id"], features(name)))
        learning.end(PUMP)
        return bool(asked)

    assert [is_queried(name) for name in "abac"] == [True, True, False, True]
    assert learning.count("SELECT count(*) FROM capabilities") == 2
    assert [is_queried(name) for name in "acb"] == [False, False, True]


@pytest.mark.parametrize("second", [answer("ID"), error("ID", "cancel")])
def test_session_that_refuses_its_node_is_queried_without_it(
    learning: Learning, second: str
) -> None:
    learning.announce(caps("v"))
    id, node = learning.query()
    assert node == "urn:fw#v"
    learning.send(PUMP, error(id, "cancel"))
    assert learning.qos() is None
    (again,) = learning.elements(PUMP)
    assert (again.get("id"), again[0].get("node")) == (id, None)
    learning.send(PUMP, second.replace("ID", id))
    assert learning.qos() == ("" if "error" in second else QOS)


@pytest.mark.parametrize(
    ("presence", "is_known"),
    [
        (caps("two"), False),
        (caps("one"), True),
        ("<presence/>", True),
        ("<presence type='unavailable'/>", True),
    ],
)
def test_other_capabilities_make_a_session_unknown(
    learning: Learning, presence: str, is_known: bool
) -> None:
    learning.announce(caps("one"))
    learning.send(PUMP, answer(learning.query()[0]))
    learning.turns.clear()
    learning.announce(presence)
    assert (learning.qos(), learning.turns) == ((QOS, []) if is_known else (None, [PUMP]))
    if not is_known:
        assert learning.query()[1] == "urn:fw#two"
