from __future__ import annotations

from xml.etree import ElementTree

from edge.xmpp.embedded import as_client_stanza


def test_message_in_the_namespace_of_clients_is_unchanged() -> None:
    body = b"<message xmlns='jabber:client'><body>x</body></message>"
    assert as_client_stanza(body) == body


def test_inherited_qos_namespace_is_replaced_and_others_are_kept() -> None:
    body = b"<message xmlns='urn:xmpp:qos'><body>x</body><own xmlns='urn:own'/></message>"
    tree = ElementTree.fromstring(as_client_stanza(body))  # noqa: S314 - our own output
    assert [element.tag for element in tree.iter()] == [
        "{jabber:client}message",
        "{jabber:client}body",
        "{urn:own}own",
    ]
