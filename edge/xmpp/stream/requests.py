"""What an element that a peer sends during negotiation asks for.

Which of them may come when is told by `wire.states`, and what is done then by `wire.negotiation`.
"""

from __future__ import annotations

import base64
import hashlib

from edge.xmpp import jid
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import BIND, CLIENT, SASL, SASL2, SM, STREAMS, TLS, clark
from edge.xmpp.stanza import Item, Stanza, StreamClose, StreamOpen
from edge.xmpp.stream import management, sasl
from edge.xmpp.stream.states import Input

MAX_TAG_BYTES = 64
"""Bytes of the tag that a client puts before its resource; names of software are shorter."""
ID_CHARACTERS = 10
"""Characters that tell the clients of one account apart: 50 bits of a hash."""

STANZAS = frozenset(clark(CLIENT, name) for name in ("iq", "message", "presence"))
"""The elements that are stanzas (RFC 6120, section 8); all others are matters of the stream."""
_IQ = clark(CLIENT, "iq")
_SM = clark(SM, "")
_BIND = clark(BIND, "bind")
_RESOURCE = clark(BIND, "resource")
_ELEMENTS = {
    clark(TLS, "starttls"): Input.STARTTLS,
    clark(SASL, "auth"): Input.AUTH,
    clark(SASL, "response"): Input.RESPONSE,
    clark(SASL, "abort"): Input.ABORT,
    clark(SASL2, "authenticate"): Input.AUTHENTICATE,
    clark(SASL2, "response"): Input.RESPONSE2,
    clark(SASL2, "abort"): Input.ABORT2,
    management.RESUME: Input.RESUME,
    clark(STREAMS, "error"): Input.PEER_ERROR,
}


def classify(item: Item) -> Input:
    """Tell which input an item of the stream is."""
    if isinstance(item, StreamOpen):
        return Input.OPEN
    if isinstance(item, StreamClose):
        return Input.CLOSE
    if item.name not in STANZAS:
        unnamed = Input.MANAGE if item.name.startswith(_SM) else Input.OTHER
        return _ELEMENTS.get(item.name, unnamed)
    payload = item.payload
    return Input.BIND if payload is not None and payload.name == _BIND else Input.STANZA


def message(item: Stanza) -> bytes | None:
    """Return the message that a SASL element carries, or None if it carries none.

    Raises:
        SaslFailure: `malformed-request` or `incorrect-encoding`.
    """
    tree = item.tree()
    if len(tree):
        raise sasl.SaslFailure("malformed-request")
    return sasl.decode(tree.text) if tree.text else None


def resource(item: Stanza) -> str | None:
    """Return the resource that a request to bind asks for, normalised; None leaves it to us.

    Raises:
        StanzaError: `modify/bad-request` (RFC 6120, section 7.7.2.1).
    """
    if item.name != _IQ or item.attrs.get("type") != "set" or not item.attrs.get("id"):
        raise StanzaError("bad-request", "binding takes an iq of type set, with an id")
    wanted = item.tree().findtext(f"{_BIND}/{_RESOURCE}")
    if not wanted:
        return None
    try:
        return jid.prepare_resource(wanted)
    except jid.JidError as error:
        raise StanzaError("bad-request", str(error)) from error


def bind2_resource(tag: str, agent_id: str) -> str:
    """Form the resource of a client that binds by Bind 2: always the same for the same two
    (XEP-0386, section 3.2.1).

    Args:
        tag: which it asks for; left out if it is empty, too long, or has what a resource must not
            have.
        agent_id: of its installation; no more than a hash of it is shown.
    """
    digest = hashlib.sha256(agent_id.encode()).digest()
    own = base64.b32encode(digest)[:ID_CHARACTERS].decode().lower()
    if not 0 < len(tag.encode()) <= MAX_TAG_BYTES:
        return own
    try:
        return jid.prepare_resource(f"{tag}/{own}")
    except jid.JidError:
        return own
