"""Encode messages: for the protocol of the session that is sent them, and as bytes for rows.

Features register the encoders (`Hooks.encode`) and the types that rows store (`Hooks.store`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from edge.engine.dispatch.addresses import account_of
from edge.engine.dispatch.hooks import Context
from edge.engine.store.database import MessageBytes, SentMessage

_pack: Final = msgspec.msgpack.Encoder().encode


def source_of(message: SentMessage) -> str:
    """Return the bare address of the account that a message comes from, "" if the gateway's."""
    return account_of(getattr(message, "sender", ""))


def encode(context: Context, protocol: str, message: SentMessage) -> bytes:
    """Encode a message for a session of a protocol, after the commit.

    Return empty bytes if the protocol has no encoder of the message's type: its sessions do not get
    such messages. An encoder that fails is reported, and does not affect other messages.
    """
    try:
        encoder = context.hooks.encoders.get((protocol, type(message)))
        return b"" if encoder is None else encoder(context, message)
    except Exception as error:
        report = {"message": f"a message cannot be encoded: {error!r}", "exception": error}
        asyncio.get_running_loop().call_exception_handler(report)
        return b""


def encode_part(context: Context, protocol: str, message: SentMessage) -> bytes:
    """Encode a message as `encode` does, for the encoder of a message that has it as a part; raise
    what the encoder of the part raises."""
    encoder = context.hooks.encoders.get((protocol, type(message)))
    return b"" if encoder is None else encoder(context, message)


def encodings(context: Context, message: SentMessage) -> Iterator[bytes]:
    """Yield a message as each protocol that has an encoder of its type encodes it."""
    for (_protocol, message_type), encoder in context.hooks.encoders.items():
        if message_type is type(message):
            yield encoder(context, message)


def pack(context: Context, message: SentMessage) -> MessageBytes:
    """Return a message as rows store it: its fields in MessagePack and the kind of its type.

    What a device handed over is stored as it is. Raises `KeyError` if no feature has registered the
    type of the message.
    """
    if isinstance(message, MessageBytes):
        return message
    return MessageBytes(_pack(message), context.hooks.kinds[type(message)])


def unpack(context: Context, stored: MessageBytes) -> SentMessage:
    """Return the message from which `pack` made bytes with a kind."""
    return context.hooks.stored[stored.kind](stored.body)
