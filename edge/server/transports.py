"""Free closed transports of asyncio at once."""

from __future__ import annotations

from typing import Any


def unlink(transport: Any) -> None:
    """Remove the reference of a closed transport to itself, so that it is freed without garbage
    collection. A transport without this private attribute of asyncio is not changed."""
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None
