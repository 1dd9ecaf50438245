"""How many log-ins may fail: bounded by the address that they come from, and by the account.

A failure fills two leaky buckets, its address's and its account's. The fuller they are, the later a
failure is told; when one is full, attempts are refused without a look at the password. So that an
attacker cannot lock a device out, an address that logged in to an account before is not held to
that account's bucket. A log-in that succeeds takes back what its pair of address and account had
filled, and no more: who has one account cannot buy attempts on another with it.

Names that no account has fill buckets like any other, so nothing here tells them apart. What a
failure is, and what is done meanwhile, is not decided here. All times are in seconds, of any clock
that does not go backwards. Attempts that are under way at once are counted when they have failed:
how many they are is bounded elsewhere (`limits.unauthenticated_per_address`).
"""

from __future__ import annotations

import ipaddress
import math
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K")

KEYS: Final = 1000
"""Addresses, accounts, and pairs of them, that are remembered: some 0.5 MB. The least recently used
goes; to have an account forgotten takes that many failures from as many addresses."""

DOUBLINGS: Final = 4
"""How often the delay doubles: up to 16 times."""

IPV6_SITE: Final = 64
"""Bits of an IPv6 address that tell one site from another: within them, addresses are free."""


class Bounds(NamedTuple):
    """How many failures a bucket holds, in how many seconds one leaks, and the first delay."""

    failures: int
    again: float
    delay: float


class _Level(NamedTuple):
    """How full a bucket was, and when."""

    failures: float
    at: float


class _Buckets(Generic[K]):
    """Leaky buckets, the least recently filled first."""

    def __init__(self, again: float, keys: int) -> None:
        self._again = again
        self._keys = keys
        self._levels: dict[K, _Level] = {}

    def level(self, key: K, now: float) -> float:
        """Tell how full a bucket is."""
        level = self._levels.get(key)
        if level is None:
            return 0.0
        return max(level.failures - (now - level.at) / self._again, 0.0)

    def add(self, key: K, failures: float, now: float) -> None:
        """Fill a bucket, or take back from it."""
        level = self.level(key, now) + failures
        self._levels.pop(key, None)
        if level > 0:
            self._levels[key] = _Level(level, now)
            if len(self._levels) > self._keys:
                del self._levels[next(iter(self._levels))]


class Throttle:
    """The failures of late.

    Args:
        bounds: see there.
        keys: how many addresses, accounts and pairs are remembered.
    """

    def __init__(self, bounds: Bounds, keys: int = KEYS) -> None:
        self._bounds = bounds
        self._keys = keys
        self._addresses: _Buckets[str] = _Buckets(bounds.again, keys)
        self._accounts: _Buckets[str] = _Buckets(bounds.again, keys)
        self._pairs: _Buckets[tuple[str, str]] = _Buckets(bounds.again, keys)
        self._good: dict[tuple[str, str], None] = {}

    def allows(self, address: str, account: str, now: float) -> bool:
        """Tell whether an attempt may be made.

        Args:
            address: where it comes from, as `source` gives it.
            account: the name that it is for.
            now: the present second.
        """
        room = self._bounds.failures - 1
        if self._addresses.level(address, now) > room:
            return False
        return (address, account) in self._good or self._accounts.level(account, now) <= room

    def failed(self, address: str, account: str, now: float) -> float:
        """Note that an attempt failed; returns after how many seconds that may be told."""
        delay = self.delay(address, account, now)
        self._addresses.add(address, 1, now)
        self._accounts.add(account, 1, now)
        self._pairs.add((address, account), 1, now)
        return delay

    def delay(self, address: str, account: str, now: float) -> float:
        """Tell after how many seconds a failure may be told that is not the password's."""
        before = max(self._addresses.level(address, now), self._accounts.level(account, now))
        return float(self._bounds.delay * 2 ** min(math.ceil(before), DOUBLINGS))

    def succeeded(self, address: str, account: str, now: float) -> None:
        """Note that somebody logged in: what this pair had filled is taken back."""
        pair = (address, account)
        filled = self._pairs.level(pair, now)
        self._addresses.add(address, -filled, now)
        self._accounts.add(account, -filled, now)
        self._pairs.add(pair, -filled, now)
        self._good.pop(pair, None)
        self._good[pair] = None
        if len(self._good) > self._keys:
            del self._good[next(iter(self._good))]


def source(host: str) -> str:
    """Return what stands for an address where addresses are counted.

    An IPv4 address stands for itself, an IPv6 address for its site (/64), and what is neither for
    itself.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_SITE), strict=False))
