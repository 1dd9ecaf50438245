"""An uploader with a scripted centre, a backlog in memory and manual time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from sync.common.enrolment import Enrolment
from sync.segment import encode
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import WaitingSegment
from sync.uplink.uploader import Uploader
from sync.uplink.wakeup import Wakeup
from tests.helpers.backlog import Notices, SqliteBacklog
from tests.helpers.manual_time import ManualTime, in_background
from tests.helpers.pki import LoopbackPki
from tests.helpers.scripted_centre import Centre, Script, running_scripted_centre
from tests.helpers.segments import header, readings


class RunningUploader:
    def __init__(self, backlog: SqliteBacklog, centre: Centre, transport: HttpsTransport) -> None:
        self.backlog = backlog
        self.centre = centre
        self.time = ManualTime()
        self.notices = Notices(backlog)
        self.seconds = 0.0
        self.uploader = Uploader(
            backlog.gateway,
            backlog,
            transport,
            send_notice=self.notices.record,
            chance=lambda: 0.5,
            wakeup=Wakeup(self.time.sleep),
            clock=lambda: self.seconds,
        )

    async def end_sleeps(self, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            sleep = await self.time.next_sleep()
            seconds.append(sleep.seconds)
            sleep.end()
        return seconds


Uploading = Callable[..., contextlib.AbstractAsyncContextManager[RunningUploader]]
"""`running_uploader` with a PKI and a backlog."""


@contextlib.asynccontextmanager
async def running_uploader(
    pki: LoopbackPki,
    backlog: SqliteBacklog,
    *scripts: Script,
    segments: int = 1,
    limits: HttpsLimits | None = None,
    enrolment: Enrolment | None = None,
    heads: Sequence[Script] = (),
) -> AsyncIterator[RunningUploader]:
    """Seal segments, start a scripted centre, and run the uploader."""
    for _ in range(segments):
        await seal_segment(backlog)
    async with running_scripted_centre(pki, backlog.gateway, *scripts) as centre:
        centre.watermark_scripts.extend(heads)
        local_enrolment = replace(enrolment or centre.enrolment, url=centre.enrolment.url)
        transport = HttpsTransport(local_enrolment, limits)
        running = RunningUploader(backlog, centre, transport)
        try:
            async with in_background(running.uploader.run()):
                yield running
        finally:
            await transport.close()


async def seal_segment(backlog: SqliteBacklog, count: int = 5, padding: int = 0) -> WaitingSegment:
    """Seal one more segment with `padding` incompressible bytes."""
    first = backlog.states()[-1][0] + 5 if backlog.states() else 1
    text = random.Random(first).randbytes(padding).hex() if padding else None
    events = [
        event._replace(seq=first + place, text=text if place == 0 else None)
        for place, event in enumerate(readings(count))
    ]
    backlog.write("readings", events)
    draft = await backlog.draft("readings", count, 10**9)
    assert draft is not None
    segment_header = header(first, first + count - 1, previous=draft.previous, epoch=draft.epoch)
    data = encode(segment_header, events)
    assert await backlog.seal(draft, data, data[-32:])
    return WaitingSegment(segment_header.identity, data[-32:], data)
