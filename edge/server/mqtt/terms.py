"""The terms of a session: what a client asks for in CONNECT, and what CONNACK grants.

Source: MQTT 5.0, sections 3.1.2, 3.1.3 and 3.2.2; MQTT 3.1.1, section 3.1.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from edge import jid
from edge.config.limits import Limits
from edge.config.load import Config
from edge.engine.sessions.sessions import Declaration
from edge.jid import JidError
from edge.mqtt import PROTOCOL
from edge.mqtt.packets import MAX_ID, V5, V311, VERSION_NAMES, Connect, Property
from edge.server.mqtt import aliases

_SHOWN: Final = 100
"""Characters of a long client identifier that its resource begins with."""


def account_of(user_name: str, domain: str) -> str:
    """Return the account of a user name, `NAME` or `NAME@DOMAIN`; "" if it can have none."""
    name, at, host = user_name.partition("@")
    try:
        return "" if at and host.lower() != domain else jid.prepare_local(name)
    except JidError:
        return ""


def may_have_id(connect: Connect) -> bool:
    """Return whether a session can have the client identifier of a CONNECT.

    The gateway assigns one in place of an empty one, but not in 3.1.1 for a session that is kept
    (MQTT 3.1.1, section 3.1.3.1). Those with characters that XML forbids
    are refused, because addresses occur in XML (MQTT 5.0, section 1.5.4, advises against such
    characters).
    """
    if not connect.client_id:
        return connect.version == V5 or connect.clean
    return all(
        " " <= char < "\ufffe" or char > "\uffff" or char in "\t\n\r" for char in connect.client_id
    )


def resource(client_id: str) -> str:
    """Return the resource of a session's address: the client identifier, or a part of it with its
    SHA-256 if it is longer than resources are, so that the rows of addresses have a bound."""
    data = client_id.encode()
    if len(data) <= jid.MAX_PART:
        return client_id
    return f"{client_id[:_SHOWN]}~{sha256(data).hexdigest()}"


def keep_alive(connect: Connect, most: int) -> int:
    """Return the keep alive of a connection in seconds, 0 for none. A client of 5.0 must use the
    gateway's if it asks for none, or for one above `most` (section 3.2.2.3.14); one of 3.1.1 cannot
    be told."""
    wanted = connect.keep_alive
    return wanted if connect.version == V311 or 0 < wanted <= most else most


def declaration(connect: Connect, limits: Limits, transport: str) -> Declaration:
    """Return what a session declares to the engine."""
    most = connect.properties.get(Property.RECEIVE_MAXIMUM, MAX_ID)
    return Declaration(
        qos="mqtt",
        adopts=False,
        resends=False,
        ordered=True,
        window=min(most, limits.outbox_window),
        ids=MAX_ID,
        relays=False,
        durable=float(connect.session_expiry),
        protocol=PROTOCOL,
        version=VERSION_NAMES[connect.version],
        transport=transport,
        clean=connect.clean,
    )


def receive_maximum(limits: Limits) -> int:
    """Return how many messages of a client may be unfinished (section 3.2.2.3.3): no more than are
    handled at once, and than custody accepts of one source."""
    return min(limits.session_units, limits.held_messages_per_source, MAX_ID)


def lasting(connect: Connect) -> Connect:
    """Return a CONNECT without what only the log-in needs, to be kept with the connection."""
    kept = {Property.SESSION_EXPIRY: connect.session_expiry}
    if (method := connect.properties.get(Property.AUTHENTICATION_METHOD)) is not None:
        kept[Property.AUTHENTICATION_METHOD] = method
    return Connect("", connect.version, connect.clean, properties=kept)


def granted(connect: Connect, settings: Config, client_id: str) -> dict[Property, Any]:
    """Return the properties of the CONNACK that grants a session (section 3.2.2.3).

    `client_id` is that of the session.
    """
    if connect.version == V311:
        return {}
    limits = settings.limits
    found: dict[Property, Any] = {
        Property.RECEIVE_MAXIMUM: receive_maximum(limits),
        Property.MAXIMUM_PACKET_SIZE: limits.stanza_bytes,
        Property.TOPIC_ALIAS_MAXIMUM: aliases.MOST,
    }
    if connect.session_expiry > limits.durable_session_time:
        found[Property.SESSION_EXPIRY] = int(limits.durable_session_time)
    if (seconds := keep_alive(connect, settings.mqtt.keep_alive)) != connect.keep_alive:
        found[Property.SERVER_KEEP_ALIVE] = seconds
    if not connect.client_id:
        found[Property.ASSIGNED_CLIENT_ID] = client_id
    if not settings.pubsub.shares:
        found[Property.SHARED_SUBSCRIPTIONS] = 0
    return found
