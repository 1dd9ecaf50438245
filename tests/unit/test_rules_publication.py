"""What a publication must have, and what it may ask for its item."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from edge.features.pubsub.rules import publication
from edge.features.pubsub.rules.node import Config
from edge.features.pubsub.rules.publication import (
    DELAY,
    LONGEST,
    MOST_PRIORITY,
    NO_OPTIONS,
    PRIORITY,
    TTL,
    BadOption,
    Fault,
    Options,
    Shape,
)

KEEPS = Config()
TOLD = Config(persist_items=False)
KEEPS_QUIETLY = Config(deliver_payloads=False)
NOTHING = Config(persist_items=False, deliver_payloads=False)
QUEUE = Config(queueing=True, persist_items=False, deliver_payloads=False)

EMPTY = Shape(0)
BARE = Shape(1)
FULL = Shape(1, 1, "urn:x")


@pytest.mark.parametrize(
    ("config", "empty", "bare", "full"),
    [
        (KEEPS, Fault.ITEM_REQUIRED, None, None),
        (TOLD, Fault.ITEM_REQUIRED, Fault.PAYLOAD_REQUIRED, None),
        (KEEPS_QUIETLY, Fault.ITEM_REQUIRED, None, None),
        (NOTHING, None, Fault.ITEM_FORBIDDEN, Fault.ITEM_FORBIDDEN),
        (QUEUE, Fault.ITEM_REQUIRED, None, None),
    ],
)
def test_each_kind_of_node_takes_what_the_specification_says(
    config: Config, empty: Fault | None, bare: Fault | None, full: Fault | None
) -> None:
    found = [publication.fault(shape, config) for shape in (EMPTY, BARE, FULL)]
    assert found == [empty, bare, full]


@pytest.mark.parametrize("config", [KEEPS, TOLD, KEEPS_QUIETLY, NOTHING, QUEUE])
def test_no_node_takes_two_items(config: Config) -> None:
    assert publication.fault(Shape(2, 2), config) is Fault.TOO_MANY


@pytest.mark.parametrize("config", [KEEPS, TOLD, KEEPS_QUIETLY, QUEUE])
def test_no_item_has_two_payloads(config: Config) -> None:
    assert publication.fault(Shape(1, 2, "urn:x"), config) is Fault.TWO_PAYLOADS


def test_a_payload_is_of_the_nodes_type() -> None:
    config = replace(KEEPS, type="urn:x")
    assert publication.fault(FULL, config) is None
    assert publication.fault(Shape(1, 1, "urn:y"), config) is Fault.OTHER_TYPE
    assert publication.fault(BARE, config) is None


def test_what_is_asked_for_the_item_is_parted_from_the_rest() -> None:
    given = {PRIORITY: ["-3"], DELAY: ["2.5"], TTL: ["60"], "pubsub#max_items": ["1"]}
    options, rest = publication.parted(given)
    assert options == Options(-3, 2.5, 60.0)
    assert rest == {"pubsub#max_items": ["1"]}
    assert PRIORITY in given


def test_without_any_nothing_is_asked_for() -> None:
    assert publication.parted({}) == (NO_OPTIONS, {})
    assert publication.parted({DELAY: ["0"]}) == (NO_OPTIONS, {})


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1001", "1001", "1.5"])
def test_a_priority_is_a_whole_number_within_bounds(text: str) -> None:
    with pytest.raises(BadOption, match=PRIORITY):
        publication.parted({PRIORITY: [text]})


@pytest.mark.parametrize("name", [DELAY, TTL])
@pytest.mark.parametrize("given", [["-1"], [str(LONGEST + 1)], ["1", "2"], [], ["one"]])
def test_a_time_is_a_number_of_seconds_within_bounds(name: str, given: list[str]) -> None:
    with pytest.raises(BadOption, match=name):
        publication.parted({name: given})


def test_the_bounds_themselves_are_taken() -> None:
    for priority in (-MOST_PRIORITY, MOST_PRIORITY):
        assert publication.parted({PRIORITY: [str(priority)]})[0].priority == priority
    assert publication.parted({TTL: [str(LONGEST)]})[0].ttl == LONGEST
