"""slixmpp's own plugin of ad-hoc commands: the owner of a queue asks why an item does not move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from tests.helpers.gateway import DOMAIN, PASSWORD
from tests.helpers.slix import WAIT_S, Peer, peer
from tests.interop.conftest import Site

SERVICE: Final = f"pubsub.{DOMAIN}"
NODE: Final = "slix/commands"
SHOW: Final = "urn:x-fieldpost:queue#show"


@pytest.fixture
async def owner(site: Site) -> AsyncIterator[Peer]:
    login = site.login("slix-owner", "SCRAM-SHA-256")
    async with AsyncExitStack() as stack:
        session = peer(login.jid, PASSWORD, login.ca, (login.host, login.port), SERVICE)
        yield await stack.enter_async_context(session)


async def execute(owner: Peer, command: str, **fields: str) -> Any:
    """Execute a command as a user of slixmpp does, by its session; returns the last answer."""
    commands, result = owner.client.plugin["xep_0050"], asyncio.get_running_loop().create_future()

    def fill(iq: Any, session: dict[str, Any]) -> None:
        form = owner.client.plugin["xep_0004"].make_form(ftype="submit")
        for name, value in fields.items():
            assert name in iq["command"]["form"].get_fields()
            form.add_field(var=name, value=value)
        session["payload"] = form
        session["next"] = lambda iq, _session: result.set_result(iq)
        commands.complete_command(session)

    commands.start_command(
        SERVICE, command, {"next": fill, "error": lambda iq, _session: result.set_result(iq)}
    )
    async with asyncio.timeout(WAIT_S):
        return await result


async def test_the_owner_learns_why_an_item_does_not_move(owner: Peer) -> None:
    listed = await owner.client.plugin["xep_0050"].get_commands(SERVICE, timeout=WAIT_S)
    names = {node: name for _jid, node, name in listed["disco_items"]["items"]}
    assert names[SHOW] == "Show a queue"
    await owner.pubsub.create_node(SERVICE, NODE, owner.form(queueing="1"))
    await owner.pubsub.publish(SERVICE, NODE, id="job")
    answer = await execute(owner, SHOW, node=NODE)
    assert answer["command"]["status"] == "completed"
    form = answer["command"]["form"]
    assert form.get_values()["ready"] == "1"
    (item,) = form.get_items()
    assert (item["item"], item["why"]) == ("job", "no_member")


async def test_a_refused_command_returns_an_error(owner: Peer) -> None:
    answer = await execute(owner, SHOW, node="slix/nix")
    assert (answer["type"], answer["error"]["condition"]) == ("error", "item-not-found")
    started = await owner.client.plugin["xep_0050"].send_command(
        SERVICE, SHOW, action="execute", timeout=WAIT_S
    )
    session = started["command"]["sessionid"]
    cancelled = await owner.client.plugin["xep_0050"].send_command(
        SERVICE, SHOW, action="cancel", sessionid=session, timeout=WAIT_S
    )
    assert cancelled["command"]["status"] == "canceled"
