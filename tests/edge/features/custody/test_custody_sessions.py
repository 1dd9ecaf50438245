"""Tests of custody across the sessions of one account, on a real database.

`ONE`, `TWO` and `THREE` are full JIDs of one account, whose client chooses a new resource in each
process.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edge.config.limits import Limits
from edge.config.options import Xmpp
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.custody import store as custody
from tests.helpers.custody_image import image_equals_rows
from tests.helpers.store import DOMAIN, Gateway, MakeGateway, Reply, assured, deliver, log

ONE, TWO, THREE = (f"pump1@gw.example/fw/{number}" for number in (1, 2, 3))
TTL = 100.0


@pytest.fixture
def gateway(make_gateway: MakeGateway) -> Iterator[Gateway]:
    gateway = make_gateway(Limits(held_ttl=TTL), accounts_of=("pump1", "valve1"))
    yield gateway
    image_equals_rows(Transaction(gateway.connection, gateway.clock(), gateway.cache))


def begin(gateway: Gateway, full: str) -> None:
    """Begin a session a second later."""
    gateway.clock.service += 1.0
    gateway.bind(full)


def offer(gateway: Gateway, full: str, text: str = "seven", msg_id: str = "m1") -> str:
    return answer(gateway.send(full, assured(msg_id, log(text))))


def release(gateway: Gateway, full: str, msg_id: str = "m1") -> str:
    return answer(gateway.send(full, deliver(msg_id)))


def answer(reply: Reply | None) -> str:
    assert reply is not None
    if reply.error is not None:
        return "/".join(reply.error)
    return "delivered" if reply.payload is None else reply.payload.tag.partition("}")[2]


def log_texts(gateway: Gateway) -> list[str | None]:
    return [event.text for event in gateway.events("logs")]


def held(gateway: Gateway) -> list[tuple[str, int]]:
    """Return the sender of each message in custody, and whether it is exclusive."""
    query = "SELECT sender, exclusive FROM custody WHERE released IS NULL ORDER BY id"
    return gateway.connection.execute(query).fetchall()


def refusals(gateway: Gateway) -> list[str | None]:
    return [event.name for event in gateway.events("system") if event.kind == "limit"]


# Successive sessions of a device.


@pytest.mark.parametrize("end", [Gateway.end, Gateway.detach, Gateway.crash])
def test_later_session_releases_a_message(gateway: Gateway, end: object) -> None:
    begin(gateway, ONE)
    assert offer(gateway, ONE) == "received"
    end(gateway) if end is Gateway.crash else end(gateway, ONE)  # type: ignore[operator]
    begin(gateway, TWO)
    assert release(gateway, TWO) == release(gateway, TWO) == "delivered"
    gateway.end(TWO)
    begin(gateway, THREE)
    assert release(gateway, THREE) == "delivered"
    assert log_texts(gateway) == ["seven"]
    assert [event.source for event in gateway.events("logs")] == [TWO]
    assert held(gateway) == []
    assert refusals(gateway) == []


@pytest.mark.parametrize("end", [Gateway.end, Gateway.detach])
def test_later_session_repeats_an_offer(gateway: Gateway, end: object) -> None:
    begin(gateway, ONE)
    offer(gateway, ONE)
    end(gateway, ONE)  # type: ignore[operator]
    begin(gateway, TWO)
    usage = gateway.commit(lambda tx: custody.usage(tx, "pump1@gw.example"))
    assert offer(gateway, TWO) == "received"
    assert held(gateway) == [(TWO, 0)]
    assert gateway.commit(lambda tx: custody.usage(tx, "pump1@gw.example")) == usage
    assert release(gateway, TWO) == "delivered"
    assert log_texts(gateway) == ["seven"]


def test_dead_letter_names_the_session_whose_deliver_was_refused(gateway: Gateway) -> None:
    begin(gateway, ONE)
    offer(gateway, ONE)
    gateway.end(ONE)
    begin(gateway, TWO)
    gateway.tx(lambda tx: tx.run("UPDATE accounts SET trusted = 0 WHERE name = 'pump1'"))
    assert release(gateway, TWO) == "cancel/not-allowed"
    row = gateway.connection.execute("SELECT sender, msg_id, destination FROM dead").fetchall()
    assert row == [(TWO, "m1", DOMAIN)]
    assert release(gateway, TWO) == "cancel/item-not-found"


@pytest.mark.parametrize(
    ("released_by", "texts", "remaining"),
    [
        (None, ["eight"], [(ONE, 1)]),
        (ONE, ["seven", "eight"], []),
        (TWO, ["eight"], [(ONE, 1)]),  # THREE repeats its `deliver`, because the answer was lost
    ],
    ids=["none", "first", "second"],
)
def test_newest_of_two_messages_with_the_same_id_is_delivered(
    gateway: Gateway, released_by: str | None, texts: list[str], remaining: list[tuple[str, int]]
) -> None:
    """The device numbers from 1 in each process; an earlier message stays until it expires."""
    for full, text in ((ONE, "seven"), (TWO, "eight")):
        begin(gateway, full)
        assert offer(gateway, full, text) == "received"
        if full == released_by:
            assert release(gateway, full) == "delivered"
        gateway.end(full)
    begin(gateway, THREE)
    assert release(gateway, THREE) == release(gateway, THREE) == "delivered"
    assert log_texts(gateway) == texts
    assert held(gateway) == remaining


def test_dead_letter_is_not_answered_by_an_earlier_session(gateway: Gateway) -> None:
    begin(gateway, ONE)
    offer(gateway, ONE)
    gateway.end(ONE)
    begin(gateway, TWO)
    gateway.send(TWO, assured("m1", log("eight"), "valve1@gw.example"))
    gateway.tx(lambda tx: accounts.remove(tx, "valve1"))
    assert release(gateway, TWO) == "cancel/service-unavailable"
    assert release(gateway, TWO) == "cancel/item-not-found"
    assert held(gateway) == [(ONE, 1)]


# Concurrent sessions.


def test_connected_sessions_do_not_take_over_messages(gateway: Gateway) -> None:
    begin(gateway, ONE)
    offer(gateway, ONE)
    begin(gateway, TWO)
    assert release(gateway, TWO) == "wait/unexpected-request"
    assert offer(gateway, TWO) == "received"
    assert held(gateway) == [(ONE, 0), (TWO, 0)]
    assert release(gateway, TWO) == release(gateway, ONE) == "delivered"
    assert log_texts(gateway) == ["seven", "seven"]
    begin(gateway, THREE)
    assert release(gateway, THREE) == "wait/unexpected-request"
    assert refusals(gateway) == ["msgid_elsewhere"]
    assert release(gateway, THREE, "m2") == "cancel/item-not-found"


def test_session_older_than_a_message_does_not_take_it_over(gateway: Gateway) -> None:
    """Two programs of an account send equal messages, and one of them is offline for a while."""
    begin(gateway, ONE)
    begin(gateway, TWO)
    gateway.clock.service += 1.0
    offer(gateway, ONE)
    gateway.end(ONE)
    assert release(gateway, TWO) == "cancel/item-not-found"
    assert offer(gateway, TWO) == "received"
    assert release(gateway, TWO) == "delivered"
    begin(gateway, ONE)
    assert release(gateway, ONE) == "delivered"
    assert log_texts(gateway) == ["seven", "seven"]


# A device that reconnects before the gateway notices the loss of its earlier connection.


@pytest.mark.parametrize("released", [False, True])
def test_device_waits_until_its_earlier_connection_is_lost(
    gateway: Gateway, released: bool
) -> None:
    begin(gateway, ONE)
    offer(gateway, ONE)
    if released:
        release(gateway, ONE)
    begin(gateway, TWO)
    assert release(gateway, TWO) == "wait/unexpected-request"
    gateway.detach(ONE)
    assert release(gateway, TWO) == "delivered"
    assert log_texts(gateway) == ["seven"]


@pytest.mark.parametrize("late", [False, True], ids=["offered before", "offered late"])
@pytest.mark.parametrize("restarted", [False, True])
def test_repeated_deliver_does_not_release_an_earlier_copy(
    gateway: Gateway, late: bool, restarted: bool
) -> None:
    """The earlier process offers, and a later one offers again and releases; both seem connected.

    A third process repeats the `deliver`, whose answer was lost.
    """
    begin(gateway, ONE)
    if not late:
        offer(gateway, ONE)
    begin(gateway, TWO)
    offer(gateway, TWO)
    assert release(gateway, TWO) == "delivered"
    if late:  # it was read late; meanwhile, a command changed the database
        gateway.cache.clear()
        offer(gateway, ONE)
    assert held(gateway) == [(ONE, 1)]
    if restarted:
        gateway.crash()
    else:
        gateway.end(ONE)
        gateway.end(TWO)
    begin(gateway, THREE)
    assert release(gateway, THREE) == "delivered"
    assert log_texts(gateway) == ["seven"]
    begin(gateway, ONE)  # `ONE` belonged to another program
    assert release(gateway, ONE) == "delivered"
    assert log_texts(gateway) == ["seven", "seven"]


def test_custody_of_a_component_follows_the_device(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(accounts=False, xmpp=Xmpp(trusted_domains=["site.example"]))
    one, two, three = (f"user@site.example/{number}" for number in (1, 2, 3))
    begin(gateway, one)
    assert offer(gateway, one) == "received"
    begin(gateway, two)
    assert release(gateway, two) == "wait/unexpected-request"
    gateway.end(one)
    assert release(gateway, two) == "delivered"
    gateway.crash()
    begin(gateway, three)
    assert release(gateway, three) == "delivered"
    assert log_texts(gateway) == ["seven"]
