"""Throttling of failed logins by source address and by account.

A failure adds to three leaky buckets: of its address, of its account, and of the pair of both. The
fuller the bucket of the address or of the account is, the later the failure is reported; when one
is full, attempts are refused without checking the password. A pair that has logged in before is
subject to its own bucket only. So neither failures of other addresses nor failures of other
accounts behind the same address (a site's NAT) lock a device out. A successful login removes only
the failures of its own pair from the buckets, so that an attacker who has one account gains no
attempts on another.

Failures of unknown account names fill buckets in the same way, so that a peer cannot find out which
accounts exist. All times are in seconds of a clock that does not go backwards. Concurrent attempts
are counted when they fail; `limits.unauthenticated_per_address` bounds their number.
"""

from __future__ import annotations

import ipaddress
import math
from typing import Final, Generic, NamedTuple, TypeVar

from edge.config.limits import Limits

K = TypeVar("K")

KEYS: Final = 1000
"""Maximum number of remembered addresses, of accounts, and of pairs of both: some 0.5 MB. The least
recently used is forgotten. For an account to be forgotten, an attacker must fail to log in to as
many others; one address can make only `limits.authenticate_failures` attempts at once."""

ADDRESSES_PER_ACCOUNT: Final = 8
"""Maximum number of addresses from which an account is known to have logged in, so that one account
cannot displace the pairs of others. The least recently used is forgotten."""

DOUBLINGS: Final = 4
"""Maximum doublings of the delay of the answer to a failed login: up to 16 times the first."""

IPV6_SITE: Final = 64
"""Prefix length of an IPv6 site, within which a host can choose its addresses."""


class _Level(NamedTuple):
    """The level of a bucket (in failures) and the time at which it had this level (in seconds)."""

    failures: float
    at: float


class _Buckets(Generic[K]):
    """Leaky buckets by key, the least recently filled first."""

    def __init__(self, limits: Limits, keys: int) -> None:
        self._limits = limits
        self._keys = keys
        self._levels: dict[K, _Level] = {}

    def level(self, key: K, now: float) -> float:
        level = self._levels.get(key)
        if level is None:
            return 0.0
        return max(level.failures - (now - level.at) / self._limits.authenticate_again, 0.0)

    def add(self, key: K, failures: float, now: float) -> None:
        level = self.level(key, now) + failures
        self._levels.pop(key, None)
        if level > 0:
            self._levels[key] = _Level(level, now)
            if len(self._levels) > self._keys:
                del self._levels[next(iter(self._levels))]


class LoginThrottle:
    """The recent failures of logins, in leaky buckets.

    Args:
        keys: maximum number of remembered addresses, of accounts, and of pairs of both.
    """

    def __init__(self, limits: Limits, keys: int = KEYS) -> None:
        self._limits = limits
        self._keys = keys
        self._addresses: _Buckets[str] = _Buckets(limits, keys)
        self._accounts: _Buckets[str] = _Buckets(limits, keys)
        self._pairs: _Buckets[tuple[str, str]] = _Buckets(limits, keys)
        self._known_good: dict[tuple[str, str], None] = {}

    def may_try(self, address: str, account: str, now: float) -> bool:
        """Return whether a login may be tried; `address` is as `source_of` returns it."""
        limit = self._limits.authenticate_failures - 1
        return self._level(address, account, now) <= limit

    def _level(self, address: str, account: str, now: float) -> float:
        if (address, account) in self._known_good:
            return self._pairs.level((address, account), now)
        return max(self._addresses.level(address, now), self._accounts.level(account, now))

    def add_failure(self, address: str, account: str, now: float) -> float:
        """Count a failed attempt; return the seconds after which it may be reported."""
        delay = self.delay(address, account, now)
        self._addresses.add(address, 1, now)
        self._accounts.add(account, 1, now)
        self._pairs.add((address, account), 1, now)
        return delay

    def delay(self, address: str, account: str, now: float) -> float:
        """Return the seconds for which the answer to a failed login is delayed."""
        doublings = min(math.ceil(self._level(address, account, now)), DOUBLINGS)
        return float(self._limits.authenticate_delay * 2**doublings)

    def add_success(self, address: str, account: str, now: float) -> bool:
        """Record a successful login, and remove the failures of this pair from the buckets; return
        whether the pair had not logged in before."""
        pair = (address, account)
        failures = self._pairs.level(pair, now)
        self._addresses.add(address, -failures, now)
        self._accounts.add(account, -failures, now)
        self._pairs.add(pair, -failures, now)
        return self.add_known(address, account)

    def add_known(self, address: str, account: str) -> bool:
        """Remember that an account has logged in from an address; return whether that is new."""
        pair, known = (address, account), self._known_good
        if pair in known:
            known[pair] = known.pop(pair)  # the most recently used is the last
            return False
        of_account = [one for one in known if one[1] == account]
        if len(of_account) >= ADDRESSES_PER_ACCOUNT:
            del known[of_account[0]]
        elif len(known) >= self._keys:
            del known[next(iter(known))]
        known[pair] = None
        return True


def source_of(host: str) -> str:
    """Return the source that an address counts as: an IPv4 address itself, the /64 network of an
    IPv6 address, anything else unchanged."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_SITE), strict=False))
