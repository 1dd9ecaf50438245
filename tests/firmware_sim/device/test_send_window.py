from __future__ import annotations

from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.send_window import SendWindow
from firmware_sim.device.sender_rules import Action, Input, Level, Message, State

POLICY = SendPolicy(
    retry_base=10, retry_cap=100, jitter=0, max_attempts=3, window=4, window_bytes=100
)
A, K = Level.ASSURED, Level.ACKNOWLEDGED


def open_window(*levels: Level) -> SendWindow:
    """Return a window with a session, and an admitted message of each of these levels."""
    window = SendWindow(POLICY, lambda: 0.0)
    window.resume()
    for number, level in enumerate(levels, 1):
        assert window.admit(Message(number, level, 1))
    return window


def take_actions(window: SendWindow, now: float = 0.0) -> list[tuple[int, str]]:
    return [(sent.message.number, sent.action.name) for sent in window.take(now)]


def test_offers_are_sent_once_in_order() -> None:
    window = open_window(A, A, A)
    assert take_actions(window) == [(1, "OFFER"), (2, "OFFER"), (3, "OFFER")]
    assert take_actions(window) == []


def test_window_limits_messages_and_bytes() -> None:
    window = open_window(A, A, A, A)
    assert not window.can_admit()
    window = open_window(A, A)
    assert window.can_admit()
    assert not window.admit(Message(3, A, 99))
    assert window.admit(Message(3, A, 98))
    assert not window.can_admit()


def test_message_larger_than_the_window_is_sent_alone() -> None:
    window = open_window()
    assert window.admit(Message(1, A, 1000))
    assert not window.can_admit()
    take_actions(window)
    window.apply_input(1, Input.REFUSED, 0)
    assert window.can_admit()


def test_delivery_waits_for_earlier_messages() -> None:
    window = open_window(A, A, A)
    take_actions(window)
    window.apply_input(3, Input.RECEIVED, 0)
    window.apply_input(2, Input.RECEIVED, 0)
    assert take_actions(window) == []
    window.apply_input(1, Input.RECEIVED, 0)
    assert take_actions(window) == [(1, "DELIVER"), (2, "DELIVER"), (3, "DELIVER")]


def test_end_of_the_first_message_releases_later_ones() -> None:
    window = open_window(A, A)
    take_actions(window)
    window.apply_input(2, Input.RECEIVED, 0)
    ended = window.apply_input(1, Input.REFUSED, 0)
    assert ended is not None
    assert ended.state is State.FAILED
    assert take_actions(window) == [(2, "DELIVER")]


def test_wait_error_to_an_offer_delays_offers_but_not_received_messages() -> None:
    window = open_window(A, A, A)
    take_actions(window)
    window.apply_input(1, Input.WAIT, 0)
    assert not window.can_admit()
    window.apply_input(2, Input.RECEIVED, 0)
    assert take_actions(window) == [(2, "DELIVER")]
    window.apply_input(2, Input.DELIVERED, 0)
    window.apply_input(3, Input.WAIT, 0)
    assert window.next_due() == 10
    assert take_actions(window, 10) == [(1, "OFFER")]
    assert window.next_due() == 30  # 3 waits for 1, not for the clock
    window.apply_input(1, Input.RECEIVED, 11)
    assert take_actions(window, 11) == [(1, "DELIVER"), (3, "OFFER")]
    assert not window.can_admit()
    window.apply_input(3, Input.RECEIVED, 12)
    assert window.can_admit()


def test_possibly_received_message_is_offered_again_past_a_refused_one() -> None:
    window = open_window(A, A)
    take_actions(window)
    window.apply_input(1, Input.WAIT, 0)
    window.interrupt()  # the second may have been received and use capacity that the first lacks
    window.resume()
    assert take_actions(window, 1) == [(2, "OFFER")]
    window.apply_input(2, Input.RECEIVED, 1)
    assert take_actions(window, 1) == [(2, "DELIVER")]
    assert take_actions(window, 10) == [(1, "OFFER")]


