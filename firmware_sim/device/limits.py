"""Limits and times of devices and workers, each with its unit, default and reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """Timeouts and retries of a sender, and the limits of messages in flight."""

    retry_base: float = 15.0
    """Seconds until the first retransmission, for a slow link; the wait doubles each time."""
    retry_cap: float = 3600.0
    """Longest wait between two retransmissions, in seconds: the longest delay after an outage."""
    jitter: float = 0.25
    """Largest random reduction of a wait, as a fraction (0 to 1), to spread the load of a fleet."""
    max_attempts: int = 10
    """Transmissions of one step without an answer before the message ends; about two hours."""
    window: int = 16
    """Most messages in flight: half of the 32 that a gateway holds for one source."""
    window_bytes: int = 64 * 1024
    """Most bytes in flight: half of the 128 KiB that a gateway holds for one source."""
    silence: float = 60.0
    """Seconds without any answer after which a missing answer causes a reconnection."""
    unsent_bytes: int = 64 * 1024
    """Bytes in the write buffer above which messages of level 0 are refused: one window."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Capacity of the outbox."""

    messages: int = 10_000
    """Most pending messages: a day of one reading every nine seconds."""
    bytes: int = 16 * 1024 * 1024
    """Most bytes of the bodies of pending messages: a small part of any card."""
    message_bytes: int = 32 * 1024
    """Most bytes of one body: half of the 64 KiB stanza that a gateway accepts."""
    keep_done: int = 1_000
    """Number of delivered messages to remember without bodies; older messages are only counted."""
    keep_failed: int = 1_000
    """Number of failed, and of in-doubt, messages to remember; older ones are only counted."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """Capacity of the inbox. A source is the bare JID of a sender."""

    messages: int = 256
    """Most held messages, which are not released yet: eight sources at their limit."""
    bytes: int = 1024 * 1024
    """Most bytes of held messages, including their keys: eight sources at their limit."""
    source_messages: int = 32
    """Most held messages of one source: the same as a gateway's limit."""
    source_bytes: int = 128 * 1024
    """Most bytes of held messages of one source: the same as a gateway's limit."""
    held_s: int = 7 * 24 * 3600
    """Seconds of operation after which an unreleased message may be dropped for lack of room."""
    keep_source: int = 256
    """Keys of released messages to remember for one source, to answer a repeated `deliver`."""
    keep: int = 1_024
    """Keys of released messages to remember for all sources: four sources at their limit."""
    msg_id_bytes: int = 256
    """Most bytes of one msgId: the same as a gateway's limit."""
    unsent_bytes: int = 256 * 1024
    """Bytes in the write buffer above which answers are dropped; senders repeat their requests."""


@dataclass(frozen=True, slots=True)
class ReconnectPolicy:
    """Delays between attempts to connect; a device never gives up."""

    base: float = 1.0
    """Seconds until the second attempt; the wait doubles with each failure."""
    cap: float = 60.0
    """Longest wait between two attempts, in seconds: the longest delay after an outage."""
    jitter: float = 0.5
    """Largest random reduction of a wait, as a fraction (0 to 1), to spread the load of a fleet."""
    stable: float = 10.0
    """Seconds that a session must last for the delays to begin again at `base`."""
    timeout: float = 30.0
    """Seconds from the start of an attempt to a bound session; then the attempt fails."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Concurrency and memory of a worker."""

    requests: int = 5
    """Most items worked on concurrently; sent as the option `pubsub#queue_requests`."""
    keep: int = 1_000
    """Number of finished items to remember, done or undone; older items are only counted."""
