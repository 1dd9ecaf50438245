"""Target: SASL messages: base64, PLAIN, EXTERNAL and both messages of SCRAM.

An input's first byte selects what the rest is.

- Only `SaslFailure` is raised.
- base64 is accepted in its canonical form only.
- A client without the password is never authenticated; one with the password always is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress
from typing import Final

import pytest

from edge import sasl
from edge.credentials import Credentials
from edge.sasl import PlainExchange, SaslFailure, ScramExchange

MAX_BYTES: Final = 8192

_NONCE: Final = "ServerNonce"
_SALTED: Final = b"what PBKDF2 makes of a password."
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}


def check(data: bytes) -> None:
    """Process a message of a client."""
    kind, rest = data[:1], data[1:]
    with suppress(SaslFailure):
        if kind == b"6":
            _check_base64(rest)
        elif kind == b"p":
            _check_plain(rest)
        elif kind == b"x":
            sasl.begin("EXTERNAL", rest)
        else:
            _check_scram("SCRAM-SHA-1" if kind == b"1" else "SCRAM-SHA-256", rest)


def _check_base64(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    message = sasl.decode(text)
    assert len(message) <= sasl.MAX_MESSAGE_BYTES
    assert base64.b64encode(message).decode() == text or text == "="
    assert sasl.decode(sasl.encode(message).decode()) == message


def _check_plain(data: bytes) -> None:
    exchange = sasl.begin("PLAIN", data)
    assert isinstance(exchange, PlainExchange)
    written = "\0".join((exchange.authzid, exchange.username, exchange.password))
    assert written.encode() == data


def _check_scram(mechanism: str, data: bytes) -> None:
    """Begin with the bytes before a NUL, and answer the challenge with those after it."""
    first, _, answer = data.partition(b"\0")
    exchange = sasl.begin(mechanism, first, _NONCE)
    assert isinstance(exchange, ScramExchange)
    credentials, client_key = _credentials(mechanism)
    challenge = exchange.challenge(credentials)
    with pytest.raises(SaslFailure):
        exchange.finish(answer)
    exchange = sasl.begin(mechanism, first, _NONCE)
    assert isinstance(exchange, ScramExchange)
    assert exchange.challenge(credentials) == challenge
    gs2, comma, bare = _split(first)
    final = b"c=" + base64.b64encode(gs2 + comma) + b",r=" + challenge[2:].partition(b",")[0]
    signed = bare + b"," + challenge + b"," + final
    signature = hmac.digest(credentials.stored_key, signed, _HASHES[mechanism])
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert exchange.finish(final + b",p=" + base64.b64encode(proof)).startswith(b"v=")


def _split(first: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a client's first message into its header, a comma, and the bare message."""
    flag, _, rest = first.partition(b",")
    authzid, comma, bare = rest.partition(b",")
    return flag + b"," + authzid, comma, bare


def _credentials(mechanism: str) -> tuple[Credentials, bytes]:
    algorithm = _HASHES[mechanism]
    client_key = hmac.digest(_SALTED, b"Client Key", algorithm)
    stored = hashlib.new(algorithm, client_key).digest()
    server = hmac.digest(_SALTED, b"Server Key", algorithm)
    return Credentials(mechanism, b"salt of 16 bytes", 4096, stored, server), client_key
