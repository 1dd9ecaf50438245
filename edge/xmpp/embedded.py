"""Conversion of a message that is embedded in a QoS request to a separate stanza."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from edge.xmpp.namespaces import CLIENT, QOS_ALL, clark
from edge.xmpp.stanza import parse_fragment

_START: Final = b"<message"


def as_client_stanza(body: bytes) -> bytes:
    """Return an embedded message as a stanza in the namespace of clients.

    A message that inherits the QoS namespace of the request around it is treated as if it were in
    the namespace of clients.
    """
    tree = parse_fragment(body)
    if tree.tag == clark(CLIENT, "message") and body.startswith(_START):
        return body
    for element in tree.iter():
        namespace, _, name = element.tag[1:].partition("}")
        if namespace in QOS_ALL:
            element.tag = clark(CLIENT, name)
    return ElementTree.tostring(tree)
