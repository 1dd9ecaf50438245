"""xmpp.js by SASL2 and Bind 2 (XEP-0388, XEP-0386), which it prefers where they are offered."""

from __future__ import annotations

import pytest

from tests.helpers.gateway import DOMAIN
from tests.interop.conftest import Site


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "PLAIN"])
def test_it_is_bound_to_the_same_resource_each_time(site: Site, mechanism: str) -> None:
    login = site.login(f"agent-{mechanism.lower()}", mechanism)
    bound = []
    for number in range(2):
        with site.start("xmppjs", login) as client:
            client.expect("sasl2")
            jid, used = client.expect("online").split()
            assert used == mechanism
            client.tell("log", "Entered", str(number))
            client.ask("ping", answer="pong")
            assert client.quit() == 0
        bound.append(jid)
    assert bound[0] == bound[1]
    assert bound[0].startswith(f"agent-{mechanism.lower()}@{DOMAIN}/fw")
    assert [event["text"] for event in site.events(bound[0])] == ["0", "1"]
