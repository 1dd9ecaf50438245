"""Failed log-ins: how they are delayed and limited, by address and by account."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.server.login_throttle import Bounds, Throttle, source

BOUNDS = Bounds(failures=5, again=10.0, delay=0.25)


def fail(throttle: Throttle, times: int, address: str = "a", account: str = "x") -> list[float]:
    return [throttle.failed(address, account, 0.0) for _ in range(times)]


def test_the_delay_doubles_up_to_sixteen_times() -> None:
    assert fail(Throttle(BOUNDS), 7) == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_a_delay_counts_what_leaked_by_parts_only() -> None:
    throttle = Throttle(BOUNDS)
    throttle.failed("a", "x", 0.0)
    assert throttle.failed("a", "x", 9.0) == 0.5
    assert throttle.delay("a", "x", 19.5) == 0.5
    assert throttle.delay("a", "x", 20.5) == 0.25


@pytest.mark.parametrize(("address", "account"), [("a", "y"), ("b", "x")])
def test_a_full_bucket_refuses_by_address_and_by_account(address: str, account: str) -> None:
    throttle = Throttle(BOUNDS)
    fail(throttle, 4)
    assert throttle.allows(address, account, 0.0)
    fail(throttle, 1)
    assert not throttle.allows(address, account, 0.0)
    assert throttle.allows("b", "y", 0.0)


def test_a_bucket_regains_one_at_a_time() -> None:
    throttle = Throttle(BOUNDS)
    fail(throttle, 5)
    assert not throttle.allows("a", "x", 9.9)
    assert throttle.allows("a", "x", 10.0)
    throttle.failed("a", "x", 10.0)
    assert not throttle.allows("a", "x", 19.9)
    assert throttle.allows("a", "x", 20.0)


def test_an_attacker_cannot_lock_out_who_was_there_before() -> None:
    throttle = Throttle(BOUNDS)
    throttle.succeeded("home", "x", 0.0)
    fail(throttle, 50, "evil")
    assert not throttle.allows("evil", "x", 0.0)
    assert not throttle.allows("elsewhere", "x", 0.0)
    assert throttle.allows("home", "x", 0.0)
    fail(throttle, 5, "home", "y")
    assert not throttle.allows("home", "x", 0.0), "the address's own bucket holds for it"


def test_success_takes_back_what_its_pair_filled_and_no_more() -> None:
    throttle = Throttle(BOUNDS)
    fail(throttle, 2, "a", "own")
    fail(throttle, 4, "a", "x")
    assert not throttle.allows("a", "own", 0.0)
    throttle.succeeded("a", "own", 0.0)
    assert throttle.allows("a", "own", 0.0)
    fail(throttle, 1, "a", "x")
    throttle.succeeded("a", "own", 0.0)
    assert not throttle.allows("a", "x", 0.0), "attempts on another are not bought back"


def test_what_is_remembered_is_bounded_and_the_least_recently_used_goes() -> None:
    throttle = Throttle(BOUNDS, keys=3)
    throttle.succeeded("home", "x", 0.0)
    for number in range(3):
        throttle.succeeded(f"other{number}", "x", 0.0)
    fail(throttle, 5, "evil")
    assert not throttle.allows("home", "x", 0.0), "forgotten: held to the account's bucket"
    assert throttle.allows("other0", "x", 0.0)
    for number in range(3):
        fail(throttle, 1, f"other{number}", f"y{number}")
    assert throttle.allows("evil", "x", 0.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans())))
def test_there_are_never_more_failures_than_the_bucket_holds(
    attempts: list[tuple[str, str, bool]],
) -> None:
    """Whoever succeeds in between: on another's account there are `failures` attempts at most."""
    throttle = Throttle(BOUNDS)
    failed: dict[str, int] = {"x": 0, "y": 0}
    for address, account, succeeds in attempts:
        if succeeds:
            throttle.succeeded("honest", account, 0.0)
        elif throttle.allows(address, account, 0.0):
            throttle.failed(address, account, 0.0)
            failed[account] += 1
    assert all(times <= BOUNDS.failures for times in failed.values())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("socket", "socket"),
    ],
)
def test_addresses_are_counted_by_site(host: str, expected: str) -> None:
    assert source(host) == expected
