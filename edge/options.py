"""The options of a gateway, each with its type, default, unit and reason, and nowhere else.

Every limit stands in one table, `Limits`. `edge.config` reads, checks and writes them; nothing here
does.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

ASIDE_BYTES: Final = 4 * MIB
"""Bytes of segments kept that the centre refused for good: for a person to look at."""


def _option(reason: str, unit: str = "", **bounds: Any) -> Meta:
    return Meta(description=reason, extra={"unit": unit}, **bounds)


class Gateway(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who this gateway is."""

    domain: Annotated[
        str,
        _option(
            "The XMPP domain: the gateway's own address, and its name at the centre. It is part of"
            " every address and segment, so choose it once."
        ),
    ]


class Xmpp(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where and how devices connect."""

    listen: Annotated[
        str | list[str],
        _option(
            "Address and port for devices (STARTTLS), or a list of them. Port 0 takes a free one,"
            ' which `ready` names; ["0.0.0.0:5222", "[::]:5222"] serves the network, not this'
            " machine alone. Empty: none."
        ),
    ] = "127.0.0.1:5222"
    listen_tls: Annotated[
        str | list[str],
        _option("The same for devices that speak TLS from the first byte (XEP-0368)."),
    ] = "127.0.0.1:5223"
    require_tls: Annotated[
        bool,
        _option("Refuse to log in without TLS. `false` is for measuring on loopback; never PLAIN."),
    ] = True
    trust: Annotated[
        Literal["site", "roster"],
        _option(
            'Whom a device takes messages from: "site", any device of this gateway; "roster", those'
            " in its own roster."
        ),
    ] = "site"
    offline: Annotated[
        Literal["store", "refuse"],
        _option('A plain message to a device that is away: "store" it, or "refuse" it.'),
    ] = "store"
    certificate_days: Annotated[
        int, _option("How long a device's certificate is valid.", "days", ge=1, le=3650)
    ] = 365
    component: Annotated[
        str,
        _option(
            "HOST:PORT of an XMPP server to be a component of (XEP-0114), in place of listening."
        ),
    ] = ""
    component_secret: Annotated[
        str, _option("The file that holds the component's secret, relative to this folder.")
    ] = ""
    trusted_domains: Annotated[
        list[str],
        _option("As a component: domains whose users are all trusted, beside the devices added."),
    ] = field(default_factory=list)


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every bound of the gateway."""

    sessions: Annotated[
        int, _option("Sessions at once; a TLS one costs some 50 KiB.", "sessions", ge=1)
    ] = 1000
    unauthenticated: Annotated[
        int,
        _option(
            "Connections beside those, not logged in yet: strangers hold no more than these.",
            "connections",
            ge=1,
        ),
    ] = 200
    unauthenticated_per_address: Annotated[
        int, _option("Of those, from one IP address (IPv6: one /64).", "connections", ge=1)
    ] = 50
    sessions_per_account: Annotated[
        int, _option("Sessions of one account; a device has one, a person a few.", "sessions", ge=1)
    ] = 8
    authenticate_failures: Annotated[
        int,
        _option(
            "Failed log-ins from one address, or to one account, before more are not even tried,",
            "log-ins",
            ge=3,
        ),
    ] = 20
    authenticate_again: Annotated[
        float, _option("and then one may be tried in each of these.", "seconds", gt=0)
    ] = 6.0
    authenticate_delay: Annotated[
        float,
        _option(
            "A failed log-in is answered after this, doubled with each one before, up to 16 times.",
            "seconds",
            ge=0,
            le=2,
        ),
    ] = 0.25
    authenticate_time: Annotated[
        float,
        _option("From connecting to being bound; long enough for a slow radio.", "seconds", gt=0),
    ] = 30.0
    handshakes: Annotated[
        int,
        _option(
            "TLS handshakes at once; one that stalls gives up its turn after half a second.",
            "handshakes",
            ge=1,
        ),
    ] = 4
    stranger_stanza_bytes: Annotated[
        int,
        _option(
            "The largest stanza before log-in (RFC 6120 13.12 demands 10,000).", "bytes", ge=10_000
        ),
    ] = 10 * KIB
    stanza_bytes: Annotated[
        int, _option("The largest stanza after log-in.", "bytes", ge=10_000, le=MIB)
    ] = 64 * KIB
    stanza_depth: Annotated[
        int, _option("Elements within elements; real payloads need ten.", "levels", ge=8)
    ] = 32
    stanza_elements: Annotated[
        int, _option("Elements in one stanza: a tree costs 80 times its bytes.", "elements", ge=16)
    ] = 1000
    stanza_attributes: Annotated[int, _option("Attributes of one element.", "attributes", ge=8)] = (
        32
    )
    session_units: Annotated[
        int,
        _option(
            "Stanzas of one session that wait for a commit; then its socket waits.", "stanzas", ge=1
        ),
    ] = 64
    session_bytes: Annotated[
        int,
        _option("The bytes of those: decoded, they take some ten times as much.", "bytes", ge=KIB),
    ] = 64 * KIB
    stalled_time: Annotated[
        float,
        _option("How long a peer may leave answers unread; then it is cut off.", "seconds", gt=0),
    ] = 60.0
    waiting_units: Annotated[
        int,
        _option(
            "Stanzas of all sessions that wait for a commit; then all sockets wait.",
            "stanzas",
            ge=1,
        ),
    ] = 4096
    waiting_bytes: Annotated[int, _option("The bytes of those.", "bytes", ge=MIB)] = 8 * MIB
    send_buffer: Annotated[
        int,
        _option("Unsent replies of a session; beyond, its socket is not read.", "bytes", ge=KIB),
    ] = 64 * KIB
    resume_time: Annotated[
        float,
        _option(
            "How long a session waits to be resumed, or for an acknowledgement (XEP-0198).",
            "seconds",
            ge=0,
            le=3600,
        ),
    ] = 300.0
    unacknowledged_stanzas: Annotated[
        int,
        _option(
            "Stanzas sent to a session and not acknowledged (XEP-0198); beyond, it is ended.",
            "stanzas",
            ge=16,
        ),
    ] = 256
    unacknowledged_bytes: Annotated[int, _option("The bytes of those.", "bytes", ge=64 * KIB)] = (
        128 * KIB
    )
    unacknowledged_total_bytes: Annotated[
        int, _option("The bytes of those of all sessions: they are memory.", "bytes", ge=64 * KIB)
    ] = 16 * MIB
    roster_items: Annotated[
        int, _option("Contacts in the roster of one account.", "contacts", ge=1, le=1000)
    ] = 200
    presence_bytes: Annotated[
        int, _option("The largest presence: a session's last one is in memory.", "bytes", ge=KIB)
    ] = 4 * KIB
    directed_presences: Annotated[
        int,
        _option(
            "Addresses that a session has sent presence to of its own, to be told when it goes.",
            "addresses",
            ge=1,
        ),
    ] = 64
    offline_messages: Annotated[
        int, _option("Plain messages stored for one account that is away.", "messages", ge=1)
    ] = 100
    offline_bytes: Annotated[int, _option("The bytes of those.", "bytes", ge=10_000)] = 256 * KIB
    offline_total_messages: Annotated[
        int, _option("Plain messages stored for all accounts.", "messages", ge=1)
    ] = 8192
    offline_total_bytes: Annotated[int, _option("The bytes of those.", "bytes", ge=10_000)] = (
        16 * MIB
    )
    offline_ttl: Annotated[
        float, _option("How long a plain message is stored.", "seconds of service", gt=0)
    ] = 7 * DAY
    held_messages: Annotated[
        int, _option("Assured messages in custody, all sources.", "messages", ge=8)
    ] = 8192
    held_bytes: Annotated[
        int, _option("The bytes of those, keys included.", "bytes", ge=64 * KIB)
    ] = 32 * MIB
    held_messages_per_source: Annotated[
        int,
        _option(
            "Assured messages in custody from one account; firmware has few in flight.",
            "messages",
            ge=1,
        ),
    ] = 32
    held_bytes_per_source: Annotated[
        int, _option("The bytes of those, keys included.", "bytes", ge=KIB)
    ] = 128 * KIB
    held_ttl: Annotated[
        float,
        _option(
            "How long a message waits for its `deliver`; a device may be away for a weekend.",
            "seconds of service",
            gt=0,
        ),
    ] = 7 * DAY
    held_grace: Annotated[
        float,
        _option(
            "From a source at its limit, messages older than this make room for new ones.",
            "seconds of service",
            gt=0,
        ),
    ] = HOUR
    released_keys: Annotated[
        int,
        _option(
            "Keys of released messages kept for each account, to answer a repeated `deliver`.",
            "keys",
            ge=1,
        ),
    ] = 256
    msgid_bytes: Annotated[int, _option("The longest msgId.", "bytes", ge=16)] = 256
    dead_messages: Annotated[
        int,
        _option(
            "Undeliverable messages kept for the operator; then the oldest go.", "messages", ge=1
        ),
    ] = 1000
    dead_bytes: Annotated[int, _option("The bytes of those.", "bytes", ge=64 * KIB)] = 16 * MIB
    refusal_window: Annotated[
        float,
        _option(
            "Refusals by one rule of one source are told at most once in this time.",
            "seconds of service",
            gt=0,
        ),
    ] = 60.0
    refusal_sources: Annotated[
        int, _option("Sources told apart in that; the rest is told as `other`.", "sources", ge=1)
    ] = 1000
    unsealed_events: Annotated[
        int,
        _option(
            "Events of a lane that wait to be sealed; beyond, its messages are asked to wait.",
            "events",
            ge=100,
        ),
    ] = 20_000
    backlog_bytes: Annotated[
        int,
        _option(
            "Segments that wait for the centre: at 8 bytes an event, months of a small plant.",
            "bytes",
            ge=MIB,
        ),
    ] = 256 * MIB
    recent_bytes: Annotated[
        int,
        _option(
            "Segments kept after the centre acknowledged them, for `fieldpost events`.",
            "bytes",
            ge=0,
        ),
    ] = 4 * MIB
    database_bytes: Annotated[
        int,
        _option("The database file; beyond, new messages are asked to wait.", "bytes", ge=8 * MIB),
    ] = 1024 * MIB


class Uplink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the event log reaches the centre."""

    enrolment: Annotated[
        str,
        _option(
            "The file that `fieldpost-fleet gateway add` wrote for this gateway, relative to this"
            " folder. Empty: segments are kept here and not sent."
        ),
    ] = ""
    segment_events: Annotated[
        int, _option("A segment is sealed at this many events,", "events", ge=1, le=65_536)
    ] = 2000
    segment_age: Annotated[
        float, _option("or when its first event is this old,", "seconds", gt=0, le=86_400)
    ] = 300.0
    segment_bytes: Annotated[
        int, _option("or at this size, before compression.", "bytes", ge=64 * KIB, le=4 * MIB)
    ] = MIB
    heartbeat: Annotated[
        float,
        _option(
            "The time between two heartbeat events, by which the centre sees outages.",
            "seconds",
            ge=1,
            le=60,
        ),
    ] = 60.0
