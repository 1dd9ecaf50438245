"""Fairness of limits between accounts: each limit is judged, and the shared stores are filled.

A limit bounds one account, connection or address (`OWN`); or it is shared, each account has a limit
of its own, and a part is reserved for accounts that use little (`FAIR`); or it is named with the
reason why it needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

import pytest

from edge.config.limits import Limits
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import FEW_MESSAGES, RESERVED_SHARE
from edge.engine.sessions.session_lifecycle import Bound
from edge.engine.sessions.sessions import Declaration
from edge.engine.store.database import Transaction
from edge.features.wills import service
from edge.features.wills import store as wills
from edge.features.wills.service import Will, WillError
from tests.helpers import pubsub
from tests.helpers.people import PUMP, VALVE
from tests.helpers.pubsub import create, item, publish, subscribe
from tests.helpers.shared_subscriptions import join, leave
from tests.helpers.store import MakeGateway, Reply

OWN: Final = {
    "sessions_per_account", "sessions_per_address", "durable_sessions_per_account",
    "durable_session_time", "will_bytes_per_account", "unauthenticated_per_address",
    "authenticate_failures", "authenticate_again", "authenticate_delay", "authenticate_time",
    "stranger_stanza_bytes", "stanza_bytes", "stanza_depth", "stanza_elements",
    "stanza_attributes", "msgid_bytes", "stanzas_per_second", "stanzas_at_once",
    "bytes_per_second", "bytes_at_once", "session_units", "session_bytes", "send_buffer",
    "stalled_time", "resume_time", "unacknowledged_stanzas", "unacknowledged_bytes",
    "roster_items", "presence_bytes", "directed_presences", "offline_messages", "offline_bytes",
    "offline_messages_per_source", "offline_bytes_per_source", "held_messages_per_source",
    "held_bytes_per_source", "released_keys", "outbox_messages_per_account",
    "outbox_bytes_per_account", "outbox_messages_per_source", "outbox_bytes_per_source",
    "outbox_window", "nodes_per_account", "node_bytes", "affiliations",
    "subscriptions_per_account", "last_items", "items_per_source", "items_bytes_per_source",
    "items_per_node", "queue_items_per_source", "queue_bytes_per_source", "items_per_queue",
    "queue_bytes_per_queue", "queue_requests", "notifications_per_account", "commands",
    "offline_ttl", "held_ttl", "held_grace", "outbox_ttl", "retry_after", "retry_most",
    "retry_attempts", "command_time", "refusal_window",
}  # fmt: skip
"""Limits of one account, address, connection, session, node, queue or message."""

FAIR: Final = {
    "durable_sessions": "durable_sessions_per_account",
    "will_bytes": "will_bytes_per_account",
    "offline_total_messages": "offline_messages_per_source",
    "offline_total_bytes": "offline_bytes_per_source",
    "held_messages": "held_messages_per_source",
    "held_bytes": "held_bytes_per_source",
    "outbox_messages": "outbox_messages_per_source",
    "outbox_bytes": "outbox_bytes_per_source",
    "nodes": "nodes_per_account",
    "subscriptions": "subscriptions_per_account",
    "items": "items_per_source",
    "items_bytes": "items_bytes_per_source",
    "queue_items": "queue_items_per_source",
    "queue_bytes": "queue_bytes_per_source",
}
"""For each shared limit with a reserved part, the limit of one account."""

OTHERWISE: Final = {
    "sessions": "an account has at most sessions_per_account of them, 1 in 125",
    "unauthenticated": "nobody has an account yet; a new connection replaces one of the address"
    " that has most",
    "handshakes": "a handshake that stalls is not counted after half a second",
    "waiting_units": "a session has session_units of them; at the limit no socket is read",
    "waiting_bytes": "a session has session_bytes of them; at the limit no socket is read",
    "unacknowledged_total_bytes": "the session with the most of them ends",
    "capabilities": "only a cache: what is forgotten is asked again",
    "dead_messages": "the oldest of the sender with the most is deleted",
    "dead_bytes": "the oldest of the sender with the most is deleted",
    "refusal_sources": "one account is refused for some dozens of reasons; the rest is counted as"
    " `other`",
    "unsealed_events": "sealing empties it continuously; a message with many events is refused"
    " earlier than one with few",
    "backlog_bytes": "the source with the most bytes loses its segments first",
    "recent_bytes": "only copies of what the centre has",
    "database_bytes": "by default the limits of all stores together are lower",
    "database_reserve": "used only to deliver what was accepted",
    "wal_bytes": "other processes that read make the log grow, not devices",
}
"""Shared limits that are neither, and why one account cannot take them from others."""


def test_every_limit_is_judged() -> None:
    judged = [*OWN, *FAIR, *OTHERWISE]
    assert sorted(judged) == sorted(Limits.__struct_fields__), (
        "name a new limit in OWN, FAIR (with a test below) or OTHERWISE (with the reason)"
    )


@pytest.mark.parametrize(("total", "own"), FAIR.items())
def test_an_account_may_use_half_of_a_shared_limit_at_most(total: str, own: str) -> None:
    limits = Limits()
    assert own in OWN
    assert getattr(limits, own) <= getattr(limits, total) // 2
    assert getattr(limits, total) // RESERVED_SHARE > 0


# One greedy account, several that help it, and a modest one

FOREIGN_SHARE: Final = "$share:greedy:plant/#"
GREEDY: Final = [f"greedy{number}@gw.example/x" for number in range(3)]
NAMES: Final = tuple(full.partition("@")[0] for full in (*GREEDY, PUMP, VALVE))


def is_refused(reply: Reply | None) -> bool:
    assert reply is not None
    return reply.type == "error"


def fill(attempt: Callable[[str, int], Reply], most: int) -> int:
    """Let the greedy accounts take all that they get; return how much the first one gets."""
    counts = []
    for full in GREEDY:
        taken = next(number for number in range(most) if is_refused(attempt(full, number)))
        counts.append(taken)
    return counts[0]


def test_greedy_accounts_leave_durable_sessions_to_a_modest_one(make_gateway: MakeGateway) -> None:
    limits = Limits(durable_sessions=40, durable_sessions_per_account=16)
    gateway = make_gateway(limits, accounts_of=NAMES)
    generations = count(1)

    def bind(bare: str, number: int) -> bool:
        names = bare.partition("@")[0], bare, f"{bare}/{number}"
        generation, declared = next(generations), Declaration(durable=60.0)
        bound = gateway.commit(
            lambda tx: gateway.lifecycle.bind(tx, generation, *names, declared=declared)
        )
        return isinstance(bound, Bound)

    def fill_with_sessions(full: str) -> int:
        bare = full.partition("/")[0]
        return next(number for number in count() if not bind(bare, number))

    assert [fill_with_sessions(full) for full in GREEDY] == [16, 16, FEW_MESSAGES]
    assert fill_with_sessions(PUMP) == FEW_MESSAGES


def test_greedy_accounts_leave_wills_to_a_modest_one(make_gateway: MakeGateway) -> None:
    size = 1000
    limits = Limits(will_bytes=64 * 1024, will_bytes_per_account=32 * 1024)
    gateway = make_gateway(limits, accounts_of=NAMES)
    context = gateway.router.context

    def set_will(name: str, number: int) -> bool:
        full = f"{name}@gw.example/{number}"
        sender = Sender(full, full.partition("/")[0], name, True, True, 0)
        will = Will("plant/state", b"", NO_ATTRIBUTES)
        will = will._replace(payload=bytes(size - wills.size(full, will)))

        def begin(tx: Transaction) -> bool:
            try:
                service.begin(context, tx, sender, will, clean=False)
            except WillError:
                return False
            return True

        return gateway.tx(begin)

    def fill_with_wills(full: str) -> int:
        name = full.partition("@")[0]
        return next(number for number in count() if not set_will(name, number))

    assert [fill_with_wills(full) for full in GREEDY] == [32, 25, 1]
    assert fill_with_wills(PUMP) == 1
    assert set_will("pump1", 0), "what replaces takes nothing"
    assert gateway.events(name="will_bytes_per_account")


def test_greedy_accounts_leave_nodes_and_subscriptions_to_a_modest_one(
    make_gateway: MakeGateway,
) -> None:
    limits = Limits(nodes=40, nodes_per_account=16, subscriptions=40, subscriptions_per_account=16)
    gateway = make_gateway(limits, accounts_of=NAMES)
    for full in (*GREEDY, PUMP):
        gateway.bind(full)

    def create_node(full: str, number: int) -> Reply:
        name = f"{full.partition('@')[0]}/{number}"
        return pubsub.send_request(gateway, full, pubsub.element("create", node=name))

    def subscribe_filter(full: str, number: int) -> Reply:
        return subscribe(gateway, full, f"filter{number}/#")

    assert fill(create_node, 40) == 16
    assert fill(subscribe_filter, 40) == 16
    for number in range(FEW_MESSAGES):
        assert not is_refused(create_node(PUMP, number))
        assert not is_refused(subscribe_filter(PUMP, number))
    assert is_refused(create_node(PUMP, FEW_MESSAGES))


@pytest.mark.parametrize("queueing", ["0", "1"])
def test_greedy_accounts_leave_items_to_a_modest_one(
    make_gateway: MakeGateway, queueing: str
) -> None:
    limits = Limits(items=40, items_per_source=16, queue_items=40, queue_items_per_source=16)
    gateway = make_gateway(limits, accounts_of=NAMES)
    for full in (*GREEDY, PUMP):
        gateway.bind(full)
        create(gateway, full, full.partition("@")[0], queueing=queueing, max_items="40")

    def publish_item(full: str, number: int) -> Reply:
        return publish(gateway, full, full.partition("@")[0], item(f"i{number}"))

    assert fill(publish_item, 40) == 16
    for number in range(FEW_MESSAGES):
        assert not is_refused(publish_item(PUMP, number))
    assert is_refused(publish_item(PUMP, FEW_MESSAGES))
    if queueing == "0":
        assert not is_refused(publish_item(PUMP, 0)), "what replaces takes nothing"
        assert not is_refused(publish_item(GREEDY[0], 0))


def test_an_item_of_another_publisher_counts_for_its_own_publisher(
    make_gateway: MakeGateway,
) -> None:
    """The oldest item of a full node makes room in total, not for the new publisher."""
    gateway = make_gateway(Limits(items=40, items_per_source=8), accounts_of=NAMES)
    for full in (GREEDY[0], PUMP):
        gateway.bind(full)
    create(gateway, PUMP, "shared", publish_model="open", max_items="8")
    create(gateway, GREEDY[0], "own", max_items="40")
    for number in range(8):
        assert not is_refused(publish(gateway, PUMP, "shared", item(f"p{number}")))
        assert not is_refused(publish(gateway, GREEDY[0], "own", item(f"g{number}")))
    reply = publish(gateway, GREEDY[0], "shared", item("more"))
    assert is_refused(reply)
    assert "items_per_source = 8" in reply.text
    assert not is_refused(publish(gateway, PUMP, "shared", item("p8")))


def test_items_of_a_share_count_for_its_first_member_then_for_the_next(
    make_gateway: MakeGateway,
) -> None:
    limits = Limits(queue_items=80, queue_items_per_source=16)
    gateway = make_gateway(limits, accounts_of=NAMES)
    for full in (GREEDY[0], PUMP, VALVE):
        gateway.bind(full)
    create(gateway, PUMP, "plant/a", access_model="open")
    create(gateway, PUMP, "work", queueing="1")
    for full in (GREEDY[0], VALVE):
        join(gateway, full, FOREIGN_SHARE)
        gateway.end(full)
    taken = next(
        number for number in range(40)
        if is_refused(publish(gateway, PUMP, "plant/a", item(f"i{number}")))
    )  # fmt: skip
    assert taken == 8, "shares may use half"
    for number in range(16):
        assert not is_refused(publish(gateway, PUMP, "work", item(f"i{number}")))

    def usage() -> dict[str, int]:
        return dict(gateway.tx(lambda tx: tx.rows("SELECT source, items FROM queue_sources")))

    assert usage() == {"greedy0@gw.example": 8, "pump1@gw.example": 16}
    gateway.bind(GREEDY[0])
    leave(gateway, GREEDY[0], FOREIGN_SHARE)
    assert usage() == {"valve@gw.example": 8, "pump1@gw.example": 16}
