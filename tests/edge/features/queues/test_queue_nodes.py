"""Queue nodes (XEP-0254) on an in-process gateway."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge.config.limits import Limits
from edge.engine.store.database import Transaction
from edge.features.accounts.store import accounts
from edge.features.queues.store import queue_items
from tests.helpers.pubsub import OWNER as NODES
from tests.helpers.pubsub import element, form, send_request
from tests.helpers.pubsub_image import caches_equal_rows
from tests.helpers.queue_nodes import (
    NODE,
    ONE,
    OTHER,
    OWNER,
    PUBLISHER,
    QUEUEING,
    TWO,
    Received,
    advance,
    deliveries,
    messages,
    publish,
    retract,
    set_up,
    states,
    subscribe_worker,
    try_publish,
    unacknowledged,
    unlock,
)
from tests.helpers.shared_subscriptions import join, plain_items
from tests.helpers.shared_subscriptions import publish as publish_to_share
from tests.helpers.store import Gateway, MakeGateway, refused

SECOND = "one@gw.example/v"
TO_SERVICE = " to='pubsub.gw.example'"


def error(gateway: Gateway, full: str, id: str) -> str:
    """Return the error that answers both a request to delete an item and one to unlock it."""
    found = {refused(send(gateway, full, id)) for send in (retract, unlock)}
    assert len(found) == 1
    return found.pop()


def configure(gateway: Gateway, **config: str) -> None:
    content = element("configure", form("node_config", config), node=NODE)
    reply = send_request(gateway, OWNER, content, ns=NODES)
    assert reply.type == "result", (reply.error, reply.text)


# Dispatch


def test_items_are_published_assigned_and_deleted_without_statements(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "first")  # the first item loads the caches
    retract(gateway, ONE, "first")
    messages(gateway, ONE)
    with monkeypatch.context() as patch:
        patch.setattr(gateway, "commit", gateway.commit_in_memory)
        publish(gateway, "a", "b")
        assert states(gateway) == {"a": "locked", "b": "locked"}
        assert deliveries(gateway, ONE) == ["a", "b"]
        retract(gateway, ONE, "a")
        publish(gateway, "a")
        retract(gateway, ONE, "b")
        assert states(gateway) == {"a": "locked"}
        deleted, repeated = Received("retract", "a"), Received("item", "a")
        assert messages(gateway, ONE) == [deleted, repeated, Received("retract", "b")]
    assert gateway.count("SELECT count(*) FROM notifications") == 0
    assert gateway.count("SELECT count(*) FROM queue_bodies") == 1
    gateway.commit(lambda tx: caches_equal_rows(gateway.router.context, tx))


def test_cached_items_equal_the_stored_ones(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    names = [f"i{number}" for number in range(queue_items.CACHED_ITEMS + 10)]
    for name in names:
        publish(gateway, name)
    for name in names[:-2]:
        retract(gateway, ONE, name)
    assert states(gateway) == dict.fromkeys(names[-2:], "locked")

    def check(tx: Transaction) -> None:
        caches_equal_rows(gateway.router.context, tx)
        ((_queue, cached),) = tx.cache[queue_items._ITEMS].items()
        assert set(names[-2:]) <= set(cached)
        assert len(cached) <= queue_items.CACHED_ITEMS

    gateway.commit(check)


def test_items_are_spread_over_workers_up_to_their_requests(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    subscribe_worker(gateway, TWO)
    publish(gateway, "a", "b", "c", "d", "e")
    assert (deliveries(gateway, ONE), deliveries(gateway, TWO)) == (["a", "c"], ["b", "d"])
    assert states(gateway) == {**dict.fromkeys("abcd", "locked"), "e": "ready"}


def test_a_delivery_has_the_payload_and_locks_the_item_for_the_session(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    (send,) = gateway.sends(ONE)
    assert send.stanza == (
        b"<message id='item-1-0' to='one@gw.example/w' from='pubsub.gw.example'>"
        b"<event xmlns='http://jabber.org/protocol/pubsub#event'><items node='work'>"
        b"<item id='a' publisher='sensor@gw.example'><job xmlns='urn:example:work'>a</job></item>"
        b"</items></event></message>"
    )
    assert gateway.count("SELECT holder FROM queue_items") == ONE


def test_an_unlocked_item_waits_for_another_worker_and_blocks_nothing(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    subscribe_worker(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c", "d")
    unlock(gateway, ONE, "a")
    assert deliveries(gateway, ONE) == ["a", "c"]  # the items behind it do not wait
    assert deliveries(gateway, TWO) == ["b"]
    retract(gateway, TWO, "b")
    assert deliveries(gateway, TWO) == ["a"]


def test_items_that_all_workers_gave_back_are_delivered_again(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    subscribe_worker(gateway, TWO, requests=1)
    ids = [f"i{number}" for number in range(140)]
    publish(gateway, *ids)
    assert deliveries(gateway, TWO) == ["i1"]
    for id in deliveries(gateway, ONE):
        unlock(gateway, ONE, id)
    while gateway.count("SELECT max(deliveries) FROM queue_items") == 1:
        (id,) = deliveries(gateway, ONE)
        unlock(gateway, ONE, id)
    assert gateway.count("SELECT deliveries FROM queue_items WHERE item = 'i0'") == 2


def test_items_are_delivered_by_priority_then_age(gateway: Gateway) -> None:
    publish(gateway, "a", "b")
    publish(gateway, "c", queue_priority="5")
    publish(gateway, "d", queue_priority="-1")
    subscribe_worker(gateway, ONE, requests=4)
    assert deliveries(gateway, ONE) == ["c", "a", "b", "d"]


def test_a_bare_jid_is_served_through_any_available_session(gateway: Gateway) -> None:
    gateway.bind(SECOND)
    subscribe_worker(gateway, ONE, requests=4, jid="one@gw.example")
    publish(gateway, "a")
    assert states(gateway) == {"a": "ready"}  # no session is available
    gateway.send(ONE, "<presence/>")
    gateway.send(SECOND, "<presence><priority>-1</priority></presence>")
    publish(gateway, "b", "c")
    assert deliveries(gateway, ONE) == ["a", "b", "c"]
    gateway.send(SECOND, "<presence/>")
    publish(gateway, "d", "e")
    assert deliveries(gateway, ONE) + deliveries(gateway, SECOND) == ["d"]  # one request is free


def test_a_change_to_the_hash_policy_applies_to_waiting_items(gateway: Gateway) -> None:
    publish(gateway, "a", "b", "c")
    publish(gateway, "d", by=OTHER)
    configure(gateway, queue_policy="hash")
    subscribe_worker(gateway, ONE, requests=1)
    assert deliveries(gateway, ONE) == ["a"]
    subscribe_worker(gateway, TWO, requests=10)
    held = deliveries(gateway, TWO)
    assert held in ([], ["d"])  # items of a publisher with a locked item wait
    retract(gateway, ONE, "a")
    configure(gateway, queue_policy="least-loaded")
    publish(gateway, "e")
    assert states(gateway)["e"] == "locked"


def test_sticky_assigns_all_items_to_one_worker_until_it_leaves(gateway: Gateway) -> None:
    configure(gateway, queue_policy="sticky")
    subscribe_worker(gateway, ONE, requests=2)
    subscribe_worker(gateway, TWO, requests=10)
    publish(gateway, "a", "b", "c")
    assert (deliveries(gateway, ONE), deliveries(gateway, TWO)) == (["a", "b"], [])
    gateway.end(ONE)
    assert deliveries(gateway, TWO) == ["a", "b", "c"]
    subscribe_worker(gateway, ONE, requests=2)
    publish(gateway, "d")
    assert (deliveries(gateway, ONE), deliveries(gateway, TWO)) == ([], ["d"])


def test_a_long_dispatch_continues_in_the_next_unit_of_work(gateway: Gateway) -> None:
    workers = (ONE, TWO, OTHER)
    for full in workers:
        subscribe_worker(gateway, full, requests=100)
    gateway.crash()
    gateway.bind(PUBLISHER)
    publish(gateway, *(f"i{number}" for number in range(300)))
    for full in workers:
        gateway.bind(full)
    gateway.run_timers()
    assert gateway.due == gateway.clock.service
    assert 0 < gateway.count("SELECT count(*) FROM queue_items WHERE state = 'locked'") < 300
    gateway.run_timers()
    for full in workers:
        assert len(deliveries(gateway, full)) == 100


# Refusals


def test_an_item_locked_by_another_is_a_conflict(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    subscribe_worker(gateway, TWO)
    publish(gateway, "a")
    gateway.bind(SECOND)
    for full in (TWO, OWNER, PUBLISHER, SECOND):
        assert error(gateway, full, "a") == "cancel/conflict", full
    assert error(gateway, OTHER, "a") == "auth/forbidden"


def test_an_unlocked_item_may_be_deleted_by_owner_and_publisher(gateway: Gateway) -> None:
    publish(gateway, "a", "b")
    assert error(gateway, OTHER, "a") == "auth/forbidden"
    assert unlock(gateway, PUBLISHER, "a").error == ("auth", "forbidden")
    assert unlock(gateway, OWNER, "a").type == "result"
    assert states(gateway) == {"a": "ready", "b": "ready"}
    assert retract(gateway, PUBLISHER, "a").type == "result"
    assert retract(gateway, OWNER, "b").type == "result"
    assert states(gateway) == {}
    assert messages(gateway, OWNER) == messages(gateway, PUBLISHER) == []


def test_an_ended_lock_is_an_unexpected_request(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    gateway.end(ONE)
    gateway.bind(ONE)
    assert states(gateway) == {"a": "ready"}
    assert error(gateway, ONE, "a") == "wait/unexpected-request"


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("><item id='a'/>", "modify/bad-request"),
        (" node='work'>", "modify/bad-request"),
        (" node='work'><item/>", "modify/bad-request"),
        (" node='work'><item id='a'/><item id='b'/>", "modify/bad-request"),
        (" node='work'><item id='a'/><other/>", "modify/bad-request"),
        (" node='work'><item id='none'/>", "cancel/item-not-found"),
        (" node='nothing'><item id='a'/>", "cancel/item-not-found"),
        (" node='plain'><item id='a'/>", "cancel/feature-not-implemented"),
    ],
)
def test_an_unlock_must_name_a_queue_node_and_one_item(
    gateway: Gateway, content: str, refusal: str
) -> None:
    publish(gateway, "a", "b")
    send_request(gateway, OWNER, element("create", node="plain"))
    reply = send_request(gateway, OWNER, f"<unlock xmlns='{QUEUEING}'{content}</unlock>")
    assert refused(reply) == refusal


def test_an_untrusted_device_may_not_unlock(gateway: Gateway) -> None:
    gateway.add("untrusted", trusted=False)
    untrusted = "untrusted@gw.example/x"
    gateway.bind(untrusted)
    publish(gateway, "a")
    assert unlock(gateway, untrusted, "a").error == ("auth", "forbidden")


# Publishing an existing item


@pytest.mark.parametrize("by", [PUBLISHER, OWNER, OTHER])
def test_a_waiting_item_is_not_replaced(gateway: Gateway, by: str) -> None:
    publish(gateway, "a", "b")
    assert try_publish(gateway, "a", by, text="anew").error == ("cancel", "conflict")
    assert try_publish(gateway, "a").type == "result", "the same item again"
    subscribe_worker(gateway, ONE, requests=2)
    assert deliveries(gateway, ONE) == ["a", "b"]
    assert gateway.events(name="item_exists")
    total = gateway.count("SELECT sum(bytes) FROM queue_items")
    assert gateway.count("SELECT bytes FROM queues_total") == total
    assert gateway.count("SELECT bytes FROM queues") == total


def test_publishing_a_dead_item_again_replaces_it(gateway: Gateway) -> None:
    publish(gateway, "a", queue_ttl="5")
    advance(gateway, 6)
    assert states(gateway) == {"a": "dead"}
    publish(gateway, "b", "a")
    assert states(gateway) == {"b": "ready", "a": "ready"}
    assert gateway.count("SELECT count(*) FROM queue_items") == 2


# Time


def test_a_lock_times_out_and_its_worker_is_notified(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    deliveries(gateway, ONE)
    subscribe_worker(gateway, TWO)
    advance(gateway, 59)
    assert messages(gateway, ONE) == []
    advance(gateway, 1)
    assert messages(gateway, ONE) == [Received("unlock", "a")]
    assert messages(gateway, TWO) == [Received("item", "a", 1)]


def test_an_item_is_dead_after_max_deliveries(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    for _time in range(5):
        advance(gateway, 60)
    assert states(gateway) == {"a": "dead"}
    assert [one.times for one in messages(gateway, ONE) if one.kind == "item"] == [0, 1, 2, 3, 4]
    (event,) = gateway.events(name="queue_dead")
    assert (event.source, event.topic, event.tags) == (
        PUBLISHER, NODE, {"item": "a", "deliveries": "5"},
    )  # fmt: skip
    assert retract(gateway, OWNER, "a").type == "result"


def test_a_delayed_item_becomes_ready_after_its_delay(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "late", queue_delay="10")
    publish(gateway, "now")
    assert deliveries(gateway, ONE) == ["now"]
    advance(gateway, 9)
    assert states(gateway)["late"] == "delayed"
    advance(gateway, 1)
    assert deliveries(gateway, ONE) == ["late"]


def test_an_item_that_is_not_assigned_within_its_ttl_is_dead(gateway: Gateway) -> None:
    publish(gateway, "a", queue_ttl="10")
    advance(gateway, 9)
    assert states(gateway) == {"a": "ready"}
    advance(gateway, 1)
    assert states(gateway) == {"a": "dead"}
    assert gateway.count("SELECT reason FROM queue_items") == "expired"
    subscribe_worker(gateway, ONE)
    assert deliveries(gateway, ONE) == []


def test_a_locked_item_expires_only_after_it_is_unlocked(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a", queue_ttl="10")
    advance(gateway, 20)
    assert states(gateway) == {"a": "locked"}
    unlock(gateway, ONE, "a")
    gateway.run_timers()
    assert states(gateway) == {"a": "dead"}


def test_an_expired_item_that_is_published_again_is_assigned(gateway: Gateway) -> None:
    publish(gateway, "a", queue_ttl="5")
    gateway.clock.service += 6
    subscribe_worker(gateway, ONE)
    publish(gateway, "a", queue_ttl="50")
    assert deliveries(gateway, ONE) == ["a"]


# Sessions


def test_a_session_that_ends_loses_its_items_and_its_subscription(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    subscribe_worker(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c")
    gateway.end(ONE)
    assert states(gateway) == {"a": "ready", "b": "locked", "c": "ready"}
    retract(gateway, TWO, "b")
    assert [one.id for one in messages(gateway, TWO)] == ["b", "b", "a"]
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1


@pytest.mark.parametrize(
    "leave",
    [
        lambda gateway: gateway.send(ONE, "<presence type='unavailable'/>"),
        lambda gateway: send_request(gateway, ONE, element("unsubscribe", node=NODE, jid=ONE)),
    ],
    ids=["unavailable", "unsubscribe"],
)
def test_a_worker_that_leaves_is_notified_and_loses_its_items_and_its_subscription(
    gateway: Gateway, leave: Callable[[Gateway], object]
) -> None:
    gateway.send(ONE, "<presence/>")
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    gateway.sends(ONE)
    leave(gateway)
    assert [b"<unlock" in send.stanza for send in gateway.sends(ONE)].count(True) == 1
    publish(gateway, "b")
    assert states(gateway) == {"a": "ready", "b": "ready"}
    assert gateway.count("SELECT count(*) FROM subscriptions") == 0


def test_another_session_of_a_bare_jid_takes_over_items(gateway: Gateway) -> None:
    gateway.bind(SECOND)
    for full in (ONE, SECOND):
        gateway.send(full, "<presence/>")
    subscribe_worker(gateway, ONE, requests=2, jid="one@gw.example")
    publish(gateway, "a", "b")
    gateway.sends(SECOND), gateway.sends(ONE)
    item = gateway.count("SELECT item FROM queue_items WHERE holder = ?", ONE)
    gateway.send(ONE, "<presence type='unavailable'/>")
    assert deliveries(gateway, SECOND) == [item]
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1
    gateway.end(SECOND)
    assert set(states(gateway).values()) == {"ready"}
    assert gateway.count("SELECT count(*) FROM subscriptions") == 0


def test_directed_unavailable_presence_ends_locks_and_subscriptions(gateway: Gateway) -> None:
    gateway.bind(SECOND)
    for full in (ONE, SECOND):
        gateway.send(full, "<presence/>")
    subscribe_worker(gateway, ONE, requests=2, jid="one@gw.example")
    subscribe_worker(gateway, TWO)
    gateway.sends(SECOND), gateway.sends(ONE)
    gateway.send(ONE, f"<presence type='unavailable'{TO_SERVICE}/>")
    publish(gateway, "a", "b", "c")
    assert deliveries(gateway, ONE) == []
    assert set(deliveries(gateway, SECOND)) == {"a", "c"}
    gateway.send(SECOND, f"<presence type='unavailable'{TO_SERVICE}/>")
    assert gateway.count("SELECT count(*) FROM subscriptions") == 1  # `one` is unavailable
    assert deliveries(gateway, TWO) == ["b", "a"]
    assert states(gateway) == {"a": "locked", "b": "locked", "c": "ready"}


def broadcast_anew(gateway: Gateway) -> None:
    gateway.send(ONE, "<presence type='unavailable'/>")
    gateway.send(ONE, "<presence/>")


@pytest.mark.parametrize(
    "come_back",
    [
        lambda gateway: gateway.send(ONE, f"<presence{TO_SERVICE}/>"),
        lambda gateway: subscribe_worker(gateway, ONE),
        broadcast_anew,
    ],
    ids=["available to the service", "subscribes", "available to all"],
)
def test_a_session_that_is_unavailable_to_the_service_gets_no_items(
    gateway: Gateway, come_back: Callable[[Gateway], None]
) -> None:
    gateway.bind(SECOND)
    gateway.send(ONE, "<presence/>")
    send_request(gateway, OWNER, element("create", node="plant/x"))
    join(gateway, ONE, qos="0")
    gateway.send(ONE, f"<presence type='unavailable'{TO_SERVICE}/>")
    gateway.sends(ONE)

    def publish_one() -> list[str | None]:
        publish_to_share(gateway, "i", node="plant/x", full=OWNER)
        return plain_items(gateway, ONE)

    assert publish_one() == []
    gateway.send(ONE, "<presence><show>away</show></presence>")
    join(gateway, SECOND, qos="0")  # another session changes the options
    assert publish_one() == []
    come_back(gateway)
    assert plain_items(gateway, ONE) == ["i", "i"]
    assert publish_one() == ["i"]


def test_a_detached_session_keeps_its_locks_and_gets_no_items(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    deliveries(gateway, ONE)
    gateway.detach(ONE)
    publish(gateway, "b")
    assert states(gateway) == {"a": "locked", "b": "ready"}
    gateway.resume(ONE)
    assert deliveries(gateway, ONE) == ["b"]


def test_locks_survive_a_restart_and_time_out(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    publish(gateway, "a", "b")
    gateway.clock.service += 30
    gateway.crash()
    gateway.run_timers()
    assert states(gateway) == {"a": "locked", "b": "ready"}
    gateway.bind(ONE)
    gateway.run_timers()
    assert deliveries(gateway, ONE) == []  # it has as many items as it accepts
    assert retract(gateway, ONE, "a").type == "result"
    assert messages(gateway, ONE) == [Received("retract", "a"), Received("item", "b")]
    gateway.crash()
    advance(gateway, 61)
    assert states(gateway) == {"b": "ready"}


def test_known_downtime_counts_towards_locks_delays_and_ttl(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    publish(gateway, "held", queue_ttl="100")
    publish(gateway, "late", queue_delay="100")
    publish(gateway, "old", queue_ttl="100")
    gateway.crash()

    def age(tx: Transaction) -> None:
        for hook in gateway.router.context.hooks.on_time_off:
            hook(tx, tx.now.service, 50)

    gateway.tx(age)
    advance(gateway, 11)
    assert states(gateway) == {"held": "ready", "late": "delayed", "old": "ready"}
    advance(gateway, 39)
    assert states(gateway) == {"held": "dead", "late": "ready", "old": "dead"}


def test_items_that_waited_for_a_detached_worker_go_to_others(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    subscribe_worker(gateway, TWO, requests=1)
    publish(gateway, "a", "b", "c")
    unlock(gateway, ONE, "a")
    retract(gateway, ONE, "c")
    assert deliveries(gateway, ONE) == ["a", "c"]
    assert states(gateway) == {"a": "ready", "b": "locked"}  # it waits for the other worker
    gateway.detach(TWO)
    assert deliveries(gateway, ONE) == ["a"]


def test_a_stored_notification_precedes_the_next_delivery_of_the_item(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=1)
    publish(gateway, "a")
    gateway.crash()
    advance(gateway, 61)  # the notification waits for the session
    gateway.bind(PUBLISHER)
    subscribe_worker(gateway, ONE, requests=1)
    assert messages(gateway, ONE) == [Received("unlock", "a"), Received("item", "a", 1)]


def test_a_returning_session_of_a_full_jid_gets_waiting_items(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    gateway.crash()
    for full in (PUBLISHER, ONE):
        gateway.bind(full)
    assert gateway.sends(ONE) == []  # only after it has learned that it is bound
    gateway.run_timers()
    publish(gateway, "a")
    assert deliveries(gateway, ONE) == ["a"]


def test_all_items_of_a_removed_account_are_reassigned_at_once(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=100)
    publish(gateway, *(f"i{number}" for number in range(100)))
    subscribe_worker(gateway, TWO, requests=100)
    gateway.tx(lambda tx: accounts.remove(tx, "one"))
    gateway.tx(gateway.router.context.run_external_change)
    assert len(deliveries(gateway, TWO)) == 100


def test_a_worker_that_does_not_return_after_a_restart_is_unsubscribed(gateway: Gateway) -> None:
    """Otherwise a worker with a new resource each time would exhaust its subscriptions."""
    configure(gateway, queue_lock_timeout="86400")
    subscribe_worker(gateway, ONE)
    subscribe_worker(gateway, TWO, requests=1)
    publish(gateway, "a", "b")
    gateway.crash()
    gateway.sent.clear()
    for full in (PUBLISHER, TWO):
        gateway.bind(full)
    gateway.tx(gateway.router.context.run_external_change)
    gateway.run_timers()
    advance(gateway, gateway.limits.resume_time - 1)
    assert gateway.count("SELECT count(*) FROM subscriptions") == 2
    advance(gateway, 2)
    assert gateway.count("SELECT group_concat(jid) FROM subscriptions") == TWO
    retract(gateway, TWO, "b")
    assert deliveries(gateway, TWO) == ["a"]
    gateway.bind(ONE)
    gateway.run_timers()
    assert messages(gateway, ONE) == [Received("unlock", "a")]


def test_a_worker_is_notified_if_another_session_ended_its_subscription(gateway: Gateway) -> None:
    gateway.send(ONE, "<presence/>")
    subscribe_worker(gateway, ONE, 1, "one@gw.example")
    publish(gateway, "a")
    assert deliveries(gateway, ONE) == ["a"]
    gateway.crash()
    gateway.run_timers()
    gateway.bind(SECOND)
    gateway.end(SECOND)
    gateway.bind(ONE)
    gateway.run_timers()
    assert messages(gateway, ONE)[0] == Received("unlock", "a")


# Notifications


@pytest.mark.parametrize("lose", [lambda gateway: gateway.end(ONE), Gateway.crash])
def test_a_notification_is_stored_until_its_session_has_received_it(
    gateway: Gateway, lose: Callable[[Gateway], None]
) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    deliveries(gateway, ONE)
    retract(gateway, ONE, "a")
    assert unacknowledged(gateway, ONE) == [Received("retract", "a")]
    lose(gateway)
    assert gateway.count("SELECT count(*) FROM notifications") == 1
    gateway.bind(ONE)
    gateway.run_timers()
    assert messages(gateway, ONE) == [Received("retract", "a")]
    assert gateway.count("SELECT count(*) FROM notifications") == 0


def test_a_notification_waits_for_its_own_session_and_expires(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE)
    publish(gateway, "a")
    retract(gateway, ONE, "a")
    gateway.end(ONE)
    gateway.bind(SECOND)
    gateway.send(SECOND, "<presence/>")
    assert not any(b"retract" in send.stanza for send in gateway.sends(SECOND))
    advance(gateway, Limits().outbox_ttl + 1)
    assert gateway.count("SELECT count(*) FROM notifications") == 0
    assert [event.source for event in gateway.events(name="queue_notification_dropped")] == [ONE]


def test_notifications_per_account_are_limited(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(Limits(notifications_per_account=8))
    set_up(gateway)
    subscribe_worker(gateway, ONE, requests=10)
    publish(gateway, *"abcdefghij")
    for id in "abcdefghij":
        retract(gateway, ONE, id)
    assert gateway.count("SELECT count(*) FROM notifications") == 8
    assert len(gateway.events(name="queue_notification_dropped")) == 2


# Limits


@pytest.mark.parametrize(
    ("limit", "figure", "size"),
    [("items_per_queue", 2, 1), ("queue_items", 2, 1), ("queue_bytes_per_queue", 65_536, 30_000)],
)
def test_a_full_queue_refuses_items_and_logs_the_limit(
    make_gateway: MakeGateway, limit: str, figure: int, size: int
) -> None:
    gateway = make_gateway(Limits(**{limit: figure}))
    set_up(gateway)
    for id in "ab":
        assert try_publish(gateway, id, text="x" * size).type == "result"
    assert try_publish(gateway, "c", text="x" * size).error == ("wait", "resource-constraint")
    assert try_publish(gateway, "a", text="x" * size).type == "result", "the same item again"
    assert [event.name for event in gateway.events() if event.kind == "limit"] == [limit]
    gateway.tx(lambda tx: tx.run("UPDATE queue_items SET state = 'dead' WHERE item = 'a'"))
    if size > 1:
        reply = try_publish(gateway, "a", text="x" * 2 * size)
        assert reply.error == ("wait", "resource-constraint"), "a replacement that is larger"
    assert try_publish(gateway, "a", text="anew").type == "result"


def test_a_worker_gets_no_more_bytes_than_unacknowledged_bytes(gateway: Gateway) -> None:
    subscribe_worker(gateway, ONE, requests=100)
    for id in "abcdef":
        try_publish(gateway, id, text="x" * 50_000)
    assert deliveries(gateway, ONE) == ["a", "b", "c"]
    retract(gateway, ONE, "a")
    assert deliveries(gateway, ONE) == ["d"]
