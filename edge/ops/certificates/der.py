"""Read the dates and names of an X.509 certificate (RFC 5280, section 4.1) from its DER.

A running gateway uses this instead of `cryptography`, which costs 15 MB of memory. The signature is
not verified.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from edge.errors import SetupError
from sync.common.regular_files import read_regular

T = TypeVar("T")

_SEQUENCE: Final = 0x30
_OCTET_STRING: Final = 0x04
_EXTENSIONS: Final = 0xA3
_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87
_ALTERNATIVE_NAMES: Final = b"\x06\x03\x55\x1d\x11"  # the OID 2.5.29.17
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_MOMENT: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z", re.ASCII)
_END: Final = "-----END CERTIFICATE-----"


class CertificateFields(NamedTuple):
    """The issuer and subject of a certificate, in DER, and its dates in ms since 1970 UTC."""

    issuer: bytes
    subject: bytes
    begins: int
    ends: int


class _Element(NamedTuple):
    tag: int
    start: int
    content: int
    end: int


def read(path: Path) -> CertificateFields:
    """Read the first certificate of a PEM file; raises `SetupError` if that fails."""
    return _read(path, _parse)


def read_names(path: Path) -> list[str]:
    """Read the DNS names and IP addresses among the subject's alternative names (RFC 5280, section
    4.2.1.6) of the first certificate of a PEM file; raises `SetupError` if that fails."""
    return _read(path, _names)


def _read(path: Path, parse: Callable[[bytes], T]) -> T:
    try:
        text = read_regular(path).decode("ascii")
        first = text[text.index("-----BEGIN CERTIFICATE") : text.index(_END) + len(_END)]
        return parse(ssl.PEM_cert_to_DER_cert(first))
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, IndexError):
        raise SetupError(f"{path} is not a certificate in PEM") from None


def _parse(der: bytes) -> CertificateFields:
    outer = _element(der, 0, _SEQUENCE)
    at = _element(der, outer.content, _SEQUENCE).content
    version = _element(der, at)
    serial = _element(der, version.end) if version.tag == _VERSION else version
    algorithm = _element(der, serial.end, _SEQUENCE)
    issuer = _element(der, algorithm.end, _SEQUENCE)
    validity = _element(der, issuer.end, _SEQUENCE)
    subject = _element(der, validity.end, _SEQUENCE)
    begins = _element(der, validity.content)
    ends = _element(der, begins.end)
    return CertificateFields(
        der[issuer.start : issuer.end],
        der[subject.start : subject.end],
        _time(der, begins),
        _time(der, ends),
    )


def _names(der: bytes) -> list[str]:
    content = _element(der, _element(der, 0, _SEQUENCE).content, _SEQUENCE)
    for part in _elements(der, content):
        if part.tag != _EXTENSIONS:
            continue
        for extension in _elements(der, _element(der, part.content, _SEQUENCE)):
            if der.startswith(_ALTERNATIVE_NAMES, extension.content):
                *_, value = _elements(der, extension)
                if value.tag != _OCTET_STRING:
                    raise ValueError("not an extension")
                names = _elements(der, _element(der, value.content, _SEQUENCE))
                return [name for each in names if (name := _name(der, each))]
    return []


def _name(der: bytes, element: _Element) -> str:
    content = der[element.content : element.end]
    if element.tag == _IP_ADDRESS:
        return str(ipaddress.ip_address(content))
    return content.decode("ascii") if element.tag == _DNS_NAME else ""


def _elements(der: bytes, outer: _Element) -> Iterator[_Element]:
    at = outer.content
    while at < outer.end:
        element = _element(der, at)
        yield element
        at = element.end


def _element(der: bytes, at: int, tag: int | None = None) -> _Element:
    found, length, content = der[at], der[at + 1], at + 2
    if length >= 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[content : content + size], "big")
        content += size
    if (tag is not None and found != tag) or content + length > len(der):
        raise ValueError("not the DER of a certificate")
    return _Element(found, at, content, content + length)


def _time(der: bytes, element: _Element) -> int:
    """Parse a UTCTime or a GeneralizedTime (RFC 5280, section 4.1.2.5).

    `strptime` is not used because it imports the calendar and begins the century at another year.
    """
    text = der[element.content : element.end].decode("ascii")
    if element.tag == _UTC_TIME:
        text = f"{'20' if text < '50' else '19'}{text}"
    moment = _MOMENT.fullmatch(text)
    if moment is None or element.tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("not a time")
    year, month, day, hour, minute, second = map(int, moment.groups())
    at = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    return round(at.timestamp() * 1000)
