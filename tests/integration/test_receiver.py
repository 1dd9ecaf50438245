"""The receiver over real TLS, in this process: every answer of the contract."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import hashlib
import json
import logging
import os
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from sync.central.errors import FleetError
from sync.central.folders import FleetFolder
from sync.central.gateways import Gateways
from sync.central.limits import ReceiverLimits
from sync.central.pki import Authority
from sync.central.server import Listen, listening, own_chain, renew_until
from sync.format import Identity, digest_of, identity_path, new_token
from tests.helpers.fleet import (
    GATEWAY,
    HOST,
    OTHER,
    Answer,
    Centre,
    Client,
    client,
    identity,
    make_fleet,
    running_centre,
    segment,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LANDED = f"landing/{identity_path(identity())}.seg"


@pytest.fixture
async def centre(tmp_path: Path) -> AsyncIterator[Centre]:
    async with running_centre(tmp_path / "fleet") as running:
        yield running


async def raw_request(centre: Centre, head: str, body: bytes = b"") -> tuple[str, bytes]:
    """Send bytes that no tidy client would, and read the answer to its end."""
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    reader, writer = await asyncio.open_connection(*centre.client.address, ssl=context)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + body)
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    return answer.split(b"\r\n", 1)[0].decode(), answer


def put_head(centre: Centre, *lines: str, data: bytes = b"", gateway: str = GATEWAY) -> str:
    return "\n".join(
        (
            f"PUT /v1/segments/{identity_path(identity())} HTTP/1.1",
            "Host: centre",
            "Connection: close",
            f"Authorization: Bearer {centre.client.tokens[gateway]}",
            f"X-Fieldpost-SHA256: {hashlib.sha256(data).hexdigest()}",
            *lines,
            "",
            "",
        )
    )


async def test_a_new_segment_is_201_and_durable(centre: Centre) -> None:
    data = segment()
    answer = await centre.client.put(data)
    assert (answer.status, answer.body) == (201, {"digest": digest_of(data).hex()})
    assert centre.files() == [LANDED]
    assert (centre.folder.root / LANDED).read_bytes() == data
    assert centre.files(landed=False) == []


async def test_the_same_bytes_again_are_200(centre: Centre) -> None:
    await centre.client.put(segment())
    answer = await centre.client.put(segment())
    assert (answer.status, answer.body) == (200, {"digest": digest_of(segment()).hex()})
    assert centre.files() == [LANDED]


async def test_other_bytes_are_409_and_kept_aside(centre: Centre) -> None:
    await centre.client.put(segment())
    answer = await centre.client.put(segment(text="pump off"))
    assert (answer.status, answer.body["reason"]) == (409, "conflict")
    assert (centre.folder.root / LANDED).read_bytes() == segment()
    (aside,) = centre.files(landed=False)
    assert (centre.folder.root / aside).read_bytes() == segment(text="pump off")


async def test_beyond_the_bound_409_says_that_nothing_is_kept(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(aside_files=1)) as centre:
        await centre.client.put(segment())
        answers = [await centre.client.put(segment(text=text)) for text in "ab"]
        assert [answer.status for answer in answers] == [409, 409]
        assert "not kept" in answers[1].body["error"]
        assert len(centre.files(landed=False)) == 1


async def test_what_is_archived_is_there(centre: Centre) -> None:
    await centre.client.put(segment())
    archived = centre.folder.root / LANDED.replace("landing", "archive")
    archived.parent.mkdir(parents=True)
    (centre.folder.root / LANDED).rename(archived)
    assert (await centre.client.put(segment())).status == 200
    assert (await centre.client.put(segment(text="x"))).status == 409
    assert (await centre.client.head()).status == 200
    assert centre.files() == []


async def test_head_tells_what_is_there(centre: Centre) -> None:
    assert (await centre.client.head()).status == 404
    await centre.client.put(segment())
    answer = await centre.client.head()
    assert answer.status == 200
    assert answer.headers["x-fieldpost-digest"] == digest_of(segment()).hex()
    assert answer.headers["content-length"] == str(len(segment()))
    assert answer.headers["server"] == "fieldpost"
    assert (await centre.client.head(identity(2, 3))).status == 404


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "short"),
        (b"x" * 500, "magic"),
        (segment()[:-1], "checksum"),
        (segment()[:-40] + bytes(8) + segment()[-32:], "checksum"),
    ],
)
async def test_a_malformed_segment_is_400(centre: Centre, data: bytes, reason: str) -> None:
    answer = await centre.client.put(data)
    assert (answer.status, answer.body["reason"]) == (400, reason)
    assert answer.body["error"]
    assert centre.files() == centre.files(landed=False) == []


@pytest.mark.parametrize("named", [identity(1, 4), identity(2, 3)])
async def test_a_name_that_is_not_the_headers_is_400(centre: Centre, named: Identity) -> None:
    answer = await centre.client.put(segment(), named)
    assert (answer.status, answer.body["reason"]) == (400, "name")
    assert centre.files() == []


async def test_a_gateways_segment_under_anothers_name_is_400(centre: Centre) -> None:
    answer = await centre.client.put(segment(identity(gateway=OTHER)), identity())
    assert (answer.status, answer.body["reason"]) == (400, "name")
    assert centre.files() == []


@pytest.mark.parametrize("sum_", ["", "00", "g" * 64, "0" * 64])
async def test_a_wrong_or_missing_sum_is_400(centre: Centre, sum_: str) -> None:
    answer = await centre.client.put(segment(), X_Fieldpost_SHA256=sum_)
    assert (answer.status, answer.body["reason"]) == (400, "sha256")
    assert centre.files() == []


@pytest.mark.parametrize(
    "path",
    [
        f"{GATEWAY}/01JD0000000000000000000000/logs/01-3",
        f"{GATEWAY}/01JD0000000000000000000000/logs/3-1",
        f"{GATEWAY}/01JD0000000000000000000000/pumps/1-3",
        f"{GATEWAY}/%2e%2e/logs/1-3",
        f"{GATEWAY}/..%2f..%2fpki/logs/1-3",
        f"{GATEWAY}/01jd0000000000000000000000/logs/1-3",
    ],
)
async def test_a_path_that_is_no_segments_is_refused(centre: Centre, path: str) -> None:
    head = put_head(centre, f"Content-Length: {len(segment())}", data=segment())
    head = head.replace(identity_path(identity()), path)
    status, answer = await raw_request(centre, head, segment())
    assert status == "HTTP/1.1 400 Bad Request"
    assert b'"identity"' in answer or b'"count"' in answer
    assert centre.files() == centre.files(landed=False) == []


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic abc", f"Bearer {new_token()}", "Bearer " + "a" * 4_000],
)
async def test_no_token_of_ours_is_401(centre: Centre, authorization: str) -> None:
    answer = await centre.client.put(segment(), Authorization=authorization)
    assert (answer.status, answer.body["reason"]) == (401, "token")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert centre.files() == []


async def test_a_token_that_is_not_text_is_401(centre: Centre) -> None:
    head = put_head(centre, "Content-Length: 0").replace("Bearer ", "Bearer \xe4")
    status, _ = await raw_request(centre, head)
    assert status == "HTTP/1.1 401 Unauthorized"


async def test_an_unknown_gateway_and_a_wrong_token_are_told_alike(centre: Centre) -> None:
    answers = []
    for gateway in (GATEWAY, "unknown.example"):
        name = identity(gateway=gateway)
        headers = {"Authorization": f"Bearer {new_token()}"}
        path = f"/v1/segments/{identity_path(name)}"
        answers.append(await centre.client.send("PUT", path, headers, segment(name)))
    assert answers[0].status == answers[1].status == 401
    assert answers[0].body == answers[1].body


async def test_the_token_of_another_gateway_is_403(centre: Centre) -> None:
    foreign = f"Bearer {centre.client.tokens[OTHER]}"
    answer = await centre.client.put(segment(), Authorization=foreign)
    assert (answer.status, answer.body["reason"]) == (403, "gateway")
    path = f"/v1/segments/{identity_path(identity())}"
    assert (await centre.client.send("HEAD", path, {"Authorization": foreign})).status == 403
    assert centre.files() == []


async def test_a_revocation_holds_at_once_and_so_does_a_renewal(centre: Centre) -> None:
    gateways = Gateways(centre.folder)
    assert (await centre.client.put(segment())).status == 201
    gateways.revoke(GATEWAY, 1)
    assert (await centre.client.put(segment())).status == 401
    fresh = new_token()
    gateways.enrol(GATEWAY, "https://h:1", fresh, 2, renew=True)
    assert (await centre.client.put(segment())).status == 401
    centre.client.tokens[GATEWAY] = fresh
    assert (await centre.client.put(segment())).status == 200


async def test_a_gateway_that_is_enrolled_meanwhile_is_known(centre: Centre) -> None:
    name = identity(gateway="new.example")
    centre.client.tokens[name.gateway] = new_token()
    assert (await centre.client.put(segment(name), name)).status == 401
    token = centre.client.tokens[name.gateway]
    Gateways(centre.folder).enrol(name.gateway, "https://h:1", token, 1, renew=False)
    assert (await centre.client.put(segment(name), name)).status == 201


async def test_a_damaged_record_shuts_out_its_own_gateway_alone(
    centre: Centre,
) -> None:
    os.utime(centre.folder.gateways, ns=(1, 1))
    assert (await centre.client.put(segment())).status == 201
    (centre.folder.gateways / f"{GATEWAY}.json").write_text("{")
    answer = await centre.client.put(segment())
    assert (answer.status, answer.body["reason"]) == (503, "enrolment")
    name = identity(gateway=OTHER)
    assert (await centre.client.put(segment(name), name)).status == 201


async def test_a_body_without_its_length_is_411(centre: Centre) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield segment()

    headers = {
        "Authorization": f"Bearer {centre.client.tokens[GATEWAY]}",
        "X-Fieldpost-SHA256": hashlib.sha256(segment()).hexdigest(),
    }
    path = f"/v1/segments/{identity_path(identity())}"
    answer = await centre.client.send("PUT", path, headers, pieces())
    assert (answer.status, answer.body["reason"]) == (411, "length")
    assert centre.files() == []


async def test_a_body_that_is_too_large_is_413_before_it_is_sent(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(linger_s=0.1)) as centre:
        size = ReceiverLimits().body_bytes + 1
        status, answer = await raw_request(centre, put_head(centre, f"Content-Length: {size}"))
        assert status == "HTTP/1.1 413 Request Entity Too Large"
        assert json.loads(answer.rsplit(b"\r\n", 1)[1])["reason"] == "size"
        assert centre.files(landed=False) == []


async def test_the_largest_body_is_received(centre: Centre) -> None:
    data = bytes(ReceiverLimits().body_bytes)
    head = put_head(centre, f"Content-Length: {len(data)}", data=data)
    status, answer = await raw_request(centre, head, data)
    assert status == "HTTP/1.1 400 Bad Request"
    assert b'"magic"' in answer


async def test_a_compressed_body_is_not_unpacked(centre: Centre) -> None:
    import zlib

    packed = zlib.compress(segment(), wbits=31)
    answer = await centre.client.put(packed, Content_Encoding="gzip")
    assert answer.status == 400
    assert centre.files() == []


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_507(
    centre: Centre, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        answer = await centre.client.put(segment())
    assert (answer.status, answer.body["reason"]) == (507, "full")
    assert int(answer.headers["retry-after"]) > 0
    assert centre.files() == centre.files(landed=False) == []
    assert (await centre.client.put(segment())).status == 201


async def test_a_disk_that_fails_is_503(
    centre: Centre, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(number: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        answer = await centre.client.put(segment())
    assert (answer.status, answer.body["reason"]) == (503, "storage")
    assert answer.headers["retry-after"]
    assert "storage" in caplog.text
    assert centre.files() == centre.files(landed=False) == []


async def test_of_two_at_once_one_is_new(centre: Centre) -> None:
    for first in range(1, 40, 3):
        name = identity(first, first + 2)
        texts = ["on", "on", "off"]
        puts = (centre.client.put(segment(name, text), name) for text in texts)
        statuses = [answer.status for answer in await asyncio.gather(*puts)]
        assert statuses.count(201) == 1
        won = texts[statuses.index(201)]
        expected = [200 if text == won else 409 for text in texts]
        expected[statuses.index(201)] = 201
        assert statuses == expected


async def open_body(centre: Centre, gateway: str = GATEWAY) -> asyncio.StreamWriter:
    """Begin a body, send its first bytes, and leave it open once the receiver is at it."""
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    reader, writer = await asyncio.open_connection(*centre.client.address, ssl=context)
    head = put_head(centre, "Content-Length: 1000", "Expect: 100-continue", gateway=gateway)
    path = identity_path(identity())
    head = head.replace(path, identity_path(identity(gateway=gateway)))
    writer.write(head.replace("\n", "\r\n").encode())
    async with asyncio.timeout(10):
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"x")
    return writer


async def until_open(centre: Centre, count: int) -> None:
    """Ask until `count` bodies have a temporary, for 10 s at most."""
    async with asyncio.timeout(10):
        while len(list((centre.folder.incoming / "serve").glob("*.part"))) != count:
            await centre.client.head()


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        await writer.wait_closed()


async def test_bodies_of_one_gateway_are_bounded(tmp_path: Path) -> None:
    limits = ReceiverLimits(bodies_per_gateway=2)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        writers = [await open_body(centre) for _ in range(2)]
        await until_open(centre, 2)
        answer = await centre.client.put(segment())
        assert (answer.status, answer.body["reason"]) == (429, "busy")
        assert answer.headers["retry-after"] == "5"
        name = identity(gateway=OTHER)
        assert (await centre.client.put(segment(name), name)).status == 201
        await close(*writers)
        await until_open(centre, 0)
        assert (await centre.client.put(segment())).status == 201


async def test_bodies_of_all_gateways_are_bounded(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(bodies=1)) as centre:
        writer = await open_body(centre, OTHER)
        await until_open(centre, 1)
        answer = await centre.client.put(segment())
        assert (answer.status, answer.body["reason"]) == (503, "busy")
        assert answer.headers["retry-after"] == "5"
        await close(writer)
        await until_open(centre, 0)
        assert (await centre.client.put(segment())).status == 201


@pytest.mark.parametrize("limits", [{"stall_s": 0.05}, {"body_s": 0.05, "body_bytes_per_s": 10**9}])
async def test_a_body_that_stalls_is_given_up(tmp_path: Path, limits: dict[str, float]) -> None:
    tight = replace(ReceiverLimits(linger_s=0.1), **limits)  # type: ignore[arg-type]
    async with running_centre(tmp_path / "fleet", tight) as centre:
        head = put_head(centre, f"Content-Length: {len(segment())}", data=segment())
        status, answer = await raw_request(centre, head, segment()[:-10])
        assert status == "HTTP/1.1 408 Request Timeout"
        assert b"slow" in answer
        assert centre.files() == centre.files(landed=False) == []


async def test_a_connection_that_breaks_leaves_nothing(
    centre: Centre, caplog: pytest.LogCaptureFixture
) -> None:
    writer = await open_body(centre)
    await until_open(centre, 1)
    await close(writer)
    await until_open(centre, 0)
    assert centre.files() == centre.files(landed=False) == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_connections_are_bounded(tmp_path: Path) -> None:
    limits = ReceiverLimits(connections=1)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        assert (await centre.client.put(segment())).status == 201
        assert await raw_request(centre, put_head(centre, "Content-Length: 0")) == ("", b"")
        assert (await centre.client.put(segment())).status == 200, "the first one is kept"


async def test_a_connection_that_asks_nothing_is_closed(tmp_path: Path) -> None:
    async with running_centre(tmp_path / "fleet", ReceiverLimits(idle_s=0.05)) as centre:
        assert await raw_request(centre, "") == ("", b"")
        assert await raw_request(centre, "PUT /v1") == ("", b"")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("POST", "/v1/segments/a/b/c/d", 405)]
)
async def test_what_is_not_offered_is_refused(
    centre: Centre, method: str, path: str, status: int
) -> None:
    answer = await centre.client.send(method, path, {})
    assert (answer.status, answer.body["reason"]) == (status, "request")


async def test_a_refusal_is_one_line_of_the_log(
    centre: Centre, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    secret = new_token()
    await centre.client.put(segment(), Authorization=f"Bearer {secret}")
    await centre.client.put(segment())
    (record,) = [record for record in caplog.records if record.name == "fieldpost.fleet"]
    facts = record.__dict__["facts"]
    assert (facts["status"], facts["reason"], facts["peer"]) == (401, "token", HOST)
    assert secret not in str(facts)


async def refused_at_stop(connected: Client) -> Answer:
    """Ask on a connection that is open already until the receiver begins nothing any more."""
    async with asyncio.timeout(10):
        while True:
            answer = await connected.put(segment(identity(4, 6)), identity(4, 6))
            if answer.status == 503:
                return answer


async def test_requests_in_progress_finish_at_a_stop(tmp_path: Path) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    folder = FleetFolder(tmp_path / "fleet")
    running = listening(folder, Listen(HOST, 0), own_chain(folder), ReceiverLimits())
    address = await running.__aenter__()
    data = segment()
    begun, proceed = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield data[:-5]
        begun.set()
        await proceed.wait()
        yield data[-5:]

    headers = {
        "Authorization": f"Bearer {tokens[GATEWAY]}",
        "X-Fieldpost-SHA256": hashlib.sha256(data).hexdigest(),
        "Content-Length": str(len(data)),
    }
    async with client(address, tokens, folder.pki / "ca.pem") as connected:
        path = f"/v1/segments/{identity_path(identity())}"
        put = asyncio.create_task(connected.send("PUT", path, headers, body()))
        await begun.wait()
        await until_open(Centre(folder, connected), 1)
        other = identity(4, 6)
        assert (await connected.put(segment(other), other)).status == 201, "and stays connected"
        stopping = asyncio.create_task(running.__aexit__(None, None, None))
        assert (await refused_at_stop(connected)).body["reason"] == "stopping"
        proceed.set()
        assert (await put).status == 201
        await stopping
        with pytest.raises(aiohttp.ClientConnectorError):
            await connected.put(data)


async def test_a_body_that_outlasts_the_grace_is_cut_and_leaves_nothing(tmp_path: Path) -> None:
    limits = ReceiverLimits(grace_s=0.05, close_s=0.05)
    async with running_centre(tmp_path / "fleet", limits) as centre:
        writer = await open_body(centre)
        await until_open(centre, 1)
    assert centre.files() == centre.files(landed=False) == []
    writer.transport.abort()


async def test_another_authority_is_not_trusted(centre: Centre, tmp_path: Path) -> None:
    make_fleet(tmp_path / "foreign")
    foreign = tmp_path / "foreign" / "pki" / "ca.pem"
    async with client(centre.client.address, centre.client.tokens, foreign) as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.put(segment())
    assert centre.files() == []


async def test_another_name_is_not_trusted(centre: Centre) -> None:
    _, port = centre.client.address
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")


async def test_old_tls_is_refused(centre: Centre) -> None:
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await asyncio.open_connection(*centre.client.address, ssl=context)


async def test_a_new_certificate_is_shown_without_a_restart(
    centre: Centre, caplog: pytest.LogCaptureFixture
) -> None:
    _, port = centre.client.address
    context = ssl.create_default_context(cafile=str(centre.folder.pki / "ca.pem"))
    authority = Authority(centre.folder.pki)
    assert authority.ensure(("localhost",), dt.datetime.now(dt.UTC))
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")
    await close(writer)
    authority.server.write_text("spoiled")
    _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")
    await close(writer)
    assert [record for record in caplog.records if record.levelno == logging.ERROR]


async def test_a_start_cleans_up_and_tells_what_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldpost.fleet")
    folder = FleetFolder(tmp_path / "fleet")
    make_fleet(folder.root)
    (folder.gateways / f"{OTHER}.json").write_text("{")
    left = folder.incoming / "serve" / "0.part"
    left.parent.mkdir()
    left.write_bytes(b"half")
    async with listening(folder, Listen(HOST, 0), own_chain(folder), ReceiverLimits()):
        assert not left.exists()
    assert [record.getMessage() for record in caplog.records] == ["cleaned", "damaged"]


async def test_the_certificate_is_looked_after_while_it_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, looks = asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def renew() -> None:
        looks.append(1)
        if len(looks) == 1:
            raise FleetError("another command is at work")
        loop.call_soon_threadsafe(stop.set)

    async with asyncio.timeout(10):
        await renew_until(stop, renew, 0.001)
    assert len(looks) >= 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_one_receiver_serves_a_folder(centre: Centre) -> None:
    second = listening(centre.folder, Listen(HOST, 0), own_chain(centre.folder), ReceiverLimits())
    with pytest.raises(FleetError, match="another receiver"):
        await second.__aenter__()
    assert (await centre.client.put(segment())).status == 201
