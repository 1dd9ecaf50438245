"""Format the data that attacks send: stream headers, stanzas, and the start of a TLS handshake."""

from __future__ import annotations

from typing import Final

STARTTLS: Final = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"

PING: Final = "<ping xmlns='urn:xmpp:ping'/>"

HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The first 11 bytes of a TLS ClientHello of 517 bytes."""

LOG: Final = "<log xmlns='urn:xmpp:eventlog'><message>flood</message></log>"

_QOS: Final = "urn:xmpp:qos"


def stream_header(domain: str) -> str:
    """Return the stream header of a client that connects to a domain."""
    return (
        f"<?xml version='1.0'?><stream:stream to='{domain}' version='1.0' xmlns='jabber:client'"
        " xmlns:stream='http://etherx.jabber.org/streams'>"
    )


def ping(number: int, to: str = "") -> str:
    """Return a ping: a small stanza that the recipient must answer."""
    return f"<iq type='get' id='{number}'{_address(to)}>{PING}</iq>"


def message(to: str, size: int, type_: str = "") -> str:
    """Return a plain message with a body of `size` bytes."""
    attribute = f" type='{type_}'" if type_ else ""
    return f"<message{attribute}{_address(to)}><body>{'x' * size}</body></message>"


def presence(size: int, to: str = "") -> str:
    """Return presence with a status of `size` bytes."""
    return f"<presence{_address(to)}><status>{'x' * size}</status></presence>"


def roster_change(number: int, jid: str) -> str:
    """Return the request to add a contact to the sender's roster, or to change it."""
    return (
        f"<iq type='set' id='{number}'><query xmlns='jabber:iq:roster'>"
        f"<item jid='{jid}'/></query></iq>"
    )


def assured(number: int, content: str = LOG, to: str = "") -> str:
    """Return the offer of an assured message."""
    return _offer("assured", number, content, to)


def acknowledged(number: int, content: str = LOG, to: str = "") -> str:
    """Return the request that sends an acknowledged message."""
    return _offer("acknowledged", number, content, to)


def without_msg_id(number: int) -> str:
    """Return the offer of an assured message without a msgId, which is malformed."""
    return (
        f"<iq type='set' id='{number}'><assured xmlns='{_QOS}'>"
        f"<message xmlns='jabber:client'>{LOG}</message></assured></iq>"
    )


def _offer(level: str, number: int, content: str, to: str) -> str:
    return (
        f"<iq type='set'{_address(to)} id='{number}'><{level} xmlns='{_QOS}' msgId='m{number}'>"
        f"<message xmlns='jabber:client'>{content}</message></{level}></iq>"
    )


def _address(to: str) -> str:
    return f" to='{to}'" if to else ""
