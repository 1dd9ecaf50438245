"""One XMPP session of a device, from dialling to its loss, on slixmpp.

Each session has a client object of its own: nothing of a lost one lingers in the next. TLS is
always used, and verified against one CA file for the domain of the JID, whatever address is
dialled; all sessions with the same file share one context, since a CA store costs 0.9 MB.

It does not reconnect (`device` does) and knows no message (`courier` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from slixmpp.clientxmpp import ClientXMPP

from firmware_sim.device.errors import ConnectionFailed, NotSent
from firmware_sim.device.qos_incoming import RECEIVER, Incoming, Receiver
from firmware_sim.device.qos_requests import NAMESPACE, QualityOfService

_SAFE: Final = {"feature_mechanisms": {"unencrypted_plain": False, "unencrypted_scram": False}}
_CONTEXTS: Final = 16  # CA files in use at once by one process; a device has one


class Endpoint(NamedTuple):
    """Where a device connects, as whom. `ca_file` is PEM; the server must be the JID's domain."""

    jid: str
    password: str
    host: str
    port: int
    ca_file: Path


def tls_context(ca_file: Path) -> ssl.SSLContext:
    """Give the context that trusts that CA and no other, shared while the file stays the same.

    Raises:
        ConnectionFailed: the file is not there, or is not a certificate.
    """
    try:
        return _context(ca_file, ca_file.stat().st_mtime_ns)
    except (OSError, ssl.SSLError) as error:
        raise ConnectionFailed(f"CA file {ca_file}: {error}") from error


@lru_cache(maxsize=_CONTEXTS)
def _context(ca_file: Path, _changed: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cafile=ca_file)
    return context


class _Client(ClientXMPP):
    """slixmpp's client, whose negotiation can be stopped: a lost stream would leave it waiting."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext) -> None:
        self._negotiating: set[asyncio.Task[Any]] = set()
        super().__init__(endpoint.jid, endpoint.password, plugin_config=_SAFE, ssl_context=context)

    async def _handle_stream_features(self, features: Any) -> bool | None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - slixmpp runs this in a task of its own
        self._negotiating.add(task)
        task.add_done_callback(self._negotiating.discard)
        return await super()._handle_stream_features(features)

    async def start_tls(self) -> bool:
        """Do as slixmpp does, and say so when the connection went in the middle of it."""
        secured = False
        with contextlib.suppress(Exception):  # slixmpp has no type for it
            secured = await super().start_tls()
        if not secured:
            self.event("connection_failed", "connection lost in the TLS handshake")
        return secured

    def stop_negotiating(self) -> None:
        """Stop what waits for an answer that will not come."""
        for task in list(self._negotiating):
            task.cancel()


class Connection:
    """A session, or the attempt at one. Use it once: `open`, then `close` or `abort`.

    With `take`, which is given what comes in, it can receive: it announces the feature. `prepare`
    is given slixmpp's client before it connects, for plugins and handlers of the caller's own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        take: Callable[[Receiver, Incoming], None] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._started: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        """Done when the session is over; its result says why."""
        self._client = self._make_client()
        self.qos: QualityOfService = self._client.plugin[NAMESPACE]
        self._receiver: Receiver | None = None
        if take is not None:
            self._client.register_plugin(RECEIVER)
            self._receiver = self._client.plugin[RECEIVER]
            self._receiver.on_incoming = take
        if prepare is not None:
            prepare(self._client)

    def _make_client(self) -> Any:
        context = tls_context(self._endpoint.ca_file)
        client: Any = _Client(self._endpoint, context)
        client.enable_direct_tls = False
        client.enable_plaintext = False
        client.auto_authorize, client.auto_subscribe = None, False  # that is the operator's to say
        client.register_plugin(NAMESPACE)
        client.register_plugin("xep_0199")
        handlers: dict[str, Callable[[Any], None]] = {
            "session_start": self._on_start,
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
        """Dial, secure, authenticate and bind, within that many seconds.

        Raises:
            ConnectionFailed: it did not come to a session; nothing of it is left.
        """
        self._client.connect(self._endpoint.host, self._endpoint.port)
        try:
            await asyncio.wait(
                _futures(self._started, self.lost),
                timeout=timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except BaseException:
            self.abort("given up")
            raise
        if not self.bound:
            self.abort("no session in time")
            raise ConnectionFailed(self.lost.result())

    @property
    def bound(self) -> bool:
        """Whether there is a session now."""
        return self._started.done() and not self.lost.done()

    def send(self, text: str, most: int) -> None:
        """Send a stanza as it is, of which nobody hears again.

        Args:
            text: the stanza.
            most: bytes that may wait for the link already.

        Raises:
            NotSent: there is no session, or more waits.
        """
        transport = self._client.transport
        if not self.bound or transport is None:
            raise NotSent("the device has no session")
        if transport.get_write_buffer_size() > most:
            raise NotSent("the link takes no more at present")
        self._client.send(text)

    def announce(self, priority: int) -> None:
        """Send presence of that priority, with what the device can do, if it can receive."""
        if self._receiver is not None:
            self._receiver.announce(priority)

    def read(self, *, go_on: bool) -> None:
        """Stop reading from the link, or go on; what is not read stays with the peer."""
        transport = self._client.transport
        if self.bound and transport is not None and not transport.is_closing():
            (transport.resume_reading if go_on else transport.pause_reading)()

    async def close(self, timeout: float = 2.0) -> None:  # noqa: ASYNC109
        """End the stream in order, or after that many seconds without."""
        if self.bound:
            self._client.disconnect(wait=timeout)
            await asyncio.wait({self.lost}, timeout=timeout + 1.0)
        self.abort("closed")

    def abort(self, reason: str) -> None:
        """End it at once, without a word, and stop all that slixmpp runs for it."""
        self._lose(reason)
        client = self._client
        client.cancel_connection_attempt()
        client.stop_negotiating()
        if client.transport is not None:
            client.transport.abort()
        for name in list(client.scheduled_events):
            client.cancel_schedule(name)
        sending = getattr(client, "_run_out_filters", None)  # slixmpp never ends it by itself
        if sending is not None:
            sending.cancel()

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    def _on_start(self, _: Any) -> None:
        transport = self._client.transport
        if transport is None or transport.get_extra_info("ssl_object") is None:
            self.abort("the server offered no TLS")
        elif not self._started.done() and not self.lost.done():
            self._started.set_result(None)

    def _on_failure(self, error: Any) -> None:
        self._lose(str(error) or repr(error))

    def _on_refused(self, _: Any) -> None:
        self._lose("the server refused the password or offers no safe mechanism")

    def _on_stream_error(self, error: Any) -> None:
        self._lose(f"stream error {error['condition']}: {error['text']}".rstrip(": "))

    def _on_disconnected(self, reason: Any) -> None:
        self._lose(str(reason or "connection lost") or repr(reason))


def _futures(*futures: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    return set(futures)
