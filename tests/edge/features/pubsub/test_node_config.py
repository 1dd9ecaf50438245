"""Options of a node's configuration and the values that they accept."""

from __future__ import annotations

import pytest

from edge.features.pubsub.rules import node_config as rules
from edge.features.pubsub.rules.node_config import NodeConfig, QueuePolicy

MAX_ITEMS = 500


def test_every_option_is_in_the_table_once() -> None:
    fields = [option.field for option in rules.OPTIONS]
    assert sorted(fields) == sorted(NodeConfig.__struct_fields__)
    assert not {option.name for option in rules.OPTIONS} & set(rules.FIXED_OPTIONS)


def test_formatted_options_parse_to_the_same_configuration() -> None:
    other = NodeConfig(
        title="Boiler",
        description="its temperature",
        type="urn:xmpp:iot:sensordata",
        access_model="roster",
        roster_groups_allowed=("crew", "office"),
        publish_model="open",
        persist_items=False,
        max_items=3,
        item_expire=60,
        send_last_published_item="never",
        deliver_notifications=False,
        deliver_payloads=False,
        notify_config=True,
        notify_delete=False,
        notify_retract=False,
        notification_type="normal",
        itemreply="none",
        queueing=True,
        queue_lock_timeout=12345.678,
        queue_max_deliveries=1000,
        queue_policy=QueuePolicy.HASH,
    )
    for config, before in ((NodeConfig(), other), (other, NodeConfig())):
        values = {option.name: texts for option, texts in rules.option_values(config)}
        assert rules.apply_options(before, values, MAX_ITEMS) == config


def test_default_values_as_texts() -> None:
    values = {option.field: texts for option, texts in rules.option_values(NodeConfig())}
    assert values["title"] == [""]
    assert values["persist_items"] == ["1"]
    assert values["queueing"] == ["0"]
    assert values["queue_lock_timeout"] == ["60"]
    assert values["item_expire"] == ["max"]
    assert values["max_items"] == ["20"]
    assert values["roster_groups_allowed"] == []


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("title", [], ""),
        ("title", ["x" * 128], "x" * 128),
        ("persist_items", ["false"], False),
        ("persist_items", ["0"], False),
        ("queueing", ["true"], True),
        ("max_items", ["max"], MAX_ITEMS),
        ("max_items", ["1"], 1),
        ("max_items", ["500"], 500),
        ("item_expire", ["max"], 0),
        ("item_expire", ["604800"], 604800),
        ("queue_lock_timeout", ["1.5"], 1.5),
        ("access_model", ["whitelist"], "whitelist"),
        ("roster_groups_allowed", ["a", "b"], ("a", "b")),
    ],
)
def test_valid_options(name: str, texts: list[str], value: object) -> None:
    found = rules.apply_options(NodeConfig(), {f"pubsub#{name}": texts}, MAX_ITEMS)
    assert getattr(found, name) == value


@pytest.mark.parametrize(
    ("name", "texts", "problem"),
    [
        ("pubsub#colour", ["red"], "unknown"),
        ("title", ["x"], "unknown"),
        ("pubsub#title", ["x" * 129], "128 characters"),
        ("pubsub#title", ["a", "b"], "one value"),
        ("pubsub#persist_items", [], "one value"),
        ("pubsub#persist_items", ["yes"], "one of"),
        ("pubsub#access_model", ["authorize"], "open, whitelist, presence, roster"),
        ("pubsub#send_last_published_item", ["on_sub_and_presence"], "never, on_sub"),
        ("pubsub#max_items", ["501"], "from 1 to 500"),
        ("pubsub#max_items", ["0"], "from 1 to 500"),
        ("pubsub#max_items", ["few"], "a whole number"),
        ("pubsub#max_items", ["1.5"], "a whole number"),
        ("pubsub#item_expire", ["-1"], "from 0"),
        ("pubsub#queue_max_deliveries", ["max"], "a whole number"),
        ("pubsub#queue_lock_timeout", ["nan"], "from 1 to 604800"),
        ("pubsub#queue_lock_timeout", ["0.5"], "from 1 to 604800"),
        ("pubsub#roster_groups_allowed", ["g"] * 17, "at most 16"),
        ("pubsub#roster_groups_allowed", ["g" * 129], "128 characters"),
        ("pubsub#node_type", ["collection"], "cannot have"),
        ("pubsub#purge_offline", ["1"], "cannot have"),
        ("pubsub#body_xslt", ["http://example.org"], "cannot have"),
    ],
)
def test_invalid_options(name: str, texts: list[str], problem: str) -> None:
    with pytest.raises(rules.InvalidOption, match=problem) as raised:
        rules.apply_options(NodeConfig(), {name: texts}, MAX_ITEMS)
    assert raised.value.name == name


def test_fixed_options_may_be_set_to_their_only_value() -> None:
    for name, accepted in rules.FIXED_OPTIONS.items():
        for texts in accepted:
            assert rules.apply_options(NodeConfig(), {name: texts}, MAX_ITEMS) == NodeConfig()
