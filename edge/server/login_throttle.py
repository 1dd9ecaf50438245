"""Throttling of failed logins by source address and by account.

A failure adds to two leaky buckets, one of its address and one of its account. The fuller they are,
the later the failure is reported; when one is full, attempts are refused without checking the
password. An address that has logged in to an account before is exempt from that account's bucket,
so that an attacker cannot lock a device out. A successful login removes only the failures of its
own pair of address and account from the buckets, so that an attacker who has one account gains no
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
        if self._addresses.level(address, now) > limit:
            return False
        return (address, account) in self._known_good or self._accounts.level(account, now) <= limit

    def add_failure(self, address: str, account: str, now: float) -> float:
        """Count a failed attempt; return the seconds after which it may be reported."""
        delay = self.delay(address, account, now)
        self._addresses.add(address, 1, now)
        self._accounts.add(account, 1, now)
        self._pairs.add((address, account), 1, now)
        return delay

    def delay(self, address: str, account: str, now: float) -> float:
        """Return the seconds for which the answer to a failed login is delayed."""
        level = max(self._addresses.level(address, now), self._accounts.level(account, now))
        return float(self._limits.authenticate_delay * 2 ** min(math.ceil(level), DOUBLINGS))

    def add_success(self, address: str, account: str, now: float) -> None:
        """Record a successful login, and remove the failures of this pair from the buckets."""
        pair = (address, account)
        failures = self._pairs.level(pair, now)
        self._addresses.add(address, -failures, now)
        self._accounts.add(account, -failures, now)
        self._pairs.add(pair, -failures, now)
        self._known_good.pop(pair, None)
        self._known_good[pair] = None
        if len(self._known_good) > self._keys:
            del self._known_good[next(iter(self._known_good))]


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
