"""QoS support of sessions: queries, verified hashes, and changes of capabilities."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from edge.config.limits import Limits
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.discovery import service
from edge.xmpp.namespaces import CAPS, DISCO_INFO, QOS, QOS_ALL, QOS_IEEE, QOS_NF
from tests.helpers.people import PUMP, UNTRUSTED, VALVE, provision
from tests.helpers.store import DOMAIN, EPOCH, STANZAS, Gateway, new_database

PUMP_2 = "pump1@gw.example/two"


class RecordingGateway(Gateway):
    """A gateway whose hooks only record the sessions for which they run."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        super().__init__(new_database(folder), limits)
        provision(self)
        self.bind(VALVE)
        self.hook_runs: list[str] = []
        self.router.context.hooks.on_accepting[:] = [
            lambda _context, _tx, sender: self.hook_runs.append(sender.full)
        ]

    def announce(self, presence: str, full: str = PUMP) -> None:
        """Send a presence, and discard the stanzas sent to the session."""
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
def gateway(tmp_path: Path) -> Iterator[RecordingGateway]:
    with closing(RecordingGateway(tmp_path)) as gateway:
        gateway.announce("<presence/>")
        gateway.hook_runs.clear()
        yield gateway


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
    gateway: RecordingGateway, names: tuple[str, ...], qos: str
) -> None:
    id, node = gateway.query()
    assert node is None
    assert (gateway.qos(), gateway.hook_runs) == (None, [])
    assert gateway.send(PUMP, answer(id, features(*names))) is None
    assert (gateway.qos(), gateway.hook_runs) == (qos, [PUMP])


def test_session_has_one_query_at_a_time(gateway: RecordingGateway) -> None:
    id, _node = gateway.query()
    assert gateway.learn() == []
    gateway.send(PUMP, answer(id))
    assert gateway.learn() == []
    assert gateway.send(PUMP, answer(id, "")) is None
    assert (gateway.qos(), gateway.hook_runs) == (QOS, [PUMP]), "the query is answered"


@pytest.mark.parametrize(
    "presence",
    [None, "<presence type='unavailable'/>", "<presence><priority>-1</priority></presence>"],
)
def test_ineligible_session_gets_nothing(gateway: RecordingGateway, presence: str | None) -> None:
    if presence is None:
        gateway.bind(PUMP)
    else:
        gateway.announce(presence)
    id, _ = gateway.query()
    gateway.send(PUMP, answer(id))
    assert (gateway.qos(), gateway.hook_runs) == (QOS, [])


@pytest.mark.parametrize("type_", ["cancel", "auth", "modify"])
def test_session_without_discovery_has_no_qos(gateway: RecordingGateway, type_: str) -> None:
    id, _ = gateway.query()
    gateway.send(PUMP, error(id, type_))
    assert (gateway.qos(), gateway.hook_runs) == ("", [PUMP])


def test_silent_session_is_queried_again_with_growing_delays(gateway: RecordingGateway) -> None:
    id, _ = gateway.query()
    delays, ids = [], []
    for _ in range(service.MAX_QUERIES):
        before = gateway.clock.service
        gateway.fire_timer()
        delays.append(gateway.clock.service - before)
        assert (gateway.hook_runs, gateway.due) == ([PUMP], None)
        assert gateway.sends(PUMP) == [], "it is queried again only if something waits for it"
        gateway.hook_runs.clear()
        ids += [iq.get("id") for iq in gateway.learn()]
    assert delays == [15.0, 30.0, 60.0, 120.0, 240.0]
    assert ids == [id] * (service.MAX_QUERIES - 1)
    assert (gateway.qos(), gateway.hook_runs) == ("", [PUMP])


@pytest.mark.parametrize(
    "content",
    [error("ID", "wait"), error("ID", "continue"), f"<iq type='error' id='ID' to='{DOMAIN}'/>"],
)
def test_invalid_answer_is_ignored(gateway: RecordingGateway, content: str) -> None:
    id, _ = gateway.query()
    gateway.send(PUMP, content.replace("ID", id))
    assert (gateway.qos(), gateway.learn()) == (None, [])
    gateway.fire_timer()
    assert gateway.query() == (id, None)


def test_detached_session_gets_more_time(gateway: RecordingGateway) -> None:
    id, _ = gateway.query()
    gateway.detach(PUMP)
    for _ in range(service.MAX_QUERIES + 1):
        gateway.fire_timer()
        assert (gateway.hook_runs, gateway.sends(PUMP)) == ([], [])
    gateway.resume(PUMP)
    gateway.fire_timer()
    assert gateway.hook_runs == [PUMP]
    assert gateway.query() == (id, None)


