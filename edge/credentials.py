"""Passwords and the SCRAM keys that are stored for them (RFC 5802, section 3).

Passwords themselves are not stored.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from dataclasses import dataclass

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
"""The mechanisms that keys are stored for, best first, and the hash function of each."""
ITERATIONS = 4096
"""Iterations of PBKDF2: RFC 7677 requires this many, clients refuse fewer, and 100,000 would cost
the gateway 23 ms per login. Generated passwords have 133 bits and need no stretching; a short
password is weak against a stolen database with any feasible number."""
MAX_ITERATIONS = 1_000_000
"""Maximum iterations: about a second of hashing, after which clients time out."""
SALT_BYTES = 16
MAX_PASSWORD_BYTES = 1024
"""Maximum bytes of a password in UTF-8, so that none is expensive to hash."""

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # without 0, 1, i, l and o, which are easily confused
_GROUPS, _GROUP = 9, 3  # 27 characters of 31: 133 bits


class PasswordError(ValueError):
    """A password is empty, too long, or has characters that SASLprep prohibits."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The stored keys of a password for one mechanism, as raw bytes (RFC 5802, section 3)."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def derive(password: str, iterations: int = ITERATIONS) -> tuple[Credentials, Credentials]:
    """Derive the keys of a password for SCRAM-SHA-256 and SCRAM-SHA-1, each with its own salt.

    Args:
        password: as typed; SASLprep (RFC 4013) is applied.
        iterations: iterations of PBKDF2, 4,096 to 1,000,000.

    Raises:
        PasswordError: the password cannot be used.
        ValueError: the number of iterations is out of range.
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
    """Return whether a password (PLAIN, RFC 4616) matches the credentials, comparing in constant
    time.

    This derives the keys, which takes milliseconds; call it outside of the event loop.
    """
    try:
        prepared = prepare(password)
    except PasswordError:
        return False
    keys = _keys(prepared, credentials.mechanism, credentials.salt, credentials.iterations)
    return hmac.compare_digest(keys.stored_key, credentials.stored_key)


def decoy(username: str, secret: bytes, mechanism: str = "SCRAM-SHA-256") -> Credentials:
    """Return credentials for a name without an account, so that a failed login does not reveal
    that there is none.

    The credentials are always the same for a name, and no password matches them.

    Args:
        username: the normalised name.
        secret: the gateway's stored secret, at least 16 bytes; the salts depend on it.
    """
    algorithm = MECHANISMS[mechanism]
    subject = f"{mechanism}\0{username}".encode()
    size = hashlib.new(algorithm).digest_size

    def derived(purpose: bytes, length: int) -> bytes:
        return hmac.digest(secret, purpose + b"\0" + subject, "sha512")[:length]

    return Credentials(
        mechanism,
        derived(b"salt", SALT_BYTES),
        ITERATIONS,
        derived(b"stored", size),
        derived(b"server", size),
    )


def or_decoy(
    found: Credentials | None, username: str, secret: bytes, mechanism: str
) -> Credentials:
    """Return the credentials found for an account, or a decoy.

    The decoy is computed in either case, because the 20 us that it takes would reveal that there is
    no account.
    """
    computed = decoy(username, secret, mechanism)
    return computed if found is None else found


def generate_password() -> str:
    """Generate a password of 133 bits that is easy to read aloud and type: nine groups of three
    characters, with dashes."""
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP)) for _ in range(_GROUPS))
    return "-".join(groups)


def prepare(password: str) -> str:
    """Apply SASLprep (RFC 4013) to a password; refuse unassigned characters, as the RFC prescribes
    for stored strings.

    Raises:
        PasswordError: the password is empty, too long, or has prohibited characters.
    """
    prepared = password
    if not (password.isascii() and password.isprintable()):
        prepared = _saslprep(password)
    if not prepared:
        raise PasswordError("the password is empty")
    if len(prepared.encode()) > MAX_PASSWORD_BYTES:
        raise PasswordError(f"the password has more than {MAX_PASSWORD_BYTES} bytes")
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
        raise PasswordError(f"the password has more than {MAX_PASSWORD_BYTES} bytes")
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
        raise PasswordError("the password mixes writing directions, which SASLprep prohibits")
    return prepared
