"""The gateway's folder: its configuration, who may read its secrets, its certificates' ends."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.config.load import Config
from edge.engine import database
from edge.engine.service_time import DAY_MS
from edge.errors import SetupError
from edge.features.accounts.store.certificates import ExpiringDevice
from edge.ops import config_check, der, pki
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from sync.common.regular_files import NotRegularError, check_regular
from sync.common.text import os_error, plural

SOON: Final = 30
"""Days before a certificate ends from which on it is told: the gateway's own renew themselves long
before."""

SHOWN: Final = 5
"""Names that are told one by one."""


def configuration(folder: Path) -> Iterator[Finding]:
    """Check the options."""
    found = config_check.check(folder)
    for each in found.faults:
        text = f"{each.option}: {each.text}" if each.option else each.text
        yield Finding("configuration", WRONG, text, "mend it in fieldpost.toml")
    if not found.faults:
        count = plural(len(found.changed), "option differs", "options differ")
        yield Finding("configuration", OK, f"{count} from the defaults")


def secrets(folder: Path, settings: Config) -> Iterator[Finding]:
    """Look who else may read the keys or a component's secret, the database and the enrolment."""
    paths = [folder / database.FILE_NAME]
    if settings.component is None:
        files = pki.files(folder)
        paths += [files.ca_key, files.server_key]
    else:
        paths.append(folder / settings.xmpp.component_secret)
    if settings.uplink.enrolment:
        paths.append(folder / settings.uplink.enrolment)
    owner, bad = folder.stat().st_uid, False
    for path in paths:
        try:
            found = check_regular(path)
        except FileNotFoundError:
            bad = True
            remedy = "put it back from a backup; an enrolment is made by `fieldpost-fleet gateway`"
            yield Finding("secrets", WRONG, f"{path} is missing", remedy)
            continue
        except NotRegularError as error:
            bad = True
            yield Finding("secrets", WRONG, os_error(error), "put a file there, as from a backup")
            continue
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            bad = True
            text = f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
            yield Finding("secrets", WRONG, text, f"chmod 600 {path}")
        if found.st_uid != owner:
            bad = True
            text = f"{path} has another owner than its folder"
            yield Finding("secrets", WRONG, text, f"chown it to the owner of {folder}")
    if not bad:
        yield Finding("secrets", OK, "keys, secrets and the database are their owner's alone")


def certificates(folder: Path, now: int, expiring: list[ExpiringDevice]) -> Iterator[Finding]:
    """Look when the gateway's certificates end, and those of devices; `now` in ms since 1970."""
    files = pki.files(folder)
    for path, remedy in (
        (files.server, "a running gateway makes a new one: start it, or look at its event log"),
        (files.ca, "make a new gateway: every device has to be given its CA"),
    ):
        try:
            days = (der.read(path).ends - now) // DAY_MS
        except SetupError as error:
            yield Finding("certificates", WRONG, str(error), "put it back from a backup")
            continue
        if days < 0:
            yield Finding("certificates", WRONG, f"{path} has ended", remedy)
        elif days < SOON:
            yield Finding("certificates", NOTICE, f"{path} ends in {plural(days, 'day')}", remedy)
        else:
            yield Finding("certificates", OK, f"{path.name} ends in {plural(days, 'day')}")
    if expiring:
        names = ", ".join(each.name for each in expiring[:SHOWN])
        more = "" if len(expiring) <= SHOWN else f" and {plural(len(expiring) - SHOWN, 'other')}"
        text = f"certificates end within {SOON} days, of {names}{more}"
        yield Finding("certificates", NOTICE, text, "`fieldpost device certificate NAME`")
