"""The options of `fieldpost.toml` except the limits: type, default, unit and reason of each.

The table of limits is in `edge.config.limits`. The docstrings of a table and of its options, which
are the reasons of the options, are the comments that `fieldpost init` writes, so each must be
readable alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import fields

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

SET_THESE: Final = "Set these"
TUNE_THESE: Final = "Tune these"


def option(unit: str = "", *, restart: bool = False, **bounds: Any) -> Meta:
    """Describe an option: its unit, and the bounds that msgspec checks (arguments of its `Meta`).

    With `restart`, a reload does not change the option of a running gateway.
    """
    return Meta(extra={"unit": unit, "restart": restart}, **bounds)


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the configuration."""

    headings: ClassVar[Mapping[str, str]] = {}
    """The heading above an option in the written file, by the name of the option."""


@cache
def descriptions(kind: type[Section]) -> Mapping[str, dict[str, Any]]:
    """Return `unit` and `restart` of each option of a table, as given to `option`, by its name.

    They are kept, because msgspec evaluates all annotations each time that it is asked for the
    fields, and leaves cycles of references.
    """
    return {each.name: each.type.__metadata__[0].extra for each in fields(kind)}


class Rule(Section, frozen=True, kw_only=True):
    """A table of an array: a section that can be repeated, as `[[NAME]]`."""

    example: ClassVar[Mapping[str, object]]
    """Options that the written file shows as an example."""
    is_initial: ClassVar[bool] = False
    """Whether the example is a rule of a new file, and not only shown in a comment."""
    most: ClassVar[int] = 100
    """Maximum tables of the array: all of them may be compared with each node or device."""


class Gateway(Section, frozen=True, kw_only=True):
    """The name of this gateway."""

    headings = {"domain": SET_THESE}

    domain: Annotated[str, option(restart=True)]
    """XMPP domain of the gateway, and its name at the centre. It is part of every address and every
    segment, so it cannot be changed later."""
    names: Annotated[list[str], option(max_length=16, restart=True)] = field(default_factory=list)
    """Other host names and IP addresses under which devices connect, such as "192.168.1.10". Most
    clients of MQTT verify that the server's certificate is for the name or address that they
    connect to. The gateway adds these to the domain in its certificate, unless that is of another
    CA than the gateway's own."""

    processes: Annotated[
        Annotated[int, Meta(ge=0, le=4)] | Literal["auto"], option(restart=True)
    ] = 0
    """Processes for the connections of devices, beside the one that has the database: they do TLS,
    parse and write, and add 19 MB of memory each. They help if TLS keeps one core of the processor
    busy and others are idle, and keep bytes of unknown peers away from the database. 0: all in one
    process. "auto": 0 on one core or with less than 1 GB of memory, else one fewer than there are
    cores, but at most 4."""


class Xmpp(Section, frozen=True, kw_only=True):
    """Connections of devices by XMPP."""

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
    """File that contains the secret with which the gateway logs in at the server in `component`,
    relative to the gateway's folder."""
    trusted_domains: Annotated[list[str], option(restart=True)] = field(default_factory=list)
    """If the gateway is a component: XMPP domains whose users may all send log events and readings
    to it. Users added with `fieldpost device add` need no entry here."""
    trust: Annotated[Literal["site", "roster"], option(restart=True)] = "site"
    """Senders from which a device accepts messages: "site" is every device of this gateway,
    "roster" only the contacts in the device's roster."""
    offline: Annotated[Literal["store", "refuse"], option(restart=True)] = "store"
    """Treatment of a plain message to an offline device: "store" keeps it, "refuse" returns an
    error to its sender."""
    certificate_days: Annotated[int, option("days", ge=1, le=3650)] = 365
    """Validity of a new device certificate, from its creation."""
    require_tls: Annotated[bool, option(restart=True)] = True
    """Require TLS before login. Set it to false only for benchmarks on a loopback address; the SASL
    mechanism PLAIN stays forbidden without TLS."""


