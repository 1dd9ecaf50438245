"""Nodes: how they may be named, and how forms configure them."""

from __future__ import annotations

import pytest

from edge.features.pubsub.rules import node
from edge.features.pubsub.rules.node import FIELDS, FIXED, Config, Kind, Unacceptable, configured

MOST = 500


@pytest.mark.parametrize(
    "name", ["a", "plant/boiler1/temp", "//", "$SYS/x", "urn:xmpp:x", "naïve/ß", "a b", "x" * 64]
)
def test_names_that_nodes_can_have(name: str) -> None:
    assert node.misnamed(name, 64) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "not empty"),
        ("x" * 65, "64 bytes"),
        ("ß" * 33, "64 bytes"),
        ("/" * 32, "32 levels"),
        ("a/+/b", "filters"),
        ("a/#", "filters"),
        ("c+", "filters"),
        ("$share:crew:a", "share"),
        ("$share/crew/a", "share"),
        ("a\u0000b", "control"),
        ("a\u0085b", "control"),
        ("a\ufffeb", "control"),
    ],
)
def test_names_that_nodes_cannot_have_and_why(name: str, why: str) -> None:
    assert why in node.misnamed(name, 64)


def test_a_name_has_32_levels_at_most() -> None:
    assert node.misnamed("/".join("x" * 32), 64) == ""
    assert "levels" in node.misnamed("/".join("x" * 33), 128)


def test_every_option_is_in_the_table_once() -> None:
    names = [field.name for field in FIELDS]
    assert sorted(names) == sorted(Config.__struct_fields__)
    assert not {field.var for field in FIELDS} & set(FIXED)


def test_choices_are_those_that_the_configuration_can_have() -> None:
    for field in FIELDS:
        chosen = getattr(Config(), field.name)
        if field.kind is Kind.CHOICE:
            assert chosen in dict(field.options)
            assert len(dict(field.options)) == len(field.options) > 1
        else:
            assert not field.options


def test_the_form_of_a_configuration_gives_it_again() -> None:
    other = Config(
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
        queueing=True,
        queue_lock_timeout=12345.678,
        queue_max_deliveries=1000,
        queue_policy="hash",
    )
    for config, before in ((Config(), other), (other, Config())):
        values = {field.var: texts for field, texts in node.written(config)}
        assert configured(before, values, MOST) == config


def test_what_is_written_is_plain() -> None:
    values = {field.name: texts for field, texts in node.written(Config())}
    assert values["title"] == [""]
    assert values["persist_items"] == ["1"]
    assert values["queueing"] == ["0"]
    assert values["queue_lock_timeout"] == ["60"]
    assert values["item_expire"] == ["max"]
    assert values["max_items"] == ["20"]
    assert values["roster_groups_allowed"] == []
    types = {field.name: field.form_type for field in FIELDS}
    assert types["queueing"] == "boolean"
    assert types["access_model"] == "list-single"
    assert types["max_items"] == types["title"] == types["queue_lock_timeout"] == "text-single"
    assert types["roster_groups_allowed"] == "text-multi"


@pytest.mark.parametrize(
    ("var", "given", "name", "value"),
    [
        ("pubsub#title", [], "title", ""),
        ("pubsub#title", ["x" * 128], "title", "x" * 128),
        ("pubsub#persist_items", ["false"], "persist_items", False),
        ("pubsub#persist_items", ["0"], "persist_items", False),
        ("pubsub#queueing", ["true"], "queueing", True),
        ("{urn:xmpp:pubsub:queueing:0}queueing", ["1"], "queueing", True),
        ("pubsub#max_items", ["max"], "max_items", MOST),
        ("pubsub#max_items", ["1"], "max_items", 1),
        ("pubsub#max_items", ["500"], "max_items", 500),
        ("pubsub#item_expire", ["max"], "item_expire", 0),
        ("pubsub#item_expire", ["604800"], "item_expire", 604800),
        ("pubsub#queue_lock_timeout", ["1.5"], "queue_lock_timeout", 1.5),
        ("pubsub#access_model", ["whitelist"], "access_model", "whitelist"),
        ("pubsub#roster_groups_allowed", ["a", "b"], "roster_groups_allowed", ("a", "b")),
    ],
)
def test_options_that_can_be_so(var: str, given: list[str], name: str, value: object) -> None:
    assert getattr(configured(Config(), {var: given}, MOST), name) == value


@pytest.mark.parametrize(
    ("var", "given", "why"),
    [
        ("pubsub#colour", ["red"], "no such option"),
        ("title", ["x"], "no such option"),
        ("pubsub#title", ["x" * 129], "128 characters"),
        ("pubsub#title", ["a", "b"], "one value"),
        ("pubsub#persist_items", [], "one value"),
        ("pubsub#persist_items", ["yes"], "one of"),
        ("pubsub#access_model", ["authorize"], "open, whitelist, presence, roster"),
        ("pubsub#send_last_published_item", ["on_sub_and_presence"], "never, on_sub"),
        ("pubsub#max_items", ["501"], "from 1 to 500"),
        ("pubsub#max_items", ["0"], "from 1 to 500"),
        ("pubsub#max_items", ["few"], "a number"),
        ("pubsub#max_items", ["1.5"], "a number"),
        ("pubsub#item_expire", ["-1"], "from 0"),
        ("pubsub#queue_max_deliveries", ["max"], "a number"),
        ("pubsub#queue_lock_timeout", ["nan"], "from 1 to 604800"),
        ("pubsub#queue_lock_timeout", ["0.5"], "from 1 to 604800"),
        ("pubsub#roster_groups_allowed", ["g"] * 17, "16 at most"),
        ("pubsub#roster_groups_allowed", ["g" * 129], "128 characters"),
        ("pubsub#node_type", ["collection"], "cannot be"),
        ("pubsub#purge_offline", ["1"], "cannot be"),
        ("pubsub#body_xslt", ["http://example.org"], "cannot be"),
    ],
)
def test_options_that_cannot_be_so_and_why(var: str, given: list[str], why: str) -> None:
    with pytest.raises(Unacceptable, match=why) as raised:
        configured(Config(), {var: given}, MOST)
    assert raised.value.var == var


def test_what_is_so_in_any_case_may_be_asked_for() -> None:
    for var, asked in FIXED.items():
        for values in asked:
            assert configured(Config(), {var: values}, MOST) == Config()


def test_a_refusal_that_is_about_no_option_says_so_alone() -> None:
    assert str(Unacceptable("", "why")) == "why"
