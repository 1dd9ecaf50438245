from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.device import capabilities
from firmware_sim.device.connection import Connection, Endpoint
from firmware_sim.device.qos_receiver_plugin import (
    RECEIVER,
    IncomingStanza,
    read_message,
    read_request,
)
from firmware_sim.device.qos_sender_plugin import NAMESPACES, Step
from firmware_sim.device.receiver_rules import Reply
from tests.helpers.scripted_peer import Certificate

OWN = "valve1@gw.example/fw"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), max_codepoint=0xFFFD))
STEPS = st.sampled_from(Step)


def request(step: Step, namespace: str, **attributes: str) -> tuple[ET.Element, ET.Element]:
    iq = ET.Element("{jabber:client}iq", {"type": "set", **attributes})
    payload = ET.SubElement(iq, f"{{{namespace}}}{step.value}")
    return iq, payload


@given(STEPS, st.sampled_from(NAMESPACES), TEXT, TEXT, TEXT, TEXT)
def test_request_is_parsed_and_answered_in_its_namespace(
    step: Step, namespace: str, id_: str, sender: str, msg_id: str, body: str
) -> None:
    iq, payload = request(step, namespace, id=id_, **{"from": sender})
    payload.set("msgId", msg_id)
    message = ET.SubElement(payload, "{jabber:client}message", {"to": "x", "from": "y"})
    ET.SubElement(message, "{jabber:client}body").text = body
    incoming = read_request(iq, OWN)
    fits = step is Step.ACKNOWLEDGED or 0 < len(msg_id.encode()) <= 256
    assert bool(incoming.malformed) == (not fits)
    for reply in Reply:
        answer = ET.fromstring(incoming.answer(reply))  # noqa: S314 - our own
        assert answer.get("id") == id_
        assert answer.get("to", "") == sender
        assert answer.get("type") == ("error" if reply.error else "result")
        if reply is Reply.RECEIVED and fits and step is Step.ASSURED:
            (received,) = answer
            assert received.tag == f"{{{namespace}}}received"
            assert received.get("msgId") == msg_id
    if fits and step is not Step.DELIVER:
        root = ET.fromstring(incoming.text)  # noqa: S314 - our own
        assert (root.get("from"), root.get("to")) == (sender, OWN)
        assert (root[0].text or "") == body


def test_embedded_message_has_the_recipient_of_the_stanza() -> None:
    iq, payload = request(Step.ACKNOWLEDGED, NAMESPACES[0], id="1", to="valve1@gw.example")
    ET.SubElement(payload, "{jabber:client}message")
    assert 'to="valve1@gw.example"' in read_request(iq, OWN).text


def test_forbidden_character_is_malformed() -> None:
    iq, payload = request(Step.ACKNOWLEDGED, NAMESPACES[0], id="1")
    message = ET.SubElement(payload, "{jabber:client}message")
    message.text = "\x01"
    assert "XML forbids" in read_request(iq, OWN).malformed
    assert read_message(message) == IncomingStanza(
        None, "", "", malformed="the message has a character that XML forbids"
    )


def test_text_after_a_message_is_dropped() -> None:
    iq, payload = request(Step.ACKNOWLEDGED, NAMESPACES[0], id="1")
    message = ET.SubElement(payload, "{jabber:client}message")
    message.tail = "\n  "
    assert read_request(iq, OWN).text.endswith("/>")
    message.tail = "\n  "
    assert read_message(message).text.endswith("/>")


async def test_plugin_can_be_unregistered(tmp_path: Path) -> None:
    certificate = Certificate.make(tmp_path)
    received: list[IncomingStanza] = []
    endpoint = Endpoint(OWN, "secret", "127.0.0.1", 1, certificate.ca_file)
    connection = Connection(endpoint, lambda _receiver, incoming: received.append(incoming))
    plugin = connection._client.plugin[RECEIVER]
    plugin.session_bind(None)
    connection._client.plugin.disable(RECEIVER)
    plugin.on_incoming(plugin, IncomingStanza(None, "", ""))
    assert received == []
    discovery = connection._client.plugin["xep_0030"]
    info = await discovery.get_info(local=True)
    assert not set(NAMESPACES) & set(info["features"])
    assert plugin.unsent == 0
    connection.announce(0)
    connection.read(go_on=True)
    connection.abort("over")


def test_verification_string_of_capabilities() -> None:
    """XEP-0115, section 5.2."""
    names = ("disco#info", "disco#items", "muc", "caps")
    features = [f"http://jabber.org/protocol/{name}" for name in names]
    identity = ("client", "pc", "", "Exodus 0.9.1")
    assert capabilities.verification([identity], features) == "QgayPKawpkPSDYmwT/WM94uAlu0="
    other = ("client", "bot", "en", "a")
    both = capabilities.verification([identity, other], [])
    assert both == capabilities.verification([other, identity], [])
    assert both != capabilities.verification([identity], [])