class Mqtt(Section, frozen=True, kw_only=True):
    """Connections of devices by MQTT, versions 3.1.1 and 5.0."""

    headings = {"listen": SET_THESE, "require_tls": TUNE_THESE}

    listen: Annotated[str | list[str], option(restart=True)] = ""
    """Address and port for devices that use MQTT over TLS or, if `require_tls` is false, without
    it; or a list of addresses. 1883 is usual. Port 0 selects a free port, which `fieldpost run`
    prints in its `ready` line. An empty string disables the listener."""
    listen_tls: Annotated[str | list[str], option(restart=True)] = ""
    """Address and port only for devices that use MQTT over TLS, or a list of addresses, such as
    ["0.0.0.0:8883", "[::]:8883"] to serve the network. An empty string disables the listener."""
    listen_ws: Annotated[str | list[str], option(restart=True)] = ""
    """Address and port for clients that use MQTT over WebSocket, such as programs in web browsers,
    with TLS (wss) or, if `require_tls` is false, without it (ws); or a list of addresses. An empty
    string disables the listener."""
    require_tls: Annotated[bool, option(restart=True)] = True
    """Require TLS. Without it, passwords are readable on the network, so false is allowed only if
    each address in `listen` and `listen_ws` is a loopback address."""
    anonymous: Annotated[str, option()] = ""
    """Account as which clients act that send no user name and no certificate. An empty string
    refuses them. Like the sessions of any account, `limits.sessions_per_account` limits theirs."""
    keep_alive: Annotated[int, option("seconds", ge=1, le=65_535)] = 3600
    """Maximum keep alive of a client of MQTT 5.0, which is told to use it if it asks for more or
    for none. A client that is silent for 1.5 times its keep alive is lost: its session ends and
    its will is published."""
    sys_interval: Annotated[float, option("seconds", ge=0, le=86_400, restart=True)] = 10.0
    """Time between two publications of the gateway's figures to the topics `$SYS/broker/#` and of
    its status to `$fieldpost/status`, while a client subscribes to them. 0 disables both."""


class Uplink(Section, frozen=True, kw_only=True):
    """Shipping of the event log to the centre."""

    headings = {"enrolment": SET_THESE, "live_share": TUNE_THESE}

    enrolment: Annotated[str, option()] = ""
    """Enrolment file that `fieldpost-fleet gateway add` wrote for this gateway, relative to the
    gateway's folder. Without it and without `folder`, segments stay on the gateway."""
    folder: Annotated[str, option()] = ""
    """Folder into which segments are written in place of an upload, as a path or file:///PATH, for
    example on a mounted share or a USB stick. The folder must exist and contain a file named
    `fieldpost-segments`. `enrolment` must be empty."""
    topics: Annotated[list[str], option(max_length=100)] = field(default_factory=list)
    """Topic filters of the nodes whose items are also sent to the centre, such as "plant/+/temp" or
    "meters/#". Only sensor data, log events and JSON with its content type are sent. Rules in
    [[readings]] select further nodes, and read numbers and JSON without a content type."""
    bandwidth: Annotated[int, option("bytes per second", ge=0)] = 0
    """Maximum upload rate, at least 2048 so that uploads do not time out. 0 is unlimited."""
    live_share: Annotated[float, option("fraction", ge=0.1, le=0.9)] = 0.5
    """Share of the bandwidth for new events while a backlog is uploaded, so that the centre also
    receives current events."""
    urgent_level: Annotated[
        Literal["Notice", "Warning", "Error", "Critical", "Alert", "Emergency", "never"], option()
    ] = "Error"
    """Lowest level of an urgent event. If no other segment waits to be sent, an urgent event is
    sealed into a segment after `urgent_age` instead of `segment_age`. One of Notice, Warning,
    Error, Critical, Alert, Emergency, never."""
    urgent_age: Annotated[float, option("seconds", ge=1, le=300)] = 10.0
    """Age at which an event of `urgent_level` or above is sealed into a segment if no other segment
    waits to be sent. Urgent events cause at most one segment of each lane in this time."""
    segment_events: Annotated[int, option("events", ge=1, le=65_536)] = 2000
    """Maximum events of a segment. A segment with this many events is sealed: it is closed and
    ready for upload."""
    segment_age: Annotated[float, option("seconds", gt=0, le=86_400)] = 300.0
    """Maximum time from a segment's first event until it is sealed (closed and ready for upload).
    With a short time the centre receives events sooner; with a long time the events compress
    better."""
    segment_bytes: Annotated[int, option("bytes", ge=64 * KIB, le=4 * MIB)] = MIB
    """Size before compression at which a segment is sealed (closed and ready for upload), even if
    it has fewer than `segment_events` events."""
    readings_share: Annotated[float, option("fraction", gt=0, lt=1)] = 0.6
    """Share of `limits.backlog_bytes` that is guaranteed to sensor readings when the backlog is
    full. Together with `logs_share` it must be less than 1; the gateway's own events get the
    rest."""
    logs_share: Annotated[float, option("fraction", gt=0, lt=1)] = 0.2
    """Share of `limits.backlog_bytes` that is guaranteed to log events of devices when the backlog
    is full. Together with `readings_share` it must be less than 1; the gateway's own events get the
    rest."""
    heartbeat: Annotated[float, option("seconds", ge=1, le=60, restart=True)] = 60.0
    """Interval of the heartbeat events from which the centre computes outages."""


