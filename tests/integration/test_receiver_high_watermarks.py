"""High watermarks of an epoch, as a gateway queries them."""

from __future__ import annotations

import pytest

from sync.segment import digest_of, identity_path
from tests.helpers.fleet import EPOCH, GATEWAY, OTHER, Answer, Centre, identity, segment


async def ask(centre: Centre, epoch: str = EPOCH, gateway: str = GATEWAY) -> Answer:
    headers = {"Authorization": f"Bearer {centre.client.tokens[GATEWAY]}"}
    return await centre.client.send("GET", f"/v1/gateways/{gateway}/epochs/{epoch}", headers)


async def test_new_epoch_has_no_lanes(centre: Centre) -> None:
    answer = await ask(centre)
    assert (answer.status, answer.body) == (200, {"lanes": {}})


async def test_high_watermark_covers_landing_and_archive(centre: Centre) -> None:
    names = [identity(7, 12), identity(1, 3), identity(100, 101), identity(4, 6)]
    for name in names:
        await centre.client.put(segment(name), name)
    expected = {"logs": {"last": 101, "digest": digest_of(segment(names[2])).hex()}}
    assert (await ask(centre)).body == {"lanes": expected}
    for name in names[2:]:
        landed = centre.folder.landing / f"{identity_path(name)}.seg"
        archived = centre.folder.archive / landed.relative_to(centre.folder.landing)
        archived.parent.mkdir(parents=True, exist_ok=True)
        landed.rename(archived)
    assert (await ask(centre)).body == {"lanes": expected}


async def test_longer_segment_of_a_fork_counts_and_other_names_are_ignored(centre: Centre) -> None:
    for name in (identity(2, 9), identity(1, 9), identity(5, 9)):
        await centre.client.put(segment(name), name)
    folder = (centre.folder.landing / identity_path(identity())).parent
    for stray in ("1-999999.seg", "9-1.seg", "01-30.seg", "10-11.part", "notes"):
        (folder / stray).write_bytes(b"")
    told = (await ask(centre)).body
    digest = digest_of(segment(identity(1, 9))).hex()
    assert told == {"lanes": {"logs": {"last": 9, "digest": digest}}}


@pytest.mark.parametrize(
    ("epoch", "gateway", "status"),
    [("..%2f..", GATEWAY, 400), (EPOCH.lower(), GATEWAY, 400), (EPOCH, OTHER, 403)],
)
async def test_invalid_epoch_or_other_gateway_is_refused(
    centre: Centre, epoch: str, gateway: str, status: int
) -> None:
    assert (await ask(centre, epoch, gateway)).status == status


@pytest.mark.parametrize("size", [0, 31])
async def test_truncated_file_is_a_different_segment(centre: Centre, size: int) -> None:
    name = identity(1, 3)
    await centre.client.put(segment(name), name)
    (centre.folder.landing / f"{identity_path(name)}.seg").write_bytes(segment(name)[:size])
    digest = segment(name)[:size].ljust(32, b"\0").hex()
    assert (await ask(centre)).body == {"lanes": {"logs": {"last": 3, "digest": digest}}}
    asked = await centre.client.head()
    assert (asked.status, asked.headers["x-fieldpost-digest"]) == (200, digest)
    assert (await centre.client.put(segment(name), name)).status == 409


async def test_high_watermarks_need_authentication(centre: Centre) -> None:
    path = f"/v1/gateways/{GATEWAY}/epochs/{EPOCH}"
    assert (await centre.client.send("GET", path, {})).status == 401
