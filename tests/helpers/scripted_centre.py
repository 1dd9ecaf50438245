"""A real HTTPS server that answers each request with the next script."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

from sync.common.enrolment import Enrolment, new_token
from sync.segment import digest_of
from tests.helpers.pki import LoopbackPki

Script = Callable[["Centre", web.Request], Awaitable[web.StreamResponse]]
"""Answers one request to the centre."""


class ReceivedRequest(NamedTuple):
    """A received request with the client's address and the serial number of its certificate."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: object
    serial: str | None


@dataclass
class Centre:
    """The server: requests are answered by `scripts`, one each, and by `land` after the last."""

    enrolment: Enrolment
    scripts: deque[Script] = field(default_factory=deque)
    requests: list[ReceivedRequest] = field(default_factory=list)
    stored_paths: set[str] = field(default_factory=set)
    new_request: asyncio.Event = field(default_factory=asyncio.Event)
    watermark_scripts: deque[Script] = field(default_factory=deque)
    watermark_requests: list[str] = field(default_factory=list)
    partial_bodies: dict[str, bytes] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Record the request and answer it with the next script.

        A request for the high watermarks is answered by the next of `watermark_scripts`, after the
        last with no lanes. `partial_bodies` has beginnings of interrupted bodies by their SHA-256.
        """
        if request.method == "GET":
            self.watermark_requests.append(request.path)
            head_script = (
                self.watermark_scripts.popleft()
                if self.watermark_scripts
                else answers(200, {"lanes": {}})
            )
            return await head_script(self, request)
        script = self.scripts.popleft() if self.scripts else accept
        body = await self._read(request, script)
        peer = request.get_extra_info("peername")
        certificate = request.get_extra_info("peercert") or {}
        serial, headers = certificate.get("serialNumber"), dict(request.headers)
        received = ReceivedRequest(request.method, request.path, headers, body, peer, serial)
        self.requests.append(received)
        self.new_request.set()
        return await script(self, request)

    async def _read(self, request: web.Request, script: Script) -> bytes:
        """Read the body, or a part for `DisconnectAfter`, after the beginning that is stored."""
        body_sum = request.headers.get("X-Fieldpost-SHA256", "")
        body = self.partial_bodies.get(body_sum, b"") if "Content-Range" in request.headers else b""
        most = script.size if isinstance(script, DisconnectAfter) else 2**30
        while len(body) < most and (piece := await request.content.read(most - len(body))):
            body += piece
        if isinstance(script, DisconnectAfter):
            self.partial_bodies[body_sum] = body
        return body

    async def wait_for_requests(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.requests) < times:
                self.new_request.clear()
                await self.new_request.wait()


async def accept(centre: Centre, request: web.Request) -> web.StreamResponse:
    """Answer 201 with the digest, 200 for a duplicate; answer HEAD with the offset."""
    if request.method == "HEAD":
        begun = centre.partial_bodies.get(request.headers["X-Fieldpost-SHA256"], b"")
        return web.Response(status=404, headers={"X-Fieldpost-Offset": str(len(begun))})
    status = 200 if request.path in centre.stored_paths else 201
    centre.stored_paths.add(request.path)
    return web.json_response({"digest": digest_of(centre.requests[-1].body).hex()}, status=status)


async def accept_and_disconnect(centre: Centre, request: web.Request) -> web.StreamResponse:
    """Store the segment and close the connection without an answer."""
    await accept(centre, request)
    return await disconnect(centre, request)


async def disconnect(_centre: Centre, request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@dataclass(frozen=True)
class DisconnectAfter:
    """Run a script after a number of bytes of a body, which are stored."""

    size: int
    then: Script = disconnect

    async def __call__(self, centre: Centre, request: web.Request) -> web.StreamResponse:
        return await self.then(centre, request)


async def invalid_answer(_centre: Centre, request: web.Request) -> web.StreamResponse:
    """Answer something that is not HTTP."""
    if request.transport is not None:
        request.transport.write(b"\0\0\0 what? \r\n\r\n")
        request.transport.close()
    return web.Response()


async def no_answer(_centre: Centre, _request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def endless_answer(_centre: Centre, request: web.Request) -> web.StreamResponse:
    """Start an answer that never ends."""
    response = web.StreamResponse(status=201, headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"digest"')
    await asyncio.Event().wait()
    return response


def answers(status: int, body: object = None, **headers: str) -> Script:
    """Return a script that answers a status, a JSON body and headers (`_` stands for `-`)."""

    async def script(_centre: Centre, _request: web.Request) -> web.StreamResponse:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        if body is None:
            return web.Response(status=status, text="<html>no</html>", headers=named)
        return web.json_response(body, status=status, headers=named)

    return script


@contextlib.asynccontextmanager
async def running_scripted_centre(
    pki: LoopbackPki, gateway: str, *scripts: Script
) -> AsyncIterator[Centre]:
    app = web.Application(client_max_size=32 * 1024 * 1024)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    token = new_token()
    centre = Centre(Enrolment(gateway, "https://127.0.0.1", token, pki.ca), deque(scripts))
    app.router.add_route("*", "/{path:.*}", centre.answer)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=pki.server)
        await site.start()
        host, port = runner.addresses[0][:2]
        centre.enrolment = Enrolment(gateway, f"https://{host}:{port}", token, pki.ca)
        yield centre
    finally:
        await runner.cleanup()
