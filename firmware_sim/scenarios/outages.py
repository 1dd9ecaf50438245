"""Kill and restart a gateway at random times that a seed determines."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from firmware_sim.scenarios.gateway_process import GatewayProcess

_DOWN_S: Final = (0.1, 1.0)  # seconds that the gateway stays down


async def kill_often(gateway: GatewayProcess, kills: int, seconds: float, seed: int) -> None:
    """Kill the gateway `kills` times, spread over `seconds` seconds, and restart it each time.

    Raises:
        GatewayCommandFailed: the gateway did not start again.
    """
    chance = random.Random(f"kills/{seed}")  # noqa: S311 - repeatable
    step = seconds / max(kills, 1)
    for _ in range(kills):
        before = chance.uniform(0.1, 0.9) * step
        await asyncio.sleep(before)
        await gateway.kill()
        await asyncio.sleep(chance.uniform(*_DOWN_S))
        await gateway.start()
        await asyncio.sleep(max(step - before - _DOWN_S[1], 0.0))
