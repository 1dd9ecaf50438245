"""Encode the messages that sessions are sent, each for the protocol of its session.

The encoders are those that features have registered (`Hooks.encode`).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from edge.engine.addresses import account_of
from edge.engine.database import SentMessage
from edge.engine.hooks import Context

_STORED: Final = "xmpp"
"""The protocol whose encoding rows store."""


class RawStanza(NamedTuple):
    """A stanza of XMPP as its recipient gets it: from another session, or from a row."""

    stanza: bytes


def source_of(message: SentMessage) -> str:
    """Return the bare address of the account that a message comes from, "" if the gateway's."""
    return account_of(getattr(message, "sender", ""))


def encode(context: Context, protocol: str, message: SentMessage) -> bytes:
    """Encode a message for a session of a protocol, after the commit.

    Return empty bytes if the protocol has no encoder of the message's type: its sessions do not get
    such messages. An encoder that fails is reported, and does not affect other messages.
    """
    encoder = context.hooks.encoders.get((protocol, type(message)))
    if encoder is None:
        return b""
    try:
        return encoder(context, message)
    except Exception as error:
        report = {"message": f"a message cannot be encoded: {error!r}", "exception": error}
        asyncio.get_running_loop().call_exception_handler(report)
        return b""


def stored_form(context: Context, message: SentMessage) -> bytes:
    """Encode a message as rows store it: as XMPP, whatever the protocol of its recipient."""
    return context.hooks.encoders[_STORED, type(message)](context, message)
