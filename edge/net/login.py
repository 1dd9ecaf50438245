"""What negotiation needs of others: TLS, credentials, a hash, a binding.

What takes a `then` calls it on the event loop with what came of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from edge import credentials
from edge.errors import StoreBusy, StoreError, StoreFull
from edge.store import accounts
from edge.wire.errors import StanzaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge.credentials import Credentials
    from edge.net.shared import Shared
    from edge.store.database import Transaction

FINGERPRINT: Final = "SCRAM-SHA-256"
"""The credentials that PLAIN is checked against."""


LINGER: Final = 5.0
"""Seconds that a peer has to take the last bytes and close; then the connection is aborted."""

TURN: Final = 0.5
"""Seconds for which a handshake holds others back: one that takes longer waits for its peer."""


class Binding(NamedTuple):
    """A session to be bound: its socket's generation, its account, and its JIDs."""

    generation: int
    account: str
    bare: str
    full: str


async def secure(
    shared: Shared, session: asyncio.BaseProtocol, plain: asyncio.Transport
) -> asyncio.Transport | None:
    """Do the TLS handshake on a connection; `None` where it failed."""
    limits = shared.settings.limits
    async with shared.handshakes:
        if plain.is_closing():  # it was lost while it waited: TLS on it would never end
            return None
        handshake = shared.loop.create_task(
            shared.loop.start_tls(
                plain,
                session,
                shared.tls,
                server_side=True,
                ssl_handshake_timeout=limits.authenticate_time,
                ssl_shutdown_timeout=LINGER,
            )
        )
        await asyncio.wait({handshake}, timeout=TURN)
    try:
        return await handshake
    except OSError:  # TLS's errors and time-outs among them
        return None


def look_up(
    shared: Shared, username: str, mechanism: str, then: Callable[[Credentials | None], None]
) -> None:
    """Find the credentials of an account, or make some up; `None` if the store could not."""
    wanted = FINGERPRINT if mechanism == "PLAIN" else mechanism

    def answer(outcome: Credentials | StoreError | None) -> None:
        if outcome is None:
            then(credentials.decoy(username, shared.decoy, wanted))
        else:
            then(None if isinstance(outcome, StoreError) else outcome)

    shared.store.submit(lambda tx: accounts.credentials(tx, username, wanted), answer)


def verify(shared: Shared, password: str, keys: Credentials, then: Callable[[bool], None]) -> None:
    """Check a password beside the event loop: hashing it takes milliseconds."""

    def answer(done: asyncio.Future[bool]) -> None:
        then(not done.cancelled() and done.exception() is None and done.result())

    checked = shared.loop.run_in_executor(shared.hashing, credentials.verify, password, keys)
    checked.add_done_callback(answer)


def bind(shared: Shared, binding: Binding, then: Callable[[StanzaError | None], None]) -> None:
    """Bind a session; the one that had its address before is ended."""

    def unit(tx: Transaction) -> int | None:
        return shared.lifecycle.enter(tx, *binding)

    def answer(outcome: int | StoreError | None) -> None:
        if isinstance(outcome, StoreError):
            then(stanza_error(outcome))
            return
        if outcome is not None:
            shared.registry.end(outcome, "conflict", "replaced by a new session")
        then(None)

    shared.store.submit(unit, answer)


def unbind(shared: Shared, generation: int) -> None:
    """Forget a session; if that fails, its row ends with the process."""
    shared.store.submit(
        lambda tx: shared.lifecycle.leave(tx, generation, ()), lambda _outcome: None
    )


def stanza_error(error: StoreError) -> StanzaError:
    """Tell what the store could not do as an error that the peer may retry after."""
    if isinstance(error, StoreFull | StoreBusy):
        return StanzaError("resource-constraint", "the gateway's disk has no room just now")
    return StanzaError("internal-server-error", type="wait")
