"""Rules of queues: transitions, assignment, permissions and diagnosis."""

from __future__ import annotations

import pytest

from edge.features.pubsub.rules.node_config import QueuePolicy
from edge.features.queues.rules.assignment import (
    SLOTS,
    Assignment,
    Member,
    ReadyItem,
    assign,
    open_slots,
    slot_of,
)
from edge.features.queues.rules.diagnosis import ItemState, Members, MemberState, Reason, diagnose
from edge.features.queues.rules.locks import Action, Lock, Role, Verdict, decide
from edge.features.queues.rules.transitions import (
    COMES_BACK,
    Kind,
    Loss,
    Outcome,
    kind,
    outcome,
)
from tests.helpers import diagrams

# Transitions


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("of", Kind)
def test_an_item_is_dead_instead_of_ready_after_the_last_delivery(of: Kind, loss: Loss) -> None:
    first = outcome(of, loss, 1, 3)
    last = outcome(of, loss, 3, 3)
    assert last is (Outcome.DEAD if first in COMES_BACK else first)


def test_an_item_of_a_queue_node_comes_back_after_each_loss_except_a_restart() -> None:
    outcomes = {loss: outcome(Kind.NODE, loss, 1, 5) for loss in Loss}
    assert outcomes.pop(Loss.RESTART) is Outcome.STAYS
    assert {loss for loss in outcomes if outcomes[loss] is Outcome.READY_FOR_ANOTHER} == {
        Loss.TIMEOUT,
        Loss.UNLOCKED,
        Loss.REFUSED,
    }
    assert set(outcomes.values()) <= COMES_BACK


def test_only_qos_1_items_of_shared_subscriptions_are_reassigned() -> None:
    for loss in Loss:
        assert outcome(Kind.SHARE_0, loss, 1, 5) is Outcome.STAYS
        assert outcome(Kind.SHARE_1, loss, 1, 5) in COMES_BACK
        assert outcome(Kind.SHARE_2, loss, 1, 5) in (Outcome.STAYS, Outcome.DEAD)
    assert outcome(Kind.SHARE_2, Loss.CONNECTION, 9, 5) is Outcome.STAYS
    assert outcome(Kind.SHARE_2, Loss.UNSUBSCRIBED, 1, 5) is Outcome.DEAD


def test_the_kind_of_an_item_depends_on_the_members_qos() -> None:
    assert [kind(qos) for qos in (None, 0, 1, 2)] == list(Kind)


@pytest.mark.parametrize("of", Kind)
def test_the_diagram_shows_each_loss_of_a_locked_item(of: Kind) -> None:
    lines = [line.strip() for line in diagrams.of_queued_item(of).splitlines()]
    locked = of is not Kind.SHARE_0
    assert ("ready --> [*]: sent" in lines) is not locked
    for loss in Loss:
        matching = [line for line in lines if line.endswith(f": {loss.value}")]
        assert len(matching) == locked, matching
    comes_back = not {outcome(of, loss, 1, 5) for loss in Loss}.isdisjoint(COMES_BACK)
    assert ("locked --> dead: too many deliveries" in lines) is comes_back


# Assignment


def member(number: int, in_flight: int = 0, capacity: int = 2, turn: int = 0) -> Member:
    return Member(number, f"w{number}@gw.example/w", capacity, in_flight, turn)


def ready(*rows: int, publisher: str = "p@gw.example/p") -> list[ReadyItem]:
    return [ReadyItem(row, publisher) for row in rows]


def pairs(found: list[Assignment]) -> list[tuple[int, int]]:
    """Return the row and the subscription of each assignment."""
    return [(row, member.subscription) for row, member in found]


def test_the_least_loaded_member_is_next_or_among_equals_the_longest_idle() -> None:
    members = [member(1, in_flight=1), member(2, turn=7), member(3, turn=4)]
    found = assign(ready(1, 2, 3), members, QueuePolicy.LEAST_LOADED)
    assert pairs(found) == [(1, 3), (2, 2), (3, 1)]


def test_no_member_exceeds_its_capacity() -> None:
    members = [member(1, capacity=2), member(2, in_flight=1, capacity=2)]
    found = pairs(assign(ready(1, 2, 3, 4), members, QueuePolicy.LEAST_LOADED))
    assert sorted(subscription for _row, subscription in found) == [1, 1, 2]


def test_sessions_of_one_subscription_share_its_capacity() -> None:
    one = Member(1, "w@gw.example/a", 3, 0, 1)
    sessions = [one, one._replace(full="w@gw.example/b", turn=0)]
    found = assign(ready(1, 2, 3, 4), sessions, QueuePolicy.LEAST_LOADED)
    assert [member.full[-1] for _row, member in found] == ["b", "a", "b"]


