"""Whose a gateway's folder is: what is told to who may not do what a command needs."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def owner_to_be(folder: Path) -> str | None:
    """Name the user whose `folder` this is; `None` for that user and for root, and of no folder."""
    try:
        owner = folder.stat().st_uid
    except OSError:
        return None
    if os.geteuid() in (0, owner):
        return None
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)
