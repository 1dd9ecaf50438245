"""Making a gateway's folder: the configuration, the database, the keys.

The folder appears whole or not at all: everything is made in a temporary one beside it, which is
then renamed.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

from edge import config, config_text
from edge.admin import certificates, durable, moment, pki
from edge.errors import SetupError
from edge.store import database, epochs, meta


def init(folder: Path, domain: str, *listen: str) -> None:
    """Make `folder` for the gateway of `domain`; raises `SetupError` if anything is there already.

    `listen` are addresses, written into the configuration in place of its default.
    """
    config.check_domain(domain)
    text = config_text.render(domain, *listen)
    config.parse(text.encode())
    folder = empty(folder)
    with durable.workshop(folder) as making:
        _fill(making, domain, text)
        durable.put_new(making, folder)


def empty(folder: Path) -> Path:
    """Return the whole path of a folder that a gateway may be put in; the one above is made.

    Raises `SetupError` if anything is there already.
    """
    folder = folder.resolve()
    if folder == Path.cwd():
        raise SetupError(f"{folder} is replaced as a whole: run this in another folder")
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} exists already and is not empty: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def _fill(folder: Path, domain: str, text: str) -> None:
    (folder / config.FILE_NAME).write_text(text, "utf-8")
    now = moment.now()
    ca = pki.create(folder, domain, now.wall)
    path = folder / database.FILE_NAME
    database.create(path)
    with (
        closing(database.connect(path)) as connection,
        database.single(connection, now) as tx,
    ):
        epochs.begin(tx, epochs.CREATED)
        meta.write(tx, meta.DECOY, secrets.token_bytes(32))
        certificates.write_crl(tx, folder, ca)
