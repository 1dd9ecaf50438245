"""The options of `fieldpost.toml` except the limits: type, default, unit and reason of each.

The table of limits is in `edge.config.limits`. The docstrings of a table and of its options, which
are the reasons of the options, are the comments that `fieldpost init` writes, so each must be
readable alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct, field

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

SET_THESE: Final = "Set these"
TUNE_THESE: Final = "Tune these"


def option(unit: str = "", *, restart: bool = False, **bounds: Any) -> Meta:
    """Describe an option: its unit, and the bounds that msgspec checks.

    With `restart`, a reload does not change the option of a running gateway.
    """
    return Meta(extra={"unit": unit, "restart": restart}, **bounds)


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the configuration."""

    headings: ClassVar[Mapping[str, str]] = {}
    """The heading above an option in the written file, by the name of the option."""


class Gateway(Section, frozen=True, kw_only=True):
    """The name of this gateway."""

    headings = {"domain": SET_THESE}

    domain: Annotated[str, option(restart=True)]
    """XMPP domain of the gateway, and its name at the centre. It is part of every address and every
    segment, so it cannot be changed later."""


class Xmpp(Section, frozen=True, kw_only=True):
    """Connections of devices."""

    headings = {"listen": SET_THESE, "offline": TUNE_THESE}

    listen: Annotated[str | list[str], option(restart=True)] = "127.0.0.1:5222"
    """Address and port for devices that use STARTTLS or TLS from the first byte (XEP-0368), or a
    list of addresses. ["0.0.0.0:5222", "[::]:5222"] serves the network. Port 0 selects a free port,
    which `fieldpost run` prints in its `ready` line. An empty string disables the listener."""
    listen_tls: Annotated[str | list[str], option(restart=True)] = "127.0.0.1:5223"
    """Address and port only for devices that use TLS from the first byte, or a list of addresses.
    An empty string disables the listener."""
    component: Annotated[str, option(restart=True)] = ""
    """HOST:PORT of an XMPP server to attach to as a component (XEP-0114). If it is set, `listen`
    and `listen_tls` must be empty."""
    component_secret: Annotated[str, option(restart=True)] = ""
    """File with the secret of the component, relative to the gateway's folder."""
    trusted_domains: Annotated[list[str], option(restart=True)] = field(default_factory=list)
    """Domains whose users may all send log events and readings to this gateway if it is a
    component. Users added with `fieldpost device add` need no entry here."""
    trust: Annotated[Literal["site", "roster"], option(restart=True)] = "site"
    """Senders from which a device accepts messages: "site" is every device of this gateway,
    "roster" only the contacts in the device's roster."""
    offline: Annotated[Literal["store", "refuse"], option(restart=True)] = "store"
    """Plain messages to an offline device: "store" keeps them, "refuse" returns them."""
    certificate_days: Annotated[int, option("days", ge=1, le=3650)] = 365
    """Validity of a new device certificate."""
    require_tls: Annotated[bool, option(restart=True)] = True
    """Require TLS before login. Set it to false only for benchmarks on a loopback address; PLAIN
    stays forbidden without TLS."""


