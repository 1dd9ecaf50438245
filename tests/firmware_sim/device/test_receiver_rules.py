from __future__ import annotations

import itertools

import pytest

from firmware_sim.device.receiver_rules import (
    ACKNOWLEDGED,
    TRANSITIONS,
    Effect,
    Input,
    Reply,
    State,
    Transition,
    offered,
)

U, H, R = State  # unknown, held, released

# Written by hand from the specification and docs/how-to/integrate-firmware.md.
EXPECTED = {
    (U, Input.OFFER): (H, "received", Effect.HOLD),
    (U, Input.OTHER): (H, "received", Effect.HOLD),
    (U, Input.FULL): (U, "wait/resource-constraint", Effect.NONE),
    (U, Input.DELIVER): (U, "cancel/item-not-found", Effect.NONE),
    (U, Input.FAILED): (U, "cancel/item-not-found", Effect.NONE),
    (U, Input.UNTRUSTED): (U, "cancel/not-allowed", Effect.NONE),
    (H, Input.OFFER): (H, "received", Effect.NONE),
    (H, Input.OTHER): (H, "cancel/conflict", Effect.NONE),
    (H, Input.FULL): (H, "received", Effect.NONE),
    (H, Input.DELIVER): (R, "empty result", Effect.HAND_OVER),
    (H, Input.FAILED): (H, "wait/internal-server-error", Effect.NONE),
    (H, Input.UNTRUSTED): (H, "cancel/not-allowed", Effect.NONE),
    (R, Input.OFFER): (H, "received", Effect.HOLD),
    (R, Input.OTHER): (H, "received", Effect.HOLD),
    (R, Input.FULL): (R, "wait/resource-constraint", Effect.NONE),
    (R, Input.DELIVER): (R, "empty result", Effect.NONE),
    (R, Input.FAILED): (R, "empty result", Effect.NONE),
    (R, Input.UNTRUSTED): (R, "cancel/not-allowed", Effect.NONE),
}


def test_all_states_and_inputs() -> None:
    assert set(EXPECTED) == set(itertools.product(State, Input))
    assert {
        cell: Transition(to, Reply(reply), effect) for cell, (to, reply, effect) in EXPECTED.items()
    } == TRANSITIONS


def test_acknowledged_message_is_delivered_or_refused() -> None:
    assert {input_: move.reply.value for input_, move in ACKNOWLEDGED.items()} == {
        Input.OFFER: "empty result",
        Input.FAILED: "wait/internal-server-error",
        Input.UNTRUSTED: "cancel/not-allowed",
    }
    assert [input_ for input_, move in ACKNOWLEDGED.items() if move.effect is Effect.HAND_OVER] == [
        Input.OFFER
    ]


@pytest.mark.parametrize(
    ("held", "trusted", "room", "expected"),
    [
        (None, True, True, Input.OFFER),
        (None, True, False, Input.FULL),
        (None, False, True, Input.UNTRUSTED),
        ("same", True, False, Input.OFFER),
        ("same", True, True, Input.OFFER),
        ("same", False, True, Input.UNTRUSTED),
        ("other", True, True, Input.OTHER),
        ("other", True, False, Input.OTHER),
        ("other", False, False, Input.UNTRUSTED),
    ],
)
def test_classification_of_offers(
    held: str | None, trusted: bool, room: bool, expected: Input
) -> None:
    assert offered(held, "same", trusted=trusted, room=room) is expected


def test_error_replies_have_type_and_condition() -> None:
    assert Reply.NO_ROOM.error == ("wait", "resource-constraint")
    assert Reply.RECEIVED.error is None
    assert Reply.RESULT.error is None
