"""Fixtures for tests of running processes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.backlog import SqliteBacklog
from tests.helpers.fleet import Centre, running_centre
from tests.helpers.gateway import PROCESSES, Gateway, port_of
from tests.helpers.lossy_network import Uploading, running_uploader
from tests.helpers.pki import LoopbackPki, make_pki
from tests.helpers.processes import Process
from tests.helpers.scripted_peer import Certificate
from tests.helpers.talk import Talk, TalkFactory, open_talk

CLOSE_S: Final = 10.0
"""Maximum seconds in which both ends close a TLS connection; enough for two busy cores."""


WITH_FRONTS: Final = frozenset(
    f"test_{name}"
    for name in (
        "attack_mqtt",
        "clean_stop",
        "failed_logins",
        "hostile_tls",
        "hostile_unauthenticated",
        "mqtt_certificates",
        "mqtt_conformance",
        "mqtt_hostile",
        "mqtt_kills",
        "mqtt_websocket",
        "rate",
        "reload",
        "resume",
        "sasl_external",
        "slow_readers",
        "tls_on_starttls_port",
    )
)
"""The modules whose gateways have a front process. `make test-long` runs all modules both ways."""

OTHER: Final = "other"
"""The value of `FIELDPOST_TEST_PROCESSES` with which each module runs the other way."""


@pytest.fixture(scope="module", autouse=True)
def front_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Choose the front processes of a module's gateways, unless the environment chooses them."""
    with pytest.MonkeyPatch.context() as patch:
        wanted = os.environ.get(PROCESSES, "")
        if wanted in ("", OTHER):
            has_front = (request.node.path.stem in WITH_FRONTS) is not (wanted == OTHER)
            patch.setenv(PROCESSES, str(int(has_front)))
        yield


@pytest.fixture(autouse=True)
async def closed_connections() -> AsyncIterator[None]:
    """Wait until all connections of a test's event loop are closed; fail if one is left open.

    Otherwise a later test fails, in which the garbage collector finds the connection. Who closes a
    TLS connection must wait for the other end, and aiohttp's client does not.
    """
    yield
    loop: Any = asyncio.get_running_loop()
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            while left := [each for each in loop._transports.values() if not each.is_closing()]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert not left, f"left open: {[each.get_extra_info('socket') for each in left]}"


@pytest.fixture(scope="module")
def port(gateway: Gateway) -> Iterator[int]:
    """Return the port of the running gateway that a module's `gateway` configures."""
    with gateway.run() as process:
        yield port_of(process)
        assert process.terminate() == 0


@contextmanager
def _running(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr, process.stderr


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    """Run the gateway that a module's `gateway` configures; it stops without a traceback."""
    with _running(gateway) as process:
        yield process


@pytest.fixture
def own_process(gateway: Gateway) -> Iterator[Process]:
    """Run the gateway that `gateway` configures for one test; it stops without a traceback."""
    with _running(gateway) as process:
        yield process


@pytest.fixture
async def centre(tmp_path: Path) -> AsyncIterator[Centre]:
    """Run a receiver."""
    async with running_centre(tmp_path / "fleet") as running:
        yield running


@pytest.fixture
def backlog() -> Iterator[SqliteBacklog]:
    """Return an empty backlog."""
    store = SqliteBacklog()
    yield store
    store.close()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> LoopbackPki:
    """Create a CA and a server certificate for loopback and `centre.example`."""
    return make_pki(tmp_path_factory.mktemp("pki"), "centre.example")


@pytest.fixture
def uploading(pki: LoopbackPki, backlog: SqliteBacklog) -> Uploading:
    """Return `running_uploader` with a PKI and a backlog."""
    return partial(running_uploader, pki, backlog)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Create the certificate of a scripted peer."""
    return Certificate.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def start_talk(certificate: Certificate, tmp_path: Path) -> TalkFactory:
    """Return `open_talk` with a certificate and a folder; slixmpp logs critical errors only."""
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    return partial(open_talk, certificate, tmp_path)


@pytest.fixture
async def talk(start_talk: TalkFactory) -> AsyncIterator[Talk]:
    """Start a device that receives, with default options, and its server."""
    async with start_talk() as running:
        yield running
