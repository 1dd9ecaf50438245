"""Accepting devices: the listening socket, TLS, and what all sessions share.

What a session does with its bytes is `session`'s.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from edge.admin import pki
from edge.config import Address
from edge.errors import ConfigError, SetupError
from edge.net.session import Session
from edge.net.shared import Shared
from edge.net.tally import Tally
from edge.store import meta

if TYPE_CHECKING:
    from pathlib import Path

    from edge.config import Config
    from edge.handlers.router import Router
    from edge.net.registry import Registry
    from edge.store.commit import Store

TLS_BUFFER: Final = 16 * 1024
"""Bytes that asyncio holds for each TLS connection: one TLS record, in place of its 256 KiB."""

QUEUE: Final = 512
"""Connections that the kernel accepts for us while we are busy: all of a site after a power cut."""


class Listener:
    """The front door."""

    def __init__(
        self,
        folder: Path,
        settings: Config,
        store: Store,
        registry: Registry,
        router: Router,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._store = store
        self._registry = registry
        self._router = router
        self.tally = Tally()
        self._server: asyncio.Server | None = None

    async def start(self) -> Address:
        """Listen; returns the address that was bound; raises `ConfigError` if it cannot be."""
        _bound_tls_buffers()
        context = server_context(self._folder)
        decoy = await self._store.read(lambda tx: meta.read_bytes(tx, meta.DECOY))
        shared = Shared(
            self._settings,
            self._store,
            self._registry,
            self._router,
            context,
            decoy,
            self.tally,
        )
        (wanted,) = self._settings.listen
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Session(shared), wanted.host, wanted.port, backlog=QUEUE
            )
        except (OSError, UnicodeError) as error:  # a host name that IDNA refuses
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"xmpp.listen {wanted} cannot be bound: {reason}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def stop(self, patience: float) -> None:
        """Accept nobody more and end the sessions; waits `patience` seconds for them at most."""
        if self._server is not None:
            self._server.close()
        self._registry.end_all("system-shutdown")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._registry.empty.wait(), patience)


def server_context(folder: Path) -> ssl.SSLContext:
    """Make the TLS context of the gateway's certificate; raises `SetupError`."""
    paths = pki.files(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # a device that returns logs in anew; tickets would cost it bytes
    try:
        context.load_cert_chain(paths.server, paths.server_key)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(f"the certificate {paths.server} cannot be used: {error}") from error
    return context


def _bound_tls_buffers() -> None:
    """Make asyncio's TLS connections hold less memory.

    The attribute is private: where a Python does not have it, its TLS costs what it costs, and the
    test of the memory of idle sessions tells.
    """
    if isinstance(getattr(sslproto.SSLProtocol, "max_size", None), int):
        sslproto.SSLProtocol.max_size = TLS_BUFFER
