"""The way to the centre that the configuration names, and what keeps it open.

Chooses and puts together; how segments travel is `sync.uplink`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edge import background_tasks
from edge.background_tasks import HeartbeatSources
from edge.config.load import Config
from edge.engine.events import NewEvent
from edge.errors import ConfigError
from edge.uplink.backlog import StoreBacklog
from sync.common.enrolment import Enrolment, EnrolmentError, read_enrolment
from sync.common.text import os_error
from sync.uplink import (
    CertificateRenewal,
    FolderTransport,
    HttpsLimits,
    HttpsTransport,
    Sealer,
    Transport,
    Uploader,
    UploadScheduler,
    parse_folder,
)


class Road(NamedTuple):
    """A transport, and who looks after its certificate, if it may have one."""

    transport: Transport
    renewal: CertificateRenewal | None = None


def road(
    folder: Path, settings: Config, backlog: StoreBacklog, wall: Callable[[], float]
) -> Road | None:
    """Return the way to the centre, None if segments stay here. Raises `ConfigError`.

    `wall` tells seconds since 1970.
    """
    uplink = settings.uplink
    if uplink.folder:
        try:
            return Road(FolderTransport(parse_folder(uplink.folder, folder)))
        except ValueError as error:
            raise ConfigError(f"uplink.folder: {error}") from None
    if not uplink.enrolment:
        return None
    path = folder / uplink.enrolment
    enrolment, transport = _https(path, settings)
    return Road(
        transport,
        CertificateRenewal(path, enrolment, transport, send_notice=backlog.tell, now=wall),
    )


def uploader(settings: Config, backlog: StoreBacklog, transport: Transport) -> Uploader:
    """Return the loop that ships."""
    turns = UploadScheduler(settings.uplink.live_share)
    return Uploader(
        settings.gateway.domain, backlog, transport, send_notice=backlog.tell, scheduler=turns
    )


async def close(beats: HeartbeatSources, sealer: Sealer, backlog: StoreBacklog) -> None:
    """Seal what is there, and then the closing event, with nothing behind it.

    What a full backlog gave up is told before. Raises `StoreError` and `BacklogUnavailable`.
    """
    await sealer.flush()
    backlog.close()
    await background_tasks.write_heartbeat(beats, NewEvent("system", name=background_tasks.STOP))
    await sealer.flush()


def _https(path: Path, settings: Config) -> tuple[Enrolment, HttpsTransport]:
    try:
        enrolment = read_enrolment(path)
        transport = HttpsTransport(enrolment, HttpsLimits(bandwidth=settings.uplink.bandwidth))
    except FileNotFoundError as error:
        raise ConfigError(f"uplink.enrolment: {error.filename} does not exist") from error
    except OSError as error:
        raise ConfigError(f"uplink.enrolment: {os_error(error)}") from error
    except EnrolmentError as error:
        raise ConfigError(f"uplink.enrolment: {error}") from error
    domain = settings.gateway.domain
    if enrolment.gateway != domain:
        raise ConfigError(f"uplink.enrolment is for {enrolment.gateway}, and this is {domain}")
    return enrolment, transport
