"""Limits and times of devices and workers, each with its unit, default and reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """Timeouts and retries of a sender, and the limits of messages in flight."""

    retry_base: float = 15.0
    """Seconds until the first retransmission, enough for a slow link; the wait then doubles."""
    retry_cap: float = 3600.0
    """Maximum seconds between two retransmissions, and so the longest delay after an outage."""
    jitter: float = 0.25
    """Largest random reduction of a wait, as a fraction (0 to 1), to spread the load of a fleet."""
    max_attempts: int = 10
    """Maximum transmissions of one request of a message, in some two hours; then it is given up."""
    window: int = 16
    """Maximum number of messages in flight: half of the 32 that a gateway holds for one sender."""
    window_bytes: int = 64 * 1024
    """Maximum bytes in flight: half of the 128 KiB that a gateway holds for one sender."""
    silence: float = 60.0
    """Seconds without any answer after which a request that times out causes a reconnection."""
    unsent_bytes: int = 64 * 1024
    """Bytes in the write buffer above which level 0 messages are refused; equals `window_bytes`."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Capacity of the outbox."""

    messages: int = 10_000
    """Maximum number of pending messages: a day of one reading every nine seconds."""
    bytes: int = 16 * 1024 * 1024
    """Maximum bytes of the bodies of all pending messages: a small part of any card."""
    message_bytes: int = 32 * 1024
    """Maximum bytes of one body: half of the 64 KiB stanza that a gateway accepts."""
    keep_done: int = 1_000
    """Number of delivered messages to remember without bodies; older messages are only counted."""
    keep_failed: int = 1_000
    """Number of failed messages, and as many in doubt, to remember; older ones are only counted."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """Capacity of the inbox. A source is the bare JID of a sender."""

    messages: int = 256
    """Maximum number of held (not yet released) messages: 8 sources with `source_messages` each."""
    bytes: int = 1024 * 1024
    """Maximum bytes of held messages, including their keys: 8 sources with `source_bytes` each."""
    source_messages: int = 32
    """Maximum number of held messages of one source: the same as a gateway's limit."""
    source_bytes: int = 128 * 1024
    """Maximum bytes of held messages of one source: the same as a gateway's limit."""
    held_s: int = 7 * 24 * 3600
    """Seconds of operation after which an unreleased message is dropped when room is needed."""
    keep_source: int = 256
    """Number of released messages of one source to remember, to answer a repeated `deliver`."""
    keep: int = 1_024
    """Number of released messages of all sources to remember: 4 sources with `keep_source` each."""
    unsent_bytes: int = 256 * 1024
    """Bytes in the write buffer above which answers are dropped; senders repeat their requests."""


@dataclass(frozen=True, slots=True)
class ReconnectPolicy:
    """Delays between attempts to connect; a device never gives up."""

    base: float = 1.0
    """Seconds until the second attempt; the wait doubles with each failure."""
    cap: float = 60.0
    """Maximum seconds between two attempts to connect: the longest wait after an outage ends."""
    jitter: float = 0.5
    """Largest random reduction of a wait, as a fraction (0 to 1), to spread the load of a fleet."""
    stable: float = 10.0
    """Seconds that a session must last, so that the first wait after it is `base` again."""
    timeout: float = 30.0
    """Seconds in which an attempt to connect must lead to a bound session; else it fails."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Concurrency and memory of a worker."""

    requests: int = 5
    """Maximum number of items of one session at a time: the option `pubsub#queue_requests`."""
    keep: int = 1_000
    """Number of done and undone items (`JobState`) to remember; older items are only counted."""
