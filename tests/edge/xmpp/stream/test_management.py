from __future__ import annotations

import re

import pytest

from edge.xmpp.errors import StanzaError, StreamError
from edge.xmpp.stanza import Stanza
from edge.xmpp.stream import management
from edge.xmpp.stream.management import WRAP, EnableRequest, Management, ResumeRequest
from tests.helpers.store import stanza


def element(raw: str) -> Stanza:
    return stanza(raw.replace("/>", " xmlns='urn:xmpp:sm:3'/>"))


def filled(count: int, start: int = 0) -> Management[int]:
    manager: Management[int] = Management(100, 10_000, start=start)
    for number in range(count):
        assert manager.send(b"<m%d/>" % number, number)
    return manager


@pytest.mark.parametrize(
    ("start", "h", "sent"),
    [(0, 6, 5), (0, WRAP - 1, 5), (WRAP - 3, 3, 2), (WRAP - 3, WRAP - 4, 2), (7, 6, 12)],
)
def test_unsent_stanzas_cannot_be_acknowledged(start: int, h: int, sent: int) -> None:
    manager = filled(5, start)
    with pytest.raises(StreamError) as error:
        manager.acknowledge(h)
    assert error.value.condition == "undefined-condition"
    assert error.value.application == (
        f"<handled-count-too-high xmlns='urn:xmpp:sm:3' h='{h}' send-count='{sent}'/>".encode()
    )
    assert len(manager.unacknowledged) == 5


@pytest.mark.parametrize(("stanzas", "bytes_"), [(2, 1000), (100, 8)])
def test_limits_of_stanzas_and_bytes(stanzas: int, bytes_: int) -> None:
    manager: Management[None] = Management(stanzas, bytes_)
    assert [manager.send(b"<m/>", None) for _ in range(3)] == [True, True, False]
    assert (len(manager.unacknowledged), manager.bytes) == (3, 12)
    manager.acknowledge(3)
    assert manager.send(b"<m/>", None)


def test_requests_are_due_by_stanzas_and_bytes() -> None:
    manager = filled(management.REQUEST_STANZAS - 1)
    assert not manager.wants_request()
    manager.send(b"<m/>", 0)
    assert manager.wants_request()
    assert manager.request() == b"<r xmlns='urn:xmpp:sm:3'/>"
    assert not manager.wants_request()
    manager.send(b"x" * (management.REQUEST_BYTES - 1), 0)
    assert not manager.wants_request()
    manager.send(b"x", 0)
    assert manager.wants_request()
    manager.request()
    assert not manager.wants_request()


def test_the_number_of_handled_stanzas_wraps_around() -> None:
    manager = filled(0, start=WRAP - 1)
    manager.handled()
    assert manager.answer() == b"<a xmlns='urn:xmpp:sm:3' h='0'/>"
    manager.handled()
    assert manager.answer() == b"<a xmlns='urn:xmpp:sm:3' h='1'/>"


def test_built_elements() -> None:
    assert management.enabled() == b"<enabled xmlns='urn:xmpp:sm:3'/>"
    assert management.enabled("i", 300) == (
        b"<enabled xmlns='urn:xmpp:sm:3' id='i' resume='true' max='300'/>"
    )
    assert management.enabled("i") == b"<enabled xmlns='urn:xmpp:sm:3' id='i' resume='true'/>"
    assert management.resumed("i", 3) == b"<resumed xmlns='urn:xmpp:sm:3' previd='i' h='3'/>"
    assert filled(0, start=3).answer() == b"<a xmlns='urn:xmpp:sm:3' h='3'/>"
    condition = b"<item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
    assert management.failed("item-not-found", 0) == (
        b"<failed xmlns='urn:xmpp:sm:3' h='0'>%b</failed>" % condition
    )
    assert b" h=" not in management.failed("item-not-found")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("<enable/>", EnableRequest(False, None)),
        ("<enable resume='true'/>", EnableRequest(True, None)),
        ("<enable resume='1' max='0'/>", EnableRequest(True, 0)),
        ("<enable resume='false' max='4294967295'/>", EnableRequest(False, WRAP - 1)),
        ("<enable resume='0'/>", EnableRequest(False, None)),
    ],
)
def test_valid_enable_requests(raw: str, expected: EnableRequest) -> None:
    item = element(raw)
    assert item.name == management.ENABLE
    assert management.read_enable(item) == expected


@pytest.mark.parametrize(
    "raw",
    [
        "<enable resume='yes'/>", "<enable resume=''/>", "<enable max=''/>", "<enable max='-1'/>",
        "<enable max='4294967296'/>", "<enable max='1.5'/>", "<enable max='\u0661'/>",
        "<enable max='99999999999999999999'/>",
    ],
)  # fmt: skip
def test_invalid_enable_requests_are_refused(raw: str) -> None:
    with pytest.raises(StanzaError) as error:
        management.read_enable(element(raw))
    assert error.value.condition == "bad-request"


def test_resume_requests() -> None:
    item = element("<resume previd='x&amp;y' h='4294967295'/>")
    assert item.name == management.RESUME
    assert management.read_resume(item) == ResumeRequest("x&y", WRAP - 1)
    longest = "x" * management.MAX_ID
    assert management.read_resume(element(f"<resume previd='{longest}' h='0'/>")).h == 0
    for wrong in (
        "<resume h='1'/>",
        "<resume previd='' h='1'/>",
        f"<resume previd='{longest}x' h='1'/>",
        "<resume previd='x'/>",
        "<resume previd='x' h='a'/>",
        "<resume previd='x' h='4294967296'/>",
    ):
        with pytest.raises(StanzaError, match=re.escape("modify/bad-request")):
            management.read_resume(element(wrong))


def test_acknowledgements() -> None:
    assert element("<r/>").name == management.REQUEST
    assert element("<a/>").name == management.ACK
    assert management.read_ack(element("<a h='0'/>")) == 0
    assert management.read_ack(element("<a h='4294967295'/>")) == WRAP - 1
    for wrong in ("<a/>", "<a h=''/>", "<a h='-1'/>", "<a h='4294967296'/>", "<a h=' 1'/>"):
        with pytest.raises(StreamError, match="bad-format"):
            management.read_ack(element(wrong))


def test_limits_apply_to_counted_tokens_only() -> None:
    manager: Management[bool] = Management(2, 8, counts=lambda token: token)
    for _ in range(5):
        assert manager.send(b"<stanza/>", token=False)
    assert manager.send(b"<a/>", token=True)
    assert manager.send(b"<b/>", token=True)
    assert manager.bounded == 2
    assert not manager.send(b"<c/>", token=True)
    assert manager.acknowledge(6) == [False] * 5 + [True]
    assert not manager.send(b"<d/>", token=True), "two counted stanzas are not acknowledged"
    assert manager.acknowledge(8) == [True, True]
    assert manager.send(b"<e/>", token=True)
    assert manager.bytes == 8
