from __future__ import annotations

from firmware_sim.device.limits import SendPolicy
from firmware_sim.device.send_window import SendWindow
from firmware_sim.device.sender_rules import Action, Input, Level, Message, State

POLICY = SendPolicy(
    retry_base=10, retry_cap=100, jitter=0, max_attempts=3, window=4, window_bytes=100
)


def a_line(*levels: Level, policy: SendPolicy = POLICY) -> SendWindow:
    """A line that is online, with a message of each of these levels admitted."""
    line = SendWindow(policy, lambda: 0.0)
    line.resume()
    for number, level in enumerate(levels, 1):
        assert line.admit(Message(number, level, 1))
    return line


def taken(line: SendWindow, now: float = 0.0) -> list[tuple[int, str]]:
    return [(sent.message.number, sent.action.name) for sent in line.take(now)]


def assured(count: int) -> list[Level]:
    return [Level.ASSURED] * count


def test_offers_are_sent_once_in_order() -> None:
    line = a_line(*assured(3))
    assert taken(line) == [(1, "OFFER"), (2, "OFFER"), (3, "OFFER")]
    assert taken(line) == []


def test_window_limits_messages_and_bytes() -> None:
    line = a_line(*assured(4))
    assert not line.can_admit()
    line = a_line(*assured(2))
    assert line.can_admit()
    assert not line.admit(Message(3, Level.ASSURED, 99))
    assert line.admit(Message(3, Level.ASSURED, 98))
    assert not line.can_admit()


def test_message_larger_than_the_window_is_sent_alone() -> None:
    line = a_line()
    assert line.admit(Message(1, Level.ASSURED, 1000))
    assert not line.can_admit()
    taken(line)
    line.apply_input(1, Input.REFUSED, 0)
    assert line.can_admit()


def test_delivery_waits_for_earlier_messages() -> None:
    line = a_line(*assured(3))
    taken(line)
    line.apply_input(3, Input.RECEIVED, 0)
    line.apply_input(2, Input.RECEIVED, 0)
    assert taken(line) == []
    line.apply_input(1, Input.RECEIVED, 0)
    assert taken(line) == [(1, "DELIVER"), (2, "DELIVER"), (3, "DELIVER")]


def test_end_of_the_first_message_releases_later_ones() -> None:
    line = a_line(*assured(2))
    taken(line)
    line.apply_input(2, Input.RECEIVED, 0)
    ended = line.apply_input(1, Input.REFUSED, 0)
    assert ended is not None
    assert ended.state is State.FAILED
    assert taken(line) == [(2, "DELIVER")]


def test_wait_error_to_an_offer_delays_offers_but_not_received_messages() -> None:
    line = a_line(*assured(3))
    taken(line)
    line.apply_input(1, Input.WAIT, 0)
    assert not line.can_admit()
    line.apply_input(2, Input.RECEIVED, 0)
    assert taken(line) == [(2, "DELIVER")]
    line.apply_input(2, Input.DELIVERED, 0)
    line.apply_input(3, Input.WAIT, 0)
    assert line.next_due() == 10
    assert taken(line, 10) == [(1, "OFFER")]
    assert line.next_due() == 30  # 3 waits for its turn, not for the clock
    line.apply_input(1, Input.RECEIVED, 11)
    assert taken(line, 11) == [(1, "DELIVER"), (3, "OFFER")]
    assert not line.can_admit()
    line.apply_input(3, Input.RECEIVED, 12)
    assert line.can_admit()


def test_possibly_received_message_is_offered_again_past_a_refused_one() -> None:
    line = a_line(*assured(2))
    taken(line)
    line.apply_input(1, Input.WAIT, 0)
    line.interrupt()  # the second may have been taken, and fill the room that the first lacks
    line.resume()
    assert taken(line, 1) == [(2, "OFFER")]
    line.apply_input(2, Input.RECEIVED, 1)
    assert taken(line, 1) == [(2, "DELIVER")]
    assert taken(line, 10) == [(1, "OFFER")]


