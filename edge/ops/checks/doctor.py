"""Diagnose a running or stopped gateway with all of `edge.ops.checks`, without changing it.

If a part cannot be checked, that is reported as a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from edge.config import load
from edge.config.load import Config
from edge.engine.limits import flash_wear
from edge.engine.store import database
from edge.errors import ConfigError, FieldpostError, StoreError, StoreFull
from edge.features.accounts.store import certificates
from edge.features.queues.store import depth_events
from edge.ops import current_time
from edge.ops.checks import database as database_checks
from edge.ops.checks import folder as folder_checks
from edge.ops.checks import health, machine
from edge.ops.checks import uplink as uplink_checks
from edge.ops.checks.finding import WRONG, Finding
from edge.ops.gateway import status as gateway_status
from edge.ops.gateway import uplink
from edge.ops.gateway.status import NOT_RUNNING
from edge.ops.gateway.uplink import Route
from edge.ops.machine.folder_owner import other_owner
from edge.ops.store_remedies import store_remedy
from edge.ops.transactions import reading
from sync.common.text import os_error

WEAR_DAYS: Final = 30
"""The number of latest days from which the wear of the card is estimated."""


def diagnose(folder: Path, *, deep: bool = False) -> Iterator[Finding]:
    """Run all checks and yield at least one finding for each part of the gateway.

    With `deep`, every entry of the database is checked, which takes minutes if the database is
    large.
    """
    now = current_time.now().wall

    def guard(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
        try:
            yield from check()
        except (FieldpostError, OSError) as error:
            yield _failure(folder, name, error)

    yield from guard("configuration", lambda: folder_checks.configuration(folder))
    try:
        settings = load.load(folder)
    except ConfigError:
        return  # reported above; nothing else can be judged without a configuration
    route = uplink.route(folder, settings)
    yield from guard("secrets", lambda: folder_checks.secrets(folder, settings))
    yield from guard("mqtt", lambda: machine.anonymous(settings))
    yield from guard("clock", machine.clock)
    yield from guard("temperature", machine.climate)
    yield from guard("service", machine.service)
    yield from guard("uplink", lambda: uplink_checks.route(route, now))
    integrity = list(guard("database", lambda: database_checks.integrity(folder, deep=deep)))
    yield from integrity
    if all(finding.verdict != WRONG for finding in integrity):
        yield from guard("database", lambda: _stored(folder, settings, route, now))


def _stored(folder: Path, settings: Config, route: Route, now: int) -> Iterator[Finding]:
    target = route.target
    status, ships = gateway_status.read(folder), uplink.read(folder)
    with reading(folder) as tx:
        depths, days = depth_events.depths(tx), flash_wear.recent_days(tx, WEAR_DAYS)
        expiring = certificates.find_expiring(tx, tx.now.wall, folder_checks.EXPIRY_NOTICE_DAYS)
        expired = certificates.find_expired(tx, tx.now.wall)
        revoked = certificates.list_revoked(tx)
    yield from health.essentials(folder, settings, status)
    yield from health.fronts(status)
    yield from machine.confinement(status.fronts)
    yield from health.certificates(folder, settings, now)
    if status.state == NOT_RUNNING:
        yield from machine.ports(settings)
    if settings.component is None:
        yield from folder_checks.revocation_list(folder, now, revoked)
        yield from folder_checks.expired_devices(expired)
        yield from folder_checks.expiring_devices(expiring)
    yield from database_checks.limits(status)
    yield from database_checks.dead_letters(status)
    yield from database_checks.queues(depths, status)
    yield from uplink_checks.unsealed(ships, settings.uplink.segment_age, status, now)
    yield from uplink_checks.centre(uplink.probe(route, status.epoch), ships, now)
    yield from uplink_checks.backlog(ships, target, now)
    yield from machine.wear(folder, settings, days)


def _failure(folder: Path, name: str, error: FieldpostError | OSError) -> Finding:
    text = os_error(error) if isinstance(error, OSError) else str(error)
    remedy = f"if a file is missing or damaged, {database.restore_advice(folder)}"
    if isinstance(error, StoreFull):
        return Finding("disk", WRONG, text, store_remedy(error, folder))
    if isinstance(error, StoreError):
        remedy = store_remedy(error, folder)
    if (owner := other_owner(folder)) is not None:
        remedy = f"run this command as {owner}, who owns {folder}"
    return Finding(name, WRONG, f"the check failed: {text}", remedy)
