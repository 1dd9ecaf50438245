"""One XMPP session of a device, implemented with slixmpp.

Each session has its own slixmpp client, so that no state of a lost session reaches the next
session. TLS is mandatory: STARTTLS, or direct TLS. The server's certificate is verified against one
CA file and the JID's domain, not the address of the server. All sessions with the same CA and
certificate files share one TLS context, because a CA store takes 0.9 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from slixmpp.clientxmpp import ClientXMPP
from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.jid import JID

from firmware_sim.device.complete_tags import CompleteTags
from firmware_sim.device.errors import ConnectionFailed, NotSent
from firmware_sim.device.qos_receiver_plugin import RECEIVER, IncomingStanza, ReceiverPlugin
from firmware_sim.device.qos_sender_plugin import NAMESPACE, SenderPlugin, StanzaText

_MANAGEMENT: Final = "xep_0198"
_SAFE: Final = {"feature_mechanisms": {"unencrypted_plain": False, "unencrypted_scram": False}}
_SEQUENCE: Final = 2**32  # stream management counts modulo this
REFUSED_LOGIN: Final = "the server refused the"
"""The beginning of the reason why there is no session if the server refused the log-in."""

_CONTEXTS: Final = 16  # CA files used at the same time by one process


class ClientCertificate(NamedTuple):
    """The paths of the PEM files of a device's certificate and private key."""

    certificate: Path
    key: Path


class Endpoint(NamedTuple):
    """A server's address and an account; the server's certificate must name the JID's domain.

    `password` is empty if `client_certificate` is used instead, for log-in by SASL EXTERNAL. With
    `direct_tls`, direct TLS (XEP-0368) is used instead of STARTTLS.
    """

    jid: str
    password: str
    host: str
    port: int
    ca_file: Path
    client_certificate: ClientCertificate | None = None
    direct_tls: bool = False


def endpoint(
    jid: JID,
    password: str,
    certificate: Path | str | None,
    key: Path | str | None,
    host: str,
    port: int,
    ca_file: Path | str,
    direct_tls: bool,
) -> Endpoint:
    """Return an account's endpoint; if `host` is empty, the host is the JID's domain.

    Raises ValueError if the port is invalid, or not exactly one of password and certificate is
    given.
    """
    if not 0 < port < 65_536:
        raise ValueError(f"{port} is not a TCP port; choose 1 to 65535")
    if (certificate is None) != (key is None):
        raise ValueError("a certificate and its key belong together; give both")
    found = None
    if certificate is not None and key is not None:
        found = ClientCertificate(Path(certificate), Path(key))
    if found is None and not password:
        raise ValueError("no credentials; give a password, or a certificate and its key")
    if found is not None and password:
        raise ValueError("give either a password or a certificate, not both")
    dial = host or str(jid.domain)
    return Endpoint(str(jid), password, dial, port, Path(ca_file), found, direct_tls)


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Return a TLS context that trusts only the endpoint's CA; it is cached until a file changes.

    Raises ConnectionFailed if a file is missing or invalid, or the key is not the certificate's.
    """
    files = (endpoint.ca_file, *(endpoint.client_certificate or ()))
    try:
        changed = tuple(path.stat().st_mtime_ns for path in files)
        return _context(endpoint.ca_file, endpoint.client_certificate, changed)
    except ssl.SSLError as error:
        names = " or ".join(str(path) for path in files)
        raise ConnectionFailed(f"{names} cannot be used: {error}") from error
    except OSError as error:
        raise ConnectionFailed(f"{error.filename}: {error.strerror}") from error


@lru_cache(maxsize=_CONTEXTS)
def _context(
    ca_file: Path, client_certificate: ClientCertificate | None, _changed: tuple[int, ...]
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cafile=ca_file)
    if client_certificate is not None:
        context.load_cert_chain(*client_certificate)
    return context


class _Client(ClientXMPP):
    """A slixmpp client that can cancel a negotiation, counts stanzas that are sent as text, and
    handles each stanza when its last byte is received.

    For stream management (XEP-0198), slixmpp itself counts only stanzas that are sent as objects.
    It feeds expat with what it receives, and a newer expat may hold back a tag that came in pieces.
    """

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext) -> None:
        self._negotiating: set[asyncio.Task[Any]] = set()
        super().__init__(
            endpoint.jid,
            endpoint.password,
            plugin_config=_SAFE,
            ssl_context=context,
            sasl_mech=None if endpoint.client_certificate is None else "EXTERNAL",
        )
        if endpoint.client_certificate is not None:
            # so that the server refuses the certificate of another account
            self.credentials["authzid"] = self.requested_jid.bare
        self.enable_direct_tls = endpoint.direct_tls
        self.enable_starttls = not endpoint.direct_tls
        self.enable_plaintext = False

    def init_parser(self) -> None:
        """Begin to parse a new stream."""
        self._tags = CompleteTags()
        super().init_parser()

    def data_received(self, data: bytes | str) -> None:
        """Pass complete tags to slixmpp's parser."""
        if complete := self._tags.split(data.encode() if isinstance(data, str) else data):
            super().data_received(complete)

    def send_raw(self, data: str | bytes) -> None:
        """Send text; count a `StanzaText` for stream management, and keep it until acknowledged."""
        super().send_raw(data)
        management: Any = self.plugin.get(_MANAGEMENT, None)
        if not isinstance(data, StanzaText) or management is None or not management.enabled_out:
            return
        if any(kept is data for _, kept in management.unacked_queue):
            return  # sent again after a resumption
        management.seq = (management.seq + 1) % _SEQUENCE
        management.unacked_queue.append((management.seq, data))
        management.request_ack()

    async def _handle_stream_features(self, features: Any) -> bool | None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - slixmpp runs this in a task of its own
        self._negotiating.add(task)
        task.add_done_callback(self._negotiating.discard)
        return await super()._handle_stream_features(features)

    async def start_tls(self) -> bool:
        """Upgrade to TLS; return whether this succeeded, and trigger `connection_failed` if not."""
        secured = False
        with contextlib.suppress(Exception):  # slixmpp has no type for it
            secured = await super().start_tls()
        if not secured:
            self.event("connection_failed", "connection lost in the TLS handshake")
        return secured

    def stop_negotiating(self) -> None:
        """Cancel the steps of the stream negotiation that wait for an answer."""
        for task in list(self._negotiating):
            task.cancel()


