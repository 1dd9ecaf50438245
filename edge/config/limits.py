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
        "offline_messages": "Plain messages stored for accounts",
        "held_messages": "Assured messages in custody",
        "outbox_messages": "Assured messages waiting for devices",
        "dead_messages": "Dead letters",
        "nodes": "Nodes, subscriptions and items",
        "queue_items": "Queues",
        "commands": "Ad-hoc commands",
        "refusal_window": "Events and segments",
        "database_bytes": "Database",
    }

    sessions: Annotated[int, option("sessions", ge=1)] = 1000
    """Maximum concurrent sessions. A TLS session costs 50 KiB of memory."""
    sessions_per_account: Annotated[int, option("sessions", ge=1)] = 8
    """Maximum sessions of one account. A device needs one, a person a few."""
    sessions_per_address: Annotated[int, option("sessions", ge=1)] = 500
    """Maximum sessions from one IP address (IPv6: one /64), so that one address cannot use all of
    `sessions`."""
    durable_sessions: Annotated[int, option("sessions", ge=1)] = 4000
    """Maximum sessions whose subscriptions and messages are kept while they are not connected, and
    of connected ones that ask for it. Sessions that end with their connection do not count. Each is
    a row on disk; its messages have limits of their own."""
    durable_sessions_per_account: Annotated[int, option("sessions", ge=1)] = 16
    """Maximum such sessions of one account, so that a device that changes its identifier cannot use
    all of `durable_sessions`."""
    durable_session_time: Annotated[float, option("seconds", gt=0)] = 7 * DAY
    """Maximum time for which a session is kept while it is not connected, even if it asks for
    more."""
    will_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 4 * MIB
    """Maximum bytes of all wills: the messages that the gateway publishes for sessions that are
    lost."""
    will_bytes_per_account: Annotated[int, option("bytes", ge=KIB)] = 2 * MIB
    """Maximum bytes of the wills of one account: half of `will_bytes`."""
    unauthenticated: Annotated[int, option("connections", ge=1)] = 200
    """Maximum connections that have not logged in. They do not count as `sessions`, so they cannot
    displace devices."""
    unauthenticated_per_address: Annotated[int, option("connections", ge=1)] = 50
    """Maximum connections from one IP address (IPv6: one /64) that have not logged in."""
    handshakes: Annotated[int, option("handshakes", ge=1)] = 4
    """Maximum concurrent TLS handshakes, because each needs CPU time. A handshake that stalls is
    not counted any more after half a second."""
    authenticate_failures: Annotated[int, option("logins", ge=3)] = 20
    """Failed logins from one address, or to one account, before throttling starts (see
    `authenticate_again`)."""
    authenticate_again: Annotated[float, option("seconds", gt=0)] = 6.0
    """Minimum time between login attempts of an address or account that has failed
    `authenticate_failures` times."""
    authenticate_delay: Annotated[float, option("seconds", ge=0, le=2)] = 0.25
    """Delay before a failed login is answered. It doubles with each further failure of the address
    or account, up to 16 times this value."""
    authenticate_time: Annotated[float, option("seconds", gt=0)] = 30.0
    """Maximum time from connecting to the end of login. Slow radio links need many seconds."""
    stranger_stanza_bytes: Annotated[int, option("bytes", ge=10_000)] = 10 * KIB
    """Maximum size of a stanza before login. RFC 6120, section 13.12, requires 10,000."""
    stanza_bytes: Annotated[int, option("bytes", ge=10_000, le=MIB)] = 64 * KIB
    """Maximum size of a stanza after login."""
    stanza_depth: Annotated[int, option("levels", ge=8)] = 32
    """Maximum nesting of elements in a stanza. Real payloads need ten."""
    stanza_elements: Annotated[int, option("elements", ge=16)] = 1000
    """Maximum elements in a stanza. A parsed element takes up to 80 times its size in memory."""
    stanza_attributes: Annotated[int, option("attributes", ge=8)] = 32
    """Maximum attributes of an element."""
    msgid_bytes: Annotated[int, option("bytes", ge=16)] = 256
    """Maximum length of the msgId of an assured message (quality of service 2)."""
    stanzas_per_second: Annotated[int, option("stanzas", ge=1)] = 100
    """Stanzas per second that one connection can send continuously. Each assured message takes two.
    The gateway reads a faster connection at this rate."""
    stanzas_at_once: Annotated[int, option("stanzas", ge=16)] = 500
    """Stanzas that one connection may send in a burst above `stanzas_per_second`."""
    bytes_per_second: Annotated[int, option("bytes", ge=KIB)] = 256 * KIB
    """Bytes per second that one connection can send continuously. The gateway reads a faster
    connection at this rate."""
    bytes_at_once: Annotated[int, option("bytes", ge=64 * KIB)] = 512 * KIB
    """Bytes that one connection may send in a burst above `bytes_per_second`."""
    session_units: Annotated[int, option("stanzas", ge=1)] = 64
    """Stanzas of one session that may wait for a commit. Above this limit the session's socket is
    not read."""
    session_bytes: Annotated[int, option("bytes", ge=KIB)] = 64 * KIB
    """Bytes of one session's stanzas that may wait for a commit. Above this limit the session's
    socket is not read. Decoded stanzas take ten times as much memory."""
    waiting_units: Annotated[int, option("stanzas", ge=1)] = 4096
    """Stanzas of all sessions that may wait for a commit. Above this limit no socket is read."""
    waiting_bytes: Annotated[int, option("bytes", ge=MIB)] = 8 * MIB
    """Bytes of all sessions' stanzas that may wait for a commit. Above this limit no socket is
    read."""
    send_buffer: Annotated[int, option("bytes", ge=KIB)] = 64 * KIB
    """Unsent bytes to one session above which the session's socket is not read."""
    stalled_time: Annotated[float, option("seconds", gt=0)] = 60.0
    """Time for which a peer may leave replies unread. After this time it is disconnected."""
    resume_time: Annotated[float, option("seconds", ge=0, le=3600)] = 300.0
    """Time for which a disconnected session can be resumed (XEP-0198). A connected session ends
    if its peer does not answer a request for an acknowledgement within this time, or within
    `stalled_time` if that is longer."""
    unacknowledged_stanzas: Annotated[int, option("stanzas", ge=16)] = 256
    """Maximum unacknowledged stanzas (XEP-0198) of the gateway itself to one session. Above this
    limit the session ends. Stanzas from other sessions have a separate limit, half of this; those
    that do not fit are stored, or their senders get an error."""
    unacknowledged_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 128 * KIB
    """Maximum bytes of unacknowledged stanzas of the gateway itself to one session. Above this
    limit the session ends. Stanzas from other sessions have a separate limit, half of this."""
    unacknowledged_total_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 16 * MIB
    """Bytes of unacknowledged stanzas to all sessions, which are kept in memory. Above this limit
    the session with the most of them ends."""
    roster_items: Annotated[int, option("contacts", ge=1, le=1000)] = 200
    """Maximum contacts in the roster of one account."""
    presence_bytes: Annotated[int, option("bytes", ge=KIB)] = 4 * KIB
    """Maximum size of a presence stanza. The last one of each session is kept in memory."""
    directed_presences: Annotated[int, option("addresses", ge=1)] = 64
    """Maximum addresses to which one session may send directed presence. Each is notified when the
    session ends."""
    capabilities: Annotated[int, option("kinds", ge=1)] = 256
    """Maximum entity capabilities (XEP-0115) that are remembered, one for each kind of device. The
    least recently used are forgotten."""
    offline_messages: Annotated[int, option("messages", ge=1)] = 128
    """Maximum plain messages stored for one account: those that wait for a session, and those whose
    sender has stream management (XEP-0198) until a session has acknowledged them."""
    offline_bytes: Annotated[int, option("bytes", ge=10_000)] = 256 * KIB
    """Maximum bytes of plain messages stored for one account."""
    offline_total_messages: Annotated[int, option("messages", ge=1)] = 8192
    """Maximum plain messages stored for all accounts."""
    offline_total_bytes: Annotated[int, option("bytes", ge=10_000)] = 16 * MIB
    """Maximum bytes of plain messages stored for all accounts."""
    offline_messages_per_source: Annotated[int, option("messages", ge=1)] = 256
    """Maximum stored plain messages from one sending account, to all accounts."""
    offline_bytes_per_source: Annotated[int, option("bytes", ge=10_000)] = MIB
    """Maximum bytes of stored plain messages from one sending account, to all accounts."""
    offline_ttl: Annotated[float, option("seconds of service", gt=0)] = 7 * DAY
    """Time for which a plain message is stored. After this time it is deleted."""
    held_messages: Annotated[int, option("messages", ge=8)] = 8192
    """Maximum held messages from all accounts together. An assured message is held from its offer
    until its sender asks for its delivery (`deliver`)."""
    held_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 32 * MIB
    """Maximum bytes of held messages from all accounts together, including their msgIds."""
    held_messages_per_source: Annotated[int, option("messages", ge=1)] = 32
    """Maximum held messages from one sending account. Firmware has few messages in flight."""
    held_bytes_per_source: Annotated[int, option("bytes", ge=KIB)] = 128 * KIB
    """Maximum bytes of held messages from one sending account, including their msgIds."""
    held_ttl: Annotated[float, option("seconds of service", gt=0)] = 7 * DAY
    """Time for which a held message waits for its sender's `deliver`. After this time it is
    deleted. The default allows for a device that is offline for a weekend."""
    held_grace: Annotated[float, option("seconds of service", gt=0)] = HOUR
    """Age above which a held message is deleted to make room for a new one of the same account, if
    that account has reached `held_messages_per_source` or `held_bytes_per_source`."""
    released_keys: Annotated[int, option("keys", ge=1)] = 256
    """Number of delivered assured messages of each sending account that are remembered by their
    keys (sender and msgId), so that a repeated `deliver` is recognised. Older keys are deleted."""
    outbox_messages: Annotated[int, option("messages", ge=8)] = 8192
    """Maximum guaranteed messages (quality of service 1 and 2) that wait for devices, in total."""
    outbox_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 32 * MIB
    """Maximum bytes of guaranteed messages that wait for devices, in total."""
    outbox_messages_per_account: Annotated[int, option("messages", ge=8)] = 256
    """Maximum guaranteed messages waiting for one account. This is enough for a typical device that
    is offline for a day."""
    outbox_bytes_per_account: Annotated[int, option("bytes", ge=64 * KIB)] = MIB
    """Maximum bytes of guaranteed messages waiting for one account."""
    outbox_messages_per_source: Annotated[int, option("messages", ge=1)] = 512
    """Maximum waiting guaranteed messages from one sending account, to all devices."""
    outbox_bytes_per_source: Annotated[int, option("bytes", ge=10_000)] = 2 * MIB
    """Maximum bytes of waiting guaranteed messages from one sending account, to all devices."""
    outbox_ttl: Annotated[float, option("seconds of service", gt=0)] = 7 * DAY
    """Time for which a guaranteed message waits for its device. After this time it becomes a dead
    letter."""
    outbox_window: Annotated[int, option("messages", ge=1)] = 8
    """Maximum guaranteed messages that are sent to one account and not answered yet. Firmware has
    little memory."""
    retry_after: Annotated[float, option("seconds of service", gt=0)] = 15.0
    """Time after which a message is sent again to a device that is online but does not answer. The
    time doubles with each attempt, up to `retry_most`."""
    retry_most: Annotated[float, option("seconds of service", gt=0)] = HOUR
    """Longest time between two attempts to deliver a message."""
    retry_attempts: Annotated[int, option("attempts", ge=1)] = 10
    """Maximum attempts to deliver a guaranteed message to a device. After the last attempt the
    message becomes a dead letter."""
    dead_messages: Annotated[int, option("messages", ge=1)] = 1000
    """Maximum dead letters (undeliverable messages) kept for the operator. Above this limit the
    oldest dead letter of the sender with the most dead letters is deleted."""
    dead_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 16 * MIB
    """Maximum bytes of dead letters (undeliverable messages) kept for the operator, with their
    addresses and reasons. Above this limit the oldest dead letter of the sender with the most dead
    letters is deleted."""
    nodes: Annotated[int, option("nodes", ge=1)] = 5000
    """Maximum publish-subscribe nodes. Each takes about 250 bytes of the card. Topics of MQTT
    without a retained message need no node."""
    nodes_per_account: Annotated[int, option("nodes", ge=1)] = 2500
    """Maximum nodes created by one account: half of `nodes`."""
    node_bytes: Annotated[int, option("bytes", ge=16)] = 256
    """Maximum length of a node's name or a topic filter. Both have 32 levels at most."""
    affiliations: Annotated[int, option("accounts", ge=1)] = 200
    """Maximum accounts with an affiliation to one node."""
    subscriptions: Annotated[int, option("subscriptions", ge=1)] = 10_000
    """Maximum subscriptions of all accounts to nodes and topic filters. Each to a filter takes 1.2
    KiB of memory."""
    subscriptions_per_account: Annotated[int, option("subscriptions", ge=1)] = 1000
    """Maximum subscriptions of one account: a tenth of `subscriptions`. A hub such as Home
    Assistant has two or three for each of its devices."""
    last_items: Annotated[int, option("items", ge=1)] = 100
    """Maximum last items sent at once to a new subscription to a topic filter. If more nodes match,
    a subscription of XMPP gets the newest items, and one of MQTT the others as its client reads."""
    items: Annotated[int, option("items", ge=1)] = 50_000
    """Maximum items stored in all nodes, queues excluded."""
    items_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 64 * MIB
    """Maximum bytes of items stored in all nodes, queues excluded."""
    items_per_source: Annotated[int, option("items", ge=8)] = 25_000
    """Maximum items published by one account in all nodes, queues excluded: half of `items`."""
    items_bytes_per_source: Annotated[int, option("bytes", ge=64 * KIB)] = 32 * MIB
    """Maximum bytes of items published by one account in all nodes, queues excluded: half of
    `items_bytes`."""
    items_per_node: Annotated[int, option("items", ge=1)] = 10_000
    """Maximum items stored in one node, and the highest `pubsub#max_items` a node may have."""
    queue_items: Annotated[int, option("items", ge=2)] = 200_000
    """Maximum items in all queues, in any state. Shared subscriptions may use half of this
    limit."""
    queue_bytes: Annotated[int, option("bytes", ge=64 * KIB)] = 256 * MIB
    """Maximum bytes of items in all queues. Shared subscriptions may use half of this limit."""
    queue_items_per_source: Annotated[int, option("items", ge=8)] = 100_000
    """Maximum items published by one account in all queues: half of `queue_items`. Items of a
    shared subscription count for its first member, with half of this limit."""
    queue_bytes_per_source: Annotated[int, option("bytes", ge=64 * KIB)] = 128 * MIB
    """Maximum bytes of items published by one account in all queues: half of `queue_bytes`. Items
    of a shared subscription count for its first member, with half of this limit."""
    items_per_queue: Annotated[int, option("items", ge=1)] = 100_000
    """Maximum items in one queue."""
    queue_bytes_per_queue: Annotated[int, option("bytes", ge=64 * KIB)] = 128 * MIB
    """Maximum bytes of items in one queue."""
    queue_requests: Annotated[int, option("items", ge=1)] = 100
    """Maximum items that one member of a queue may work on at once."""
    notifications_per_account: Annotated[int, option("messages", ge=8)] = 256
    """Maximum waiting notifications to the workers of one account about deleted or unlocked items.
    Above this limit the oldest is dropped and logged."""
    commands: Annotated[int, option("commands", ge=1)] = 4
    """Maximum unfinished ad-hoc commands (XEP-0050) of one session. Above this limit the oldest is
    cancelled."""
    command_time: Annotated[float, option("seconds of service", gt=0)] = 600.0
    """Time for which an ad-hoc command (XEP-0050) waits for its completed form. After this time it
    is cancelled."""
    refusal_window: Annotated[float, option("seconds of service", gt=0)] = 60.0
    """Interval in which the refusals of one source (account or IP address) for one reason are
    combined into one event. Only the first refusal is logged at once."""
    refusal_sources: Annotated[int, option("sources", ge=1)] = 1000
    """Maximum pairs of source and reason whose refusals are logged separately in one
    `refusal_window`. A source is an account or an IP address; all further refusals have the source
    `other`."""
    unsealed_events: Annotated[int, option("events", ge=100)] = 20_000
    """Events of one lane (readings, logs or system) that may wait to be sealed into a segment.
    Above this limit, messages that add events to the lane are refused with an error of type
    `wait`."""
    backlog_bytes: Annotated[int, option("bytes", ge=MIB)] = 256 * MIB
    """Maximum bytes of segments waiting for the centre. Above this limit the oldest segments of the
    lane (readings, logs or system) furthest above its share are deleted and reported as lost. A
    reading takes about 8 bytes in a large segment, so a small plant has room for months."""
    recent_bytes: Annotated[int, option("bytes", ge=0)] = 4 * MIB
    """Maximum bytes of segments kept for `fieldpost events` after the centre has received them."""
    database_bytes: Annotated[int, option("bytes", ge=8 * MIB)] = 1024 * MIB
    """Maximum size of the database on disk, including its write-ahead log."""
    database_reserve: Annotated[int, option("bytes", ge=MIB)] = 64 * MIB
    """Part of `database_bytes` that new messages may not use, so that messages that the gateway has
    accepted can still be delivered."""
    wal_bytes: Annotated[int, option("bytes", ge=MIB)] = 64 * MIB
    """Maximum size of the write-ahead log, which grows while another process reads the database.
    Above this limit new messages are refused with an error of type `wait`."""
