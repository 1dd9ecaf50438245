"""Limits and times of devices and workers, each with its unit, default and reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """Retries of the sender, and its messages in flight."""

    retry_base: float = 15.0
    """Seconds until the first repetition, doubled with each; long enough for a slow link."""
    retry_cap: float = 3600.0
    """Longest wait between two repetitions, in seconds: an outage adds an hour at most."""
    jitter: float = 0.25
    """Largest random reduction of each wait, as a fraction; it spreads the load of a fleet."""
    max_attempts: int = 10
    """Counted transmissions of one step before it fails; about two hours by default."""
    window: int = 16
    """Messages in flight: half of the 32 that a gateway holds for one source."""
    window_bytes: int = 64 * 1024
    """Bytes in flight: half of the 128 KiB that a gateway holds for one source."""
    silence: float = 60.0
    """Seconds without an answer, while one is due, before the connection is dropped."""
    unsent_bytes: int = 64 * 1024
    """Bytes in the write buffer above which level 0 is refused: one window."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Capacity of the outbox."""

    messages: int = 10_000
    """Pending messages: a day of one reading every nine seconds."""
    bytes: int = 16 * 1024 * 1024
    """Bytes of their bodies: a small part of any card."""
    message_bytes: int = 32 * 1024
    """Bytes of one body: half of the 64 KiB stanza that a gateway accepts."""
    keep_done: int = 1_000
    """Delivered messages to remember, without their bodies; older ones are only counted."""
    keep_failed: int = 1_000
    """Failed messages to remember, and as many in doubt; older ones are only counted."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """Capacity of the inbox. A source is a bare JID."""

    messages: int = 256
    """Held messages, which are not released yet: eight sources at their limit."""
    bytes: int = 1024 * 1024
    """Bytes of held messages, including their keys: eight sources at their limit."""
    source_messages: int = 32
    """Held messages of one source: the limit of a gateway."""
    source_bytes: int = 128 * 1024
    """Held bytes of one source: the limit of a gateway."""
    held_s: int = 7 * 24 * 3600
    """Seconds of running time after which an unreleased message may be dropped for lack of room."""
    keep_source: int = 256
    """Released keys of one source to remember, for repeated `deliver` requests."""
    keep: int = 1_024
    """Released keys of all sources to remember: four sources at their limit."""
    msg_id_bytes: int = 256
    """Bytes of one msgId: the limit of a gateway."""
    unsent_bytes: int = 256 * 1024
    """Bytes in the write buffer above which answers are dropped, because the sender repeats."""


@dataclass(frozen=True, slots=True)
class ReconnectPolicy:
    """Delays between attempts to connect; a device never gives up."""

    base: float = 1.0
    """Seconds until the second attempt, doubled with each failure."""
    cap: float = 60.0
    """Longest wait between two attempts, in seconds: the delay after a repair."""
    jitter: float = 0.5
    """Largest random reduction of each wait, as a fraction; it spreads the load of a fleet."""
    stable: float = 10.0
    """Seconds that a session must last to reset the delays."""
    timeout: float = 30.0
    """Seconds from dialling to a bound session."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Concurrency and memory of a worker."""

    requests: int = 5
    """Items worked on at the same time; sent to the service as `queue_requests`."""
    keep: int = 1_000
    """Finished items to remember, done or undone; older ones are only counted."""
