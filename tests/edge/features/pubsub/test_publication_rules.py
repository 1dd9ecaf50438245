"""Checks of a publication against its node, and the options of a queued item."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from edge.features.pubsub.rules import publication as rules
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.rules.publication import ItemOptions, PublicationShape
from edge.features.pubsub.rules.reasons import Reason

STORED = NodeConfig()
TRANSIENT = NodeConfig(persist_items=False)
WITHOUT_PAYLOADS = NodeConfig(deliver_payloads=False)
SIGNAL = NodeConfig(persist_items=False, deliver_payloads=False)
QUEUE = NodeConfig(queueing=True, persist_items=False, deliver_payloads=False)

NO_ITEM = PublicationShape(0)
NO_PAYLOAD = PublicationShape(1)
COMPLETE = PublicationShape(1, 1, "urn:x")


def reason(shape: PublicationShape, config: NodeConfig) -> Reason | None:
    fault = rules.find_fault(shape, config)
    return None if fault is None else fault.reason


@pytest.mark.parametrize(
    ("config", "no_item", "no_payload", "complete"),
    [
        (STORED, Reason.ITEM_REQUIRED, None, None),
        (TRANSIENT, Reason.ITEM_REQUIRED, Reason.PAYLOAD_REQUIRED, None),
        (WITHOUT_PAYLOADS, Reason.ITEM_REQUIRED, None, None),
        (SIGNAL, None, Reason.ITEM_FORBIDDEN, Reason.ITEM_FORBIDDEN),
        (QUEUE, Reason.ITEM_REQUIRED, None, None),
    ],
)
def test_each_kind_of_node_requires_items_and_payloads_as_specified(
    config: NodeConfig, no_item: Reason | None, no_payload: Reason | None, complete: Reason | None
) -> None:
    found = [reason(shape, config) for shape in (NO_ITEM, NO_PAYLOAD, COMPLETE)]
    assert found == [no_item, no_payload, complete]
    assert reason(PublicationShape(2, 2), config) is Reason.TOO_MANY_ITEMS
    two_payloads = reason(PublicationShape(1, 2, "urn:x"), config)
    assert two_payloads is (complete or Reason.INVALID_PAYLOAD)


def test_a_payload_has_the_namespace_of_the_nodes_type() -> None:
    config = replace(STORED, type="urn:x")
    assert reason(COMPLETE, config) is None
    assert reason(PublicationShape(1, 1, "urn:y"), config) is Reason.INVALID_PAYLOAD
    assert reason(NO_PAYLOAD, config) is None


def test_options_of_the_item_are_split_from_preconditions() -> None:
    values = {
        rules.PRIORITY: ["-3"],
        rules.DELAY: ["2.5"],
        rules.TTL: ["60"],
        "pubsub#max_items": ["1"],
    }
    options, rest = rules.split_options(values)
    assert options == ItemOptions(-3, 2.5, 60.0)
    assert rest == {"pubsub#max_items": ["1"]}
    assert rules.PRIORITY in values
    assert rules.split_options({}) == (rules.DEFAULT_OPTIONS, {})
    assert rules.split_options({rules.DELAY: ["0"]}) == (rules.DEFAULT_OPTIONS, {})


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1001", "1001", "1.5"])
def test_a_priority_is_an_integer_within_bounds(text: str) -> None:
    with pytest.raises(rules.InvalidItemOption, match=rules.PRIORITY):
        rules.split_options({rules.PRIORITY: [text]})


@pytest.mark.parametrize("name", [rules.DELAY, rules.TTL])
@pytest.mark.parametrize("texts", [["-1"], [str(rules.MAX_SECONDS + 1)], ["1", "2"], [], ["one"]])
def test_a_time_is_a_number_of_seconds_within_bounds(name: str, texts: list[str]) -> None:
    with pytest.raises(rules.InvalidItemOption, match=name):
        rules.split_options({name: texts})


def test_bounds_are_inclusive() -> None:
    for priority in (-rules.MAX_PRIORITY, rules.MAX_PRIORITY):
        assert rules.split_options({rules.PRIORITY: [str(priority)]})[0].priority == priority
    assert rules.split_options({rules.TTL: [str(rules.MAX_SECONDS)]})[0].ttl == rules.MAX_SECONDS
