from __future__ import annotations

import asyncio
from pathlib import Path

from edge.ops.checks.health import Health
from edge.ops.gateway.control import ProcessStatus
from edge.server.mqtt.broker_status import BrokerStatus
from edge.server.mqtt.traffic import Traffic
from tests.helpers.in_process import in_process


async def healthy() -> Health:
    return Health([], [])


async def test_nothing_is_read_until_somebody_subscribes(tmp_path: Path) -> None:
    reads: list[str] = []

    def process_status() -> ProcessStatus:
        reads.append("status")
        return ProcessStatus(
            version="1", boot="b", service=1.0, uptime=1.0, synchronised=True, used={}, limits={}
        )

    async with in_process(tmp_path, "pump1") as gateway:
        status = BrokerStatus(gateway.context, Traffic(), process_status, healthy)
        running = asyncio.create_task(status.run())
        async with asyncio.timeout(10):
            while status.due is not None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert (reads, running.done()) == ([], False)
        running.cancel()
