"""Tests of a session with more contacts than it may leave stanzas unacknowledged."""

from __future__ import annotations

from contextlib import AsyncExitStack, closing
from itertools import chain

import pytest

from edge.engine import database
from edge.ops import current_time
from tests.helpers.gateway import Gateway, bound
from tests.helpers.xmpp import SM, Client

CONTACTS = tuple(f"cam{number}" for number in range(20))
STANZAS = 16
STATUS = f"<status>{'x' * 3000}</status>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    made = Gateway(
        tmp_path_factory.mktemp("gw") / "gateway",
        "panel",
        *CONTACTS,
        require_tls=False,
        unacknowledged_stanzas=STANZAS,
        unacknowledged_bytes=65_536,
    )
    pairs = chain.from_iterable((("panel", name), (name, "panel")) for name in CONTACTS)
    with (
        closing(database.connect(made.folder / database.FILE_NAME)) as connection,
        database.transaction(connection, current_time.now()) as tx,
    ):
        for owner, contact in pairs:
            tx.run(
                "INSERT INTO roster (account, jid, listed, subscription, ask, approved)"
                " SELECT id, ?, 1, 'both', 0, 0 FROM accounts WHERE name = ?",
                (f"{contact}@gw.example", owner),
            )
    return made


async def shown(client: Client, *, managed: bool) -> set[str]:
    """Read until all contacts were shown, acknowledging when asked; returns who they were."""
    seen: set[str] = set()
    handled = 0
    while len(seen) < len(CONTACTS):
        element = await client.element()
        if element.tag == f"{SM}r":
            assert managed
            client.acknowledge(handled)
            continue
        handled += 1
        assert element.get("type") is None
        if not element.get("from", "").startswith("panel@"):
            seen.add(element.get("from", ""))
    return seen


@pytest.mark.parametrize("managed", [True, False])
async def test_a_session_receives_more_presences_than_it_may_leave_unacknowledged(
    port: int, managed: bool
) -> None:
    async with AsyncExitStack() as stack:
        for name in CONTACTS:
            contact = await stack.enter_async_context(await bound(port, name))
            contact.send(f"<presence>{STATUS}</presence>")
            assert (await contact.element()).get("from") == f"{name}@gw.example/fw"
        panel = await stack.enter_async_context(await bound(port, "panel"))
        if managed:
            await panel.enable()
        panel.send("<presence/>")
        assert await shown(panel, managed=managed) == {f"{n}@gw.example/fw" for n in CONTACTS}
        panel.send("<iq type='get' id='p' to='gw.example'><ping xmlns='urn:xmpp:ping'/></iq>")
        assert (await panel.stanza()).get("id") == "p"
