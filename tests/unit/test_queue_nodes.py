from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.config.limits import Limits
from edge.engine import clock_store
from edge.engine.database import Transaction
from edge.features.queues.service import admin
from edge.features.queues.store import overview
from tests.helpers.queues import (
    NODE,
    ONE,
    OTHER,
    OWNER,
    PUBLISHER,
    QUEUEING,
    TWO,
    Word,
    given,
    offer,
    prepare,
    publish,
    retract,
    states,
    told,
    unconfirmed,
    unlock,
    wait,
    work,
)
from tests.helpers.store import Gateway, new_database, read_element
from tests.helpers.subscribing import OWNER as NODES
from tests.helpers.subscribing import PUBSUB, ask, element, form, request

THREE = "other@gw.example/w"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path))
    prepare(gateway)
    yield gateway
    gateway.close()


def errors(gateway: Gateway, full: str, id: str) -> tuple[str, str]:
    """What a session is refused with that deletes an item, and that unlocks it."""
    found = [ask_(gateway, full, id).error for ask_ in (retract, unlock)]
    return tuple("/".join(error) if error else "done" for error in found)  # type: ignore[return-value]


# Items go to one worker at a time


def test_an_item_goes_to_one_worker_and_the_next_to_another(gateway: Gateway) -> None:
    work(gateway, ONE)
    work(gateway, TWO)
    publish(gateway, "a", "b", "c", "d", "e")
    assert (given(gateway, ONE), given(gateway, TWO)) == (["a", "c"], ["b", "d"])
    assert states(gateway) == {**dict.fromkeys("abcd", "locked"), "e": "ready"}


def test_what_was_published_before_anybody_came_is_given_to_who_comes(gateway: Gateway) -> None:
    publish(gateway, "a", "b", "c")
    work(gateway, ONE, requests=2)
    assert given(gateway, ONE) == ["a", "b"]


