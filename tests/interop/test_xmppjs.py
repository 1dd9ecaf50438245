"""xmpp.js by SASL2 and Bind 2 (XEP-0388, XEP-0386), with its custody, and on a queue."""

from __future__ import annotations

from typing import Final

import pytest

from tests.helpers.clients import Client
from tests.helpers.gateway import DOMAIN
from tests.interop.conftest import Site

NODE: Final = "js/queue"
TEXT: Final = "turn <left> & 'right'"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "PLAIN"])
def test_each_login_is_bound_to_the_same_resource(site: Site, mechanism: str) -> None:
    login = site.login(f"agent-{mechanism.lower()}", mechanism)
    bound = []
    for number in range(2):
        with site.start("xmppjs", login) as client:
            client.expect("sasl2")
            jid, used = client.expect("online").split()
            assert used == mechanism
            client.send_line("log", "Entered", str(number))
            client.ask("ping", answer="pong")
            assert client.quit() == 0
        bound.append(jid)
    assert bound[0] == bound[1]
    assert bound[0].startswith(f"agent-{mechanism.lower()}@{DOMAIN}/fw")
    assert [event["source"] for event in site.events(login)] == bound
    assert [event["text"] for event in site.events(login)] == ["0", "1"]


def test_deliver_of_a_later_process_delivers_once(site: Site) -> None:
    """By default, xmpp.js has a new resource in each process; its device keeps its custody."""
    login = site.login("restarted", "SCRAM-SHA-1")._replace(extra=("defaults",))
    bound = []
    for step in ("assured", "deliver", "deliver"):  # each process is killed after its answer
        with site.start("xmppjs", login) as client:
            client.expect("sasl2")
            bound.append(client.expect("online").split()[0])
            if step == "assured":
                offered = client.ask("assured", "m1", "Count", "seven", answer="answered")
                assert offered.endswith("received")
            else:
                assert client.ask("deliver", "m1", answer="answered") == "deliver m1"
    assert len(set(bound)) == 3, "xmpp.js has kept its resource"
    assert [event["text"] for event in site.events(login)] == ["seven"]


def request(client: Client, *words: str) -> None:
    """Make a request, which must succeed."""
    client.send_line(*words)
    client.expect("done", words[0], NODE)


def test_publish_and_work_on_a_queue(site: Site) -> None:
    names = ("js-owner", "js-worker1", "js-worker2")
    logins = [site.login(name, "SCRAM-SHA-1") for name in names]
    with (
        site.start("xmppjs", logins[0]) as owner,
        site.start("xmppjs", logins[1]) as first,
        site.start("xmppjs", logins[2]) as second,
    ):
        for client in (owner, first, second):
            client.expect("online")
        request(owner, "create", NODE)
        first.send_line("work", NODE, "0")
        assert first.expect("refused", "work") != ""
        first.send_line("presence")
        request(first, "work", NODE, "1")
        request(owner, "publish", NODE, "i1", TEXT)
        assert first.expect("item", "i1") == TEXT
        request(owner, "publish", NODE, "i2", TEXT)
        second.send_line("presence")
        request(second, "work", NODE, "1")
        assert second.expect("item", "i2") == TEXT
        request(first, "retract", NODE, "i1")
        first.expect("retracted", "i1")
        request(second, "unlock", NODE, "i2")
        second.expect("unlocked", "i2")
        assert first.expect("item", "i2") == TEXT, (
            "it goes to another worker than the one that unlocked it"
        )
        second.send_line("retract", NODE, "i2")
        assert second.expect("refused", "retract") == "conflict"
        request(first, "retract", NODE, "i2")
        first.expect("retracted", "i2")
        for client in (owner, first, second):
            assert client.quit() == 0
            assert client.unread("item") + client.unread("message") == []
