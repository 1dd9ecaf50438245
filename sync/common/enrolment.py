"""The enrolment file: a JSON object with the address and credentials for a gateway's centre.

The centre writes the file; the gateway reads it, and rewrites it after renewing its certificate.
The token and the key are secret: they appear in no `repr` and no error text.
"""

from __future__ import annotations

import json
import re
import secrets
import stat
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sync.common.durable_files import replace_file
from sync.segment.identity import is_gateway

_VERSION: Final = 1
_TOKEN_BYTES: Final = 32  # 256 bits cannot be guessed
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_MAX_FILE: Final = 65_536  # bytes: a certificate has some 2,000
_KEYS: Final = {"version", "gateway", "url", "ca"}
_SECRETS: Final = {"token", "certificate", "key"}


class EnrolmentError(Exception):
    """The enrolment is not valid. The text gives the reason, without the secrets."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The address of the centre, and the credentials of both sides.

    `gateway` is the gateway's domain, `url` is `https://HOST[:PORT]`, `token` is 32 random bytes in
    base64url, and `ca` is the PEM text of the authorities that the gateway trusts. The gateway
    authenticates by `token`, or by `certificate` and `key` (both PEM), or has both; missing
    credentials are empty strings.
    """

    gateway: str
    url: str
    token: str = field(repr=False)
    ca: str = field(repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Validate the fields. Raises `EnrolmentError`."""
        if not is_gateway(self.gateway):
            raise EnrolmentError("`gateway` is not a domain in lower case")
        if not is_centre_url(self.url):
            raise EnrolmentError("`url` is not https://HOST[:PORT]")
        if self.token and _TOKEN.fullmatch(self.token) is None:
            raise EnrolmentError("`token` is not 32 bytes in base64url")
        if not _is_pem(self.ca, "CERTIFICATE"):
            raise EnrolmentError("`ca` is not a certificate in PEM")
        has_pair = bool(self.certificate or self.key)
        if has_pair and not _is_pem(self.certificate, "CERTIFICATE"):
            raise EnrolmentError("`certificate` is not a certificate in PEM")
        if has_pair and not _is_pem(self.key, "PRIVATE KEY"):
            raise EnrolmentError("`key` is not a private key in PEM (PKCS #8, not encrypted)")
        if not (has_pair or self.token):
            raise EnrolmentError("neither `token` nor `certificate` is given")


def _is_pem(text: str, label: str) -> bool:
    return text.isascii() and f"-----BEGIN {label}-----" in text


def is_centre_url(url: str) -> bool:
    """Return whether `url` is `https://HOST[:PORT]` without a path."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return (
        parts.scheme == "https"
        and bool(parts.hostname)
        and port != 0
        and plain
        and parts.path in ("", "/")
        and url.isprintable()
        and " " not in url
    )


def new_token() -> str:
    """Return a new token: 32 random bytes in base64url, 43 characters."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal; the centre stores it instead of the token."""
    return sha256(token.encode()).hexdigest()


def format_enrolment(enrolment: Enrolment) -> str:
    """Return the text of an enrolment file, including the secrets; omit empty fields."""
    fields = {name: text for name, text in asdict(enrolment).items() if text}
    return json.dumps({"version": _VERSION, **fields}, indent=2) + "\n"


def parse_enrolment(text: str) -> Enrolment:
    """Parse the text of an enrolment file. Raises `EnrolmentError`."""
    try:
        fields: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise EnrolmentError("the file is not JSON") from None
    if not isinstance(fields, dict) or not _KEYS <= fields.keys() <= _KEYS | _SECRETS:
        raise EnrolmentError(
            "the object must have the fields version, gateway, url and ca; the only others that it"
            " may have are token, certificate and key"
        )
    if fields.pop("version") != _VERSION:
        raise EnrolmentError(f"`version` is not {_VERSION}, the only supported one")
    if not all(isinstance(value, str) for value in fields.values()):
        raise EnrolmentError("each field except `version` must be a string")
    return Enrolment(**{"token": "", **fields})


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment file: a regular file of at most 64 KiB.

    Raises `EnrolmentError` if it is not valid, and `OSError` if it cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise EnrolmentError("it is not a regular file")
    with path.open("rb") as file:
        data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise EnrolmentError(f"it is larger than {_MAX_FILE} bytes")
    try:
        return parse_enrolment(data.decode())
    except UnicodeDecodeError:
        raise EnrolmentError("the file is not UTF-8") from None


def write_enrolment(path: Path, enrolment: Enrolment) -> None:
    """Write an enrolment file atomically, readable by its owner only.

    Raises `OSError`, and `EnrolmentError` if the file would be larger than 64 KiB.
    """
    data = format_enrolment(enrolment).encode()
    if len(data) > _MAX_FILE:
        raise EnrolmentError(f"it is larger than {_MAX_FILE} bytes")
    replace_file(path, data)
