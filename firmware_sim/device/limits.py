"""Every limit and time of a device, with its unit, its default and the reason for it.

Nothing here acts; the modules that wait, keep or retry take these as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """How the sender retries and how much it has in flight."""

    retry_base: float = 15.0
    """Seconds until the first repetition; doubles with each. Long enough for a slow link."""
    retry_cap: float = 3600.0
    """Seconds, the longest wait between two repetitions: an hour's outage costs an hour at most."""
    jitter: float = 0.25
    """The part of each wait that chance may take off, so that a fleet does not speak at once."""
    max_attempts: int = 10
    """Transmissions of one step that count before it fails; about two hours at the defaults."""
    window: int = 16
    """Messages in flight: half of the 32 that a gateway holds for one source."""
    window_bytes: int = 64 * 1024
    """Bytes in flight: half of the 128 KiB that a gateway holds for one source."""
    silence: float = 60.0
    """Seconds without any answer, while one is due, after which the connection is given up."""
    unsent_bytes: int = 64 * 1024
    """Bytes written and not taken by the link, beyond which level 0 is refused: one window."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """How much the outbox keeps."""

    messages: int = 10_000
    """Messages that are not ended: a day of one reading each nine seconds."""
    bytes: int = 16 * 1024 * 1024
    """Bytes of their bodies: small beside any card, and a bound all the same."""
    message_bytes: int = 32 * 1024
    """Bytes of one body: half of the 64 KiB stanza that a gateway accepts."""
    keep_done: int = 1_000
    """Delivered messages remembered, without their bodies; older ones are only counted."""
    keep_failed: int = 1_000
    """Failed messages, and as many in doubt, remembered whole; older ones are only counted."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """How much the inbox holds for others, and remembers. A source is a bare JID."""

    messages: int = 256
    """Assured messages held, not released yet: eight sources at their limit."""
    bytes: int = 1024 * 1024
    """Bytes of them, keys included: eight sources at their limit."""
    source_messages: int = 32
    """Messages held of one source: what a gateway holds for one, too."""
    source_bytes: int = 128 * 1024
    """Bytes held of one source: what a gateway holds for one, too."""
    held_s: int = 7 * 24 * 3600
    """Seconds of running after which what is not released makes room for others; not before."""
    keep_source: int = 256
    """Keys of released messages remembered of one source, for a `deliver` that is repeated."""
    keep: int = 1_024
    """Keys remembered of all sources: four sources at their limit, or very many with a few."""
    msg_id_bytes: int = 256
    """Bytes of one msgId: what a gateway takes, too."""
    unsent_bytes: int = 256 * 1024
    """Bytes written and not taken by the link, beyond which answers are left out: they may be."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """How a device finds its way back to the gateway; it never gives up."""

    base: float = 1.0
    """Seconds until the second attempt; doubles with each failure."""
    cap: float = 60.0
    """Seconds, the longest wait between two attempts: the delay an operator sees after a repair."""
    jitter: float = 0.5
    """The part of each wait that chance may take off, so that a fleet does not return at once."""
    stable: float = 10.0
    """Seconds that a session must last for the pauses to begin anew after it."""
    timeout: float = 30.0
    """Seconds from dialling to a bound session."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """How much a worker has in hand, and remembers."""

    requests: int = 5
    """Items that it works on at the same time; the service gives it no more (queue_requests)."""
    keep: int = 1_000
    """Items remembered that are done or given back; older ones are only counted."""