def test_an_item_given_back_waits_for_another_member_without_blocking_others() -> None:
    first, busy = member(1), member(2, in_flight=2)
    item = ReadyItem(1, "p@gw.example/p", first.full)
    behind = ReadyItem(2, "p@gw.example/p")
    assert pairs(assign([item], [first, member(2)], QueuePolicy.LEAST_LOADED)) == [(1, 2)]
    assert pairs(assign([item, behind], [first, busy], QueuePolicy.LEAST_LOADED)) == [(2, 1)]
    assert pairs(assign([item], [first], QueuePolicy.LEAST_LOADED)) == [(1, 1)]


def test_sticky_assigns_all_items_to_the_favourite_while_it_is_connected() -> None:
    members = [member(1, in_flight=1), member(2)]
    assert pairs(assign(ready(1, 2), members, QueuePolicy.STICKY, 1)) == [(1, 1)]
    assert pairs(assign(ready(1, 2), members, QueuePolicy.STICKY, 9)) == [(1, 2), (2, 2)]
    assert pairs(assign(ready(1), [member(1, in_flight=2)], QueuePolicy.STICKY)) == []
    given_back = ReadyItem(1, "p@gw.example/p", member(1).full)
    assert pairs(assign([given_back], [member(1), member(2)], QueuePolicy.STICKY, 1)) == [(1, 2)]


def test_by_hash_each_publisher_has_one_member_and_all_members_have_publishers() -> None:
    members = [member(number, capacity=1000) for number in range(1, 6)]
    items = [ReadyItem(row, f"p{row % 40}@gw.example/{row}") for row in range(400)]
    by_publisher: dict[int, set[int]] = {}
    for row, assigned in assign(items, members, QueuePolicy.HASH):
        by_publisher.setdefault(row % 40, set()).add(assigned.subscription)
    assert all(len(found) == 1 for found in by_publisher.values())
    assert set().union(*by_publisher.values()) == {1, 2, 3, 4, 5}


def test_by_hash_a_new_member_moves_few_publishers() -> None:
    def owners(count: int) -> list[int]:
        members = [member(number, capacity=SLOTS) for number in range(1, count + 1)]
        items = [ReadyItem(row, f"p{row}@gw.example/p") for row in range(SLOTS)]
        return [
            assigned.subscription for _row, assigned in assign(items, members, QueuePolicy.HASH)
        ]

    before, after = owners(7), owners(8)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert 0 < len(moved) < SLOTS // 3
    assert set(moved) == {8}


def test_by_hash_locked_items_keep_their_publisher_with_its_member() -> None:
    members = [member(1), member(2), member(3)]
    slot = slot_of("p@gw.example/p")
    for owner in (1, 2, 3):
        assert pairs(assign(ready(1), members, QueuePolicy.HASH, None, {slot: owner})) == [
            (1, owner)
        ]
    not_connected = 9
    assert assign(ready(1), members, QueuePolicy.HASH, None, {slot: not_connected}) == []


def test_by_hash_no_item_overtakes_one_that_waits_for_its_member() -> None:
    only, busy = member(1), member(2, in_flight=2)
    given_back = ReadyItem(1, "p@gw.example/p", only.full)
    other = next(f"q{n}" for n in range(99) if slot_of(f"q{n}") != slot_of("p@gw.example/p"))
    assert assign([given_back, *ready(2)], [only, busy], QueuePolicy.HASH) == []
    found = assign([given_back, ReadyItem(2, other)], [only], QueuePolicy.HASH)
    assert pairs(found) == [(1, 1), (2, 1)]


def test_slots_are_open_if_their_member_has_capacity() -> None:
    full, free = member(1, in_flight=2), member(2)
    all_slots = list(range(SLOTS))
    assert open_slots(all_slots, [free], {}) == all_slots
    assert open_slots(all_slots, [full], {}) == []
    found = open_slots(all_slots, [full, free], {})
    assert set(found) < set(all_slots)
    assert open_slots(found[:2], [full, free], {}) == found[:2]
    assert open_slots(all_slots, [full, free], dict.fromkeys(range(SLOTS), 2)) == all_slots
    assert slot_of("p@gw.example/a") == slot_of("p@gw.example/b")


# Permissions


@pytest.mark.parametrize("role", Role)
def test_the_holder_of_the_lock_may_delete_and_unlock_and_is_notified(role: Role) -> None:
    for action in Action:
        assert decide(action, Lock.OWN, role) is Verdict.ALLOWED_WITH_NOTIFICATION


