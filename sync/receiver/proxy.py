"""A trusted reverse proxy that terminates TLS in front of the receiver.

Only connections from the proxy's addresses are accepted. The proxy must set (or remove) the
certificate header on every request: otherwise a client could send a certificate that is not its
own, because certificates are not secret.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from aiohttp import web

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_HEADER: Final = "X-Forwarded-For"

LOOPBACK_NETWORKS: Final = (
    ipaddress.ip_network("127.0.0.0/8"),
    ipaddress.ip_network("::1/128"),
)
"""The addresses that are trusted as a proxy by default."""


@dataclass(frozen=True, slots=True)
class ReverseProxy:
    """A proxy at one of `addresses` that passes its client's certificate in `certificate_header`.

    The header holds a certificate in PEM, escaped as in a URL (nginx's
    `$ssl_client_escaped_cert`), or is absent or empty.
    """

    addresses: tuple[Network, ...] = LOOPBACK_NETWORKS
    certificate_header: str | None = None

    def is_trusted(self, peer: str) -> bool:
        """Return whether a connection from this address is the proxy's."""
        address = ipaddress.ip_address(peer.partition("%")[0])
        return any(address in network for network in self.addresses)

    def client_address(self, request: web.Request) -> str | None:
        """Return the address of the proxy's client.

        That is the last one of `X-Forwarded-For`, because the proxy appended it itself. If it is
        missing or not valid, return the proxy's own address.
        """
        forwarded = ",".join(request.headers.getall(FORWARDED_HEADER, ()))
        try:
            return str(ipaddress.ip_address(forwarded.rpartition(",")[2].strip()))
        except ValueError:
            return request.remote

    def client_certificate(self, request: web.Request) -> bytes | None:
        """Return the certificate (PEM) that the proxy's client presented; None if it has none.

        A request with more than one `certificate_header` counts as one without a certificate,
        because the client can have sent one of them.
        """
        if self.certificate_header is None:
            return None
        values = request.headers.getall(self.certificate_header, ())
        return unquote_to_bytes(values[0]) or None if len(values) == 1 else None
