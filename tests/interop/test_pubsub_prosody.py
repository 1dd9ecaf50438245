"""Prosody and the gateway answer the same script of publish-subscribe equivalently.

The differences are listed here and, with reasons, in docs/reference/protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.helpers import pubsub_script
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.prosody import HOST, PROGRAM, PUBSUB, Prosody
from tests.helpers.xmpp import Client, log_in

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no prosody (make interop-packages)")

NODE: Final = "plant/boiler1"

DIFFERENCES: Final = {
    "subscribe another": ("auth: forbidden", "modify: bad-request invalid-jid"),
    "subscriptions": (
        "result: <pubsub><subscriptions><subscription node=plant/boiler1 subscription=subscribed>",
        "result: <pubsub><subscriptions node=plant/boiler1>"
        "<subscription node=plant/boiler1 subscription=subscribed>",
    ),
    "last item": (
        "result: <pubsub><items node=plant/boiler1><item id=i1><reading>three",
        "result: <pubsub><items node=plant/boiler1><item id=i1><reading>three"
        "<set><first index=1>i1<last>i1<count>2",
    ),
    "missing item": ("result: <pubsub><items node=plant/boiler1>", "cancel: item-not-found"),
    "unsubscribe": (
        "result: <pubsub><subscription node=plant/boiler1 subscription=none>",
        "result",
    ),
    "unsubscribe again": (
        "modify: unexpected-request not-subscribed",
        "cancel: unexpected-request not-subscribed",
    ),
    "unknown request": (
        "cancel: service-unavailable",
        "cancel: feature-not-implemented unsupported",
    ),
}
"""The descriptions of a step at Prosody and at the gateway, without `NAMED`."""

NAMED: Final = f" publisher=pump1@{DOMAIN}"
"""Describes that an item names its publisher, as those of the gateway do."""


async def run_script(people: Mapping[str, Client], domain: str, service: str) -> dict[str, str]:
    """Run the script and return the description of each step in one line."""
    people["reader"].send("<presence/>")
    steps = pubsub_script.script(NODE, f"pump2@{domain}")
    answers = await pubsub_script.run_script(steps, people, service, domain)
    return {name: " / ".join(lines) for name, lines in answers.items()}


async def at_prosody(folder: Path) -> dict[str, str]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(Prosody(folder, DOMAIN, "pump1", "pump2"))
        names = {"owner": "pump1", "reader": "pump2"}
        people = {
            role: await stack.enter_async_context(await server.log_in(name))
            for role, name in names.items()
        }
        return await run_script(people, HOST, PUBSUB)


async def at_gateway(folder: Path) -> dict[str, str]:
    async with AsyncExitStack() as stack:
        gateway = Gateway(folder, "pump1", "pump2")
        port = port_of(stack.enter_context(gateway.run()))
        names = {"owner": "pump1", "reader": "pump2"}
        people = {
            role: await stack.enter_async_context(await log_in(port, gateway.ca, name, PASSWORD))
            for role, name in names.items()
        }
        return await run_script(people, DOMAIN, f"pubsub.{DOMAIN}")


async def test_both_servers_answer_the_same_except_for_listed_differences(tmp_path: Path) -> None:
    theirs, ours = await at_prosody(tmp_path / "p"), await at_gateway(tmp_path / "g")
    assert list(theirs) == list(ours)
    unnamed = {name: text.replace(NAMED, "") for name, text in ours.items()}
    assert unnamed["items"] != ours["items"]
    found = {name: (text, unnamed[name]) for name, text in theirs.items() if text != unnamed[name]}
    assert found == DIFFERENCES
