"""Third-party clients, with every mechanism and both transports that each supports.

They verify the certificate of the gateway, log in, discover, ping, and send a plain event and an
assured one, whose exchange is repeated as after a lost answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edge.ops.devices import devices
from tests.helpers.gateway import Gateway
from tests.interop.conftest import Site

QOS = "urn:xmpp:qos"
FEATURES = {QOS, "urn:xmpp:ping", "urn:xmpp:eventlog", "http://jabber.org/protocol/disco#info"}
TEXT = "dry <run> & 'flow' of pump 1 \N{DEGREE SIGN}"


class ClientSetup(NamedTuple):
    """A client, and how it is to connect."""

    program: str
    transport: str
    mechanism: str

    @property
    def device(self) -> str:
        return "-".join(self).lower()


TRANSPORTS = ("starttls", "direct")
PASSWORDS = {
    "slixmpp": ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"),
    "aioxmpp": ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"),
    "xmppjs": ("SCRAM-SHA-1", "PLAIN"),
    "strophe": ("SCRAM-SHA-256",),  # libstrophe takes the strongest that is offered
}
PROGRAMS = {program: mechanisms[0] for program, mechanisms in PASSWORDS.items()}
"""Clients, and the strongest mechanism of each for passwords."""

SETUPS = [
    ClientSetup(program, transport, mechanism)
    for transport in TRANSPORTS
    for program, mechanisms in PASSWORDS.items()
    for mechanism in mechanisms
] + [  # neither aioxmpp nor xmpp.js has EXTERNAL
    ClientSetup(program, transport, "EXTERNAL")
    for program in ("slixmpp", "strophe")
    for transport in TRANSPORTS
]


def parameter(setup: ClientSetup) -> Any:
    """Return a setup as a parameter: only `make test-long` uses each mechanism with each client."""
    strongest = setup.mechanism in (PROGRAMS[setup.program], "EXTERNAL")
    marks = [] if strongest or setup[:2] == ("slixmpp", "starttls") else [pytest.mark.long]
    return pytest.param(setup, marks=marks, id="-".join(setup))


@pytest.mark.parametrize("setup", [parameter(setup) for setup in SETUPS])
def test_client_logs_in_discovers_pings_and_logs_events(site: Site, setup: ClientSetup) -> None:
    login = site.login(setup.device, setup.mechanism, setup.transport)
    # After Bind 2, xmpp.js reports only the tag of its resource: see test_xmppjs.
    if setup.program == "xmppjs":
        login = login._replace(extra=("sasl1",))
    with site.start(setup.program, login) as client:
        assert client.expect("online") == f"{login.jid} {setup.mechanism}"
        client.send_line("ping")
        client.expect("pong")
        assert set(client.ask("info", answer="features").split()) >= FEATURES
        client.ask("items", answer="items")
        for _ in range(2):
            client.send_line("assured", "m1", "Entered", TEXT)
            assert client.expect("answered", "assured", "m1") == "received"
        for _ in range(2):
            client.send_line("deliver", "m1")
            assert client.expect("answered", "deliver", "m1") == ""
        client.send_line("log", "Left", TEXT)
        client.ask("ping", answer="pong")
        assert client.quit() == 0
        assert client.unread("failed") == []
    fields = ("source", "name", "text", "qos")
    assert [tuple(event[name] for name in fields) for event in site.events(login)] == [
        (login.jid, "Entered", TEXT, 2),
        (login.jid, "Left", TEXT, 0),
    ]


@pytest.mark.parametrize(("program", "mechanism"), PROGRAMS.items())
def test_wrong_password_is_refused(site: Site, program: str, mechanism: str) -> None:
    login = site.login("guessed", mechanism)._replace(password="not this one")
    with site.start(program, login) as client:
        assert "auth" in client.expect("failed").lower()
        client.wait_ended()
        assert client.unread("online") == []


@pytest.mark.long
@pytest.mark.parametrize("fault", ["CA", "name"])
@pytest.mark.parametrize(("program", "mechanism"), PROGRAMS.items())
def test_gateway_of_another_ca_or_name_is_refused(
    site: Site, program: str, mechanism: str, fault: str, tmp_path: Path
) -> None:
    # By direct TLS: by STARTTLS the gateway itself ends a stream to another name, before TLS.
    login = site.login("cautious", mechanism, "direct")
    if fault == "CA":
        login = login._replace(ca=Gateway(tmp_path / "other").ca)
    else:
        login = login._replace(jid="cautious@other.example/fw")
    with site.start(program, login) as client:
        client.expect("failed")
        client.wait_ended()
        assert client.unread("online") == []


@pytest.mark.parametrize(("program", "transport"), [("slixmpp", "starttls"), ("strophe", "direct")])
def test_revoked_certificate_is_refused(site: Site, program: str, transport: str) -> None:
    login = site.login(f"revoked-{program}-{transport}", "EXTERNAL", transport)
    with site.start(program, login) as client:
        client.expect("online")
        devices.revoke(site.gateway.folder, login.jid.partition("@")[0])
        client.expect("failed")
        client.wait_ended()
    with site.start(program, login) as client:
        client.expect("failed")
        client.wait_ended()
        assert client.unread("online") == []
