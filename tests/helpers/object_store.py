"""An S3 server for tests, and a proxy in front of it that fails."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

from sync.common.fleet_folder import FleetFolder
from sync.storage.storage import Storage
from tests.helpers.fleet_tables import put

BUCKET: Final = "fleet"

LIMIT_S: Final = 60.0
"""Seconds that the server may take to start or to answer on a loaded machine."""

FAULTS: Final = ("500", "503", "lost", "503 after", "silence")
"""Faults of the proxy: it answers with a status before or after the request is carried out, closes
the connection after it (`lost`), or does not answer until the client gives up (`silence`)."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Run an S3 server with an empty bucket `BUCKET`; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("s3_server.py")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        assert process.stderr is not None
        found = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr)
        match = next(filter(None, found), None)
        assert match, "the S3 server has not started"
        limit.cancel()
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        clear_bucket(match[0])
        yield match[0]
    finally:
        limit.cancel()
        process.terminate()
        process.wait(LIMIT_S)
    rest.join(LIMIT_S)
    process.stderr.close()


def clear_bucket(url: str) -> None:
    """Remove all objects, and create the bucket."""
    for method, path in (("POST", "/moto-api/reset"), ("PUT", f"/{BUCKET}")):
        request = urllib.request.Request(f"{url}{path}", method=method)  # noqa: S310
        urllib.request.urlopen(request, timeout=LIMIT_S).close()  # noqa: S310


def environment(url: str) -> dict[str, str]:
    """Return the variables by which obstore and delta-rs find the server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }


def upload(folder: FleetFolder, storage: Storage) -> None:
    """Move the segments of a fleet folder's landing into a storage, as they arrived."""
    paths = sorted(folder.landing.rglob("*.seg"), key=lambda path: path.stat().st_mtime)
    for path in paths:
        storage.create(path.relative_to(folder.root).as_posix(), path.read_bytes())
        path.unlink()


def download(storage: Storage, folder: Path) -> FleetFolder:
    """Copy everything in a storage to a new fleet folder; return it."""
    fleet = FleetFolder(folder)
    fleet.create()
    for place in ("landing", "aside", "archive", "quarantine", "tables"):
        listed = [file.path for file in storage.files(place)]
        logs = [
            file.path
            for name in ("events", "segments")
            for file in storage.files(f"tables/{name}/_delta_log")
        ]
        for path in [*listed, *(logs if place == "tables" else [])]:
            put(folder / path, storage.read(path))
    return fleet


class FaultyProxy(ThreadingHTTPServer):
    """An HTTP proxy before a server. `faults` counts what it did, by kind.

    It fails a `share` of the requests, at random: at most `count`, and of those alone whose method
    and path begin with `only`. `on_fault` is called before each fault, with the client's port.
    """

    daemon_threads = True

    def __init__(self, server: str, dice: Random) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = urlsplit(server).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.share = 0.0
        self.kinds: tuple[str, ...] = FAULTS
        self.only = ""
        self.count = 10**9
        self.on_fault: Callable[[int], None] = lambda port: None
        self.faults: Counter[str] = Counter()
        self._dice = dice
        self._lock = threading.Lock()

    def choose(self, request: str) -> str:
        """Return the fault for a request, or an empty string."""
        with self._lock:
            exempt = self.count == 0 or not request.startswith(self.only)
            if exempt or self._dice.random() >= self.share:
                return ""
            self.count -= 1
            fault = self._dice.choice(self.kinds)
            self.faults[fault] += 1
            return fault

    @contextmanager
    def running(self) -> Iterator[FaultyProxy]:
        """Serve within the block."""
        thread = threading.Thread(target=self.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join(LIMIT_S)
            self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.choose(f"{self.command} {self.path}")
        if fault:
            self.server.on_fault(self.client_address[1])
        if fault == "silence":
            self.close_connection = True
            self.connection.recv(1)  # until the client closes the connection
            return
        if fault in ("500", "503"):
            self._answer(int(fault), {}, b"")
            return
        status, headers, content = self._forward(body)
        if fault == "lost":
            self.close_connection = True
        elif fault:
            self._answer(503, {}, b"")
        else:
            self._answer(status, headers, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    def _forward(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.server, timeout=LIMIT_S)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "content-length", "transfer-encoding", "date"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