def test_overdue_answers_are_handled_in_batches(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.features.discovery.store.BATCH_SIZE", 1)
    gateway.send(PUMP_2, "<presence/>")
    gateway.hook_runs.clear()
    gateway.query(PUMP)
    gateway.query(PUMP_2)
    gateway.fire_timer()
    assert len(gateway.hook_runs) == 1
    assert gateway.due == gateway.clock.service
    gateway.run_timers()
    assert sorted(gateway.hook_runs) == [PUMP, PUMP_2]


def test_query_ends_with_its_session(gateway: RecordingGateway) -> None:
    gateway.query()
    gateway.end(PUMP)
    gateway.run_timers()
    assert gateway.due is None
    assert gateway.count("SELECT count(*) FROM asked") == 0


# Accepted and ignored answers


def test_other_session_cannot_answer(gateway: RecordingGateway) -> None:
    id, _ = gateway.query()
    gateway.send(VALVE, "<presence/>")
    gateway.query(VALVE)
    for sender in (VALVE, UNTRUSTED):
        assert gateway.send(sender, answer(id, "")) is None
    gateway.send(VALVE, error(id, "cancel"))
    assert (gateway.qos(), gateway.qos(VALVE)) == (None, None)
    gateway.send(PUMP, answer(id))
    assert gateway.qos() == QOS


@pytest.mark.parametrize("forged", ["0-1-i", f"{EPOCH}-99-i", "01JZ9-1-i", f"{EPOCH}-x-i"])
def test_unexpected_answer_is_ignored(gateway: RecordingGateway, forged: str) -> None:
    id, _ = gateway.query()
    assert id == f"{EPOCH}-1-i"
    assert gateway.send(PUMP, answer(forged)) is None
    assert gateway.qos() is None


def test_answer_to_another_address_is_relayed(gateway: RecordingGateway) -> None:
    id, _ = gateway.query()
    gateway.send(PUMP, answer(id, features("x"), to=VALVE))
    (relayed,) = gateway.elements(VALVE)
    assert (relayed.get("id"), relayed.get("from"), relayed.get("to")) == (id, PUMP, VALVE)
    for address in ("@", "pump1@gw.example", "other.example"):
        assert gateway.send(PUMP, answer(id, to=address)) is None
    assert gateway.qos() is None


def test_answer_to_an_older_query_is_ignored(gateway: RecordingGateway) -> None:
    old, _ = gateway.query()
    gateway.announce(caps("new"))
    new, node = gateway.query()
    assert (old != new, node) == (True, "urn:fw#new")
    gateway.send(PUMP, answer(old, ""))
    assert gateway.qos() is None
    gateway.send(PUMP, answer(new))
    assert gateway.qos() == QOS


# Announced capabilities


def test_verified_hash_needs_one_query(gateway: RecordingGateway) -> None:
    announced = caps(ver(QOS, "x")).replace("<c ", "<show>away</show><c ")
    gateway.announce(announced)
    id, node = gateway.query()
    assert node == f"urn:fw#{ver(QOS, 'x')}"
    gateway.send(PUMP, answer(id, features("x", QOS)))
    gateway.send(VALVE, announced.replace("urn:fw", "urn:another"))
    gateway.hook_runs.clear()
    assert gateway.learn(VALVE) == []
    assert (gateway.qos(VALVE), gateway.hook_runs) == (QOS, [VALVE])


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
    gateway: RecordingGateway, announced: str, content: str
) -> None:
    for full in (PUMP, VALVE):
        gateway.announce(announced, full)
        id, _ = gateway.query(full)
        gateway.send(full, answer(id, content))
        assert gateway.qos(full) == QOS
    assert gateway.count("SELECT count(*) FROM capabilities") == 0


def test_only_the_hashed_text_of_an_answer_is_cached(gateway: RecordingGateway) -> None:
    announced = caps(ver("a", QOS))
    gateway.announce(announced, UNTRUSTED)
    id, _ = gateway.query(UNTRUSTED)
    form_type = f"<field var='FORM_TYPE' type='hidden'><value>{QOS}</value></field>"
    form = f"<x xmlns='jabber:x:data'>{form_type}</x>"
    gateway.send(UNTRUSTED, answer(id, features("a") + form))
    assert gateway.qos(UNTRUSTED) == "", "the answer counts for its own session"
    gateway.send(PUMP, announced)
    assert gateway.learn() == []
    assert gateway.qos() == QOS


def test_verified_hashes_are_limited_to_the_recently_used(tmp_path: Path) -> None:
    with closing(RecordingGateway(tmp_path, Limits(capabilities=2))) as gateway:

        def is_queried(name: str) -> bool:
            """Return whether a device of this kind is queried."""
            gateway.bind(PUMP)
            gateway.announce(caps(ver(name)))
            queries = gateway.learn()
            if queries:
                gateway.send(PUMP, answer(queries[0].attrib["id"], features(name)))
            gateway.end(PUMP)
            return bool(queries)

        assert [is_queried(name) for name in "abac"] == [True, True, False, True]
        assert gateway.count("SELECT count(*) FROM capabilities") == 2
        assert [is_queried(name) for name in "acb"] == [False, False, True]


@pytest.mark.parametrize("second", [answer("ID"), error("ID", "cancel")])
def test_session_that_refuses_its_node_is_queried_without_it(
    gateway: RecordingGateway, second: str
) -> None:
    gateway.announce(caps("v"))
    id, node = gateway.query()
    assert node == "urn:fw#v"
    gateway.send(PUMP, error(id, "cancel"))
    assert gateway.qos() is None
    (again,) = gateway.elements(PUMP)
    assert (again.get("id"), again[0].get("node")) == (id, None)
    gateway.send(PUMP, second.replace("ID", id))
    assert gateway.qos() == ("" if "error" in second else QOS)


@pytest.mark.parametrize(
    ("presence", "is_known"),
    [
        (caps("two"), False),
        (caps("one"), True),
        ("<presence/>", True),
        ("<presence type='unavailable'/>", True),
    ],
)
def test_changed_capabilities_make_the_qos_support_unknown(
    gateway: RecordingGateway, presence: str, is_known: bool
) -> None:
    gateway.announce(caps("one"))
    gateway.send(PUMP, answer(gateway.query()[0]))
    gateway.hook_runs.clear()
    gateway.announce(presence)
    assert (gateway.qos(), gateway.hook_runs) == ((QOS, []) if is_known else (None, [PUMP]))
    if not is_known:
        assert gateway.query()[1] == "urn:fw#two"
