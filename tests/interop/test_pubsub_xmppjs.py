"""xmpp.js as publisher and as worker of a queue."""

from __future__ import annotations

from typing import Final

from tests.helpers.clients import Client
from tests.interop.conftest import Site

NODE: Final = "js/queue"
TEXT: Final = "turn <left> & 'right'"


def started(site: Site, name: str) -> Client:
    return site.start("xmppjs", site.login(name, "SCRAM-SHA-1"))


def do(client: Client, *words: str) -> None:
    """Have a request made, which has to be granted."""
    client.tell(*words)
    client.expect("done", words[0], NODE)


def test_it_publishes_and_works(site: Site) -> None:
    with (
        started(site, "js-owner") as owner,
        started(site, "js-worker1") as first,
        started(site, "js-worker2") as second,
    ):
        for client in (owner, first, second):
            client.expect("online")
        do(owner, "create", NODE)
        first.tell("work", NODE, "0")
        assert first.expect("refused", "work") != ""
        first.tell("presence")
        do(first, "work", NODE, "1")
        do(owner, "publish", NODE, "i1", TEXT)
        assert first.expect("item", "i1") == TEXT
        do(owner, "publish", NODE, "i2", TEXT)
        second.tell("presence")
        do(second, "work", NODE, "1")
        assert second.expect("item", "i2") == TEXT
        do(first, "retract", NODE, "i1")
        first.expect("retracted", "i1")
        do(second, "unlock", NODE, "i2")
        second.expect("unlocked", "i2")
        assert first.expect("item", "i2") == TEXT, "another than who gave it back"
        second.tell("retract", NODE, "i2")
        assert second.expect("refused", "retract") == "conflict"
        do(first, "retract", NODE, "i2")
        first.expect("retracted", "i2")
        for client in (owner, first, second):
            assert client.quit() == 0
            assert client.unread("item") + client.unread("message") == []