def test_wait_error_to_a_delivery_delays_deliveries_and_offers() -> None:
    window = open_window(A, A, A)
    take_actions(window)
    window.apply_input(1, Input.RECEIVED, 0)
    take_actions(window)
    window.apply_input(1, Input.WAIT, 0)
    window.apply_input(2, Input.RECEIVED, 0)
    assert take_actions(window, 5) == []
    assert not window.can_admit()
    assert take_actions(window, 10) == [(1, "DELIVER")]
    window.apply_input(1, Input.DELIVERED, 11)
    assert take_actions(window, 11) == [(2, "DELIVER")]


def test_acknowledged_message_keeps_its_order_among_assured_ones() -> None:
    window = open_window(A, K, K, A)
    assert take_actions(window) == [(1, "OFFER"), (4, "OFFER")]
    window.apply_input(4, Input.RECEIVED, 0)
    assert take_actions(window) == []
    window.apply_input(1, Input.RECEIVED, 0)
    assert take_actions(window) == [(1, "DELIVER"), (2, "OFFER"), (3, "OFFER"), (4, "DELIVER")]
    window.apply_input(2, Input.WAIT, 0)
    assert take_actions(window, 5) == []
    ended = window.apply_input(3, Input.DELIVERED, 5)
    assert ended is not None
    assert ended.state is State.DONE


def test_timeout_repeats_and_finally_fails() -> None:
    window = open_window(A)
    take_actions(window)
    assert window.next_due() == 10
    assert window.expire(9) == ([], False)
    assert window.expire(10) == ([], True)
    assert take_actions(window, 10) == [(1, "OFFER")]
    assert window.next_due() == 30
    window.expire(30)
    take_actions(window, 30)
    ended, silent = window.expire(70)
    assert [message.state for message in ended] == [State.FAILED]
    assert silent
    assert len(window) == 0


def test_empty_result_to_an_offer_is_not_custody() -> None:
    window = open_window(A)
    take_actions(window)
    assert window.apply_input(1, Input.DELIVERED, 1) is None
    assert take_actions(window, 1) == []
    window.expire(10)
    assert take_actions(window, 10) == [(1, "OFFER")]


def test_late_answer_is_ignored() -> None:
    window = open_window(A)
    take_actions(window)
    window.changes()
    assert window.apply_input(9, Input.RECEIVED, 0) is None
    assert window.changes() == []


def test_nothing_is_sent_or_counted_without_a_session() -> None:
    window = open_window(A, A)
    take_actions(window)
    window.apply_input(1, Input.RECEIVED, 0)
    take_actions(window)
    window.interrupt()
    assert not window.has_pending_answer()
    assert window.next_due() is None
    assert window.expire(1000) == ([], False)
    assert take_actions(window, 1000) == []
    window.changes()
    window.resume()
    assert take_actions(window, 1000) == [(1, "DELIVER"), (2, "OFFER")]
    assert {m.number: (m.sends, m.attempts) for m in window.changes()} == {1: (2, 1), 2: (2, 1)}


def test_hold_survives_the_session_and_counts_its_attempt() -> None:
    window = open_window(A)
    take_actions(window)
    window.apply_input(1, Input.WAIT, 0)
    window.interrupt()
    window.resume()
    assert take_actions(window, 5) == []
    sent = window.take(10)
    assert [(one.action, one.message.attempts) for one in sent] == [(Action.OFFER, 2)]


def test_messages_in_flight_before_a_restart_are_sent_first_in_order() -> None:
    window = SendWindow(POLICY, lambda: 0.0)
    released = Message(4, A, 1, State.RELEASED, sends=1, attempts=1)
    window.restore([released, Message(5, A, 1, State.OFFERED, sends=2, attempts=2)])
    assert not window.can_admit()
    window.resume()
    assert window.admit(Message(6, A, 1))
    sent = window.take(0)
    assert [(s.message.number, s.action, s.message.attempts) for s in sent] == [
        (4, Action.DELIVER, 1),
        (5, Action.OFFER, 2),
        (6, Action.OFFER, 1),
    ]


def test_changes_are_returned_for_storage_before_sending() -> None:
    window = open_window(A)
    (sent,) = window.take(0)
    assert window.changes() == [sent.message]
    assert window.changes() == []
    window.apply_input(1, Input.RECEIVED, 0)
    (stored,) = window.changes()
    assert (stored.state, stored.sends) == (State.RELEASED, 0)
