"""Making a gateway's folder: the configuration, the database, the keys.

The folder appears whole or not at all: everything is made in a temporary one beside it, which is
then renamed.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

from edge.config import annotated_file, load
from edge.engine import database, meta
from edge.errors import SetupError
from edge.features.eventlog.store import epochs
from edge.ops import certificates, current_time, pki
from sync.common.durable_files import move_into_place, temporary_folder


def init(folder: Path, domain: str, *listen: str) -> None:
    """Make `folder` for the gateway of `domain`; raises `SetupError` if anything is there already.

    `listen` are addresses, written into the configuration in place of its default.
    """
    load.check_domain(domain)
    text = annotated_file.render(domain, *listen)
    load.parse(text.encode())
    folder = empty(folder)
    with temporary_folder(folder) as making:
        _fill(making, domain, text)
        move_into_place(making, folder)


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
    (folder / load.FILE_NAME).write_text(text, "utf-8")
    now = current_time.now()
    ca = pki.create(folder, domain, now.wall)
    path = folder / database.FILE_NAME
    database.create(path)
    with (
        closing(database.connect(path)) as connection,
        database.transaction(connection, now) as tx,
    ):
        epochs.begin(tx, epochs.CREATED)
        meta.write(tx, meta.DECOY, secrets.token_bytes(32))
        certificates.write_crl(tx, folder, ca)
