"""Tests of software version, entity time, and pings of services and accounts."""

from __future__ import annotations

import pytest

from edge import __version__
from edge.features import version
from edge.xmpp.namespaces import PING, TIME, VERSION
from tests.helpers.people import PUMP
from tests.helpers.pubsub import SERVICE
from tests.helpers.store import DOMAIN, Gateway, Reply


def ask(gateway: Gateway, payload: str, to: str | None) -> Reply:
    address = "" if to is None else f" to='{to}'"
    reply = gateway.ask(PUMP, f"<iq type='get' id='i'{address}>{payload}</iq>")
    assert (reply.attrs["id"], reply.attrs["to"], reply.attrs.get("from")) == ("i", PUMP, to)
    return reply


@pytest.mark.parametrize("to", [DOMAIN, SERVICE, None])
def test_version_of_the_gateway(gateway: Gateway, to: str | None) -> None:
    reply = ask(gateway, f"<query xmlns='{VERSION}'/>", to)
    assert reply.content.tag == f"{{{VERSION}}}query"
    found = {child.tag.removeprefix(f"{{{VERSION}}}"): child.text for child in reply.content}
    assert found == {"name": "Fieldpost", "version": __version__, "os": version.ELEMENTS["os"]}
    assert not any(character.isdigit() for character in version.ELEMENTS["os"])


@pytest.mark.parametrize("to", [SERVICE, "pump1@gw.example"])
def test_pings_are_answered(gateway: Gateway, to: str) -> None:
    assert ask(gateway, f"<ping xmlns='{PING}'/>", to).type == "result"


@pytest.mark.parametrize("to", [DOMAIN, None])
def test_time_is_in_utc(gateway: Gateway, to: str | None) -> None:
    gateway.clock.wall_offset = 123
    reply = ask(gateway, f"<time xmlns='{TIME}'/>", to)
    found = {child.tag.removeprefix(f"{{{TIME}}}"): child.text for child in reply.content}
    assert found == {"tzo": "+00:00", "utc": "2025-10-09T09:10:00.123Z"}


@pytest.mark.parametrize("payload", [f"<query xmlns='{VERSION}'/>", f"<time xmlns='{TIME}'/>"])
def test_accounts_have_no_version_and_no_time(gateway: Gateway, payload: str) -> None:
    reply = ask(gateway, payload, "pump1@gw.example")
    assert reply.error == ("cancel", "service-unavailable")
