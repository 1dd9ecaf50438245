"""Passwords, and what is kept of them: the keys of SCRAM (RFC 5802, section 3).

A password itself is kept nowhere. Where accounts are stored, and how a client proves that it knows
its password, is told elsewhere (`store.accounts`, `wire.sasl`): this module needs the standard
library alone, and none of the context.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from dataclasses import dataclass

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
"""The mechanisms that keys are kept for, best first, and the hash of each."""
ITERATIONS = 4096
"""Rounds of PBKDF2: RFC 7677 asks for that many, clients refuse fewer, and 100,000 would cost a
gateway 23 ms a login. Generated passwords have 130 bits and need no stretching; a short one of
one's own is weak against whoever has stolen the database, and these rounds do not change that."""
MAX_ITERATIONS = 1_000_000
"""Above that, a client would think that it hangs: about a second."""
SALT_BYTES = 16
MAX_PASSWORD_BYTES = 1024
"""Bytes of a password in UTF-8: more than anybody types, so that none costs much to hash."""

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # no 0, 1, i, l, o: they are mistaken for each other
_GROUPS, _GROUP = 9, 3  # 27 characters of 31: 133 bits


class PasswordError(ValueError):
    """A password cannot be used: empty, too long, or with what SASLprep prohibits."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is kept of one password for one mechanism (RFC 5802, section 3).

    `salt`, `stored_key` and `server_key` are bytes as they are, not base64.
    """

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def derive(password: str, iterations: int = ITERATIONS) -> tuple[Credentials, Credentials]:
    """Make the keys to keep of a password: for SCRAM-SHA-256 and for SCRAM-SHA-1, each with a salt
    of its own.

    Args:
        password: as it was typed; it is prepared by SASLprep (RFC 4013).
        iterations: rounds of PBKDF2, 4,096 to 1,000,000.

    Raises:
        PasswordError: the password cannot be used.
        ValueError: the number of iterations is out of bounds.
    """
    if not ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be {ITERATIONS} to {MAX_ITERATIONS}, not {iterations}")
    prepared = prepare(password)
    first, second = (
        _keys(prepared, mechanism, secrets.token_bytes(SALT_BYTES), iterations)
        for mechanism in MECHANISMS
    )
    return first, second


def verify(password: str, credentials: Credentials) -> bool:
    """Check a password that came in the clear (PLAIN, RFC 4616), in time that does not tell how
    near it was.

    It costs as much as making the keys: milliseconds, so it belongs outside of the event loop.
    """
    try:
        prepared = prepare(password)
    except PasswordError:
        return False
    made = _keys(prepared, credentials.mechanism, credentials.salt, credentials.iterations)
    return hmac.compare_digest(made.stored_key, credentials.stored_key)


def decoy(
    username: str,
    secret: bytes,
    mechanism: str = "SCRAM-SHA-256",
    iterations: int = ITERATIONS,
) -> Credentials:
    """Make up credentials for a name that no account has, always the same, so that names cannot be
    probed.

    No password fits them: the keys are not made from one.

    Args:
        username: the normalised name.
        secret: the gateway's own, at least 16 bytes, kept: with another one, the salts would
            change.
        mechanism: which mechanism's credentials to make up.
        iterations: rounds of PBKDF2 that real accounts have here.
    """
    algorithm = MECHANISMS[mechanism]
    subject = f"{mechanism}\0{username}".encode()
    size = hashlib.new(algorithm).digest_size

    def make(purpose: bytes, length: int) -> bytes:
        return hmac.digest(secret, purpose + b"\0" + subject, "sha512")[:length]

    return Credentials(
        mechanism,
        make(b"salt", SALT_BYTES),
        iterations,
        make(b"stored", size),
        make(b"server", size),
    )


def or_decoy(
    found: Credentials | None, username: str, secret: bytes, mechanism: str
) -> Credentials:
    """Return what was found of an account, or else a decoy.

    The decoy is made in any case: the challenge of SCRAM is sent at once, and would be some 20 us
    later where there is no account.
    """
    made_up = decoy(username, secret, mechanism)
    return made_up if found is None else found


def generate_password() -> str:
    """Make a password of 133 bits that can be read aloud and typed: nine groups of three, with
    dashes."""
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP)) for _ in range(_GROUPS))
    return "-".join(groups)


def prepare(password: str) -> str:
    """Prepare a password by SASLprep (RFC 4013), as one that will be kept: unassigned characters
    are refused.

    Raises:
        PasswordError: it is empty, too long, or has characters that are prohibited.
    """
    prepared = password
    if not (password.isascii() and password.isprintable()):
        prepared = _saslprep(password)
    if not prepared:
        raise PasswordError("a password must not be empty")
    if len(prepared.encode()) > MAX_PASSWORD_BYTES:
        raise PasswordError(f"a password has at most {MAX_PASSWORD_BYTES} bytes")
    return prepared


def _keys(prepared: str, mechanism: str, salt: bytes, iterations: int) -> Credentials:
    algorithm = MECHANISMS[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, prepared.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return Credentials(mechanism, salt, iterations, stored_key, server_key)


def _saslprep(text: str) -> str:
    import stringprep as tables  # with its Unicode data, only where it is needed

    if len(text) > MAX_PASSWORD_BYTES:
        raise PasswordError(f"a password has at most {MAX_PASSWORD_BYTES} bytes")
    mapped = "".join(
        " " if tables.in_table_c12(c) else c for c in text if not tables.in_table_b1(c)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    prohibited = (
        tables.in_table_a1,
        tables.in_table_c12,
        tables.in_table_c21_c22,
        tables.in_table_c3,
        tables.in_table_c4,
        tables.in_table_c5,
        tables.in_table_c6,
        tables.in_table_c7,
        tables.in_table_c8,
        tables.in_table_c9,
    )
    if any(test(c) for c in prepared for test in prohibited):
        raise PasswordError("the password has a character that SASLprep prohibits")
    if any(tables.in_table_d1(c) for c in prepared) and not (
        tables.in_table_d1(prepared[0])
        and tables.in_table_d1(prepared[-1])
        and not any(tables.in_table_d2(c) for c in prepared)
    ):
        raise PasswordError("the password mixes writing directions in a prohibited way")
    return prepared
