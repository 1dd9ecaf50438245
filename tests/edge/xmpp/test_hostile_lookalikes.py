"""Names that look alike: two that are told apart never get each other's rights; two that prepare to
the same are one, whichever way they are written.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge.xmpp import jid
from edge.xmpp.jid import JidError
from tests.fuzz.front import PASSWORD, USER, Front, How
from tests.fuzz.fuzz_negotiation import ELEMENTS
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
    made = Gateway(new_database(tmp_path))
    made.add("pump1")
    made.add("other")
    yield made
    made.close()


def stranger(gateway: Gateway, name: str) -> str:
    """Provision a look-alike that is not trusted, and bind it to the same resource."""
    local = jid.prepare_local(name)
    gateway.add(local, trusted=False)
    return f"{local}@{DOMAIN}/fw"


@pytest.mark.parametrize("name", LOOKALIKES.values(), ids=LOOKALIKES)
def test_a_lookalike_is_another_account_without_its_rights(gateway: Gateway, name: str) -> None:
    alike = stranger(gateway, name)
    assert jid.parse(alike) != jid.parse(OWN)
    reply = gateway.send(OWN, assured("1", log("Hi")))
    assert reply is not None
    assert reply.type == "result"
    for taken, expected in (
        (gateway.send(alike, assured("2", log("Hi"))), ("cancel", "not-allowed")),
        (gateway.send(alike, acknowledged(log("Hi"))), ("cancel", "not-allowed")),
        (gateway.send(alike, deliver("1")), ("cancel", "item-not-found")),
    ):
        assert taken is not None
        assert taken.error == expected
    assert gateway.count("SELECT count(*) FROM held") == 1
    reply = gateway.send(OWN, deliver("1"))
    assert reply is not None
    assert reply.error is None


@pytest.mark.parametrize("name", LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_is_for_a_device_does_not_reach_its_lookalike(gateway: Gateway, name: str) -> None:
    alike = stranger(gateway, name)
    gateway.bind(OWN)
    for full in (OWN, alike):
        gateway.send(full, "<presence/>")
    gateway.bind(f"other@{DOMAIN}/fw")
    gateway.sent.clear()
    gateway.send(f"other@{DOMAIN}/fw", f"<message to='pump1@{DOMAIN}'><body>Hi</body></message>")
    assert len(gateway.sends(OWN)) == 1
    assert not gateway.sends(alike)


@pytest.mark.parametrize("name", SAME.values(), ids=SAME)
def test_a_name_is_the_same_however_it_is_written(gateway: Gateway, name: str) -> None:
    assert jid.prepare_local(name) == "pump1"
    gateway.bind(OWN)
    gateway.send(OWN, "<presence/>")
    gateway.bind(f"other@{DOMAIN}/fw")
    gateway.sent.clear()
    to = f"{name}@{DOMAIN}"
    gateway.send(f"other@{DOMAIN}/fw", f"<message to='{to}'><body>Hi</body></message>")
    assert len(gateway.sends(OWN)) == 1


UNSTABLE = ("\u1d2c", "\u03f9", "\u1d2e", "\u1d37")
"""Characters that became assigned, and normalise to capitals, after stringprep was written: what
they prepare to would prepare to something else again. The fuzzer found the second."""


@pytest.mark.parametrize("character", UNSTABLE)
@pytest.mark.parametrize("written", ["{}dmin@gw.example", "admin@{}w.example", "a{}@gw.example/x"])
def test_what_is_not_normal_when_it_is_prepared_is_no_address(character: str, written: str) -> None:
    with pytest.raises(JidError):
        jid.parse(written.format(character))
    with pytest.raises(JidError):
        jid.prepare_local(character + "dmin")


def test_every_character_that_is_taken_is_normal(scale: Callable[[int, int], int]) -> None:
    for number in range(scale(0x3000, 0x110000)):
        character = chr(number)
        for address in (f"a{character}@b", f"a@b{character}", f"b/a{character}"):
            with contextlib.suppress(JidError):
                parsed = jid.parse(address)
                assert jid.parse(parsed.full) == parsed, hex(number)


def log_in(name: str, authzid: str = "") -> Front:
    """Log in by PLAIN, with the right password of the account that is there."""
    front = Front(How.DIRECT)
    front.receive(ELEMENTS[b"h"])
    message = base64.b64encode(f"{authzid}\0{name}\0{PASSWORD}".encode())
    front.receive(
        b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>%b</auth>" % message
    )
    return front


@pytest.mark.parametrize("name", [USER.upper(), "\uff43am1", "ca\u00adm1", "cam\u00b9"])
def test_whoever_writes_a_name_otherwise_is_that_account(name: str) -> None:
    assert log_in(name).negotiation.username == USER


@pytest.mark.parametrize(
    "name",
    ["\u0441am1", "caml", "cam1 ", "cam1@gw.example", "cam1/x", "cam\uff201", "", "\u202ecam1"],
)
def test_whoever_looks_like_an_account_is_not_let_in(name: str) -> None:
    assert log_in(name).negotiation.username == ""


@pytest.mark.parametrize(
    "authzid",
    ["\u0441am1", "cam2", "cam1@other.example", "cam1@gw.ex\u0430mple", "gw.example", "@"],
)
def test_nobody_acts_as_another(authzid: str) -> None:
    assert log_in(USER, authzid).negotiation.username == ""
