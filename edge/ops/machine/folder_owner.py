"""Find out whether a gateway's folder belongs to another user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def other_owner(folder: Path) -> str | None:
    """Return the name of the folder's owner, unless the current user is the owner or root.

    If there is no such folder, returns `None`.
    """
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