@pytest.mark.parametrize("role", Role)
def test_the_lock_of_another_is_a_conflict_to_everybody_related_to_the_node(role: Role) -> None:
    expected = Verdict.FORBIDDEN if role is Role.NOBODY else Verdict.CONFLICT
    for action in Action:
        assert decide(action, Lock.FOREIGN, role) is expected


def test_unlocked_items_are_deleted_by_owner_and_publisher_and_unlocked_by_the_owner() -> None:
    allowed = {Action.DELETE: {Role.OWNER, Role.AUTHOR}, Action.UNLOCK: {Role.OWNER}}
    for action, roles in allowed.items():
        for role in Role:
            expected = Verdict.ALLOWED if role in roles else Verdict.FORBIDDEN
            if role is Role.RECEIVER:
                expected = Verdict.UNEXPECTED
            assert decide(action, Lock.NONE, role) is expected


# Diagnosis

NOW = 100.0
ITEM = ItemState(7, "ready", "pump1@gw.example/fw")
DISCONNECTED = MemberState(1, "a@gw.example", 2, 0)
FREE = MemberState(1, "a@gw.example", 2, 1, ("a@gw.example/w",))
FULL = MemberState(2, "b@gw.example", 2, 2, ("b@gw.example/w",))
UNABLE = MemberState(3, "c@gw.example", 2, 0, ("c@gw.example/w",), accepts_qos=False)
OUTBOX_FULL = FREE._replace(outbox_full=True)
TOO_MANY_BYTES = FREE._replace(too_many_bytes=True)


STICKY = Members([FREE, FULL], known=True, policy=QueuePolicy.STICKY)
BY_HASH = Members([FREE], known=True, policy=QueuePolicy.HASH, slot_owners={})
SLOT = slot_of(ITEM.publisher)


def members(*states: MemberState, known: bool = True) -> Members:
    return Members(states, known)


@pytest.mark.parametrize(
    ("item", "of", "reason"),
    [
        (ITEM._replace(state="locked"), members(FREE), Reason.LOCKED),
        (ITEM._replace(state="delayed", due=NOW + 1), members(), Reason.DELAYED),
        (ITEM._replace(state="delayed"), members(FREE), Reason.WITHHELD),
        (ITEM._replace(avoid="a@gw.example/w"), members(FULL, FREE), Reason.GIVEN_BACK),
        (ITEM._replace(state="dead"), members(FREE, known=False), Reason.DEAD),
        (ITEM._replace(expires=NOW), members(FREE), Reason.EXPIRED),
        (ITEM._replace(expires=NOW + 1), members(FREE), Reason.NEXT),
        (ITEM, members(), Reason.NO_MEMBER),
        (ITEM, members(known=False), Reason.NO_MEMBER),
        (ITEM, members(DISCONNECTED, known=False), Reason.UNKNOWN),
        (ITEM, members(DISCONNECTED), Reason.NOT_CONNECTED),
        (ITEM, members(DISCONNECTED, UNABLE), Reason.QOS_UNSUPPORTED),
        (ITEM, members(UNABLE, FULL), Reason.NO_ROOM),
        (ITEM, members(FULL, OUTBOX_FULL), Reason.OUTBOX_FULL),
        (ITEM, members(FREE, OUTBOX_FULL), Reason.NEXT),
        (ITEM, members(FULL, TOO_MANY_BYTES), Reason.TOO_MANY_BYTES),
        (ITEM, members(OUTBOX_FULL, TOO_MANY_BYTES), Reason.OUTBOX_FULL),
        (ITEM, members(FREE, TOO_MANY_BYTES), Reason.NEXT),
        (ITEM, members(FULL, FREE), Reason.NEXT),
        (ITEM._replace(before=3), members(FULL, FREE), Reason.BEHIND_OTHERS),
        (ITEM._replace(before=3), members(FULL), Reason.NO_ROOM),
        (ITEM._replace(avoid="a@gw.example/w"), members(FREE), Reason.NEXT),
        (ITEM, STICKY._replace(favourite=2), Reason.CHOSEN_MEMBER_BUSY),
        (ITEM, STICKY._replace(favourite=1), Reason.NEXT),
        (ITEM, BY_HASH._replace(slot_owners={SLOT: 9}), Reason.CHOSEN_MEMBER_BUSY),
        (ITEM, BY_HASH, Reason.NEXT),
    ],
)
def test_each_reason_why_an_item_does_not_move(
    item: ItemState, of: Members, reason: Reason
) -> None:
    assert diagnose(item, of, NOW) is reason
