"""The configuration: TOML to frozen structs, checked once, every limit in one table.

Each option stands here with its type, default, unit and reason, and nowhere else: `render` writes
the annotated file of `fieldpost init` from the same declarations that `load` checks against.
"""

from __future__ import annotations

import ipaddress
import math
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta, Struct

from edge.errors import ConfigError

FILE_NAME: Final = "fieldpost.toml"

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

ASIDE_BYTES: Final = 4 * MIB
"""Bytes of segments kept that the centre refused for good: for a person to look at."""


class Address(NamedTuple):
    """Where to listen: a host name or IP address (IPv6 without its brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
        str,
        _option(
            "Address and port for devices (STARTTLS). Port 0 takes a free one, which `ready` names;"
            ' "0.0.0.0:5222" or "[::]:5222" serves the network, not this machine alone.'
        ),
    ] = "127.0.0.1:5222"
    require_tls: Annotated[
        bool,
        _option("Refuse to log in without TLS. `false` is for measuring on loopback; never PLAIN."),
    ] = True


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every bound of the gateway."""

    sessions: Annotated[
        int, _option("Connections at once; a TLS one costs some 50 KiB.", "connections", ge=1)
    ] = 1000
    unauthenticated: Annotated[
        int,
        _option(
            "Of those, not logged in yet: strangers can hold no more than these.",
            "connections",
            ge=1,
        ),
    ] = 200
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
        _option(
            "How long a peer may leave its answers unread; then it is cut off.", "seconds", gt=0
        ),
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


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole configuration of a gateway; `load` gives one that is consistent."""

    gateway: Gateway
    xmpp: Xmpp = Xmpp()
    limits: Limits = Limits()
    uplink: Uplink = Uplink()

    @property
    def listen(self) -> Address:
        """Where to listen for devices."""
        return parse_address(self.xmpp.listen)


def load(folder: Path) -> Config:
    """Read and check `folder/fieldpost.toml`; raises `ConfigError` that names the option."""
    path = folder / FILE_NAME
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; `fieldpost init` makes it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(text: bytes) -> Config:
    """Read and check a configuration; raises `ConfigError` that names the option."""
    try:
        config = msgspec.toml.decode(text, type=Config)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(error)) from None
    _check_finite(config)
    check_domain(config.gateway.domain)
    parse_address(config.xmpp.listen)
    if config.limits.unauthenticated > config.limits.sessions:
        raise ConfigError("limits.unauthenticated must not be above limits.sessions")
    if not config.xmpp.require_tls and not _is_loopback(config.listen.host):
        raise ConfigError("xmpp.require_tls = false is for loopback, and xmpp.listen is not")
    _check_room(config.limits)
    return config


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_room(limits: Limits) -> None:
    """What may be kept has to fit, or the database fills before anything makes room in it."""
    kept = (limits.held_bytes, limits.dead_bytes, limits.backlog_bytes, limits.recent_bytes)
    needed = sum(kept) + ASIDE_BYTES
    if needed > limits.database_bytes:
        raise ConfigError(
            f"limits.database_bytes is {limits.database_bytes}, and limits.held_bytes, dead_bytes,"
            f" backlog_bytes and recent_bytes with {ASIDE_BYTES} for segments set aside are"
            f" {needed}"
        )


def _check_finite(config: Config) -> None:
    """TOML can write `inf` and `nan`, and a limit that is either is none."""
    for section, options in msgspec.to_builtins(config).items():
        for name, value in options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{section}.{name} must be a finite number")


def check_domain(domain: str) -> str:
    """Return the domain if it can be one: lower-case labels of letters, digits and `-`."""
    label = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    if len(domain) > 253 or not re.fullmatch(rf"{label}(\.{label})*", domain):
        raise ConfigError(
            f"domain {domain!r} is not a domain name in lower-case ASCII letters, digits and '-'"
        )
    return domain


def parse_address(text: str) -> Address:
    """Split `HOST:PORT` or `[IPV6]:PORT`; raises `ConfigError`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65_535:
        raise ConfigError(f"address {text!r} is not HOST:PORT or [IPV6]:PORT")
    return Address(match[1] or match[2], int(match[3]))


def render(domain: str, listen: str | None = None) -> str:
    """Write out a configuration for `domain` with every option, its default and its reason."""
    given: dict[str, object] = {"domain": domain}
    if listen is not None:
        given["listen"] = listen
    sections: dict[str, type[Struct]] = {
        "gateway": Gateway,
        "xmpp": Xmpp,
        "limits": Limits,
        "uplink": Uplink,
    }
    return "\n".join(_section(name, kind, given) for name, kind in sections.items())


def _section(name: str, kind: type[Struct], given: dict[str, object]) -> str:
    doc = (kind.__doc__ or "").strip()
    lines = [f"# {doc}", f"[{name}]"]
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        meta = hints[field.name].__metadata__[0]
        unit = f" ({meta.extra['unit']})" if meta.extra["unit"] else ""
        lines.append(f"# {meta.description}{unit}")
        lines.append(f"{field.name} = {_toml(given.get(field.name, field.default))}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:_}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