class Connection:
    """An XMPP session. Call `open` once, then `close` or `abort`.

    `take` is called with each incoming stanza; if given, the device announces that it can receive.
    `prepare` is called with slixmpp's client before it connects, to register plugins and handlers.
    If `resumable`, the server keeps the session after a lost connection (XEP-0198, section 5): when
    `lost` completes, call `resume`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        take: Callable[[ReceiverPlugin, IncomingStanza], None] | None = None,
        prepare: Callable[[Any], None] | None = None,
        *,
        resumable: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._resumable, self._resuming, self._aborted = resumable, False, False
        self._started: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        """Completes with the reason when the connection is lost; `resume` creates a new future."""
        self._client = self._make_client()
        self.qos: SenderPlugin = self._client.plugin[NAMESPACE]
        self._receiver: ReceiverPlugin | None = None
        if take is not None:
            self._client.register_plugin(RECEIVER)
            self._receiver = self._client.plugin[RECEIVER]
            self._receiver.on_incoming = take
        if prepare is not None:
            prepare(self._client)

    def _make_client(self) -> Any:
        client: Any = _Client(self._endpoint, tls_context(self._endpoint))
        # The operator decides on subscriptions.
        client.auto_authorize, client.auto_subscribe = None, False
        client.register_plugin(NAMESPACE)
        client.register_plugin("xep_0199")
        if self._resumable:
            client.register_plugin(_MANAGEMENT)
        handlers: dict[str, Callable[[Any], None]] = {
            "session_start": self._on_start,
            "session_resumed": self._on_resumed,
            "stream_negotiated": self._on_negotiated,
            "connection_failed": self._on_failure,
            "ssl_invalid_chain": self._on_failure,
            "failed_all_auth": self._on_refused,
            "stream_error": self._on_stream_error,
            "disconnected": self._on_disconnected,
        }
        for event, handler in handlers.items():
            client.add_event_handler(event, handler)
        return client

    async def open(self, timeout: float) -> None:  # noqa: ASYNC109
        """Connect, negotiate TLS, authenticate and bind within `timeout` seconds.

        Raises ConnectionFailed if no session was established; all resources are released.
        """
        try:
            await self._connect(timeout)
        except BaseException:
            self.abort("given up")
            raise
        if not self.bound:
            self.abort(f"no session within {timeout:g} s")
            raise ConnectionFailed(self.lost.result())

    @property
    def can_resume(self) -> bool:
        """Return whether the session can be resumed after its connection is lost."""
        if not self._resumable or self._aborted or not self._started.done():
            return False
        return bool(self._client.plugin[_MANAGEMENT].sm_id)

    async def resume(self, timeout: float) -> bool:  # noqa: ASYNC109
        """Connect again and resume the session; return False if the server has ended the session.

        Unacknowledged stanzas are sent again. Raises ConnectionFailed if the server could not be
        reached; call `resume` again later.
        """
        loop = asyncio.get_running_loop()
        self._resuming = True
        self._started, self.lost = loop.create_future(), loop.create_future()
        await self._connect(timeout)
        if self.bound:
            return True
        if self._aborted:
            return False
        self._lose(f"no session within {timeout:g} s")
        self._drop_connection()
        # the session stays resumable
        self._started.set_result(None)
        raise ConnectionFailed(self.lost.result())

    async def _connect(self, timeout: float) -> None:  # noqa: ASYNC109
        """Connect; wait for a session or a failure, for up to `timeout` seconds."""
        self._client.connect(self._endpoint.host, self._endpoint.port)
        waits: set[asyncio.Future[Any]] = {self._started, self.lost}
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def cut(self) -> None:
        """Abort the connection without closing the stream; a resumable session stays resumable."""
        transport = self._client.transport
        if not self.can_resume and not self._resuming:
            self.abort("cut")
        elif transport is not None:
            transport.abort()  # `lost` completes when it is gone

    @property
    def bound(self) -> bool:
        """Return whether the session is established and its connection is not lost."""
        return self._started.done() and not self.lost.done()

    def send(self, text: str, most: int) -> None:
        """Send a stanza, without waiting for an answer.

        Raises NotSent if there is no session, or the write buffer has more than `most` bytes.
        """
        transport = self._client.transport
        if not self.bound or transport is None:
            raise NotSent("the device has no session")
        if transport.get_write_buffer_size() > most:
            raise NotSent("the write buffer of the connection is full")
        self._client.send(StanzaText(text))

    async def round_trip(self, timeout: float) -> None:  # noqa: ASYNC109
        """Wait until the gateway has answered a ping, or for `timeout` seconds.

        What the gateway sent before the answer was received before. Returns at once without a
        session, and when the session is lost.
        """
        if not self.bound:
            return
        ping = asyncio.create_task(self._ping(timeout))
        ends: set[asyncio.Future[Any]] = {ping, self.lost}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        ping.cancel()

    async def _ping(self, timeout: float) -> None:  # noqa: ASYNC109
        with contextlib.suppress(IqError, IqTimeout):
            await self._client.plugin["xep_0199"].send_ping(
                JID(JID(self._endpoint.jid).domain), timeout=timeout
            )

    def announce(self, priority: int) -> None:
        """Send presence with a priority and entity capabilities, if the device can receive."""
        if self._receiver is not None:
            self._receiver.announce(priority)

    def read(self, *, go_on: bool) -> None:
        """Resume reading if `go_on`, otherwise pause it; unread data waits at the server."""
        transport = self._client.transport
        if self.bound and transport is not None and not transport.is_closing():
            (transport.resume_reading if go_on else transport.pause_reading)()

    async def close(self, timeout: float = 2.0) -> None:  # noqa: ASYNC109
        """Close the stream; after `timeout` seconds without an answer, abort the connection."""
        if self.bound:
            self._client.disconnect(wait=timeout)
            await asyncio.wait({self.lost}, timeout=timeout + 1.0)
        self.abort("closed")

    def abort(self, reason: str) -> None:
        """Abort the connection, complete `lost` with `reason`, and stop slixmpp's tasks."""
        self._aborted = True
        self._lose(reason)
        self._drop_connection()
        client = self._client
        for name in list(client.scheduled_events):
            client.cancel_schedule(name)
        sending = getattr(client, "_run_out_filters", None)  # slixmpp does not end this task itself
        if sending is not None:
            sending.cancel()

    def _drop_connection(self) -> None:
        client = self._client
        client.cancel_connection_attempt()
        client.stop_negotiating()
        if client.transport is not None:
            client.transport.abort()

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    def _on_start(self, event: Any) -> None:
        if self._resuming:
            self.abort("the server ended the session")
        elif not self._resumable:  # else it begins when stream management is enabled
            self._on_resumed(event)

    def _on_negotiated(self, event: Any) -> None:
        if self._resumable and self._client.sessionstarted:
            self._on_resumed(event)

    def _on_resumed(self, _: Any) -> None:
        transport = self._client.transport
        if transport is None or transport.get_extra_info("ssl_object") is None:
            self.abort("the server offered no TLS")
        elif not self._started.done() and not self.lost.done():
            self._started.set_result(None)

    def _on_failure(self, error: Any) -> None:
        text = str(error) or repr(error)
        if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
            host, port = self._endpoint.host, self._endpoint.port
            text = f"no connection to {host}:{port}: {os.strerror(error.errno)}"
        self._lose(text)

    def _on_refused(self, _: Any) -> None:
        secret = "password" if self._endpoint.client_certificate is None else "certificate"
        self._lose(f"{REFUSED_LOGIN} {secret} or offers no safe mechanism")

    def _on_stream_error(self, error: Any) -> None:
        self._lose(f"stream error {error['condition']}: {error['text']}".rstrip(": "))

    def _on_disconnected(self, reason: Any) -> None:
        self._lose(str(reason or "connection lost") or repr(reason))
