"""A gateway that is killed between the steps of the toy loses nothing, and repeats nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.processes import Process, start
from tests.toy.client import SERVICE, ToyClient

KEPT_S = 3600
AT_NODE = f"{SERVICE}/plant/temp"
JSON = "application/json"


class Killed:
    """A gateway that runs the toy, and that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.gateway = Gateway(folder, "ant", "bee", require_tls=False, auto_create=["plant/#"])
        self.process = self._start()

    def _start(self) -> Process:
        return start("python", "-m", "tests.toy.gateway", self.gateway.folder)

    async def begin(self, name: str) -> ToyClient:
        return await ToyClient.begin(self.process, name, "kept", KEPT_S)

    async def return_after_kill(self, client: ToyClient) -> ToyClient:
        """Kill the gateway, start it again, and continue the session of a client of ant."""
        self.process.kill9()
        self.process = self._start()
        await client.close()
        found = await self.begin("ant")
        assert found.is_resumed
        found.held = client.held
        return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Killed]:
    found = Killed(tmp_path / "gateway")
    try:
        yield found
    finally:
        found.process.close()


async def test_a_publication_survives_a_kill_after_each_step(running: Killed) -> None:
    publication = "publish", 1, 2, DOMAIN, JSON, '{"t": 21.5}'
    ant = await running.begin("ant")
    ant.send(*publication)  # perhaps it is lost
    ant = await running.return_after_kill(ant)
    assert await ant.ask(*publication) == ["received", "1"]
    ant = await running.return_after_kill(ant)
    assert await ant.ask(*publication) == ["received", "1"]
    ant.send("release", 1)  # perhaps it is lost
    ant = await running.return_after_kill(ant)
    assert await ant.ask("release", 1) == ["completed", "1"]
    ant = await running.return_after_kill(ant)
    assert await ant.ask("release", 1) == ["completed", "1"]
    assert len(list(running.gateway.events("readings"))) == 1
    await ant.publish(1, DOMAIN, JSON, '{"t": 22}')
    assert len(list(running.gateway.events("readings"))) == 2
    await ant.close()


@pytest.mark.parametrize("target", ["plant/#", "$share/pool/plant/#"])
async def test_an_item_survives_a_kill_after_each_step(running: Killed, target: str) -> None:
    """Of a node and of a share; the same member gets the item of the share again."""
    ant, bee = await running.begin("ant"), await running.begin("bee")
    assert await ant.ask("subscribe", target, 2) == ["subscribed", target]
    await bee.publish(1, AT_NODE, "text/plain", "21.5")
    offer = await ant.line()
    assert (offer[0], offer[2:]) == ("publish", ["2", AT_NODE, "text/plain", "21.5"])
    id = offer[1]
    ant = await running.return_after_kill(ant)
    assert await ant.line() == offer
    assert await ant.ask("received", id) == ["release", id]
    ant = await running.return_after_kill(ant)
    assert await ant.line() == ["release", id]
    ant.send("completed", id)
    await ant.sync()
    ant = await running.return_after_kill(ant)
    await bee.close()
    bee = await running.begin("bee")
    await bee.publish(2, AT_NODE, "text/plain", "22")
    assert (await ant.take())[-1] == "22"
    for client in (ant, bee):
        await client.close()


async def test_the_state_of_an_absent_session_survives_a_kill(running: Killed) -> None:
    ant, bee = await running.begin("ant"), await running.begin("bee")
    assert await ant.ask("subscribe", "plant/+", 2) == ["subscribed", "plant/+"]
    await ant.close()
    for number in range(3):
        await bee.publish(1, AT_NODE, "text/plain", f"{number}")
    ant = await running.return_after_kill(ant)
    assert [(await ant.take())[-1] for _ in range(3)] == ["0", "1", "2"]
    await ant.sync()
    ant = await running.return_after_kill(ant)
    assert await ant.ask("unsubscribe", "plant/+") == ["unsubscribed", "plant/+"]
    for client in (ant, bee):
        await client.close()
