"""Set up the uplink from the configuration: epoch, transport and uploader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edge import background_tasks
from edge.background_tasks import HeartbeatSources
from edge.config.load import Config
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.engine.group_commit import Store
from edge.errors import ConfigError
from edge.features.eventlog.rules import epoch
from edge.features.eventlog.store import epochs
from edge.ops import hardware
from edge.uplink.backlog import StoreBacklog, begin_epoch
from sync.common.enrolment import Enrolment, EnrolmentError, read_enrolment
from sync.common.text import os_error
from sync.uplink.folder_transport import FolderTransport, parse_folder
from sync.uplink.http_client import HttpsLimits
from sync.uplink.https_transport import HttpsTransport
from sync.uplink.interfaces import GatewayStateSource, Transport
from sync.uplink.renewal import CertificateRenewal
from sync.uplink.scheduler import UploadScheduler
from sync.uplink.sealer import Sealer
from sync.uplink.uploader import Uploader


class ConfiguredTransport(NamedTuple):
    """A transport, and the renewal of its certificate if it may have one."""

    transport: Transport
    renewal: CertificateRenewal | None = None


async def begin_epoch_if_needed(
    folder: Path, store: Store, config: Config, facts: GatewayStateSource
) -> None:
    """Begin a new epoch if the database is a copy or runs on another board or card.

    This must run before any event is written. A plain copy on the same card looks like the
    original; only the centre can detect it. Raises `StoreError`.
    """
    found = await asyncio.to_thread(hardware.read, folder)
    state = await facts.state()

    def unit(tx: Transaction) -> None:
        known = epochs.load_hardware(tx)
        reason = epoch.new_epoch_reason(epochs.is_copy(tx), known, found)
        if reason is not None:
            begin_epoch(tx, config, state, reason)
        here = epoch.merge_hardware(known, found)
        if reason is not None or here != known:
            epochs.save_hardware(tx, here)

    await store.run(unit)


def transport_for(
    folder: Path, settings: Config, backlog: StoreBacklog, wall: Callable[[], float]
) -> ConfiguredTransport | None:
    """Return the configured transport, or `None` if segments stay on the gateway.

    `wall` returns seconds since 1970 UTC. Raises `ConfigError`.
    """
    uplink = settings.uplink
    if uplink.folder:
        try:
            return ConfiguredTransport(FolderTransport(parse_folder(uplink.folder, folder)))
        except ValueError as error:
            raise ConfigError(f"uplink.folder: {error}") from None
    if not uplink.enrolment:
        return None
    path = folder / uplink.enrolment
    enrolment, transport = _https(path, settings)
    return ConfiguredTransport(
        transport,
        CertificateRenewal(path, enrolment, transport, send_notice=backlog.log_notice, now=wall),
    )


def uploader(settings: Config, backlog: StoreBacklog, transport: Transport) -> Uploader:
    """Return the loop that uploads segments."""
    scheduler = UploadScheduler(settings.uplink.live_share)
    return Uploader(
        settings.gateway.domain,
        backlog,
        transport,
        send_notice=backlog.log_notice,
        scheduler=scheduler,
    )


async def seal_and_stop(beats: HeartbeatSources, sealer: Sealer, backlog: StoreBacklog) -> None:
    """Seal all events, and then the closing event, which is the last.

    Segments that a full backlog evicts are logged before it. Raises `StoreError` and
    `BacklogUnavailable`.
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
        raise ConfigError(
            f"uplink.enrolment is for {enrolment.gateway}, but this gateway is {domain}"
        )
    return enrolment, transport
