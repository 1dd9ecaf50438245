"""Create a gateway's folder with its configuration, database and keys, completely or not at all."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

from edge.config import annotated_file, load
from edge.engine.store import database, meta
from edge.errors import SetupError
from edge.features.eventlog.store import epochs
from edge.ops import current_time
from edge.ops.certificates import certificates, pki
from sync.common.durable_files import move_into_place, temporary_folder


def init(folder: Path, domain: str, *listen: str) -> None:
    """Create `folder` for the gateway of `domain`; raises `SetupError` if it is not empty.

    If `listen` has addresses, the configuration gets them in place of the default.
    """
    load.check_domain(domain)
    text = annotated_file.render(domain, *listen)
    load.parse(text.encode())
    folder = check_empty(folder)
    with temporary_folder(folder) as temporary:
        _fill(temporary, domain, text)
        move_into_place(temporary, folder)


def check_empty(folder: Path) -> Path:
    """Return the absolute path of a new or empty folder, and create its parent folder.

    Raises `SetupError` if the folder is not empty.
    """
    folder = folder.resolve()
    if folder == Path.cwd():
        raise SetupError(
            f"{folder} is the current folder and would be replaced; run this from another folder"
        )
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} exists and is not empty; choose a new folder")
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
