"""The uplink with the real receiver over TLS."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path

from sync.common.enrolment import Enrolment, read_enrolment, write_enrolment
from sync.receiver.client_certificates import issue_with_key
from sync.receiver.limits import ReceiverLimits
from sync.receiver.pki import Authority
from sync.segment import Identity
from sync.uplink.batcher import BatchLimits
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import HighWatermark, WaitingSegment
from sync.uplink.renewal import CertificateRenewal, validity_of
from sync.uplink.responses import (
    AccessDenial,
    Acknowledgement,
    Conflict,
    Rejection,
    TemporaryFailure,
)
from sync.uplink.sealer import Sealer
from sync.uplink.uploader import Uploader
from sync.uplink.wakeup import Wakeup
from tests.helpers.backlog import FixedState, Notices, SqliteBacklog
from tests.helpers.fleet import EPOCH, GATEWAY, OTHER, Centre, identity, running_centre, segment
from tests.helpers.manual_time import ManualTime, in_background
from tests.helpers.segments import logs, readings


def enrolment(centre: Centre) -> Enrolment:
    ca = (centre.folder.pki / "ca.pem").read_text()
    return Enrolment(GATEWAY, centre.client.url(""), centre.client.tokens[GATEWAY], ca)


async def put(centre: Centre, data: bytes, name: Identity) -> object:
    transport = HttpsTransport(enrolment(centre))
    try:
        return await transport.put(WaitingSegment(name, data[-32:], data))
    finally:
        await transport.close()


async def test_sealed_segments_land_and_are_confirmed(
    centre: Centre, backlog: SqliteBacklog
) -> None:
    backlog.gateway = GATEWAY
    backlog.write("readings", readings(25))
    backlog.write("logs", logs(5))
    notices = Notices(backlog)
    wakeup = Wakeup(ManualTime().sleep)
    transport = HttpsTransport(enrolment(centre))
    uploader = Uploader(GATEWAY, backlog, transport, send_notice=notices.record, wakeup=wakeup)
    sealer = Sealer(
        GATEWAY,
        backlog,
        FixedState(),
        BatchLimits(events=10),
        clock=lambda: 0.0,
        on_sealed=uploader.wake,
        send_notice=notices.record,
    )
    assert await sealer.flush() == 4
    async with in_background(uploader.run()):
        await backlog.wait_for_states([(first, "acknowledged") for first in (1, 11, 21, 1)])
    await transport.close()
    found = [(centre.folder.root / name).read_bytes() for name in centre.files()]
    assert sorted(found) == sorted(backlog.data())
    assert notices.all == []


async def test_real_receiver_answers_map_to_outcomes(centre: Centre) -> None:
    data = segment()
    assert await put(centre, data, identity()) == Acknowledgement(data[-32:], True)
    assert await put(centre, data, identity()) == Acknowledgement(data[-32:], False)
    assert isinstance(await put(centre, segment(text="other"), identity()), Conflict)
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    outcome = await put(centre, damaged, identity())
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "checksum"
    outcome = await put(centre, data, identity(4, 6))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "name"


def partial_bytes(fleet: Centre) -> int:
    """Return the bytes of partial uploads."""
    begun = (fleet.folder.root / name for name in fleet.files(landed=False))
    return sum(path.stat().st_size for path in begun)


async def test_interrupted_upload_is_resumed_at_the_receivers_offset(tmp_path: Path) -> None:
    data = segment(text=random.Random(1).randbytes(90_000).hex())
    waiting = WaitingSegment(identity(), data[-32:], data)
    limits, pieces = HttpsLimits(bandwidth=65_536), list[float]()

    async def cut(seconds: float) -> None:
        pieces.append(seconds)
        if len(pieces) == 4:
            async with asyncio.timeout(10):
                while partial_bytes(fleet) < 40_000:  # noqa: ASYNC110 - it is in a file
                    await asyncio.sleep(0)
            raise ConnectionResetError

    bounds = ReceiverLimits(buffer_bytes=1_024)
    async with running_centre(tmp_path / "fleet", bounds) as fleet:
        transport = HttpsTransport(enrolment(fleet), limits, clock=lambda: 0.0, sleep=cut)
        assert isinstance(await transport.put(waiting), TemporaryFailure)
        assert await transport.put(waiting) == Acknowledgement(data[-32:], True)
        await transport.close()
        assert len(pieces) - 4 <= (len(data) - 40_000) / 16_384 + 1  # not the complete body again
        assert [(fleet.folder.root / name).read_bytes() for name in fleet.files()] == [data]
        assert fleet.files(landed=False) == []


async def test_receiver_answers_high_watermarks(centre: Centre) -> None:
    transport = HttpsTransport(enrolment(centre))
    assert await transport.high_watermarks(GATEWAY, EPOCH) == {}
    data = segment()
    await transport.put(WaitingSegment(identity(), data[-32:], data))
    assert await transport.high_watermarks(GATEWAY, EPOCH) == {"logs": HighWatermark(3, data[-32:])}
    assert isinstance(await transport.high_watermarks(OTHER, EPOCH), AccessDenial)
    await transport.close()


async def test_certificate_replaces_the_token_and_is_renewed(
    centre: Centre, backlog: SqliteBacklog, tmp_path: Path
) -> None:
    """A certificate with 65 days left is renewed by the receiver and accepted."""
    issued = int(time.time()) - 300 * 86_400
    cert, key = issue_with_key(Authority(centre.folder.pki), GATEWAY, issued * 1_000, 365)
    first = replace(enrolment(centre), token="", certificate=cert.pem.decode(), key=key.decode())
    path, sleeps = tmp_path / "gw.json", ManualTime()
    write_enrolment(path, first)
    notices = Notices(backlog)
    transport = HttpsTransport(first)
    data, more = segment(), segment(identity(4, 6))
    assert await transport.put(WaitingSegment(identity(), data[-32:], data)) == Acknowledgement(
        data[-32:], True
    )
    renewal = CertificateRenewal(
        path, first, transport, send_notice=notices.record, now=time.time, sleep=sleeps.sleep
    )
    async with in_background(renewal.run()):
        await sleeps.next_sleep()
    assert notices.names() == ["certificate-renewed"]
    renewed = read_enrolment(path)
    assert validity_of(renewed.certificate).begins > issued + 299 * 86_400
    outcome = await transport.put(WaitingSegment(identity(4, 6), more[-32:], more))
    assert outcome == Acknowledgement(more[-32:], True)
    await transport.close()
    other = replace(renewed, gateway=OTHER)
    transport = HttpsTransport(other)
    name = identity(gateway=OTHER)
    second = segment(name)
    assert isinstance(await transport.put(WaitingSegment(name, second[-32:], second)), AccessDenial)
    await transport.close()
