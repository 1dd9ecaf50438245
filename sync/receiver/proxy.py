"""What is believed of a proxy that ends TLS before the receiver: who called, and what it showed.

Only a proxy at a trusted address gets through the door. It has to set the header of the certificate
at every request, so that no caller can: a certificate is no secret. Checks no certificate.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from aiohttp import web

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_HEADER: Final = "X-Forwarded-For"

LOOPBACK_NETWORKS: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
"""Whom a receiver trusts that is told of no other proxy."""


@dataclass(frozen=True, slots=True)
class ReverseProxy:
    """A proxy at one of `addresses`, which says in `certificate_header` what its client showed.

    The header holds a certificate in PEM, escaped as in a URL (nginx's
    `$ssl_client_escaped_cert`), or is absent or empty.
    """

    addresses: tuple[Network, ...] = LOOPBACK_NETWORKS
    certificate_header: str | None = None

    def admits(self, peer: str) -> bool:
        """Tell whether a connection from this address is the proxy's."""
        address = ipaddress.ip_address(peer.partition("%")[0])
        return any(address in network for network in self.addresses)

    def peer(self, request: web.Request) -> str | None:
        """Who called the proxy: what it added itself, which is the last of the list."""
        told = ",".join(request.headers.getall(FORWARDED_HEADER, ())).rpartition(",")[2].strip()
        try:
            return str(ipaddress.ip_address(told))
        except ValueError:
            return request.remote

    def certificate(self, request: web.Request) -> bytes | None:
        """The certificate, PEM, that the proxy's client showed; None if it showed none.

        A header that is there twice is none: one of them is the caller's own.
        """
        if self.certificate_header is None:
            return None
        told = request.headers.getall(self.certificate_header, ())
        return unquote_to_bytes(told[0]) or None if len(told) == 1 else None


def is_loopback(host: str) -> bool:
    """Tell whether listening on `host` is for this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
