"""Provisioning devices."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Final

from edge import config, credentials
from edge.admin import moment
from edge.errors import SetupError
from edge.store import accounts, database

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


def add(folder: Path, name: str, password: str | None, *, trusted: bool) -> tuple[str, str | None]:
    """Provision a device, also while the gateway runs.

    Without a `password` one is made up. Returns the JID, and the password if it was made up; it is
    kept nowhere. Raises `SetupError` for a bad or taken name and for a bad password.
    """
    domain = config.load(folder).gateway.domain
    if not _NAME.fullmatch(name):
        raise SetupError(
            f"device name {name!r} is not 1 to 64 lower-case letters, digits, '.', '_' or '-'"
        )
    made_up = credentials.generate_password() if password is None else None
    try:
        # A device stretches its password at every login, so this takes the least rounds that
        # clients accept: a short password of one's own is weak if the database is stolen.
        keys = credentials.derive(password or made_up or "", credentials.ITERATIONS)
    except credentials.PasswordError as error:
        raise SetupError(str(error)) from error
    with (
        closing(database.connect(folder / database.FILE_NAME)) as connection,
        database.single(connection, moment.now()) as tx,
    ):
        accounts.add(tx, name, keys, trusted=trusted)
    return f"{name}@{domain}", made_up
