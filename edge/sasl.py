"""The server side of SASL: SCRAM-SHA-256, SCRAM-SHA-1 (RFC 5802, RFC 7677), PLAIN (RFC 4616) and
EXTERNAL (RFC 4422, appendix A).

An exchange has steps, so that the caller can look up credentials and hash a password in between:
`begin` reads the first message and names the account; the other steps need its credentials. An
attempt on an account that does not exist gets decoy credentials (`credentials.decoy`) and fails at
the proof, like a wrong password.

Channel binding is not offered: Python does not support it under TLS 1.3.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from edge.credentials import MECHANISMS as HASHES
from edge.credentials import Credentials

PLAIN = "PLAIN"
EXTERNAL = "EXTERNAL"
SCRAM = tuple(HASHES)
"""The mechanisms of SCRAM, best first."""

FAILURES = frozenset(
    {
        "aborted",
        "account-disabled",
        "credentials-expired",
        "encryption-required",
        "incorrect-encoding",
        "invalid-authzid",
        "invalid-mechanism",
        "malformed-request",
        "mechanism-too-weak",
        "not-authorized",
        "temporary-auth-failure",
    }
)
"""The failure conditions of RFC 6120, section 6.5."""

NONCE_BYTES = 18
"""Random bytes in the server's part of the nonce: 24 characters."""
MAX_MESSAGE_BYTES = 4096
"""Maximum bytes of a client's message, decoded; two names of 1,023 bytes, all escaped, and a nonce
fit."""

_ATTRIBUTES = r"(?:,[A-Za-z]=[^\0,]+)*"
_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>[^\0,]+))?,)"
    rf"(?P<bare>n=(?P<user>[^\0,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_ATTRIBUTES})"
)
_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_ATTRIBUTES})"
    rf",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE = re.compile("=(2C|3D)?")


class SaslFailure(Exception):
    """Authentication failed (RFC 6120, section 6.5); the client may try again."""

    def __init__(self, condition: str, text: str = "") -> None:
        if condition not in FAILURES:
            raise ValueError(f"unknown SASL failure condition: {condition}")
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition = condition


def decode(text: str) -> bytes:
    """Decode the base64 text of `<auth/>` or `<response/>`; `=` is an empty message (RFC 6120,
    section 6.4.2).

    Raises:
        SaslFailure: `incorrect-encoding`, or `malformed-request` if the message is too long.
    """
    if text == "=":
        return b""
    if len(text) > MAX_MESSAGE_BYTES * 4 // 3:
        raise SaslFailure("malformed-request", "the message is too long")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise SaslFailure("incorrect-encoding") from error
    if base64.b64encode(data).decode() != text:
        raise SaslFailure("incorrect-encoding")
    return data


def encode(message: bytes) -> bytes:
    """Encode a message for `<challenge/>` or `<success/>`; an empty one is `=`."""
    return base64.b64encode(message) or b"="


class PlainExchange:
    """An exchange of PLAIN: one message; the caller checks the password.

    Attributes:
        authzid: as the client sent it.
        username: as the client sent it.
        password: in clear text.
    """

    def __init__(self, initial: bytes) -> None:
        parts = _text(initial).split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise SaslFailure("malformed-request")
        self.authzid, self.username, self.password = parts


class ExternalExchange:
    """An exchange of EXTERNAL: one message, an `authzid` or empty; TLS identified the client."""

    def __init__(self, initial: bytes) -> None:
        self.authzid = _text(initial)
        if "\0" in self.authzid:
            raise SaslFailure("malformed-request")


class ScramExchange:
    """An exchange of SCRAM, after the client's first message (RFC 5802, section 5).

    Attributes:
        authzid: as the client sent it, unescaped.
        username: as the client sent it, unescaped.
    """

    def __init__(self, mechanism: str, initial: bytes, nonce: str | None = None) -> None:
        message = _text(initial)
        match = _FIRST.fullmatch(message)
        if match is None:
            text = "channel binding is not offered" if message.startswith("p=") else ""
            raise SaslFailure("malformed-request", text)
        self.mechanism = mechanism
        self.authzid = _unescape(match["authzid"] or "")
        self.username = _unescape(match["user"])
        self._binding = match["gs2"].encode()
        self._client_first = match["bare"]
        self._nonce = match["nonce"] + (nonce or secrets.token_urlsafe(NONCE_BYTES))
        self._server_first = ""
        self._credentials: Credentials | None = None

    def challenge(self, credentials: Credentials) -> bytes:
        """Return the server's first message for the account's credentials.

        Raises:
            ValueError: the credentials are for another mechanism.
        """
        if credentials.mechanism != self.mechanism:
            raise ValueError(f"credentials of {credentials.mechanism} for {self.mechanism}")
        self._credentials = credentials
        salt = base64.b64encode(credentials.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credentials.iterations}"
        return self._server_first.encode()

    def finish(self, response: bytes) -> bytes:
        """Check the client's proof; return the server's final message, which proves that the
        server knows the account too.

        Raises:
            SaslFailure: `malformed-request`, or `not-authorized`.
            RuntimeError: there was no challenge, or it has been answered.
        """
        credentials, self._credentials = self._credentials, None
        if credentials is None:
            raise RuntimeError("`finish` must be called once, after `challenge`")
        match = _FINAL.fullmatch(_text(response))
        if match is None:
            raise SaslFailure("malformed-request")
        binding, proof = decode(match["binding"]), decode(match["proof"])
        signed = f"{self._client_first},{self._server_first},{match['unproved']}".encode()
        algorithm = HASHES[self.mechanism]
        signature = hmac.digest(credentials.stored_key, signed, algorithm)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        correct = len(proof) == len(signature) and hmac.compare_digest(
            hashlib.new(algorithm, client_key).digest(), credentials.stored_key
        )
        if not correct or binding != self._binding or match["nonce"] != self._nonce:
            raise SaslFailure("not-authorized")
        verifier = hmac.digest(credentials.server_key, signed, algorithm)
        return b"v=" + base64.b64encode(verifier)


def begin(
    mechanism: str, initial: bytes, nonce: str | None = None
) -> PlainExchange | ScramExchange | ExternalExchange:
    """Begin an exchange with the client's first message.

    Args:
        mechanism: the name that the client chose.
        initial: the message, decoded from base64.
        nonce: the server's part of the nonce, for tests; random by default.

    Raises:
        SaslFailure: `invalid-mechanism` or `malformed-request`.
    """
    if mechanism == PLAIN:
        return PlainExchange(initial)
    if mechanism == EXTERNAL:
        return ExternalExchange(initial)
    if mechanism in SCRAM:
        return ScramExchange(mechanism, initial, nonce)
    raise SaslFailure("invalid-mechanism")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise SaslFailure("malformed-request", "the message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise SaslFailure("malformed-request", "not UTF-8") from error


def _unescape(name: str) -> str:
    """Decode `=2C` to a comma and `=3D` to `=` in a name (RFC 5802, section 5.1)."""

    def character(match: re.Match[str]) -> str:
        if match[1] is None:
            raise SaslFailure("malformed-request", "invalid escape in the name")
        return "," if match[1] == "2C" else "="

    return _ESCAPE.sub(character, name)
