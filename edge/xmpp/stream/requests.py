"""Reading of the elements that a client sends during stream negotiation."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from edge import jid, sasl
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import BIND, CLIENT, SASL, SASL2, SM, STREAMS, TLS, clark
from edge.xmpp.stanza import STANZA_NAMES, Child, Item, Stanza, StreamClose, StreamOpen
from edge.xmpp.stream import management
from edge.xmpp.stream.states import Input

MAX_TAG_BYTES: Final = 64
"""Maximum bytes of a Bind 2 tag; names of software are shorter."""

ID_CHARACTERS: Final = 10
"""Characters of a Bind 2 resource that identify the client: 50 bits of a hash."""

_IQ: Final = clark(CLIENT, "iq")
_SM: Final = clark(SM, "")
_BIND: Final = clark(BIND, "bind")
_RESOURCE: Final = clark(BIND, "resource")
_INPUTS: Final = {
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
    """Return the input of the state machine for an item of the stream."""
    if isinstance(item, StreamOpen):
        return Input.OPEN
    if isinstance(item, StreamClose):
        return Input.CLOSE
    if item.name not in STANZA_NAMES:
        other = Input.MANAGE if item.name.startswith(_SM) else Input.OTHER
        return _INPUTS.get(item.name, other)
    payload = item.payload
    return Input.BIND if payload is not None and payload.name == _BIND else Input.STANZA


def sasl_message(item: Child) -> bytes | None:
    """Return the decoded message of a SASL element, or None if the element has no text.

    Raises:
        SaslFailure: `malformed-request` or `incorrect-encoding`.
    """
    tree = item.tree()
    if len(tree):
        raise sasl.SaslFailure("malformed-request")
    return sasl.decode(tree.text) if tree.text else None


def bind_resource(item: Stanza) -> str | None:
    """Return the resource of a bind request, normalised; None lets the server choose.

    Raises:
        StanzaError: `modify/bad-request` (RFC 6120, section 7.7.2.1).
    """
    if item.name != _IQ or item.attrs.get("type") != "set" or not item.attrs.get("id"):
        raise StanzaError("bad-request", "a bind request must be an iq of type set with an id")
    wanted = item.tree().findtext(f"{_BIND}/{_RESOURCE}")
    if not wanted:
        return None
    try:
        return jid.prepare_resource(wanted)
    except jid.JidError as error:
        raise StanzaError("bad-request", str(error)) from error


def bind2_resource(tag: str, agent_id: str) -> str:
    """Return the resource of a Bind 2 client, which is the same for the same arguments (XEP-0386,
    section 3.2.1).

    Args:
        tag: the client's tag; ignored if it is empty, too long or not valid in a resource.
        agent_id: the id of the client's installation, of which only a hash is shown.
    """
    digest = hashlib.sha256(agent_id.encode()).digest()
    identifier = base64.b32encode(digest)[:ID_CHARACTERS].decode().lower()
    if not 0 < len(tag.encode()) <= MAX_TAG_BYTES:
        return identifier
    try:
        return jid.prepare_resource(f"{tag}/{identifier}")
    except jid.JidError:
        return identifier
