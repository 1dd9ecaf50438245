"""What the gateway shows to the outside: the listener, or a component of another server.

A front connects itself to the store (`on_sends`, `on_room`, `on_changed`) when it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from edge.config import Address


class Front(Protocol):
    """A front."""

    async def start(self) -> list[tuple[str, Address]]:
        """Begin to serve; returns where, as `ready` names it. Raises `ConfigError`."""

    async def stop(self, patience: float) -> None:
        """Serve nobody more and end the sessions; waits `patience` seconds for them at most."""
