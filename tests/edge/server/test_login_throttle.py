from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.config.limits import Limits
from edge.server.login_throttle import LoginThrottle, source_of

LIMITS = Limits(authenticate_failures=5, authenticate_again=10.0, authenticate_delay=0.25)


def fail(
    throttle: LoginThrottle, times: int, address: str = "a", account: str = "x"
) -> list[float]:
    return [throttle.add_failure(address, account, 0.0) for _ in range(times)]


def test_the_delay_doubles_up_to_sixteen_times() -> None:
    assert fail(LoginThrottle(LIMITS), 7) == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_delay_rounds_a_leaking_bucket_up() -> None:
    throttle = LoginThrottle(LIMITS)
    throttle.add_failure("a", "x", 0.0)
    assert throttle.add_failure("a", "x", 9.0) == 0.5
    assert throttle.delay("a", "x", 19.5) == 0.5
    assert throttle.delay("a", "x", 20.5) == 0.25


@pytest.mark.parametrize(("address", "account"), [("a", "y"), ("b", "x")])
def test_a_full_bucket_of_address_or_account_refuses_attempts(address: str, account: str) -> None:
    throttle = LoginThrottle(LIMITS)
    fail(throttle, 4)
    assert throttle.may_try(address, account, 0.0)
    fail(throttle, 1)
    assert not throttle.may_try(address, account, 0.0)
    assert throttle.may_try("b", "y", 0.0)


def test_a_full_bucket_allows_one_attempt_per_leak() -> None:
    throttle = LoginThrottle(LIMITS)
    fail(throttle, 5)
    assert not throttle.may_try("a", "x", 9.9)
    assert throttle.may_try("a", "x", 10.0)
    throttle.add_failure("a", "x", 10.0)
    assert not throttle.may_try("a", "x", 19.9)
    assert throttle.may_try("a", "x", 20.0)


def test_an_attacker_cannot_lock_out_a_known_address() -> None:
    throttle = LoginThrottle(LIMITS)
    throttle.add_success("home", "x", 0.0)
    fail(throttle, 50, "evil")
    assert not throttle.may_try("evil", "x", 0.0)
    assert not throttle.may_try("elsewhere", "x", 0.0)
    assert throttle.may_try("home", "x", 0.0)


def test_failures_behind_one_address_do_not_delay_accounts_that_logged_in_from_it() -> None:
    throttle = LoginThrottle(LIMITS)
    throttle.add_success("nat", "x", 0.0)
    fail(throttle, 40, "nat", "y")
    assert not throttle.may_try("nat", "z", 0.0)
    assert throttle.may_try("nat", "x", 0.0)
    assert throttle.delay("nat", "x", 0.0) == 0.25, "a typing error of its own is answered at once"


def test_an_account_that_logged_in_before_is_limited_by_its_own_failures() -> None:
    throttle = LoginThrottle(LIMITS)
    throttle.add_success("nat", "x", 0.0)
    fail(throttle, 5, "nat", "x")
    assert not throttle.may_try("nat", "x", 0.0)
    assert not throttle.may_try("nat", "z", 0.0), "they fill the bucket of the address, too"


def test_one_account_does_not_displace_the_known_pairs_of_others() -> None:
    throttle = LoginThrottle(LIMITS, keys=20)
    throttle.add_known("home", "x")
    added = [throttle.add_known(f"network{number}", "traveller") for number in range(50)]
    assert all(added)
    assert not throttle.add_known("home", "x")
    assert not throttle.add_known("network49", "traveller")
    assert throttle.add_known("network41", "traveller"), "an account has 8 addresses"


def test_success_removes_only_the_failures_of_its_address_and_account() -> None:
    throttle = LoginThrottle(LIMITS)
    fail(throttle, 2, "a", "own")
    fail(throttle, 4, "a", "x")
    assert not throttle.may_try("a", "own", 0.0)
    throttle.add_success("a", "own", 0.0)
    assert throttle.may_try("a", "own", 0.0)
    fail(throttle, 1, "a", "x")
    throttle.add_success("a", "own", 0.0)
    assert not throttle.may_try("a", "x", 0.0), "the failures of another account remain"


def test_the_least_recently_used_keys_are_forgotten() -> None:
    throttle = LoginThrottle(LIMITS, keys=3)
    throttle.add_success("home", "x", 0.0)
    for number in range(3):
        throttle.add_success(f"other{number}", "x", 0.0)
    fail(throttle, 5, "evil")
    assert not throttle.may_try("home", "x", 0.0), "the address is no longer exempt"
    assert throttle.may_try("other0", "x", 0.0)
    for number in range(3):
        fail(throttle, 1, f"other{number}", f"y{number}")
    assert throttle.may_try("evil", "x", 0.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans())))
def test_failures_never_exceed_the_size_of_a_bucket(attempts: list[tuple[str, str, bool]]) -> None:
    throttle = LoginThrottle(LIMITS)
    failed: dict[str, int] = {"x": 0, "y": 0}
    for address, account, succeeds in attempts:
        if succeeds:
            throttle.add_success("honest", account, 0.0)
        elif throttle.may_try(address, account, 0.0):
            throttle.add_failure(address, account, 0.0)
            failed[account] += 1
    assert all(times <= LIMITS.authenticate_failures for times in failed.values())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("::1", "::/64"), ("", ""), ("socket", "socket"),
    ],
)  # fmt: skip
def test_addresses_count_by_ipv4_host_or_ipv6_site(host: str, expected: str) -> None:
    assert source_of(host) == expected