def test_a_worker_deletes_its_item_and_is_told_and_gets_the_next(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    work(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c")
    assert (given(gateway, ONE), given(gateway, TWO)) == (["a"], ["b"])
    reply = retract(gateway, ONE, "a", "get")
    assert (reply.type, reply.payload) == ("result", None)
    assert told(gateway, ONE) == [Word("retract", "a"), Word("item", "c")]
    assert told(gateway, TWO) == []


def test_a_notification_has_the_payload_and_the_lock_is_the_sessions(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    (send,) = gateway.sends(ONE)
    assert send.stanza == (
        b"<message id='item-1-0' to='one@gw.example/w' from='pubsub.gw.example'>"
        b"<event xmlns='http://jabber.org/protocol/pubsub#event'><items node='work'>"
        b"<item id='a'><job xmlns='urn:example:work'>a</job></item></items></event></message>"
    )
    holder = gateway.count("SELECT holder FROM queue_items")
    assert holder == ONE


@pytest.mark.parametrize("type_", ["set", "get"])
@pytest.mark.parametrize("ns", [QUEUEING, "urn:xmpp:queueing:0"])
def test_an_unlocked_item_goes_to_another(gateway: Gateway, type_: str, ns: str) -> None:
    work(gateway, ONE, requests=3)
    work(gateway, TWO, requests=3)
    publish(gateway, "a")
    assert given(gateway, ONE) == ["a"]
    reply = unlock(gateway, ONE, "a", type_, ns)
    assert (reply.type, reply.payload) == ("result", None)
    assert told(gateway, ONE) == [Word("unlock", "a")]
    assert told(gateway, TWO) == [Word("item", "a", 1)]


def test_an_unlock_notification_is_in_the_specifications_namespace(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    gateway.sends(ONE)
    unlock(gateway, ONE, "a", ns="urn:xmpp:queueing:0")
    words = [send.stanza for send in gateway.sends(ONE) if b"<unlock" in send.stanza]
    assert len(words) == 1
    assert b"<unlock xmlns='urn:xmpp:pubsub:queueing:0' id='a'/>" in words[0]


def test_an_unlocked_item_goes_to_the_same_worker_if_it_is_the_only_one(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    given(gateway, ONE)
    unlock(gateway, ONE, "a")
    assert told(gateway, ONE) == [Word("unlock", "a"), Word("item", "a", 1)]


def test_an_unlocked_item_waits_for_another_worker_and_keeps_its_place(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    work(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c", "d")
    unlock(gateway, ONE, "a")
    assert given(gateway, ONE) == ["a", "c"]  # what is behind it does not wait
    assert given(gateway, TWO) == ["b"]
    retract(gateway, TWO, "b")
    assert given(gateway, TWO) == ["a"]


def test_what_many_gave_back_goes_to_them_again_before_nothing_moves(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    work(gateway, TWO, requests=1)
    ids = [f"i{number}" for number in range(140)]
    publish(gateway, *ids)
    assert given(gateway, TWO) == ["i1"]
    for id in given(gateway, ONE):
        unlock(gateway, ONE, id)
    while ids_ := given(gateway, ONE):
        (id,) = ids_
        if states(gateway)[id] == "locked" and ids.index(id) < 139:
            unlock(gateway, ONE, id)
        if gateway.count("SELECT max(deliveries) FROM queue_items") > 1:
            break
    assert gateway.count("SELECT deliveries FROM queue_items WHERE item = 'i0'") == 2


def test_the_highest_priority_goes_first_and_else_the_oldest(gateway: Gateway) -> None:
    publish(gateway, "a", "b")
    publish(gateway, "c", queue_priority="5")
    publish(gateway, "d", queue_priority="-1")
    work(gateway, ONE, requests=4)
    assert given(gateway, ONE) == ["c", "a", "b", "d"]


def test_who_names_a_bare_jid_is_served_by_any_session_that_is_there(gateway: Gateway) -> None:
    second = "one@gw.example/v"
    gateway.bind(second)
    work(gateway, ONE, requests=4, jid="one@gw.example")
    publish(gateway, "a")
    assert states(gateway) == {"a": "ready"}  # no session takes messages
    gateway.send(ONE, "<presence/>")
    gateway.send(second, "<presence><priority>-1</priority></presence>")
    publish(gateway, "b", "c")
    assert given(gateway, ONE) == ["a", "b", "c"]
    gateway.send(second, "<presence/>")
    publish(gateway, "d", "e")
    assert sorted(given(gateway, ONE) + given(gateway, second)) == ["d"]  # it has room for one


def test_sessions_of_a_bare_jid_take_turns_and_have_one_capacity(gateway: Gateway) -> None:
    second = "one@gw.example/v"
    gateway.bind(second)
    gateway.send(ONE, "<presence/>")
    gateway.send(second, "<presence/>")
    gateway.sends(ONE), gateway.sends(second)
    work(gateway, ONE, requests=4, jid="one@gw.example")
    publish(gateway, *"abcdef")
    assert [len(given(gateway, full)) for full in (ONE, second)] == [2, 2]


def test_by_hash_a_publishers_items_go_to_one_worker(gateway: Gateway) -> None:
    configure(gateway, queue_policy="hash")
    for full in (ONE, TWO):
        work(gateway, full, requests=10)
    by_publisher = {}
    for number, by in enumerate((PUBLISHER, OTHER, OWNER, "two@gw.example/p", "x1@gw.example/p")):
        if not gateway.is_bound(by):
            gateway.add("x1") if by.startswith("x1") else None
            gateway.bind(by)
        publish(gateway, f"{number}a", f"{number}b", by=by)
        by_publisher[by] = given(gateway, ONE), given(gateway, TWO)
    assert all(sorted(map(len, found)) == [0, 2] for found in by_publisher.values())
    assert any(found[0] for found in by_publisher.values())
    assert any(found[1] for found in by_publisher.values())


def test_what_waits_goes_by_hash_when_the_node_is_configured_so(gateway: Gateway) -> None:
    publish(gateway, "a", "b", "c")
    publish(gateway, "d", by=OTHER)
    configure(gateway, queue_policy="hash")
    work(gateway, ONE, requests=1)
    assert given(gateway, ONE) == ["a"]
    work(gateway, TWO, requests=10)
    held = given(gateway, TWO)
    assert held in ([], ["d"])  # what has the publisher of one that is in work waits
    retract(gateway, ONE, "a")
    configure(gateway, queue_policy="least-loaded")
    publish(gateway, "e")
    assert states(gateway)["e"] == "locked"


def test_sticky_gives_all_to_one_worker_until_it_goes(gateway: Gateway) -> None:
    configure(gateway, queue_policy="sticky")
    work(gateway, ONE, requests=2)
    work(gateway, TWO, requests=10)
    publish(gateway, "a", "b", "c")
    assert (given(gateway, ONE), given(gateway, TWO)) == (["a", "b"], [])
    gateway.leave(ONE)
    assert given(gateway, TWO) == ["a", "b", "c"]
    work(gateway, ONE, requests=2)
    publish(gateway, "d")
    assert (given(gateway, ONE), given(gateway, TWO)) == ([], ["d"])


def configure(gateway: Gateway, **config: str) -> None:
    content = element("configure", form("node_config", config), node=NODE)
    reply = ask(gateway, OWNER, content, ns=NODES)
    assert reply.type == "result", (reply.error, reply.text)


def test_more_than_one_unit_gives_goes_in_the_next(gateway: Gateway) -> None:
    for full in (ONE, TWO, THREE):
        gateway.bind(full) if full == THREE else None
        work(gateway, full, requests=100)
    gateway.crash()
    gateway.bind(PUBLISHER)
    publish(gateway, *(f"i{number}" for number in range(300)))
    for full in (ONE, TWO, THREE):
        gateway.bind(full)
    gateway.ring()
    assert gateway.due == gateway.clock.service
    assert 0 < gateway.count("SELECT count(*) FROM queue_items WHERE state = 'locked'") < 300
    gateway.ring()
    for full in (ONE, TWO, THREE):
        assert len(given(gateway, full)) == 100


def test_a_purge_leaves_workers_with_room(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    reply = ask(gateway, OWNER, element("purge", node=NODE), ns=NODES)
    assert reply.type == "result"
    assert states(gateway) == {}
    gateway.sends(ONE)
    publish(gateway, "c")
    assert given(gateway, ONE) == ["c"]


# What is refused


def test_what_is_not_there_is_not_found(gateway: Gateway) -> None:
    work(gateway, ONE)
    assert errors(gateway, ONE, "none") == ("cancel/item-not-found",) * 2
    content = element("unlock", element("item", id="a"), node="nothing", xmlns=QUEUEING)
    assert ask(gateway, ONE, content).error == ("cancel", "item-not-found")


def test_an_item_that_another_has_is_a_conflict_to_those_of_the_node(gateway: Gateway) -> None:
    work(gateway, ONE)
    work(gateway, TWO)
    publish(gateway, "a")
    for full in (TWO, OWNER, PUBLISHER):
        assert errors(gateway, full, "a") == ("cancel/conflict",) * 2, full
    assert errors(gateway, OTHER, "a") == ("auth/forbidden",) * 2
    second = "one@gw.example/v"  # the lock is the session's
    gateway.bind(second)
    assert errors(gateway, second, "a") == ("cancel/conflict",) * 2


def test_an_item_that_nobody_has_is_its_owners_and_publishers(gateway: Gateway) -> None:
    publish(gateway, "a", "b")
    assert errors(gateway, OTHER, "a") == ("auth/forbidden",) * 2
    assert unlock(gateway, PUBLISHER, "a").error == ("auth", "forbidden")
    assert unlock(gateway, OWNER, "a").type == "result"
    assert states(gateway) == {"a": "ready", "b": "ready"}
    assert retract(gateway, PUBLISHER, "a").type == "result"
    assert retract(gateway, OWNER, "b").type == "result"
    assert states(gateway) == {}
    assert told(gateway, OWNER) == told(gateway, PUBLISHER) == []


def test_a_lock_that_is_over_is_unexpected_to_who_had_it(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    gateway.leave(ONE)
    gateway.bind(ONE)
    assert states(gateway) == {"a": "ready"}
    assert errors(gateway, ONE, "a") == ("wait/unexpected-request",) * 2


def test_an_error_repeats_the_request(gateway: Gateway) -> None:
    content = element("unlock", element("item", id="a"), node=NODE, xmlns=QUEUEING)
    answer = read_element(gateway.tx(gateway.work(ONE, request(content, "get"))))
    assert answer.get("type") == "error"
    repeated, error = answer
    assert repeated.tag == f"{{{PUBSUB}}}pubsub"
    assert repeated[0].tag == f"{{{QUEUEING}}}unlock"
    assert error.get("type") == "cancel"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("<unlock xmlns='{}'><item id='a'/></unlock>", ("modify", "bad-request")),
        ("<unlock xmlns='{}' node='work'/>", ("modify", "bad-request")),
        ("<unlock xmlns='{}' node='work'><item/></unlock>", ("modify", "bad-request")),
        (
            "<unlock xmlns='{}' node='work'><item id='a'/><item id='b'/></unlock>",
            ("modify", "bad-request"),
        ),
    ],
)
def test_an_unlock_names_a_node_and_one_item(
    gateway: Gateway, content: str, error: tuple[str, str]
) -> None:
    publish(gateway, "a", "b")
    assert ask(gateway, OWNER, content.format(QUEUEING)).error == error


def test_only_items_of_queues_are_unlocked(gateway: Gateway) -> None:
    ask(gateway, OWNER, element("create", node="plain"))
    content = element("unlock", element("item", id="a"), node="plain", xmlns=QUEUEING)
    assert ask(gateway, OWNER, content).error == ("cancel", "feature-not-implemented")


def test_an_untrusted_device_unlocks_nothing(gateway: Gateway) -> None:
    gateway.add("stranger", trusted=False)
    stranger = "stranger@gw.example/x"
    gateway.bind(stranger)
    publish(gateway, "a")
    assert unlock(gateway, stranger, "a").error == ("auth", "forbidden")


# Publishing an item that is there


def test_an_item_that_waits_is_replaced_and_keeps_its_place(gateway: Gateway) -> None:
    publish(gateway, "a", "b")
    assert offer(gateway, "a", text="anew").type == "result"
    work(gateway, ONE, requests=2)
    assert [b"anew" in send.stanza for send in gateway.sends(ONE)] == [True, False]
    total = gateway.count("SELECT sum(bytes) FROM queue_items")
    assert gateway.count("SELECT bytes FROM queues_total") == total
    assert gateway.count("SELECT bytes FROM queues") == total


def test_an_item_in_work_is_not_replaced(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    assert offer(gateway, "a").error == ("cancel", "conflict")


def test_a_dead_item_makes_way_for_a_new_one(gateway: Gateway) -> None:
    publish(gateway, "a", queue_ttl="5")
    wait(gateway, 6)
    assert states(gateway) == {"a": "dead"}
    publish(gateway, "b", "a")
    assert states(gateway) == {"b": "ready", "a": "ready"}
    assert gateway.count("SELECT count(*) FROM queue_items") == 2


# Time


def test_a_lock_is_over_in_time_and_its_worker_is_told(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    given(gateway, ONE)
    work(gateway, TWO)
    wait(gateway, 59)
    assert told(gateway, ONE) == []
    wait(gateway, 1)
    assert told(gateway, ONE) == [Word("unlock", "a")]
    assert told(gateway, TWO) == [Word("item", "a", 1)]


def test_the_lock_time_out_is_the_nodes(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path))
    prepare(gateway, queue_lock_timeout="5")
    work(gateway, ONE)
    publish(gateway, "a")
    assert gateway.due is not None
    wait(gateway, 5)
    assert told(gateway, ONE) == [Word("item", "a"), Word("unlock", "a"), Word("item", "a", 1)]
    gateway.close()


def test_after_so_many_deliveries_an_item_is_dead_and_logged(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    for _time in range(5):
        wait(gateway, 60)
    assert states(gateway) == {"a": "dead"}
    assert [word.times for word in told(gateway, ONE) if word.what == "item"] == [0, 1, 2, 3, 4]
    (event,) = gateway.events(name="queue_dead")
    assert (event.source, event.topic, event.tags) == (
        PUBLISHER, NODE, {"item": "a", "deliveries": "5"},
    )  # fmt: skip
    assert retract(gateway, OWNER, "a").type == "result"


def test_a_requeued_item_says_how_often_it_was_given_and_has_all_its_deliveries_anew(
    gateway: Gateway,
) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    for _time in range(5):
        wait(gateway, 60)
    told(gateway, ONE)

    def requeue(tx: Transaction) -> None:
        (queue,) = overview.page(tx, 0, 1)
        admin.requeue(tx, queue, ["a"])

    gateway.tx(requeue)
    gateway.tx(gateway.router.run_external_change)
    for _time in range(5):
        assert states(gateway) == {"a": "locked"}
        wait(gateway, 60)
    assert states(gateway) == {"a": "dead"}
    assert [word.times for word in told(gateway, ONE) if word.what == "item"] == [5, 6, 7, 8, 9]


def test_a_delayed_item_waits_for_its_time(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "late", queue_delay="10")
    publish(gateway, "now")
    assert given(gateway, ONE) == ["now"]
    wait(gateway, 9)
    assert states(gateway)["late"] == "delayed"
    wait(gateway, 1)
    assert given(gateway, ONE) == ["late"]


def test_an_item_that_nobody_took_in_time_is_dead(gateway: Gateway) -> None:
    publish(gateway, "a", queue_ttl="10")
    wait(gateway, 9)
    assert states(gateway) == {"a": "ready"}
    wait(gateway, 1)
    assert states(gateway) == {"a": "dead"}
    assert gateway.count("SELECT reason FROM queue_items") == "expired"
    work(gateway, ONE)
    assert given(gateway, ONE) == []


def test_an_item_in_work_does_not_expire_before_it_comes_back(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a", queue_ttl="10")
    wait(gateway, 20)
    assert states(gateway) == {"a": "locked"}
    unlock(gateway, ONE, "a")
    gateway.ring()
    assert states(gateway) == {"a": "dead"}


# Sessions go and come


def test_a_session_that_ends_gives_back_and_is_unsubscribed(gateway: Gateway) -> None:
    work(gateway, ONE)
    work(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c")
    gateway.leave(ONE)
    assert states(gateway) == {"a": "ready", "b": "locked", "c": "ready"}
    retract(gateway, TWO, "b")
    assert [word.id for word in told(gateway, TWO)] == ["b", "b", "a"]
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1


def test_unavailable_presence_gives_back_and_unsubscribes(gateway: Gateway) -> None:
    gateway.send(ONE, "<presence/>")
    gateway.sends(ONE)
    work(gateway, ONE)
    publish(gateway, "a")
    gateway.send(ONE, "<presence type='unavailable'/>")
    assert states(gateway) == {"a": "ready"}
    words = [send.stanza for send in gateway.sends(ONE) if b"<unlock" in send.stanza]
    assert len(words) == 1
    publish(gateway, "b")
    assert states(gateway) == {"a": "ready", "b": "ready"}
    assert gateway.count("SELECT count(*) FROM subscriptions") == 0


def test_of_a_bare_jid_one_session_goes_and_the_other_gets_what_it_had(gateway: Gateway) -> None:
    second = "one@gw.example/v"
    gateway.bind(second)
    for full in (ONE, second):
        gateway.send(full, "<presence/>")
    work(gateway, ONE, requests=2, jid="one@gw.example")
    publish(gateway, "a", "b")
    gateway.sends(second), gateway.sends(ONE)
    had = gateway.count("SELECT item FROM queue_items WHERE holder = ?", ONE)
    gateway.send(ONE, "<presence type='unavailable'/>")
    assert given_of(gateway, second) == [had]
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1
    gateway.leave(second)
    assert set(states(gateway).values()) == {"ready"}
    assert gateway.count("SELECT count(*) FROM subscriptions") == 0


def given_of(gateway: Gateway, full: str) -> list[str]:
    stanzas = [read_element(send.stanza) for send in gateway.sends(full)]
    found = [one.find(".//{http://jabber.org/protocol/pubsub#event}item") for one in stanzas]
    return [item.attrib["id"] for item in found if item is not None]


def test_who_unsubscribes_gives_back_and_is_told(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    given(gateway, ONE)
    reply = ask(gateway, ONE, element("unsubscribe", node=NODE, jid=ONE))
    assert reply.type == "result"
    assert told(gateway, ONE) == [Word("unlock", "a")]
    assert states(gateway) == {"a": "ready"}


def test_a_session_that_waits_to_be_resumed_keeps_its_locks_and_gets_nothing(
    gateway: Gateway,
) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    given(gateway, ONE)
    generation = gateway.generation(ONE)
    gateway.tx(lambda tx: gateway.lifecycle.detach(tx, generation))
    publish(gateway, "b")
    assert states(gateway) == {"a": "locked", "b": "ready"}
    gateway.tx(lambda tx: gateway.lifecycle.resume(tx, generation))
    assert given(gateway, ONE) == ["b"]


def test_after_a_restart_locks_are_the_same_sessions_and_their_time_runs_on(
    gateway: Gateway,
) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    gateway.clock.service += 30
    gateway.crash()
    gateway.ring()
    assert states(gateway) == {"a": "locked", "b": "ready"}
    gateway.bind(ONE)
    gateway.ring()
    assert given(gateway, ONE) == []  # it has as many as it takes
    assert retract(gateway, ONE, "a").type == "result"
    assert told(gateway, ONE) == [Word("retract", "a"), Word("item", "b")]
    gateway.crash()
    wait(gateway, 61)
    assert states(gateway) == {"b": "ready"}


def test_a_time_off_that_is_known_counts_for_items_and_locks(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "held", queue_ttl="100")
    publish(gateway, "late", queue_delay="100")
    publish(gateway, "old", queue_ttl="100")
    gateway.crash()
    gateway.tx(lambda tx: clock_store.age_rows(tx, tx.now.service, 50))
    wait(gateway, 11)
    assert states(gateway) == {"held": "ready", "late": "delayed", "old": "ready"}
    wait(gateway, 39)
    assert states(gateway) == {"held": "dead", "late": "ready", "old": "dead"}


def test_a_gateway_that_stops_takes_nothing_from_workers(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    gateway.lifecycle.stop()
    gateway.leave(ONE)
    assert states(gateway) == {"a": "locked", "b": "ready"}
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1


def test_others_are_given_what_waited_for_a_worker_that_loses_its_connection(
    gateway: Gateway,
) -> None:
    work(gateway, ONE, requests=1)
    work(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c")
    unlock(gateway, ONE, "a")
    retract(gateway, ONE, "c")
    assert given(gateway, ONE) == ["a", "c"]
    assert states(gateway) == {"a": "ready", "b": "locked"}  # it waits for the other
    generation = gateway.generation(TWO)
    gateway.tx(lambda tx: gateway.lifecycle.detach(tx, generation))
    assert given(gateway, ONE) == ["a"]


def test_an_old_word_does_not_come_after_the_item_that_is_given_anew(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a")
    gateway.crash()
    wait(gateway, 61)  # it is told when it comes back
    gateway.bind(PUBLISHER)
    work(gateway, ONE, requests=1)
    assert told(gateway, ONE) == [Word("unlock", "a"), Word("item", "a", 1)]


def test_a_session_of_a_full_jid_that_begins_is_given_what_waits(gateway: Gateway) -> None:
    work(gateway, ONE)
    gateway.crash()
    for full in (PUBLISHER, ONE):
        gateway.bind(full)
    assert gateway.sends(ONE) == []  # not before it knows that it is bound
    gateway.ring()
    publish(gateway, "a")
    assert given(gateway, ONE) == ["a"]


# What workers must be told


def test_a_notification_is_kept_until_its_session_has_it(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    given(gateway, ONE)
    retract(gateway, ONE, "a")
    assert unconfirmed(gateway, ONE) == [Word("retract", "a")]
    gateway.leave(ONE)
    assert gateway.count("SELECT count(*) FROM notifications") == 1
    gateway.bind(ONE)
    gateway.ring()
    assert told(gateway, ONE) == [Word("retract", "a")]
    assert gateway.count("SELECT count(*) FROM notifications") == 0


def test_a_notification_survives_a_crash(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    retract(gateway, ONE, "a")
    gateway.crash()
    gateway.bind(ONE)
    gateway.ring()
    assert told(gateway, ONE) == [Word("retract", "a")]


def test_a_notification_is_for_the_session_alone_and_is_dropped_in_time(gateway: Gateway) -> None:
    work(gateway, ONE)
    publish(gateway, "a")
    retract(gateway, ONE, "a")
    gateway.leave(ONE)
    other = "one@gw.example/v"
    gateway.bind(other)
    gateway.send(other, "<presence/>")
    assert not any(b"retract" in send.stanza for send in gateway.sends(other))
    wait(gateway, Limits().outbox_ttl + 1)
    assert gateway.count("SELECT count(*) FROM notifications") == 0
    (event,) = gateway.events(name="queue_notification_dropped")
    assert event.source == ONE


def test_notifications_of_an_account_are_bounded(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), Limits(notifications_per_account=8))
    prepare(gateway)
    work(gateway, ONE, requests=10)
    publish(gateway, *"abcdefghij")
    for id in "abcdefghij":
        retract(gateway, ONE, id)
    assert gateway.count("SELECT count(*) FROM notifications") == 8
    assert len(gateway.events(name="queue_notification_dropped")) == 2
    gateway.close()


# Bounds


@pytest.mark.parametrize(
    ("rule", "limits"),
    [
        ("items_per_queue", {"items_per_queue": 2}),
        ("queue_items", {"queue_items": 2}),
    ],
)
def test_what_finds_no_room_is_refused_and_logged(
    tmp_path: Path, rule: str, limits: dict[str, int]
) -> None:
    gateway = Gateway(new_database(tmp_path), Limits(**limits))
    prepare(gateway)
    publish(gateway, "a", "b")
    assert offer(gateway, "c").error == ("wait", "resource-constraint")
    assert offer(gateway, "a", text="anew").type == "result"
    assert [event.name for event in gateway.events() if event.kind == "limit"] == [rule]
    gateway.close()


def test_the_bytes_of_queues_are_bounded(tmp_path: Path) -> None:
    gateway = Gateway(new_database(tmp_path), Limits(queue_bytes_per_queue=64 * 1024))
    prepare(gateway)
    publish(gateway, "a")
    assert offer(gateway, "b", text="x" * 40_000).type == "result"
    assert offer(gateway, "c", text="x" * 40_000).error == ("wait", "resource-constraint")
    assert offer(gateway, "a", text="x" * 40_000).error == ("wait", "resource-constraint")
    gateway.close()


def test_a_worker_is_given_no_more_bytes_than_a_session_may_leave_unacknowledged(
    gateway: Gateway,
) -> None:
    work(gateway, ONE, requests=100)
    for id in "abcdef":
        offer(gateway, id, text="x" * 50_000)
    assert given(gateway, ONE) == ["a", "b", "c"]
    retract(gateway, ONE, "a")
    assert given(gateway, ONE) == ["d"]


# What other processes do


def test_items_of_a_worker_whose_account_is_removed_are_given_to_another(
    gateway: Gateway,
) -> None:
    work(gateway, ONE)
    work(gateway, TWO)
    publish(gateway, "a")
    gateway.tx(lambda tx: tx.run("DELETE FROM accounts WHERE name = 'one'"))
    gateway.tx(gateway.router.run_external_change)
    assert told(gateway, TWO) == [Word("item", "a", 1)]


def test_what_another_process_has_unlocked_or_requeued_moves(gateway: Gateway) -> None:
    work(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    given(gateway, ONE)
    change = "UPDATE queue_items SET state = 'dead', reason = 'a person said so' WHERE item = 'a'"
    gateway.tx(lambda tx: tx.run(change))
    gateway.tx(gateway.router.run_external_change)
    assert given(gateway, ONE) == ["b"]


def test_queueing_is_advertised(gateway: Gateway) -> None:
    xml = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
    reply = gateway.send(ONE, f"<iq type='get' id='d' to='pubsub.gw.example'>{xml}</iq>")
    assert reply is not None
    assert reply.payload is not None
    assert QUEUEING in [feature.get("var") for feature in reply.payload]
