"""Which gateway a request is from: by its token, or by the certificate that it was shown with.

Decides by the records at each request, so that a revocation holds at once. Knows no segments.
"""

from __future__ import annotations

import datetime as dt

from aiohttp import web

from sync.receiver.client_certificates import verify
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.http_errors import HttpError
from sync.receiver.listener import ConnectionRegistry
from sync.receiver.proxy import ReverseProxy
from sync.receiver.threads import ThreadRunner


class Authenticator:
    """Knows gateways by `gateways`; `authority` is the certificate, PEM, of the fleet's own.

    With a `proxy`, what it says of its clients is believed, as far as it can be.
    """

    def __init__(
        self,
        gateways: GatewayRegistry,
        authority: bytes,
        connections: ConnectionRegistry,
        in_thread: ThreadRunner,
        proxy: ReverseProxy | None = None,
    ) -> None:
        self._gateways = gateways
        self._proxy = proxy
        self._authority = authority
        self._connections = connections
        self._in_thread = in_thread

    async def gateway(self, request: web.Request) -> str:
        """The gateway that calls. A token decides where there is one.

        An unknown gateway, a wrong token and a certificate that is good no more are told alike, so
        that names cannot be probed. Raises Refusal, and FleetError when a record is damaged.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        found = None
        if scheme.lower() == "bearer":
            found = await self._in_thread(self._gateways.authenticate, token.strip())
        elif not scheme:
            found = await self._by_certificate(self._certificate(request))
        if found is None:
            raise HttpError(401, "token", "no enrolled gateway has this token or certificate")
        self._connections.logged_in(request.transport, found)
        return found

    def heard(self, request: web.Request) -> None:
        """Note that the head of a request has come."""
        self._connections.heard(request.transport)

    def is_last(self, request: web.BaseRequest, status: int) -> bool:
        """Tell whether the connection ends with this answer: a stranger has no second one.

        Neither has who is known no more. Behind a proxy the connection is the proxy's.
        """
        if self._proxy is not None:
            return False
        unknown = status == web.HTTPUnauthorized.status_code
        return unknown or self._connections.is_stranger(request.transport)

    def peer(self, request: web.Request) -> str | None:
        """The address that the request is from."""
        return request.remote if self._proxy is None else self._proxy.peer(request)

    def _certificate(self, request: web.Request) -> bytes | None:
        return _of_handshake(request) if self._proxy is None else self._proxy.certificate(request)

    async def _by_certificate(self, certificate: bytes | None) -> str | None:
        if certificate is None:
            return None
        return await self._in_thread(self._certified, certificate)

    def _certified(self, certificate: bytes) -> str | None:
        whose = verify(certificate, self._authority, dt.datetime.now(dt.UTC))
        if whose is None or not self._gateways.accepts(*whose):
            return None
        return whose.gateway


def _of_handshake(request: web.Request) -> bytes | None:
    """The certificate (DER) that the client proved to have in the TLS handshake; None if none."""
    connection = (
        None if request.transport is None else request.transport.get_extra_info("ssl_object")
    )
    if connection is None:
        return None
    certificate: bytes | None = connection.getpeercert(binary_form=True)
    return certificate
