"""Other people's clients resume their streams (XEP-0198) after their connection was cut.

Between a client and the gateway is a proxy that drops the connection. Stanzas that were
in flight, in either direction, arrive once after the resumption, and no other client notices it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.helpers.clients import Client
from tests.helpers.cutter import Cutter
from tests.interop.conftest import Site


class Pair(NamedTuple):
    """A client behind a proxy, and a peer that has its presence."""

    client: Client
    jid: str
    peer: Client
    peer_jid: str
    cutter: Cutter

    def chat(self, text: str) -> None:
        """Send a message in each direction."""
        self.client.send_line("message", self.peer_jid, f"{text} there")
        self.client.expect("sent", self.peer_jid)
        assert self.peer.expect("message", self.jid) == f"{text} there"
        self.peer.send_line("message", self.jid, f"{text} back")
        assert self.client.expect("message", self.peer_jid) == f"{text} back"

    def end(self) -> None:
        """Close both, and check that nothing else was received."""
        self.client.ask("ping", answer="pong")
        self.peer.ask("ping", answer="pong")
        assert self.peer.unread("presence") == []
        assert self.client.quit() == 0
        assert self.peer.expect("presence", self.jid) == "unavailable"
        assert self.peer.quit() == 0
        for word in ("message", "online", "failed", "cut"):
            assert self.client.unread(word) + self.peer.unread(word) == []


# Each by the mechanism that it prefers; xmpp.js twice: by SASL2, and as most others do it.
CLIENTS = [
    ("slixmpp", "SCRAM-SHA-256", ()),
    ("aioxmpp", "SCRAM-SHA-256", ()),
    ("xmppjs", "SCRAM-SHA-1", ()),
    ("xmppjs", "SCRAM-SHA-1", ("sasl1",)),
    ("strophe", "SCRAM-SHA-256", ()),
]


@contextmanager
def pair(site: Site, program: str, mechanism: str, extra: tuple[str, ...]) -> Iterator[Pair]:
    name = "-".join((program, *extra))
    login = site.login(name, mechanism)
    peer_login = site.login(f"{name}-peer", "SCRAM-SHA-256")
    with (
        Cutter(login.host, login.port) as cutter,
        site.start("slixmpp", peer_login) as peer,
        site.start(program, login._replace(port=cutter.port, extra=extra)) as client,
    ):
        peer_jid = peer.expect("online").split()[0]
        jid = client.expect("online").split()[0]
        assert client.expect("managed") == "resumable"
        client.send_line("presence", peer_jid)
        assert peer.expect("presence", jid) == "available"
        yield Pair(client, jid, peer, peer_jid, cutter)


@pytest.mark.parametrize(("program", "mechanism", "extra"), CLIENTS)
def test_a_client_resumes_after_each_cut_and_messages_arrive_once(
    site: Site, program: str, mechanism: str, extra: tuple[str, ...]
) -> None:
    with pair(site, program, mechanism, extra) as two:
        two.chat("before")
        receive_after_a_cut(two)
        two.chat("between")
        send_before_a_cut(two)
        two.chat("after")
        two.cutter.cut()
        two.client.expect("cut")
        assert two.client.expect("resumed") == two.jid
        two.chat("at the end")
        two.end()


def receive_after_a_cut(two: Pair) -> None:
    assert two.cutter.cut(hold=True) == 1
    two.client.expect("cut")
    two.peer.send_line("message", two.jid, "meanwhile")
    two.peer.ask("ping", answer="pong")
    two.cutter.release()
    assert two.client.expect("resumed") == two.jid
    assert two.client.expect("message", two.peer_jid) == "meanwhile"


def send_before_a_cut(two: Pair) -> None:
    two.client.ask("ping", answer="pong")  # so that it sends nothing but the message from now on
    two.cutter.freeze()
    two.client.send_line("message", two.peer_jid, "undelivered")
    two.client.expect("sent", two.peer_jid)
    two.cutter.wait_withheld()
    two.cutter.cut(hold=True)
    two.cutter.thaw()
    two.client.expect("cut")
    two.cutter.release()
    assert two.client.expect("resumed") == two.jid
    assert two.peer.expect("message", two.jid) == "undelivered"
