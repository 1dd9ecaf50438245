"""Shared subscriptions over real sockets: members that return."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.helpers.in_process import in_process
from tests.helpers.live_workers import present, publish, take
from tests.helpers.pubsub import element
from tests.helpers.shared_subscriptions import NODE

NAMES: Final = ("engine", "ant", "bee")


@pytest.mark.parametrize("qos", [1, 2])
async def test_durable_member_that_returns_gets_its_part(tmp_path: Path, qos: int) -> None:
    async with (
        in_process(tmp_path, *NAMES) as gateway,
        present(gateway.port, *NAMES) as (engine, ant, bee),
    ):
        await engine.ask(element("create", node=NODE))
        await ant.join(qos)
        await bee.join(qos)
        ant.client.send("</stream:stream>")
        await ant.client.closed()
        for number in range(4):
            await publish(engine, f"away{number}")
            assert await take(bee) == f"away{number}"
        async with present(gateway.port, "ant") as (returned,):
            taken = []
            for number, worker in enumerate([returned, bee, returned, bee]):
                await publish(engine, f"back{number}")
                taken.append(await take(worker))
            assert taken == [f"back{number}" for number in range(4)]
