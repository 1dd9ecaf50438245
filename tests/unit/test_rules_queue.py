from __future__ import annotations

import pytest

from edge.features.queues.rules.assignment import (
    SLOTS,
    Assignment,
    Choice,
    Fate,
    Kind,
    Loss,
    Member,
    Waiting,
    assign,
    diagram,
    fate,
    kind,
    open_slots,
    slot,
)


def member(number: int, in_flight: int = 0, capacity: int = 2, turn: int = 0) -> Member:
    return Member(number, f"w{number}@gw.example/w", capacity, in_flight, turn)


def waiting(*rows: int, publisher: str = "p@gw.example/p") -> list[Waiting]:
    return [Waiting(row, publisher) for row in rows]


def who(found: list[Assignment]) -> list[tuple[int, int]]:
    return [(row, member.subscription) for row, member in found]


READY = (Fate.READY, Fate.READY_FOR_ANOTHER)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("of", Kind)
def test_what_becomes_of_an_item_is_told_for_each_kind_and_loss(of: Kind, loss: Loss) -> None:
    first = fate(of, loss, 1, 3)
    last = fate(of, loss, 3, 3)
    assert last is (Fate.DEAD if first in READY else first)


def test_an_item_of_a_queue_node_comes_back_from_each_loss_but_a_restart() -> None:
    fates = {loss: fate(Kind.NODE, loss, 1, 5) for loss in Loss}
    assert fates.pop(Loss.RESTART) is Fate.STAYS
    assert {loss for loss in fates if fates[loss] is Fate.READY_FOR_ANOTHER} == {
        Loss.TIMEOUT,
        Loss.UNLOCKED,
        Loss.REFUSED,
    }
    assert set(fates.values()) <= set(READY)


def test_levels_0_and_2_are_never_given_to_another_and_level_1_is() -> None:
    for loss in Loss:
        assert fate(Kind.SHARE_0, loss, 1, 5) is Fate.STAYS
        assert fate(Kind.SHARE_1, loss, 1, 5) in READY
        assert fate(Kind.SHARE_2, loss, 1, 5) in (Fate.STAYS, Fate.DEAD)
    assert fate(Kind.SHARE_2, Loss.CONNECTION, 9, 5) is Fate.STAYS
    assert fate(Kind.SHARE_2, Loss.UNSUBSCRIBED, 1, 5) is Fate.DEAD


def test_the_kind_of_an_item_goes_by_the_level_of_its_member() -> None:
    assert [kind(qos) for qos in (None, 0, 1, 2)] == list(Kind)


# Who is next


def test_the_least_loaded_is_next_and_of_those_who_is_idle_for_longest() -> None:
    members = [member(1, in_flight=1), member(2, turn=7), member(3, turn=4)]
    assert who(assign(waiting(1, 2, 3), members, Choice.LEAST_LOADED)) == [(1, 3), (2, 2), (3, 1)]


def test_equal_members_get_the_same_number_of_items() -> None:
    members = [member(number, capacity=100) for number in range(1, 8)]
    found = who(assign(waiting(*range(70)), members, Choice.LEAST_LOADED))
    assert {[s for _row, s in found].count(number) for number in range(1, 8)} == {10}


def test_nobody_gets_more_than_it_takes() -> None:
    members = [member(1, capacity=2), member(2, in_flight=1, capacity=2)]
    found = who(assign(waiting(1, 2, 3, 4), members, Choice.LEAST_LOADED))
    assert found == [(1, 1), (2, 1), (3, 2)] or len(found) == 3
    assert [s for _row, s in found].count(1) == 2


def test_sessions_of_one_subscription_share_its_capacity() -> None:
    one = Member(1, "w@gw.example/a", 3, 0, 1)
    found = assign(waiting(1, 2, 3, 4), [one, one._replace(session="w@gw.example/b", turn=0)],
                   Choice.LEAST_LOADED)  # fmt: skip
    assert [member.session[-1] for _row, member in found] == ["b", "a", "b"]


def test_what_was_given_back_goes_to_another_and_waits_for_it() -> None:
    first, busy = member(1), member(2, in_flight=2)
    item = Waiting(1, "p@gw.example/p", first.session)
    behind = Waiting(2, "p@gw.example/p")
    assert who(assign([item], [first, member(2)], Choice.LEAST_LOADED)) == [(1, 2)]
    assert who(assign([item, behind], [first, busy], Choice.LEAST_LOADED)) == [(2, 1)]
    assert who(assign([item], [first], Choice.LEAST_LOADED)) == [(1, 1)]


