from __future__ import annotations

import pytest

from edge import jid
from edge.config.limits import Limits
from edge.mqtt.packets import V5, V311, Connect, Property
from edge.server.mqtt import terms


@pytest.mark.parametrize(
    ("user_name", "account"),
    [
        ("pump1", "pump1"),
        ("Pump1", "pump1"),
        ("pump1@gw.example", "pump1"),
        ("pump1@GW.example", "pump1"),
        ("pump1@other.example", ""),
        ("pump1@", ""),
        ("@gw.example", ""),
        ("", ""),
        ("a b", ""),
        ("a/b", ""),
    ],
)
def test_account_of_a_user_name(user_name: str, account: str) -> None:
    assert terms.account_of(user_name, "gw.example") == account


@pytest.mark.parametrize(
    ("client_id", "is_allowed"),
    [
        *((char, True) for char in " /@\t\n\r\x7f\x85\u00a0\ufdd0\U0001fffe\U0010ffff"),
        *((char, False) for char in "\0\x01\x08\x0b\x1f\ufffe\uffff"),
        ("x" * 65_535, True),
    ],
)
def test_identifiers_that_xml_cannot_have_are_refused(client_id: str, is_allowed: bool) -> None:
    assert terms.may_have_id(Connect(client_id)) is is_allowed


def test_the_resource_of_an_identifier_is_bounded_and_its_own() -> None:
    longest = "\u00e9" * (jid.MAX_PART // 2)
    assert [terms.resource(text) for text in ("", "a b/", longest)] == ["", "a b/", longest]
    found = {terms.resource(text) for text in (f"{longest}\u00e9", "x" * 65_535, "x" * 65_534)}
    assert len(found) == 3
    assert max(len(text.encode()) for text in found) <= jid.MAX_PART


@pytest.mark.parametrize(
    ("version", "clean", "is_allowed"),
    [(V5, True, True), (V5, False, True), (V311, True, True), (V311, False, False)],
)
def test_an_empty_identifier_needs_a_session_that_is_not_kept(
    version: int, clean: bool, is_allowed: bool
) -> None:
    assert terms.may_have_id(Connect("", version, clean)) is is_allowed


@pytest.mark.parametrize(
    ("version", "asked", "granted"),
    [
        *((V5, asked, granted) for asked, granted in ((0, 60), (1, 1), (60, 60), (61, 60))),
        *((V311, asked, asked) for asked in (0, 1, 61)),
    ],
)
def test_keep_alive(version: int, asked: int, granted: int) -> None:
    assert terms.keep_alive(Connect("", version, keep_alive=asked), 60) == granted


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(session_units=5, held_messages_per_source=9), 5),
        (Limits(session_units=9, held_messages_per_source=5), 5),
        (Limits(session_units=100_000, held_messages_per_source=100_000), 65_535),
    ],
)
def test_receive_maximum(limits: Limits, expected: int) -> None:
    assert terms.receive_maximum(limits) == expected


def test_a_bound_session_keeps_nothing_of_the_log_in() -> None:
    properties = {Property.SESSION_EXPIRY: 7, Property.AUTHENTICATION_METHOD: "SCRAM-SHA-1"}
    connect = Connect(
        "x" * 9999, V5, False, 9, "pump1", b"secret", None, {**properties, Property.USER: ()}
    )
    assert terms.lasting(connect) == Connect("", V5, False, properties=properties)
    assert terms.lasting(Connect("a", V311, False)).session_expiry == 0xFFFF_FFFF
