"""Every bound of the gateway, in one table: its type, default, unit and reason.

`edge.config.load` reads, checks and writes the options; `edge.config.options` has those that are
no bounds. Nothing here does anything.
"""

from __future__ import annotations

from typing import Annotated, Final

from edge.config.options import DAY, HOUR, KIB, MIB, option
from edge.config.pubsub_limits import PubsubLimits

ASIDE_BYTES: Final = 4 * MIB
"""Bytes of segments kept that the centre refused for good: for a person to look at."""


class Limits(PubsubLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every bound of the gateway; those of publish-subscribe stand beside."""

    sessions: Annotated[
        int, option("Sessions at once; a TLS one costs some 50 KiB.", "sessions", ge=1)
    ] = 1000
    unauthenticated: Annotated[
        int,
        option(
            "Connections beside those, not logged in yet: strangers hold no more than these.",
            "connections",
            ge=1,
        ),
    ] = 200
    unauthenticated_per_address: Annotated[
        int, option("Of those, from one IP address (IPv6: one /64).", "connections", ge=1)
    ] = 50
    sessions_per_account: Annotated[
        int, option("Sessions of one account; a device has one, a person a few.", "sessions", ge=1)
    ] = 8
    sessions_per_address: Annotated[
        int,
        option("Sessions from one IP address (IPv6: one /64): half of them.", "sessions", ge=1),
    ] = 500
    authenticate_failures: Annotated[
        int,
        option(
            "Failed log-ins from one address, or to one account, before more are not even tried,",
            "log-ins",
            ge=3,
        ),
    ] = 20
    authenticate_again: Annotated[
        float, option("and then one may be tried in each of these.", "seconds", gt=0)
    ] = 6.0
    authenticate_delay: Annotated[
        float,
        option(
            "A failed log-in is answered after this, doubled with each one before, up to 16 times.",
            "seconds",
            ge=0,
            le=2,
        ),
    ] = 0.25
    authenticate_time: Annotated[
        float,
        option("From connecting to being bound; long enough for a slow radio.", "seconds", gt=0),
    ] = 30.0
    handshakes: Annotated[
        int,
        option(
            "TLS handshakes at once; one that stalls gives up its turn after half a second.",
            "handshakes",
            ge=1,
        ),
    ] = 4
    stranger_stanza_bytes: Annotated[
        int,
        option(
            "The largest stanza before log-in (RFC 6120 13.12 demands 10,000).", "bytes", ge=10_000
        ),
    ] = 10 * KIB
    stanza_bytes: Annotated[
        int, option("The largest stanza after log-in.", "bytes", ge=10_000, le=MIB)
    ] = 64 * KIB
    stanza_depth: Annotated[
        int, option("Elements within elements; real payloads need ten.", "levels", ge=8)
    ] = 32
    stanza_elements: Annotated[
        int, option("Elements in one stanza: a tree costs 80 times its bytes.", "elements", ge=16)
    ] = 1000
    stanza_attributes: Annotated[int, option("Attributes of one element.", "attributes", ge=8)] = 32
    stanzas_per_second: Annotated[
        int,
        option(
            "Stanzas of one connection, in the long run: 50 exchanges; beyond, its socket waits.",
            "stanzas",
            ge=1,
        ),
    ] = 100
    stanzas_at_once: Annotated[
        int, option("Stanzas that it may be ahead of that.", "stanzas", ge=16)
    ] = 500
    bytes_per_second: Annotated[int, option("The same in bytes,", "bytes", ge=KIB)] = 256 * KIB
    bytes_at_once: Annotated[int, option("and how many it may be ahead.", "bytes", ge=64 * KIB)] = (
        512 * KIB
    )
    session_units: Annotated[
        int,
        option(
            "Stanzas of one session that wait for a commit; then its socket waits.", "stanzas", ge=1
        ),
    ] = 64
    session_bytes: Annotated[
        int,
        option("The bytes of those: decoded, they take some ten times as much.", "bytes", ge=KIB),
    ] = 64 * KIB
    stalled_time: Annotated[
        float,
        option("How long a peer may leave answers unread; then it is cut off.", "seconds", gt=0),
    ] = 60.0
    waiting_units: Annotated[
        int,
        option(
            "Stanzas of all sessions that wait for a commit; then all sockets wait.",
            "stanzas",
            ge=1,
        ),
    ] = 4096
    waiting_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=MIB)] = 8 * MIB
    send_buffer: Annotated[
        int,
        option("Unsent replies of a session; beyond, its socket is not read.", "bytes", ge=KIB),
    ] = 64 * KIB
    resume_time: Annotated[
        float,
        option(
            "How long a session waits to be resumed, or for an acknowledgement (XEP-0198).",
            "seconds",
            ge=0,
            le=3600,
        ),
    ] = 300.0
    unacknowledged_stanzas: Annotated[
        int,
        option(
            "Answers to a session that it has not acknowledged; beyond, it ends. Others have half.",
            "stanzas",
            ge=16,
        ),
    ] = 256
    unacknowledged_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=64 * KIB)] = (
        128 * KIB
    )
    unacknowledged_total_bytes: Annotated[
        int, option("The bytes of those of all sessions: they are memory.", "bytes", ge=64 * KIB)
    ] = 16 * MIB
    roster_items: Annotated[
        int, option("Contacts in the roster of one account.", "contacts", ge=1, le=1000)
    ] = 200
    presence_bytes: Annotated[
        int, option("The largest presence: a session's last one is in memory.", "bytes", ge=KIB)
    ] = 4 * KIB
    directed_presences: Annotated[
        int,
        option(
            "Addresses that a session has sent presence to of its own, to be told when it goes.",
            "addresses",
            ge=1,
        ),
    ] = 64
    offline_messages: Annotated[
        int, option("Plain messages stored for one account that is away.", "messages", ge=1)
    ] = 128
    offline_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=10_000)] = 256 * KIB
    offline_total_messages: Annotated[
        int, option("Plain messages stored for all accounts.", "messages", ge=1)
    ] = 8192
    offline_total_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=10_000)] = (
        16 * MIB
    )
    offline_messages_per_source: Annotated[
        int, option("Of those, from one account, for all devices.", "messages", ge=1)
    ] = 256
    offline_bytes_per_source: Annotated[int, option("The bytes of those.", "bytes", ge=10_000)] = (
        MIB
    )
    offline_ttl: Annotated[
        float, option("How long a plain message is stored.", "seconds of service", gt=0)
    ] = 7 * DAY
    held_messages: Annotated[
        int, option("Assured messages in custody, all sources.", "messages", ge=8)
    ] = 8192
    held_bytes: Annotated[
        int, option("The bytes of those, keys included.", "bytes", ge=64 * KIB)
    ] = 32 * MIB
    held_messages_per_source: Annotated[
        int,
        option(
            "Assured messages in custody from one account; firmware has few in flight.",
            "messages",
            ge=1,
        ),
    ] = 32
    held_bytes_per_source: Annotated[
        int, option("The bytes of those, keys included.", "bytes", ge=KIB)
    ] = 128 * KIB
    held_ttl: Annotated[
        float,
        option(
            "How long a message waits for its `deliver`; a device may be away for a weekend.",
            "seconds of service",
            gt=0,
        ),
    ] = 7 * DAY
    held_grace: Annotated[
        float,
        option(
            "From a source at its limit, messages older than this make room for new ones.",
            "seconds of service",
            gt=0,
        ),
    ] = HOUR
    released_keys: Annotated[
        int,
        option(
            "Keys of released messages kept for each account, to answer a repeated `deliver`.",
            "keys",
            ge=1,
        ),
    ] = 256
    msgid_bytes: Annotated[int, option("The longest msgId.", "bytes", ge=16)] = 256
    outbox_messages: Annotated[
        int, option("Messages that wait for devices, for all of them.", "messages", ge=8)
    ] = 8192
    outbox_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=64 * KIB)] = 32 * MIB
    outbox_messages_per_account: Annotated[
        int,
        option("Of those, for one account: a device that is away for a day.", "messages", ge=8),
    ] = 256
    outbox_bytes_per_account: Annotated[
        int, option("The bytes of those.", "bytes", ge=64 * KIB)
    ] = MIB
    outbox_messages_per_source: Annotated[
        int, option("Of those, from one account, to all devices.", "messages", ge=1)
    ] = 512
    outbox_bytes_per_source: Annotated[int, option("The bytes of those.", "bytes", ge=10_000)] = (
        2 * MIB
    )
    outbox_ttl: Annotated[
        float,
        option("How long a message waits for its device.", "seconds of service", gt=0),
    ] = 7 * DAY
    outbox_window: Annotated[
        int,
        option("Of those, on their way to one account; firmware is small.", "messages", ge=1),
    ] = 8
    retry_after: Annotated[
        float,
        option(
            "A device that is there and does not answer is asked again after this, doubling,",
            "seconds of service",
            gt=0,
        ),
    ] = 15.0
    retry_most: Annotated[float, option("and at most after this,", "seconds of service", gt=0)] = (
        HOUR
    )
    retry_attempts: Annotated[
        int, option("and so often; then the message has failed.", "attempts", ge=1)
    ] = 10
    capabilities: Annotated[
        int, option("Kinds of devices whose capabilities are kept (XEP-0115).", "kinds", ge=1)
    ] = 256
    dead_messages: Annotated[
        int,
        option(
            "Undeliverable messages kept for the operator; then who has most loses its oldest.",
            "messages",
            ge=1,
        ),
    ] = 1000
    dead_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=64 * KIB)] = 16 * MIB
    refusal_window: Annotated[
        float,
        option(
            "Refusals by one rule of one source are told at most once in this time.",
            "seconds of service",
            gt=0,
        ),
    ] = 60.0
    refusal_sources: Annotated[
        int, option("Sources told apart in that; the rest is told as `other`.", "sources", ge=1)
    ] = 1000
    unsealed_events: Annotated[
        int,
        option(
            "Events of a lane that wait to be sealed; beyond, its messages are asked to wait.",
            "events",
            ge=100,
        ),
    ] = 20_000
    backlog_bytes: Annotated[
        int,
        option(
            "Segments that wait for the centre: at 8 bytes an event, months of a small plant.",
            "bytes",
            ge=MIB,
        ),
    ] = 256 * MIB
    recent_bytes: Annotated[
        int,
        option(
            "Segments kept after the centre acknowledged them, for `fieldpost events`.",
            "bytes",
            ge=0,
        ),
    ] = 4 * MIB
    database_bytes: Annotated[
        int, option("The database on the disk, with its WAL.", "bytes", ge=8 * MIB)
    ] = 1024 * MIB
    database_reserve: Annotated[
        int,
        option(
            "Of those, what no new message may use: what is held can still be delivered.",
            "bytes",
            ge=MIB,
        ),
    ] = 64 * MIB
    wal_bytes: Annotated[
        int,
        option(
            "The WAL: it grows while another process reads; beyond, new messages wait.",
            "bytes",
            ge=MIB,
        ),
    ] = 64 * MIB