def test_wait_error_to_a_delivery_delays_deliveries_and_offers() -> None:
    line = a_line(*assured(3))
    taken(line)
    line.apply_input(1, Input.RECEIVED, 0)
    taken(line)
    line.apply_input(1, Input.WAIT, 0)
    line.apply_input(2, Input.RECEIVED, 0)
    assert taken(line, 5) == []
    assert not line.can_admit()
    assert taken(line, 10) == [(1, "DELIVER")]
    line.apply_input(1, Input.DELIVERED, 11)
    assert taken(line, 11) == [(2, "DELIVER")]


def test_acknowledged_message_keeps_its_order_among_assured_ones() -> None:
    line = a_line(Level.ASSURED, Level.ACKNOWLEDGED, Level.ACKNOWLEDGED, Level.ASSURED)
    assert taken(line) == [(1, "OFFER"), (4, "OFFER")]
    line.apply_input(4, Input.RECEIVED, 0)
    assert taken(line) == []
    line.apply_input(1, Input.RECEIVED, 0)
    assert taken(line) == [(1, "DELIVER"), (2, "OFFER"), (3, "OFFER"), (4, "DELIVER")]
    line.apply_input(2, Input.WAIT, 0)
    assert taken(line, 5) == []
    ended = line.apply_input(3, Input.DELIVERED, 5)
    assert ended is not None
    assert ended.state is State.DONE


def test_timeout_repeats_and_finally_fails() -> None:
    line = a_line(*assured(1))
    taken(line)
    assert line.next_due() == 10
    assert line.expire(9) == ([], False)
    assert line.expire(10) == ([], True)
    assert taken(line, 10) == [(1, "OFFER")]
    assert line.next_due() == 30
    line.expire(30)
    taken(line, 30)
    ended, silent = line.expire(70)
    assert [message.state for message in ended] == [State.FAILED]
    assert silent
    assert len(line) == 0


def test_empty_result_to_an_offer_is_not_custody() -> None:
    line = a_line(*assured(1))
    taken(line)
    assert line.apply_input(1, Input.DELIVERED, 1) is None
    assert taken(line, 1) == []
    line.expire(10)
    assert taken(line, 10) == [(1, "OFFER")]


def test_late_answer_is_ignored() -> None:
    line = a_line(*assured(1))
    taken(line)
    line.changes()
    assert line.apply_input(9, Input.RECEIVED, 0) is None
    assert line.changes() == []


def test_nothing_is_sent_or_counted_without_a_session() -> None:
    line = a_line(*assured(2))
    taken(line)
    line.apply_input(1, Input.RECEIVED, 0)
    taken(line)
    line.interrupt()
    assert not line.has_pending_answer()
    assert line.next_due() is None
    assert line.expire(1000) == ([], False)
    assert taken(line, 1000) == []
    line.changes()
    line.resume()
    assert taken(line, 1000) == [(1, "DELIVER"), (2, "OFFER")]
    assert {m.number: (m.sends, m.attempts) for m in line.changes()} == {1: (2, 1), 2: (2, 1)}


def test_hold_survives_the_session_and_counts_its_attempt() -> None:
    line = a_line(*assured(1))
    taken(line)
    line.apply_input(1, Input.WAIT, 0)
    line.interrupt()
    line.resume()
    assert taken(line, 5) == []
    sent = line.take(10)
    assert [(one.action, one.message.attempts) for one in sent] == [(Action.OFFER, 2)]


def test_messages_in_flight_before_a_restart_are_sent_first_in_order() -> None:
    line = SendWindow(POLICY, lambda: 0.0)
    line.restore(
        [
            Message(4, Level.ASSURED, 1, State.RELEASED, sends=1, attempts=1),
            Message(5, Level.ASSURED, 1, State.OFFERED, sends=2, attempts=2),
        ]
    )
    assert not line.can_admit()
    line.resume()
    assert line.admit(Message(6, Level.ASSURED, 1))
    sent = line.take(0)
    assert [(s.message.number, s.action) for s in sent] == [
        (4, Action.DELIVER),
        (5, Action.OFFER),
        (6, Action.OFFER),
    ]
    assert [s.message.attempts for s in sent] == [1, 2, 1]


def test_changes_are_returned_for_storage_before_sending() -> None:
    line = a_line(*assured(1))
    (sent,) = line.take(0)
    assert line.changes() == [sent.message]
    assert line.changes() == []
    line.apply_input(1, Input.RECEIVED, 0)
    (stored,) = line.changes()
    assert (stored.state, stored.sends) == (State.RELEASED, 0)
