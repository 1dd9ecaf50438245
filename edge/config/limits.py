"""The limits of the gateway: type, default, unit and reason of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from edge.config.options import DAY, HOUR, KIB, MIB, Section, option

REJECTED_SEGMENT_BYTES: Final = 4 * MIB
"""Maximum bytes of segments that are kept for inspection after the centre rejected them."""


class Limits(Section, frozen=True, kw_only=True):
    """Limits: change these only with a reason. Each protects memory, the disk or other devices."""

    headings: ClassVar[Mapping[str, str]] = {
        "sessions": "Connections and sessions",
        "authenticate_failures": "Login",
        "stranger_stanza_bytes": "Stanzas",
        "stanzas_per_second": "Rate of one connection",
        "session_units": "Stanzas waiting for a commit",
        "send_buffer": "Unread and unacknowledged stanzas",
        "roster_items": "Rosters and presence",
        "offline_messages": "Plain messages stored for offline accounts",
        "held_messages": "Assured messages before their release (`deliver`)",
        "outbox_messages": "Guaranteed messages waiting for devices",
        "dead_messages": "Dead letters",
        "nodes": "Nodes, subscriptions and items",
        "queue_items": "Queues",
        "commands": "Ad-hoc commands",
        "refusal_window": "Events and segments",
        "database_bytes": "Database",
    }

    sessions: Annotated[
        int,
        option("Maximum concurrent sessions. A TLS session costs 50 KiB.", "sessions", ge=1),
    ] = 1000
    sessions_per_account: Annotated[
        int,
        option(
            "Maximum sessions of one account. A device needs one, a person a few.",
            "sessions",
            ge=1,
        ),
    ] = 8
    sessions_per_address: Annotated[
        int,
        option(
            "Maximum sessions from one IP address (IPv6: one /64), so that one address cannot use"
            " all of `sessions`.",
            "sessions",
            ge=1,
        ),
    ] = 500
    unauthenticated: Annotated[
        int,
        option(
            "Maximum connections that have not logged in. They do not count as `sessions`, so they"
            " cannot displace devices.",
            "connections",
            ge=1,
        ),
    ] = 200
    unauthenticated_per_address: Annotated[
        int,
        option(
            "Maximum connections that have not logged in from one IP address (IPv6: one /64).",
            "connections",
            ge=1,
        ),
    ] = 50
    handshakes: Annotated[
        int,
        option(
            "Maximum concurrent TLS handshakes, because each needs CPU time. A handshake that"
            " stalls is not counted any more after half a second.",
            "handshakes",
            ge=1,
        ),
    ] = 4
    authenticate_failures: Annotated[
        int,
        option(
            "Failed logins from one address, or to one account, before throttling starts.",
            "logins",
            ge=3,
        ),
    ] = 20
    authenticate_again: Annotated[
        float, option("Time between login attempts while throttled.", "seconds", gt=0)
    ] = 6.0
    authenticate_delay: Annotated[
        float,
        option(
            "Delay before a failed login is answered. It doubles with each failure, up to 16"
            " times this value.",
            "seconds",
            ge=0,
            le=2,
        ),
    ] = 0.25
    authenticate_time: Annotated[
        float,
        option(
            "Maximum time from connecting to the end of login. Slow radio links need many seconds.",
            "seconds",
            gt=0,
        ),
    ] = 30.0
    stranger_stanza_bytes: Annotated[
        int,
        option(
            "Maximum size of a stanza before login. RFC 6120, section 13.12, requires 10,000.",
            "bytes",
            ge=10_000,
        ),
    ] = 10 * KIB
    stanza_bytes: Annotated[
        int, option("Maximum size of a stanza after login.", "bytes", ge=10_000, le=MIB)
    ] = 64 * KIB
    stanza_depth: Annotated[
        int,
        option("Maximum nesting of elements in a stanza. Real payloads need ten.", "levels", ge=8),
    ] = 32
    stanza_elements: Annotated[
        int,
        option(
            "Maximum elements in a stanza. A parsed element takes up to 80 times its size in"
            " memory.",
            "elements",
            ge=16,
        ),
    ] = 1000
    stanza_attributes: Annotated[
        int, option("Maximum attributes of an element.", "attributes", ge=8)
    ] = 32
    msgid_bytes: Annotated[
        int,
        option(
            "Maximum length of the msgId of an assured message (quality of service 2).",
            "bytes",
            ge=16,
        ),
    ] = 256
    stanzas_per_second: Annotated[
        int,
        option(
            "Sustained stanzas per second of one connection. Each assured message takes two. A"
            " faster connection is read at this rate.",
            "stanzas",
            ge=1,
        ),
    ] = 100
    stanzas_at_once: Annotated[
        int,
        option(
            "Stanzas that one connection may send in a burst above `stanzas_per_second`.",
            "stanzas",
            ge=16,
        ),
    ] = 500
    bytes_per_second: Annotated[
        int,
        option(
            "Sustained bytes per second of one connection. A faster connection is read at this"
            " rate.",
            "bytes",
            ge=KIB,
        ),
    ] = 256 * KIB
    bytes_at_once: Annotated[
        int,
        option(
            "Bytes that one connection may send in a burst above `bytes_per_second`.",
            "bytes",
            ge=64 * KIB,
        ),
    ] = 512 * KIB
    session_units: Annotated[
        int,
        option(
            "Stanzas of one session that may wait for a commit. Above this limit the session's"
            " socket is not read.",
            "stanzas",
            ge=1,
        ),
    ] = 64
    session_bytes: Annotated[
        int,
        option(
            "Bytes of one session's stanzas that may wait for a commit. Decoded stanzas take ten"
            " times as much memory.",
            "bytes",
            ge=KIB,
        ),
    ] = 64 * KIB
    waiting_units: Annotated[
        int,
        option(
            "Stanzas of all sessions that may wait for a commit. Above this limit no socket is"
            " read.",
            "stanzas",
            ge=1,
        ),
    ] = 4096
    waiting_bytes: Annotated[
        int,
        option(
            "Bytes of all sessions' stanzas that may wait for a commit. Above this limit no"
            " socket is read.",
            "bytes",
            ge=MIB,
        ),
    ] = 8 * MIB
    send_buffer: Annotated[
        int,
        option(
            "Maximum unsent replies to one session. Above this limit the session's socket is not"
            " read.",
            "bytes",
            ge=KIB,
        ),
    ] = 64 * KIB
    stalled_time: Annotated[
        float,
        option(
            "Time for which a peer may leave replies unread. After this time it is disconnected.",
            "seconds",
            gt=0,
        ),
    ] = 60.0
    resume_time: Annotated[
        float,
        option(
            "Time for which a disconnected session can be resumed (XEP-0198), and the longest wait"
            " for an acknowledgement.",
            "seconds",
            ge=0,
            le=3600,
        ),
    ] = 300.0
    unacknowledged_stanzas: Annotated[
        int,
        option(
            "Stanzas to one session that may be unacknowledged (XEP-0198). Above this limit the"
            " session ends. Stanzas from other sessions may use half of this limit; those that do"
            " not fit are re-routed.",
            "stanzas",
            ge=16,
        ),
    ] = 256
    unacknowledged_bytes: Annotated[
        int,
        option(
            "Bytes of unacknowledged stanzas to one session. Above this limit the session ends.",
            "bytes",
            ge=64 * KIB,
        ),
    ] = 128 * KIB
    unacknowledged_total_bytes: Annotated[
        int,
        option(
            "Bytes of unacknowledged stanzas to all sessions. They are kept in memory.",
            "bytes",
            ge=64 * KIB,
        ),
    ] = 16 * MIB
    roster_items: Annotated[
        int, option("Maximum contacts in the roster of one account.", "contacts", ge=1, le=1000)
    ] = 200
    presence_bytes: Annotated[
        int,
        option(
            "Maximum size of a presence stanza. The last one of each session is kept in memory.",
            "bytes",
            ge=KIB,
        ),
    ] = 4 * KIB
    directed_presences: Annotated[
        int,
        option(
            "Maximum addresses to which one session may send directed presence. Each is notified"
            " when the session ends.",
            "addresses",
            ge=1,
        ),
    ] = 64
    capabilities: Annotated[
        int,
        option(
            "Maximum entity capabilities (XEP-0115) that are remembered, one for each kind of"
            " device. The least recently used are forgotten.",
            "kinds",
            ge=1,
        ),
    ] = 256
    offline_messages: Annotated[
        int, option("Maximum plain messages stored for one offline account.", "messages", ge=1)
    ] = 128
    offline_bytes: Annotated[
        int,
        option(
            "Maximum bytes of plain messages stored for one offline account.", "bytes", ge=10_000
        ),
    ] = 256 * KIB
    offline_total_messages: Annotated[
        int, option("Maximum plain messages stored for all accounts.", "messages", ge=1)
    ] = 8192
    offline_total_bytes: Annotated[
        int,
        option("Maximum bytes of plain messages stored for all accounts.", "bytes", ge=10_000),
    ] = 16 * MIB
    offline_messages_per_source: Annotated[
        int,
        option("Maximum stored plain messages from one sending account.", "messages", ge=1),
    ] = 256
    offline_bytes_per_source: Annotated[
        int,
        option(
            "Maximum bytes of stored plain messages from one sending account.", "bytes", ge=10_000
        ),
    ] = MIB
    offline_ttl: Annotated[
        float,
        option("Time for which a plain message is stored.", "seconds of service", gt=0),
    ] = 7 * DAY
    held_messages: Annotated[
        int,
        option(
            "Maximum held messages from all sources. An assured message is held from its offer"
            " until its sender asks for its delivery (`deliver`).",
            "messages",
            ge=8,
        ),
    ] = 8192
    held_bytes: Annotated[
        int,
        option(
            "Maximum bytes of held messages from all sources, including their msgIds.",
            "bytes",
            ge=64 * KIB,
        ),
    ] = 32 * MIB
    held_messages_per_source: Annotated[
        int,
        option(
            "Maximum held messages from one account. Firmware has few messages in flight.",
            "messages",
            ge=1,
        ),
    ] = 32
    held_bytes_per_source: Annotated[
        int,
        option(
            "Maximum bytes of held messages from one account, including their msgIds.",
            "bytes",
            ge=KIB,
        ),
    ] = 128 * KIB
    held_ttl: Annotated[
        float,
        option(
            "Time for which a held message waits for its sender's `deliver`. After this time it is"
            " deleted. The default allows for a device that is offline for a weekend.",
            "seconds of service",
            gt=0,
        ),
    ] = 7 * DAY
    held_grace: Annotated[
        float,
        option(
            "Age above which a held message is deleted to make room for a new one of the"
            " same account, if that account has reached `held_messages_per_source` or"
            " `held_bytes_per_source`.",
            "seconds of service",
            gt=0,
        ),
    ] = HOUR
    released_keys: Annotated[
        int,
        option(
            "Keys of delivered messages that are kept for each account, so that a repeated"
            " `deliver` is recognised. Above this limit the oldest keys are deleted.",
            "keys",
            ge=1,
        ),
    ] = 256
    outbox_messages: Annotated[
        int,
        option(
            "Maximum guaranteed messages (quality of service 1 and 2) waiting for all devices.",
            "messages",
            ge=8,
        ),
    ] = 8192
    outbox_bytes: Annotated[
        int,
        option(
            "Maximum bytes of guaranteed messages waiting for all devices.", "bytes", ge=64 * KIB
        ),
    ] = 32 * MIB
    outbox_messages_per_account: Annotated[
        int,
        option(
            "Maximum guaranteed messages waiting for one account. This is enough for a typical"
            " device that is offline for a day.",
            "messages",
            ge=8,
        ),
    ] = 256
    outbox_bytes_per_account: Annotated[
        int,
        option(
            "Maximum bytes of guaranteed messages waiting for one account.", "bytes", ge=64 * KIB
        ),
    ] = MIB
    outbox_messages_per_source: Annotated[
        int,
        option(
            "Maximum waiting guaranteed messages from one sending account, to all devices.",
            "messages",
            ge=1,
        ),
    ] = 512
    outbox_bytes_per_source: Annotated[
        int,
        option(
            "Maximum bytes of waiting guaranteed messages from one sending account.",
            "bytes",
            ge=10_000,
        ),
    ] = 2 * MIB
    outbox_ttl: Annotated[
        float,
        option(
            "Time for which a guaranteed message waits for its device. After this time it becomes a"
            " dead letter.",
            "seconds of service",
            gt=0,
        ),
    ] = 7 * DAY
    outbox_window: Annotated[
        int,
        option(
            "Maximum guaranteed messages in flight to one account. Firmware has little memory.",
            "messages",
            ge=1,
        ),
    ] = 8
    retry_after: Annotated[
        float,
        option(
            "Time after which a message is sent again to a device that is online but does not"
            " answer. The time doubles with each attempt.",
            "seconds of service",
            gt=0,
        ),
    ] = 15.0
    retry_most: Annotated[
        float,
        option(
            "Longest time between two attempts to deliver a message.", "seconds of service", gt=0
        ),
    ] = HOUR
    retry_attempts: Annotated[
        int,
        option(
            "Maximum attempts to deliver a guaranteed message to a device. After the last attempt"
            " the message becomes a dead letter.",
            "attempts",
            ge=1,
        ),
    ] = 10
    dead_messages: Annotated[
        int,
        option(
            "Maximum dead letters (undeliverable messages) kept for the operator. Above this"
            " limit the oldest dead letter of the source with the most dead letters is deleted.",
            "messages",
            ge=1,
        ),
    ] = 1000
    dead_bytes: Annotated[
        int, option("Maximum bytes of dead letters kept for the operator.", "bytes", ge=64 * KIB)
    ] = 16 * MIB
    nodes: Annotated[int, option("Maximum publish-subscribe nodes.", "nodes", ge=1)] = 1000
    nodes_per_account: Annotated[
        int, option("Maximum nodes created by one account.", "nodes", ge=1)
    ] = 200
    node_bytes: Annotated[
        int,
        option(
            "Maximum length of a node's name or a topic filter. Both have 32 levels at most.",
            "bytes",
            ge=16,
        ),
    ] = 256
    affiliations: Annotated[
        int, option("Maximum accounts with an affiliation to one node.", "accounts", ge=1)
    ] = 200
    subscriptions: Annotated[
        int, option("Maximum subscriptions to nodes and topic filters.", "subscriptions", ge=1)
    ] = 10_000
    subscriptions_per_account: Annotated[
        int, option("Maximum subscriptions of one account.", "subscriptions", ge=1)
    ] = 100
    items: Annotated[
        int, option("Maximum items stored in all nodes, queues excluded.", "items", ge=1)
    ] = 50_000
    items_bytes: Annotated[
        int,
        option(
            "Maximum bytes of items stored in all nodes, queues excluded.", "bytes", ge=64 * KIB
        ),
    ] = 64 * MIB
    items_per_node: Annotated[
        int,
        option(
            "Maximum items stored in one node, and the highest `pubsub#max_items` a node may have.",
            "items",
            ge=1,
        ),
    ] = 10_000
    queue_items: Annotated[
        int,
        option(
            "Maximum items in all queues: waiting, assigned and dead. Shared subscriptions may use"
            " half of this limit.",
            "items",
            ge=2,
        ),
    ] = 200_000
    queue_bytes: Annotated[
        int, option("Maximum bytes of items in all queues.", "bytes", ge=64 * KIB)
    ] = 256 * MIB
    items_per_queue: Annotated[int, option("Maximum items in one queue.", "items", ge=1)] = 100_000
    queue_bytes_per_queue: Annotated[
        int, option("Maximum bytes of items in one queue.", "bytes", ge=64 * KIB)
    ] = 128 * MIB
    queue_requests: Annotated[
        int,
        option("Maximum items that one member of a queue may work on at once.", "items", ge=1),
    ] = 100
    notifications_per_account: Annotated[
        int,
        option(
            "Notifications of deleted and unlocked items that may wait for the workers of one"
            " account. Above this limit the oldest is dropped and logged.",
            "messages",
            ge=8,
        ),
    ] = 256
    commands: Annotated[
        int,
        option(
            "Maximum unfinished ad-hoc commands (XEP-0050) of one session. Above this limit the"
            " oldest is cancelled.",
            "commands",
            ge=1,
        ),
    ] = 4
    command_time: Annotated[
        float,
        option(
            "Time for which an ad-hoc command waits for its form. After this time it is cancelled.",
            "seconds of service",
            gt=0,
        ),
    ] = 600.0
    refusal_window: Annotated[
        float,
        option(
            "Interval in which refusals of one source by one rule are combined into one event.",
            "seconds of service",
            gt=0,
        ),
    ] = 60.0
    refusal_sources: Annotated[
        int,
        option(
            "Maximum sources whose refusals are reported separately in one interval. All further"
            " sources are reported as `other`.",
            "sources",
            ge=1,
        ),
    ] = 1000
    unsealed_events: Annotated[
        int,
        option(
            "Events of one lane (readings, logs or system) that may wait to be sealed into a"
            " segment. Above this limit, messages that add events to the lane are refused with an"
            " error of type `wait`.",
            "events",
            ge=100,
        ),
    ] = 20_000
    backlog_bytes: Annotated[
        int,
        option(
            "Maximum bytes of segments waiting for the centre. A reading takes about 8 bytes in"
            " a large segment, so a small plant has room for months.",
            "bytes",
            ge=MIB,
        ),
    ] = 256 * MIB
    recent_bytes: Annotated[
        int,
        option(
            "Bytes of acknowledged segments that are kept for `fieldpost events`.", "bytes", ge=0
        ),
    ] = 4 * MIB
    database_bytes: Annotated[
        int,
        option(
            "Maximum size of the database on disk, including its write-ahead log.",
            "bytes",
            ge=8 * MIB,
        ),
    ] = 1024 * MIB
    database_reserve: Annotated[
        int,
        option(
            "Part of `database_bytes` that new messages may not use, so that messages that"
            " the gateway has accepted can still be delivered.",
            "bytes",
            ge=MIB,
        ),
    ] = 64 * MIB
    wal_bytes: Annotated[
        int,
        option(
            "Maximum size of the write-ahead log, which grows while another process reads the"
            " database. Above this limit new messages wait.",
            "bytes",
            ge=MIB,
        ),
    ] = 64 * MIB
