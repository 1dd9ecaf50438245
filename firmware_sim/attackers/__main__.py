"""Read an order from standard input, run its attacks for a limited time, and print a report.

The order and the report are JSON objects; `scenarios.attack` writes the order and judges the
report.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final

from firmware_sim.attackers import accounts, unauthenticated
from firmware_sim.attackers.attack import Attack
from firmware_sim.attackers.wire import ConnectionClosed, Counts, Target

ALL: Final = (*accounts.ATTACKS, *unauthenticated.ATTACKS)

_AGAIN_S: Final = 0.2  # seconds until an attack that has ended is begun again


@dataclass(frozen=True, slots=True)
class Order:
    """An order to run attacks for `seconds` seconds, each with up to `rate` stanzas per second.

    `attacks` are names of attacks; if empty, all run. The attacks continue for up to `patience`
    further seconds, until the gateway has refused each of them. With `idle_only`, they use only
    idle processor time.
    """

    host: str
    port: int
    domain: str
    ca: str
    password: str
    seconds: float
    patience: float
    rate: float
    attacks: Collection[str]
    idle_only: bool

    def target(self, attack: Attack) -> Target:
        """Return the target of an attack; `source` is set only if the gateway is on loopback."""
        context = ssl.create_default_context(cafile=self.ca)
        source = attack.local if self.host.startswith("127.") else ""
        where = (self.host, self.port, self.domain, context, self.password, self.rate)
        return Target(*where, source)


def named(names: Collection[str]) -> tuple[Attack, ...]:
    """Return the attacks with these names, in the order of `ALL`; without names, all attacks.

    Raises ValueError if a name is unknown.
    """
    known = [attack.name for attack in ALL]
    if unknown := set(names).difference(known):
        text = f"no such attacks: {', '.join(sorted(unknown))}; choose from: {', '.join(known)}"
        raise ValueError(text)
    return tuple(attack for attack in ALL if attack.name in names or not names)


async def run(order: Order) -> dict[str, Counts]:
    """Run an order's attacks at the same time; return the counts of each by its name.

    The attacks last `order.seconds`, and up to `order.patience` longer until all were refused.
    """
    attacks = named(order.attacks)
    found = {attack.name: Counts() for attack in attacks}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(order.seconds + order.patience), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_keep_on(attack, order.target(attack), found[attack.name]))
                for attack in attacks
            ]
            await asyncio.sleep(order.seconds)
            while not _are_refused(attacks, found, order.rate):  # noqa: ASYNC110 - they only count
                await asyncio.sleep(_AGAIN_S)
            for task in tasks:
                task.cancel()
    return found


def _are_refused(attacks: tuple[Attack, ...], found: dict[str, Counts], rate: float) -> bool:
    return all(attack.is_refused(found[attack.name], rate) for attack in attacks)


async def _keep_on(attack: Attack, target: Target, counts: Counts) -> None:
    while True:
        with contextlib.suppress(ConnectionClosed, OSError, TimeoutError, ssl.SSLError):
            await attack.work(target, counts, attack.account)
        await asyncio.sleep(_AGAIN_S)


def main() -> None:
    """Read an `Order` from standard input, run its attacks, and write their counts as JSON."""
    order = Order(**json.load(sys.stdin))
    if order.idle_only:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    found = asyncio.run(run(order))
    json.dump({name: asdict(counts) for name, counts in found.items()}, sys.stdout)


if __name__ == "__main__":
    main()
