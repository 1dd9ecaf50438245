from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge.xmpp import jid
from edge.xmpp.jid import JidError
from tests.helpers.store import DOMAIN, Gateway, acknowledged, assured, deliver, log, new_database

LOOKALIKES = {
    "Cyrillic": "\u0440ump1",
    "all Cyrillic but one": "\u0440um\u04401",
    "Greek": "p\u03c5mp1",
    "an l for the 1": "pumpl",
    "an Arabic digit": "pump\u0661",
    "an accent below": "pump\u03231",
    "a dotless i": "p\u0131mp1",
    "a hyphen": "pump-1",
    "an underscore": "pump_1",
    "a stop at the end": "pump1.",
    "escaped": "pump1\\20",
}
SAME = {
    "capitals": "PUMP1",
    "full width": "\uff50\uff55\uff4d\uff50\uff11",
    "superscript": "pump\u00b9",
    "circled": "pump\u2460",
    "a soft hyphen": "pu\u00admp1",
    "no width": "pump\u200b1",
    "a joiner": "p\u2060ump1",
    "mathematical": "\U0001d429ump1",
}
OWN = f"pump1@{DOMAIN}/fw"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(new_database(tmp_path))
    gateway.add("pump1")
    gateway.add("other")
    yield gateway
    gateway.close()


def bind_lookalike(gateway: Gateway, name: str) -> str:
    """Add an untrusted account with a lookalike name; return its full JID."""
    local = jid.prepare_local(name)
    gateway.add(local, trusted=False)
    return f"{local}@{DOMAIN}/fw"


@pytest.mark.parametrize("name", LOOKALIKES.values(), ids=LOOKALIKES)
def test_a_lookalike_is_another_account_without_its_rights(gateway: Gateway, name: str) -> None:
    alike = bind_lookalike(gateway, name)
    assert jid.parse(alike) != jid.parse(OWN)
    reply = gateway.ask(OWN, assured("1", log("Hi")))
    assert reply.type == "result"
    for taken, expected in (
        (gateway.send(alike, assured("2", log("Hi"))), ("cancel", "not-allowed")),
        (gateway.send(alike, acknowledged(log("Hi"))), ("cancel", "not-allowed")),
        (gateway.send(alike, deliver("1")), ("cancel", "item-not-found")),
    ):
        assert taken is not None
        assert taken.error == expected
    assert gateway.count("SELECT count(*) FROM held") == 1
    reply = gateway.ask(OWN, deliver("1"))
    assert reply.error is None


@pytest.mark.parametrize("name", LOOKALIKES.values(), ids=LOOKALIKES)
def test_messages_do_not_reach_a_lookalike(gateway: Gateway, name: str) -> None:
    alike = bind_lookalike(gateway, name)
    gateway.bind(OWN)
    for full in (OWN, alike):
        gateway.send(full, "<presence/>")
    gateway.bind(f"other@{DOMAIN}/fw")
    gateway.sent.clear()
    gateway.send(f"other@{DOMAIN}/fw", f"<message to='pump1@{DOMAIN}'><body>Hi</body></message>")
    assert len(gateway.sends(OWN)) == 1
    assert not gateway.sends(alike)


@pytest.mark.parametrize("name", SAME.values(), ids=SAME)
def test_equivalent_names_reach_the_same_account(gateway: Gateway, name: str) -> None:
    assert jid.prepare_local(name) == "pump1"
    gateway.bind(OWN)
    gateway.send(OWN, "<presence/>")
    gateway.bind(f"other@{DOMAIN}/fw")
    gateway.sent.clear()
    to = f"{name}@{DOMAIN}"
    gateway.send(f"other@{DOMAIN}/fw", f"<message to='{to}'><body>Hi</body></message>")
    assert len(gateway.sends(OWN)) == 1


def test_every_accepted_character_is_stable(scale: Callable[[int, int], int]) -> None:
    for number in range(scale(0x3000, 0x110000)):
        character = chr(number)
        for address in (f"a{character}@b", f"a@b{character}", f"b/a{character}"):
            with contextlib.suppress(JidError):
                parsed = jid.parse(address)
                assert jid.parse(parsed.full) == parsed, hex(number)
