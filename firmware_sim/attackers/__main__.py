"""Runs attacks for a time, by an order on standard input; tells what came of them on its output.

The order and the report are one JSON object each; a line `begun` comes first. The times are
bounded, and so is the rate. It judges nothing (`scenarios.attack` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
from dataclasses import asdict, dataclass
from typing import Final

from firmware_sim.attackers import accounts, unauthenticated
from firmware_sim.attackers.attack import Attack
from firmware_sim.attackers.wire import Closed, Counts, Target

ALL: Final = (*accounts.ATTACKS, *unauthenticated.ATTACKS)

_AGAIN_S: Final = 0.2  # seconds until an attack that has ended is begun again


@dataclass(frozen=True, slots=True)
class Order:
    """What to do: against whom, for how many seconds, at how many stanzas a second at most."""

    host: str
    port: int
    domain: str
    ca: str
    password: str
    seconds: float
    rate: float
    attacks: tuple[str, ...]

    def target(self, attack: Attack) -> Target:
        """Give the target of one attack, which comes from an address of its own on loopback."""
        context = ssl.create_default_context(cafile=self.ca)
        source = attack.local if self.host.startswith("127.") else ""
        where = (self.host, self.port, self.domain, context, self.password, self.rate)
        return Target(*where, source)


def named(names: tuple[str, ...]) -> tuple[Attack, ...]:
    """Give the attacks of these names, in the order of the tables; all of them if there are none.

    Raises:
        ValueError: there is none of such a name.
    """
    if unknown := set(names) - {attack.name for attack in ALL}:
        raise ValueError(f"no such attacks: {', '.join(sorted(unknown))}")
    return tuple(attack for attack in ALL if attack.name in names or not names)


async def run(order: Order) -> dict[str, Counts]:
    """Run all attacks of an order at the same time, until its seconds are over."""
    attacks = named(order.attacks)
    found = {attack.name: Counts() for attack in attacks}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(order.seconds), asyncio.TaskGroup() as group:
            for attack in attacks:
                group.create_task(_keep_on(attack, order.target(attack), found[attack.name]))
    return found


async def _keep_on(attack: Attack, target: Target, counts: Counts) -> None:
    while True:
        with contextlib.suppress(Closed, OSError, TimeoutError, ssl.SSLError):
            await attack.work(target, counts, attack.account)
        await asyncio.sleep(_AGAIN_S)


def main() -> None:
    """Read an order, carry it out, and write the report."""
    # attackers are other machines: they must not take this one's time from the gateway
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    given = json.load(sys.stdin)
    order = Order(**{**given, "attacks": tuple(given["attacks"])})
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    found = asyncio.run(run(order))
    json.dump({name: asdict(counts) for name, counts in found.items()}, sys.stdout)


if __name__ == "__main__":
    main()
