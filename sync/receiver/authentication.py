"""Authenticate the gateway that sent a request, by token or by client certificate."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from aiohttp import web

from sync.receiver.client_certificates import verify
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.http_errors import HttpError
from sync.receiver.listener import ConnectionRegistry
from sync.receiver.proxy import ReverseProxy
from sync.receiver.threads import ThreadRunner


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Authenticates requests against the enrolled `gateways`.

    The records are read for each request, so that a revocation takes effect at once. `authority` is
    the certificate (PEM) of the fleet's authority. The headers of a `proxy` identify its clients.
    """

    gateways: GatewayRegistry
    authority: bytes
    connections: ConnectionRegistry
    in_thread: ThreadRunner
    proxy: ReverseProxy | None

    async def authenticate(self, request: web.Request) -> str:
        """Return the gateway that sent the request. With a token, a certificate is ignored.

        An unknown gateway, a wrong token and a revoked certificate get the same answer, so that
        names cannot be probed. Raises HttpError, and FleetError when a record is damaged.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        gateway = None
        if scheme.lower() == "bearer":
            gateway = await self.in_thread(self.gateways.authenticate, token.strip())
        elif not scheme:
            certificate = self._client_certificate(request)
            if certificate is not None:
                gateway = await self.in_thread(self._certificate_owner, certificate)
        if gateway is None:
            raise HttpError(401, "token", "no enrolled gateway has this token or certificate")
        self.connections.authenticated(request.transport, gateway)
        return gateway

    def is_last_answer(self, request: web.BaseRequest, status: int) -> bool:
        """Return whether the connection closes after this answer.

        Unauthenticated peers get one answer per connection. A proxy's connection stays open.
        """
        if self.proxy is not None:
            return False
        unauthorized = status == web.HTTPUnauthorized.status_code
        return unauthorized or self.connections.is_unauthenticated(request.transport)

    def client_address(self, request: web.Request) -> str | None:
        """Return the address of the client, which may be behind the proxy."""
        return request.remote if self.proxy is None else self.proxy.client_address(request)

    def _client_certificate(self, request: web.Request) -> bytes | None:
        if self.proxy is not None:
            return self.proxy.client_certificate(request)
        transport = request.transport
        tls = None if transport is None else transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        certificate: bytes | None = tls.getpeercert(binary_form=True)
        return certificate

    def _certificate_owner(self, certificate: bytes) -> str | None:
        presented = verify(certificate, self.authority, dt.datetime.now(dt.UTC))
        if presented is None or not self.gateways.accepts_certificate(*presented):
            return None
        return presented.gateway
