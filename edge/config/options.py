"""The options of a gateway, each with its type, default, unit and reason, and nowhere else.

Every limit stands in one table, `edge.config.limits`. `edge.config.load` reads, checks and
writes them; nothing here does.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR


def option(reason: str, unit: str = "", **bounds: Any) -> Meta:
    """Describe an option for `edge.config.load`: its reason, its unit, and msgspec's bounds."""
    return Meta(description=reason, extra={"unit": unit}, **bounds)


class Gateway(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who this gateway is."""

    domain: Annotated[
        str,
        option(
            "The XMPP domain: the gateway's own address, and its name at the centre. It is part of"
            " every address and segment, so choose it once."
        ),
    ]


class Xmpp(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where and how devices connect."""

    listen: Annotated[
        str | list[str],
        option(
            "Address and port for devices (STARTTLS), or a list of them. Port 0 takes a free one,"
            ' which `ready` names; ["0.0.0.0:5222", "[::]:5222"] serves the network, not this'
            " machine alone. Empty: none."
        ),
    ] = "127.0.0.1:5222"
    listen_tls: Annotated[
        str | list[str],
        option("The same for devices that speak TLS from the first byte (XEP-0368)."),
    ] = "127.0.0.1:5223"
    require_tls: Annotated[
        bool,
        option("Refuse to log in without TLS. `false` is for measuring on loopback; never PLAIN."),
    ] = True
    trust: Annotated[
        Literal["site", "roster"],
        option(
            'Whom a device takes messages from: "site", any device of this gateway; "roster", those'
            " in its own roster."
        ),
    ] = "site"
    offline: Annotated[
        Literal["store", "refuse"],
        option('A plain message to a device that is away: "store" it, or "refuse" it.'),
    ] = "store"
    certificate_days: Annotated[
        int, option("How long a device's certificate is valid.", "days", ge=1, le=3650)
    ] = 365
    component: Annotated[
        str,
        option(
            "HOST:PORT of an XMPP server to be a component of (XEP-0114), in place of listening."
        ),
    ] = ""
    component_secret: Annotated[
        str, option("The file that holds the component's secret, relative to this folder.")
    ] = ""
    trusted_domains: Annotated[
        list[str],
        option("As a component: domains whose users are all trusted, beside the devices added."),
    ] = field(default_factory=list)


class Log(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who is told what the gateway itself logs."""

    notify: Annotated[
        list[str],
        option(
            "Accounts (NAME@DOMAIN) that get what the gateway itself logs, from `notify_level` on,"
            " as messages (XEP-0337)."
        ),
    ] = field(default_factory=list)
    notify_level: Annotated[
        Literal["Informational", "Notice", "Warning", "Error", "Critical", "Alert", "Emergency"],
        option(
            "The least level of those: Informational, Notice, Warning, Error, Critical, Alert or"
            " Emergency."
        ),
    ] = "Warning"
    notify_most: Annotated[
        int,
        option(
            "Of those, at most so many in a minute; the rest is counted, and told as one.",
            "events",
            ge=1,
            le=1000,
        ),
    ] = 30


class Pubsub(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The publish-subscribe service, at `pubsub.` before the gateway's domain."""

    auto_create: Annotated[
        list[str],
        option(
            'Nodes that are made when somebody publishes to them: filters, as "meters/+/energy" or'
            ' "site/#". Empty: none.'
        ),
    ] = field(default_factory=list)
    shares: Annotated[
        bool, option("Shared subscriptions, `$share:NAME:FILTER`. `false` refuses them.")
    ] = True


class Uplink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the event log reaches the centre."""

    enrolment: Annotated[
        str,
        option(
            "The file that `fieldpost-fleet gateway add` wrote for this gateway, relative to this"
            " folder. Empty: segments are kept here and not sent."
        ),
    ] = ""
    folder: Annotated[
        str,
        option(
            "A folder to write segments to in place of the network, as path or file:///PATH: a"
            " mounted share, a stick. It is there, and marked by a file `fieldpost-segments` in it;"
            " `enrolment` stays empty then."
        ),
    ] = ""
    topics: Annotated[
        list[str],
        option(
            "Nodes whose items go to the centre too, where they hold sensor data, a log event or a"
            ' JSON container: filters, as "plant/+/temp" or "meters/#". Empty: none.',
            max_length=100,
        ),
    ] = field(default_factory=list)
    bandwidth: Annotated[
        int,
        option(
            "What uploads take of the link at most, 2048 or more; 0: all of it.",
            "bytes a second",
            ge=0,
        ),
    ] = 0
    live_share: Annotated[
        float,
        option(
            "While a backlog is shipped, the share of the link for what is newest, so that the"
            " centre sees the present.",
            "of 1",
            ge=0.1,
            le=0.9,
        ),
    ] = 0.5
    urgent_level: Annotated[
        Literal["Notice", "Warning", "Error", "Critical", "Alert", "Emergency", "never"],
        option(
            "From this level on, an event does not wait for `segment_age` where the link is idle,"
        ),
    ] = "Error"
    urgent_age: Annotated[
        float,
        option(
            "but for this long: its lane is sealed no more often for it.", "seconds", ge=1, le=300
        ),
    ] = 10.0
    readings_share: Annotated[
        float,
        option(
            "The share of `limits.backlog_bytes` that readings keep when it is full,",
            "of 1",
            gt=0,
            lt=1,
        ),
    ] = 0.6
    logs_share: Annotated[
        float,
        option("and logs; the rest is for what the gateway says of itself.", "of 1", gt=0, lt=1),
    ] = 0.2
    segment_events: Annotated[
        int, option("A segment is sealed at this many events,", "events", ge=1, le=65_536)
    ] = 2000
    segment_age: Annotated[
        float, option("or when its first event is this old,", "seconds", gt=0, le=86_400)
    ] = 300.0
    segment_bytes: Annotated[
        int,
        option("or at this size, before compression.", "bytes", ge=64 * 1024, le=4 * 1024 * 1024),
    ] = 1024 * 1024
    heartbeat: Annotated[
        float,
        option(
            "The time between two heartbeat events, by which the centre sees outages.",
            "seconds",
            ge=1,
            le=60,
        ),
    ] = 60.0


class Flash(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The card that all this is written to, and how it is spared."""

    endurance_bytes: Annotated[
        int,
        option(
            "How much can be written to it until it is worn out, as its maker rates it. 0: not"
            " known, and 500 times its size is assumed.",
            "bytes",
            ge=0,
        ),
    ] = 0
    bytes_per_day: Annotated[
        int,
        option(
            "Beyond this, commits wait for each other, so that several share what one costs. 0:"
            " never.",
            "bytes",
            ge=0,
        ),
    ] = 4 * 1024 * MIB
    commit_wait: Annotated[
        float,
        option("How long a commit waits for others then, at most.", "seconds", ge=0, le=1),
    ] = 0.05


class Web(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a browser or Prometheus may ask the gateway: its state, never a message."""

    listen: Annotated[
        str,
        option(
            "Address and port of /, /health and /metrics, over HTTP without a password: keep it on"
            ' this machine or a management network, as "127.0.0.1:9105". Empty: none.'
        ),
    ] = ""
    names: Annotated[
        list[str],
        option(
            "Names that it is asked for by, beside IP addresses, `localhost` and the machine's own"
            ' name, as "gw1.site.example"; by any other it is not answered.',
            max_length=16,
        ),
    ] = field(default_factory=list)
