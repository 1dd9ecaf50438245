"""xmpp.js as it comes: each process has a new resource, and its device keeps its custody."""

from __future__ import annotations

from tests.helpers.clients import Client, Login
from tests.interop.conftest import Site


def login_of(site: Site, device: str) -> Login:
    return site.login(device, "SCRAM-SHA-1")._replace(extra=("defaults",))


def online(client: Client) -> str:
    client.expect("sasl2")
    return client.expect("online").split()[0]


def texts(site: Site, device: str) -> list[str]:
    """Return what the event log has of an account, whatever the resource."""
    return [
        event["text"]
        for event in site.gateway.events("logs")
        if event["source"].startswith(f"{device}@")
    ]


def test_deliver_of_a_later_process_delivers_once(site: Site) -> None:
    login = login_of(site, "restarted")
    with site.start("xmppjs", login) as client:
        bound = [online(client)]
        assert client.ask("assured", "m1", "Count", "seven", answer="answered").endswith("received")
    for _ in range(2):  # the first is killed, and so is the second, after it asked for delivery
        with site.start("xmppjs", login) as client:
            bound.append(online(client))
            assert client.ask("deliver", "m1", answer="answered") == "deliver m1"
    assert len(set(bound)) == 3, "xmpp.js has kept its resource"
    assert texts(site, "restarted") == ["seven"]
