"""The memory that the server frees while a session's peer sends nothing."""

from __future__ import annotations

from pathlib import Path

from edge.server.connection import Connection
from edge.xmpp import parser
from tests.helpers.in_process import InProcess, in_process

PING = "<ping xmlns='urn:xmpp:ping'/>"


def has_expat(place: InProcess) -> bool:
    (connection,) = place.front._registry._connections
    assert isinstance(connection, Connection)
    return connection._parser._expat is not parser._NO_EXPAT


async def test_an_idle_session_has_no_expat(tmp_path: Path) -> None:
    async with in_process(tmp_path, "cam1") as place, await place.bound("cam1") as client:
        assert not has_expat(place)
        for _ in range(2):
            assert (await client.iq("get", PING)).get("type") == "result"
            assert has_expat(place)
            place.front._registry.release_idle()
            assert has_expat(place)
            place.front._registry.release_idle()
            assert not has_expat(place)
