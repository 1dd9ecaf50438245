"""xmpp.js as publisher and as workers of a queue."""

from __future__ import annotations

from typing import Final

from tests.helpers.clients import Client
from tests.interop.conftest import Site

NODE: Final = "js/queue"
TEXT: Final = "turn <left> & 'right'"


def start(site: Site, name: str) -> Client:
    return site.start("xmppjs", site.login(name, "SCRAM-SHA-1"))


def request(client: Client, *words: str) -> None:
    """Make a request, which must succeed."""
    client.tell(*words)
    client.expect("done", words[0], NODE)


def test_publish_and_work_on_a_queue(site: Site) -> None:
    with (
        start(site, "js-owner") as owner,
        start(site, "js-worker1") as first,
        start(site, "js-worker2") as second,
    ):
        for client in (owner, first, second):
            client.expect("online")
        request(owner, "create", NODE)
        first.tell("work", NODE, "0")
        assert first.expect("refused", "work") != ""
        first.tell("presence")
        request(first, "work", NODE, "1")
        request(owner, "publish", NODE, "i1", TEXT)
        assert first.expect("item", "i1") == TEXT
        request(owner, "publish", NODE, "i2", TEXT)
        second.tell("presence")
        request(second, "work", NODE, "1")
        assert second.expect("item", "i2") == TEXT
        request(first, "retract", NODE, "i1")
        first.expect("retracted", "i1")
        request(second, "unlock", NODE, "i2")
        second.expect("unlocked", "i2")
        assert first.expect("item", "i2") == TEXT, (
            "it goes to another worker than the one that unlocked it"
        )
        second.tell("retract", NODE, "i2")
        assert second.expect("refused", "retract") == "conflict"
        request(first, "retract", NODE, "i2")
        first.expect("retracted", "i2")
        for client in (owner, first, second):
            assert client.quit() == 0
            assert client.unread("item") + client.unread("message") == []
