"""Set up the transport of segments and their uploader from the configuration.

The gateway imports this module only if it has an uplink.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edge.config.load import Config
from edge.errors import ConfigError
from edge.uplink.backlog import StoreBacklog
from sync.common.enrolment import Enrolment, EnrolmentError, read_enrolment
from sync.common.text import os_error
from sync.uplink.folder_transport import FolderTransport, parse_folder
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import Transport
from sync.uplink.renewal import CertificateRenewal
from sync.uplink.scheduler import UploadScheduler
from sync.uplink.uploader import Uploader


class ConfiguredTransport(NamedTuple):
    """A transport, and the renewal of its certificate if it has one."""

    transport: Transport
    renewal: CertificateRenewal | None = None


def transport_for(
    folder: Path, settings: Config, backlog: StoreBacklog, wall: Callable[[], float]
) -> ConfiguredTransport:
    """Return the transport to the configured folder or centre.

    `wall` returns seconds since 1970 UTC. Raises `ConfigError`.
    """
    uplink = settings.uplink
    if uplink.folder:
        try:
            return ConfiguredTransport(FolderTransport(parse_folder(uplink.folder, folder)))
        except ValueError as error:
            raise ConfigError(f"uplink.folder: {error}") from None
    path = folder / uplink.enrolment
    enrolment, transport = _https(path, settings)
    return ConfiguredTransport(
        transport,
        CertificateRenewal(path, enrolment, transport, send_notice=backlog.log_notice, now=wall),
    )


def uploader(settings: Config, backlog: StoreBacklog, transport: Transport) -> Uploader:
    """Return an uploader, which sends the segments of a backlog over a transport."""
    scheduler = UploadScheduler(settings.uplink.live_share)
    return Uploader(
        settings.gateway.domain,
        backlog,
        transport,
        send_notice=backlog.log_notice,
        scheduler=scheduler,
    )


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
        raise ConfigError(
            f"uplink.enrolment is for {enrolment.gateway}, but this gateway is {domain}"
        )
    return enrolment, transport
