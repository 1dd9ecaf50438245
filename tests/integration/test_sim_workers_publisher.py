"""A publisher by iq, against a scripted service over real TLS: repetitions and refusals."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from firmware_sim.device.errors import RequestRefused
from firmware_sim.device.limits import ReconnectPolicy
from firmware_sim.device.publisher import Publisher
from tests.helpers.scripted_peer import Certificate, ScriptedPeer, Stanza

PAYLOAD = ET.Element("{urn:x}job", {"n": "1"})


@asynccontextmanager
async def publishing(
    certificate: Certificate, *answers: str
) -> AsyncIterator[tuple[Publisher, ScriptedPeer]]:
    """Run a service that answers each publication with the next answer; "" disconnects."""
    remaining = list(answers)

    def answer(stanza: Stanza) -> str:
        kind, _, condition = remaining.pop(0).partition("/")
        if not kind:
            peer.drop()
            return ""
        return stanza.error(kind, condition) if condition else stanza.result()

    peer = ScriptedPeer(certificate, script=answer)
    async with peer.running(), new_publisher(certificate, peer) as publisher, asyncio.timeout(10):
        yield publisher, peer


def new_publisher(certificate: Certificate, peer: ScriptedPeer) -> Publisher:
    return Publisher(
        "p1@gw.example/p",
        "secret",
        ca_file=certificate.ca_file,
        host="127.0.0.1",
        port=peer.port,
        reconnect=ReconnectPolicy(base=0.02, cap=0.1, timeout=5.0),
    )


async def test_an_answered_item_is_published_once(certificate: Certificate) -> None:
    async with publishing(certificate, "result") as (publisher, peer):
        options = {"pubsub#queue_priority": "3"}
        assert await publisher.publish("jobs", "j1", PAYLOAD, options) == 1
    (stanza,) = peer.requests
    publish, form = stanza.payload
    assert publish.get("node") == "jobs"
    assert publish[0].get("id") == "j1"
    assert publish[0][0].tag == "{urn:x}job"
    fields = {each.get("var"): each[0].text for each in form[0]}
    assert fields["pubsub#queue_priority"] == "3"
    assert fields["FORM_TYPE"] == "http://jabber.org/protocol/pubsub#publish-options"


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        (("", "result"), 2),
        (("", "", "result"), 3),
        (("", "cancel/conflict"), 1),
        (("wait/resource-constraint", "result"), 1),
    ],
)
async def test_an_unanswered_or_postponed_item_is_published_again(
    certificate: Certificate, answers: tuple[str, ...], tries: int
) -> None:
    async with publishing(certificate, *answers) as (publisher, peer):
        assert await publisher.publish("jobs", "j1", PAYLOAD) == tries
        assert len(peer.requests) == len(answers)
        assert {stanza.payload[0][0].get("id") for stanza in peer.requests} == {"j1"}


@pytest.mark.parametrize("answer", ["auth/forbidden", "cancel/conflict", "cancel/item-not-found"])
async def test_a_refused_item_raises_an_error(certificate: Certificate, answer: str) -> None:
    async with publishing(certificate, answer) as (publisher, peer):
        with pytest.raises(RequestRefused, match=answer.partition("/")[2]):
            await publisher.publish("jobs", "j1", PAYLOAD)
        assert len(peer.requests) == 1


async def test_publisher_without_service_waits_and_reports_error(
    certificate: Certificate,
) -> None:
    peer = ScriptedPeer(certificate, login=False)
    async with peer.running(), new_publisher(certificate, peer) as publisher, asyncio.timeout(10):
        service = asyncio.create_task(publisher.service())
        while not publisher.last_error:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        assert "password" in publisher.last_error
        assert not service.done()
        service.cancel()