def test_sticky_gives_all_to_the_favourite_while_it_is_there() -> None:
    members = [member(1, in_flight=1), member(2)]
    assert who(assign(waiting(1, 2), members, Choice.STICKY, 1)) == [(1, 1)]
    assert who(assign(waiting(1, 2), members, Choice.STICKY, 9)) == [(1, 2), (2, 2)]
    assert who(assign(waiting(1), [member(1, in_flight=2)], Choice.STICKY)) == []


def test_sticky_gives_what_the_favourite_gave_back_to_another() -> None:
    item = Waiting(1, "p@gw.example/p", member(1).session)
    assert who(assign([item], [member(1), member(2)], Choice.STICKY, 1)) == [(1, 2)]


def test_by_hash_a_publisher_has_one_member_and_others_have_others() -> None:
    members = [member(number, capacity=1000) for number in range(1, 6)]
    items = [Waiting(row, f"p{row % 40}@gw.example/{row}") for row in range(400)]
    by_publisher: dict[int, set[int]] = {}
    for row, given in assign(items, members, Choice.HASH):
        by_publisher.setdefault(row % 40, set()).add(given.subscription)
    assert all(len(found) == 1 for found in by_publisher.values())
    assert set().union(*by_publisher.values()) == {1, 2, 3, 4, 5}


def test_by_hash_a_new_member_moves_few_publishers() -> None:
    def owners(count: int) -> list[int]:
        members = [member(number, capacity=SLOTS) for number in range(1, count + 1)]
        items = [Waiting(row, f"p{row}@gw.example/p") for row in range(SLOTS)]
        return [given.subscription for _row, given in assign(items, members, Choice.HASH)]

    before, after = owners(7), owners(8)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert 0 < len(moved) < SLOTS // 3
    assert set(moved) == {8}


def test_by_hash_what_is_in_work_keeps_its_publisher_with_its_member() -> None:
    members = [member(1), member(2), member(3)]
    place = slot("p@gw.example/p")
    for bound in (1, 2, 3):
        assert who(assign(waiting(1), members, Choice.HASH, None, {place: bound})) == [(1, bound)]
    assert assign(waiting(1), members, Choice.HASH, None, {place: 9}) == []  # it is not there


def test_by_hash_nothing_overtakes_what_waits_for_its_member() -> None:
    only, busy = member(1), member(2, in_flight=2)
    given_back = Waiting(1, "p@gw.example/p", only.session)
    other = next(f"q{n}" for n in range(99) if slot(f"q{n}") != slot("p@gw.example/p"))
    found = assign([given_back, *waiting(2)], [only, busy], Choice.HASH)
    assert found == []
    found = assign([given_back, Waiting(2, other)], [only], Choice.HASH)
    assert who(found) == [(1, 1), (2, 1)]


def test_slots_are_open_whose_member_has_room() -> None:
    full, free = member(1, in_flight=2), member(2)
    everything = list(range(SLOTS))
    assert open_slots(everything, [free], {}) == everything
    assert open_slots(everything, [full], {}) == []
    some = open_slots(everything, [full, free], {})
    assert set(some) < set(everything)
    assert open_slots(some[:2], [full, free], {}) == some[:2]
    assert open_slots(everything, [full, free], dict.fromkeys(range(SLOTS), 2)) == everything
    assert slot("p@gw.example/a") == slot("p@gw.example/b")


@pytest.mark.parametrize("of", Kind)
def test_the_diagram_shows_each_loss(of: Kind) -> None:
    drawn = diagram(of)
    assert drawn.startswith("stateDiagram-v2\n    [*] --> ready\n")
    shown = [loss for loss in Loss if f": {loss.value}" in drawn]
    assert shown == ([] if of is Kind.SHARE_0 else list(Loss))
    assert ("locked --> ready: it gave it back" in drawn) is (of in (Kind.NODE, Kind.SHARE_1))
    assert ("it comes back too often" in drawn) is (of in (Kind.NODE, Kind.SHARE_1))
