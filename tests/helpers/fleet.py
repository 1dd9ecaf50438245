"""A centre for tests: a fleet folder with enrolled gateways, a receiver and a client."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import aiohttp

from sync.common.enrolment import new_token
from sync.common.fleet_folder import FleetFolder, parse_segment_path
from sync.receiver.client_certificates import issue_with_key
from sync.receiver.gateways import GatewayRegistry
from sync.receiver.limits import ReceiverLimits
from sync.receiver.pki import Authority
from sync.receiver.server import ListenAddress, running_receiver
from sync.receiver.tls import ensure_own_certificate
from sync.segment import Event, Identity, SegmentHeader, encode, identity_path
from sync.storage.local import LocalStorage
from sync.storage.storage import Storage
from tests.helpers.stored import stored

GATEWAY = "gw.example"
OTHER = "other.example"
EPOCH = "01JD0000000000000000000000"
HOST = "127.0.0.1"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def identity(first: int = 1, last: int = 3, gateway: str = GATEWAY) -> Identity:
    """Return the identity of a segment in the lane `logs`."""
    return Identity(gateway, EPOCH, "logs", first, last)


def segment(
    name: Identity | None = None, text: str = "pump on", previous: bytes = bytes(32)
) -> bytes:
    """Return a valid segment; another `text` makes a different segment of the same name.

    `previous` is the digest of the one before it in its lane.
    """
    segment_id = name or identity()
    header = SegmentHeader(
        *segment_id,
        previous=previous,
        boot="boot-1",
        sealed_at=1_700_000_000_000,
        service_seconds=12.5,
        clock=True,
        firmware="os 1",
        software="0.1.0",
        config_hash=bytes(32),
        disk_used=4_096,
    )
    numbers = range(segment_id.first_seq, segment_id.last_seq + 1)
    events = [Event(seq, 1_700_000_000_000 + seq, True, "log", text=text) for seq in numbers]
    return encode(header, events)


def make_fleet(root: Path, gateways: tuple[str, ...] = (GATEWAY, OTHER)) -> dict[str, str]:
    """Create a fleet folder at `root` with enrolled gateways; return their tokens."""
    folder = FleetFolder(root)
    folder.create()
    Authority(folder.pki).ensure((HOST,), dt.datetime.now(dt.UTC))
    tokens = {gateway: new_token() for gateway in gateways}
    for gateway, token in tokens.items():
        GatewayRegistry(folder).enrol(gateway, f"https://{HOST}:1", token, 0, renew=False)
    return tokens


def contents(root: Path) -> dict[str, bytes]:
    """Return the files below a folder by their paths, without locks."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def landed(place: FleetFolder | Storage) -> dict[Identity, bytes]:
    """Return the segments in the landing, by the identity in their path."""
    storage = LocalStorage(place.root) if isinstance(place, FleetFolder) else place
    found = ((PurePosixPath(path), data) for path, data in stored(storage, "landing").items())
    return {parse_segment_path(path.relative_to("landing")): data for path, data in found}


def write_pair(
    folder: FleetFolder,
    out: Path,
    gateway: str = GATEWAY,
    issued_ms: int | None = None,
    days: int = 9,
) -> Path:
    """Write a certificate of a gateway, issued now unless given, and its key to one file."""
    issued = time.time_ns() // 10**9 * 1_000 if issued_ms is None else issued_ms
    certificate, key = issue_with_key(Authority(folder.pki), gateway, issued, days)
    out.write_bytes(certificate.pem + key)
    return out


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """A client that sends a gateway's requests to the receiver at `address` over TLS."""

    address: tuple[str, int]
    session: aiohttp.ClientSession
    tokens: dict[str, str]

    def url(self, path: str) -> str:
        return f"https://{self.address[0]}:{self.address[1]}{path}"

    async def put(
        self, data: bytes, name: Identity | None = None, body: object = None, **changes: str | None
    ) -> Answer:
        """Upload a segment with its own gateway's token.

        `body` is sent instead of the data; `changes` replace headers, or remove them (None).
        """
        changes = {"X_Fieldpost_SHA256": hashlib.sha256(data).hexdigest(), **changes}
        return await self._send("PUT", name, data if body is None else body, changes)

    async def head(
        self, name: Identity | None = None, data: bytes | None = None, **changes: str | None
    ) -> Answer:
        """Send HEAD for a segment, and for the stored part of the body `data`."""
        sum_ = None if data is None else hashlib.sha256(data).hexdigest()
        return await self._send("HEAD", name, None, {"X_Fieldpost_SHA256": sum_, **changes})

    async def _send(
        self, method: str, name: Identity | None, body: object, changes: dict[str, str | None]
    ) -> Answer:
        segment_id = name or identity()
        headers = {"Authorization": f"Bearer {self.tokens.get(segment_id.gateway)}", **changes}
        present = {
            key.replace("_", "-"): value for key, value in headers.items() if value is not None
        }
        return await self.send(method, f"/v1/segments/{identity_path(segment_id)}", present, body)

    async def send(
        self, method: str, path: str, headers: dict[str, str], data: object = None
    ) -> Answer:
        sent = self.session.request(method, self.url(path), data=data, headers=headers)
        async with sent as response:
            body = await response.json() if response.content_type == "application/json" else {}
            response_headers = {key.lower(): value for key, value in response.headers.items()}
            return Answer(response.status, response_headers, body or {})


@contextlib.asynccontextmanager
async def client(
    address: tuple[str, int], tokens: dict[str, str], ca: Path, pair: Path | None = None
) -> AsyncIterator[Client]:
    """Yield a client that trusts the authority `ca` and presents the certificate `pair`."""
    context = ssl.create_default_context(cafile=str(ca))
    if pair is not None:
        context.load_cert_chain(pair)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Client(address, session, tokens)


@dataclass(frozen=True)
class Centre:
    """A receiver in this process, and a client."""

    folder: FleetFolder
    client: Client

    async def connect(self) -> Streams:
        """Open another connection, which sends nothing."""
        context = ssl.create_default_context(cafile=str(self.folder.pki / "ca.pem"))
        return await asyncio.open_connection(*self.client.address, ssl=context)

    def files(self, *, landed: bool = True) -> list[str]:
        """Return the files of the landing, or those that are not landing, enrolment or keys."""
        folder = self.folder
        roots = [folder.landing] if landed else [folder.aside, folder.archive, folder.incoming]
        found = (path for root in roots for path in root.rglob("*") if path.is_file())
        names = (path.relative_to(folder.root).as_posix() for path in found)
        return sorted(name for name in names if not name.endswith(".lock"))


@contextlib.asynccontextmanager
async def running_centre(
    root: Path, limits: ReceiverLimits | None = None, remote: Storage | None = None
) -> AsyncIterator[Centre]:
    """Run a receiver in this process on a free port, with two enrolled gateways.

    Segments land in `remote`, if given.
    """
    tokens = make_fleet(root)
    folder = FleetFolder(root)
    chain = ensure_own_certificate(folder)
    bounds = limits or ReceiverLimits()
    async with (
        running_receiver(folder, ListenAddress(HOST, 0), chain, bounds, remote=remote) as address,
        client(address, tokens, folder.pki / "ca.pem") as connected,
    ):
        yield Centre(folder, connected)