class Web(Section, frozen=True, kw_only=True):
    """The status page, health check and metrics. They show counts and states, never messages."""

    headings = {"listen": SET_THESE}

    listen: Annotated[str, option()] = ""
    """Address and port of the pages /, /health, /live and /metrics, such as "127.0.0.1:9105". They
    use HTTP without a password, so use a loopback address or a management network. An empty string
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
    """Maximum events per minute of which the accounts in `notify` are notified. Further events are
    counted, and one notification reports their number."""


class Pubsub(Section, frozen=True, kw_only=True):
    """The publish-subscribe service at `pubsub.` before the gateway's domain."""

    headings = {"auto_create": SET_THESE, "shares": TUNE_THESE}

    auto_create: Annotated[list[str], option()] = field(default_factory=list)
    """Topic filters of the nodes that the first publication creates, such as "meters/+/energy" or
    "site/#". Other nodes must be created by a request, or by a publication that a rule in
    [[access]] allows."""
    shares: Annotated[bool, option()] = True
    """Allow shared subscriptions ($share:NAME:FILTER), which divide items among their members."""


class Flash(Section, frozen=True, kw_only=True):
    """The card or disk that holds the database: its endurance, and limits on writing."""

    headings = {"endurance_bytes": SET_THESE, "bytes_per_day": TUNE_THESE}

    endurance_bytes: Annotated[int, option("bytes", ge=0)] = 0
    """Rated write endurance of the card (TBW), from which `fieldpost doctor` estimates its life. 0
    means unknown: 500 times the size of the card is assumed."""
    bytes_per_day: Annotated[int, option("bytes", ge=0)] = 4 * 1024 * MIB
    """Write budget of the card for one day. It is compared with the average rate of about the last
    hour, extrapolated to a day. Above the budget, commits are delayed and share writes: the delay
    grows to `commit_wait` at twice the budget. 0 disables this."""
    commit_wait: Annotated[float, option("seconds", ge=0, le=1)] = 0.05
    """Maximum delay of a commit while the rate of writes is above `bytes_per_day`. Acknowledgements
    are delayed by the same time."""


class AccessRule(Rule, frozen=True, kw_only=True):
    """A rule that says to which nodes a device may publish and subscribe. The first rule whose
    `device` matches decides; a device without one may do neither. If there is no rule at all, only
    the affiliations and access models of nodes decide; otherwise both must allow it. In filters, %u
    is the name of the device and %c its client identifier, which is the resource of its address. A
    filter is ignored if such a value is empty, begins with $, or contains / + or #."""

    example = {"device": "*", "publish": ["%u/#"], "subscribe": ["#"]}
    most = 1000
    is_initial = True

    device: Annotated[str, option()]
    """Name of a device, or a pattern: * stands for any characters, ? for one, and [abc] for one of
    these."""
    publish: Annotated[list[str], option(max_length=100)] = field(default_factory=list)
    """Topic filters of the nodes to which the device may publish. The first publication creates a
    node, which is open to all devices that the rules let publish to it."""
    subscribe: Annotated[list[str], option(max_length=100)] = field(default_factory=list)
    """Topic filters of the nodes that the device may read. It may subscribe to a node, a filter or
    a share if one of these covers it. "#" does not cover names that begin with $."""


class Readings(Rule, frozen=True, kw_only=True):
    """A rule that reads what is published to nodes as sensor readings and sends these to the
    centre. A payload can be a number, true or false, a JSON object, or a SenML pack (RFC 8428). For
    each node, the first rule with a matching filter applies."""

    example = {
        "filter": "tele/+/SENSOR",
        "fields": ["SI7021.Temperature", "SI7021.Humidity"],
        "unit": {"SI7021.Temperature": "Cel", "SI7021.Humidity": "%RH"},
        "time": "Time",
    }

    filter: Annotated[str, option()]
    """Topic filter of the nodes, such as "tele/+/SENSOR"."""
    fields: Annotated[list[str], option(max_length=100)] = field(default_factory=list)
    """Paths of the fields to read, such as "temperature", "ENERGY.Power" or, in an array,
    "Power.0". The path of an object or array selects all numbers and booleans in it. A text is read
    only if its own path is listed. An empty list selects all numbers and booleans. If the payload
    is only a number, its path is the last level of the node's name; in a SenML pack, the path is
    the name."""
    name: Annotated[str, option()] = "%f"
    """Name of a reading. %f is the path of its field, %1 to %9 are levels of the node's name, and
    %% is a percent sign."""
    unit: Annotated[str | dict[str, str], option()] = ""
    """Unit of the readings, or a table of the units of fields, such as { temperature = "Cel" }. A
    unit in a SenML pack takes precedence."""
    time: Annotated[str, option()] = "timestamp"
    """Path of the field with the device's own time, as ISO 8601 or as a number. It is kept with
    each reading and not read as one. A SenML pack has times of its own."""