class Uplink(Section, frozen=True, kw_only=True):
    """Shipping of the event log to the centre."""

    headings = {"enrolment": SET_THESE, "live_share": TUNE_THESE}

    enrolment: Annotated[str, option()] = ""
    """Enrolment file that `fieldpost-fleet gateway add` wrote for this gateway, relative to the
    gateway's folder. Without it segments are stored on the gateway and not uploaded."""
    folder: Annotated[str, option()] = ""
    """Folder that receives segments instead of an upload, as a path or file:///PATH, for example on
    a mounted share or a USB stick. The folder must exist and contain a file named
    `fieldpost-segments`. `enrolment` must be empty."""
    topics: Annotated[list[str], option(max_length=100)] = field(default_factory=list)
    """Topic filters of the nodes whose items are also sent to the centre, such as "plant/+/temp" or
    "meters/#". Only sensor data, log events and JSON containers are sent."""
    bandwidth: Annotated[int, option("bytes per second", ge=0)] = 0
    """Maximum upload rate, at least 2048 so that uploads do not time out. 0 is unlimited."""
    live_share: Annotated[float, option("fraction", ge=0.1, le=0.9)] = 0.5
    """Share of the bandwidth for new events while a backlog is uploaded, so that the centre also
    receives current events."""
    urgent_level: Annotated[
        Literal["Notice", "Warning", "Error", "Critical", "Alert", "Emergency", "never"], option()
    ] = "Error"
    """Lowest level of an urgent event. On an idle link an urgent event is sealed into a segment
    after `urgent_age` instead of `segment_age`. One of Notice, Warning, Error, Critical, Alert,
    Emergency, never."""
    urgent_age: Annotated[float, option("seconds", ge=1, le=300)] = 10.0
    """Age at which an event of `urgent_level` or above is sealed into a segment on an idle link.
    Urgent events cause at most one segment in this time."""
    segment_events: Annotated[int, option("events", ge=1, le=65_536)] = 2000
    """Maximum events of a segment. A segment with this many events is sealed: it is closed and
    ready for upload."""
    segment_age: Annotated[float, option("seconds", gt=0, le=86_400)] = 300.0
    """Maximum time from a segment's first event until it is sealed. With a short time the centre
    receives events sooner; with a long time the events compress better."""
    segment_bytes: Annotated[int, option("bytes", ge=64 * KIB, le=4 * MIB)] = MIB
    """Size before compression at which a segment is sealed, even if it has fewer than
    `segment_events` events."""
    readings_share: Annotated[float, option("fraction", gt=0, lt=1)] = 0.6
    """Share of `limits.backlog_bytes` that sensor readings keep when the backlog is full."""
    logs_share: Annotated[float, option("fraction", gt=0, lt=1)] = 0.2
    """Share of `limits.backlog_bytes` that log events of devices keep when the backlog is full. The
    rest is for the gateway's own events."""
    heartbeat: Annotated[float, option("seconds", ge=1, le=60, restart=True)] = 60.0
    """Interval of the heartbeat events from which the centre computes outages."""


class Web(Section, frozen=True, kw_only=True):
    """The status page, health check and metrics. They show counts and states, never messages."""

    headings = {"listen": SET_THESE}

    listen: Annotated[str, option()] = ""
    """Address and port of the pages /, /health and /metrics, such as "127.0.0.1:9105". They use
    HTTP without a password, so use a loopback address or a management network. An empty string
    disables the pages."""
    names: Annotated[list[str], option(max_length=16)] = field(default_factory=list)
    """Host names under which the pages are requested, such as "gw1.site.example". IP addresses,
    `localhost` and the machine's own name are always accepted; other names are refused, to prevent
    DNS rebinding attacks."""


class Log(Section, frozen=True, kw_only=True):
    """Messages that notify people of the gateway's own events."""

    headings = {"notify": SET_THESE, "notify_most": TUNE_THESE}

    notify: Annotated[list[str], option()] = field(default_factory=list)
    """Accounts (NAME@DOMAIN) that receive the gateway's own events as messages (XEP-0337)."""
    notify_level: Annotated[
        Literal["Informational", "Notice", "Warning", "Error", "Critical", "Alert", "Emergency"],
        option(),
    ] = "Warning"
    """Lowest level of an event that is sent to the accounts in `notify`. One of Informational,
    Notice, Warning, Error, Critical, Alert, Emergency."""
    notify_most: Annotated[int, option("events", ge=1, le=1000)] = 30
    """Maximum notifications per minute to the accounts in `notify`. Further events are counted, and
    one notification reports their number."""


class Pubsub(Section, frozen=True, kw_only=True):
    """The publish-subscribe service at `pubsub.` before the gateway's domain."""

    headings = {"auto_create": SET_THESE, "shares": TUNE_THESE}

    auto_create: Annotated[list[str], option()] = field(default_factory=list)
    """Topic filters of the nodes that the first publication creates, such as "meters/+/energy" or
    "site/#". Other nodes must be created by a request."""
    shares: Annotated[bool, option()] = True
    """Allow shared subscriptions ($share:NAME:FILTER), which divide items among workers."""


class Flash(Section, frozen=True, kw_only=True):
    """The card or disk that holds the database: its endurance, and limits on writing."""

    headings = {"endurance_bytes": SET_THESE, "bytes_per_day": TUNE_THESE}

    endurance_bytes: Annotated[int, option("bytes", ge=0)] = 0
    """Rated write endurance of the card (TBW). 0 means unknown: 500 times its size is assumed."""
    bytes_per_day: Annotated[int, option("bytes", ge=0)] = 4 * 1024 * MIB
    """Daily write budget. Above it commits are batched: several share one write. 0 disables
    batching."""
    commit_wait: Annotated[float, option("seconds", ge=0, le=1)] = 0.05
    """Maximum delay of a commit while commits are batched. Acknowledgements are delayed by the same
    time."""
