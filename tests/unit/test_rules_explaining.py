"""Why an item does not move: each reason, in the order in which the engine is held up."""

from __future__ import annotations

import pytest

from edge.features.queues.rules.assignment import Choice, slot
from edge.features.queues.rules.diagnosis import Members, Seat, Standing, Why, why

NOW = 100.0
ITEM = Standing(7, "ready", "pump1@gw.example/fw")
AWAY = Seat(1, "a@gw.example", 2, 0)
FREE = Seat(1, "a@gw.example", 2, 1, ("a@gw.example/w",))
FULL = Seat(2, "b@gw.example", 2, 2, ("b@gw.example/w",))
UNABLE = Seat(3, "c@gw.example", 2, 0, ("c@gw.example/w",), able=False)


def members(*seats: Seat, known: bool = True) -> Members:
    return Members(seats, known)


@pytest.mark.parametrize(
    ("item", "there", "reason"),
    [
        (ITEM._replace(state="locked"), members(FREE), Why.LOCKED),
        (ITEM._replace(state="delayed", due=NOW + 1), members(), Why.DELAYED),
        (ITEM._replace(state="delayed"), members(FREE), Why.ASIDE),
        (ITEM._replace(avoid="a@gw.example/w"), members(FULL, FREE), Why.GIVEN_BACK),
        (ITEM._replace(state="dead"), members(FREE, known=False), Why.DEAD),
        (ITEM._replace(expires=NOW), members(FREE), Why.EXPIRED),
        (ITEM._replace(expires=NOW + 1), members(FREE), Why.NEXT),
        (ITEM, members(), Why.NO_MEMBER),
        (ITEM, members(known=False), Why.NO_MEMBER),
        (ITEM, members(AWAY, known=False), Why.NOT_KNOWN),
        (ITEM, members(AWAY), Why.NOBODY_THERE),
        (ITEM, members(AWAY, UNABLE), Why.UNABLE),
        (ITEM, members(UNABLE, FULL), Why.FULL),
        (ITEM, members(FULL, FREE._replace(stalled=True)), Why.STALLED),
        (ITEM, members(FREE, FREE._replace(stalled=True)), Why.NEXT),
        (ITEM, members(FULL, FREE._replace(laden=True)), Why.LADEN),
        (ITEM, members(FREE._replace(stalled=True), FREE._replace(laden=True)), Why.STALLED),
        (ITEM, members(FREE, FREE._replace(laden=True)), Why.NEXT),
        (ITEM, members(FULL, FREE), Why.NEXT),
        (ITEM._replace(before=3), members(FULL, FREE), Why.BEHIND),
        (ITEM._replace(before=3), members(FULL), Why.FULL),
        (ITEM._replace(avoid="a@gw.example/w"), members(FREE), Why.NEXT),
    ],
)
def test_each_reason(item: Standing, there: Members, reason: Why) -> None:
    assert why(item, there, NOW) is reason


def test_an_item_waits_for_the_favourite_that_has_no_room() -> None:
    there = Members([FREE, FULL], known=True, choice=Choice.STICKY, favourite=2)
    assert why(ITEM, there, NOW) is Why.BOUND
    assert why(ITEM, there._replace(favourite=1), NOW) is Why.NEXT


def test_an_item_waits_for_the_member_that_has_others_of_its_publisher() -> None:
    there = Members([FREE], known=True, choice=Choice.HASH, bound={slot(ITEM.publisher): 9})
    assert why(ITEM, there, NOW) is Why.BOUND
    assert why(ITEM, there._replace(bound={}), NOW) is Why.NEXT
