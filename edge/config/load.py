"""Load and check `fieldpost.toml`."""

from __future__ import annotations

import ipaddress
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import field

from edge.config.limits import REJECTED_SEGMENT_BYTES, Limits
from edge.config.options import (
    AccessRule,
    Flash,
    Gateway,
    Log,
    Mqtt,
    Pubsub,
    Readings,
    Rule,
    Section,
    Uplink,
    Web,
    Xmpp,
)
from edge.errors import ConfigError
from edge.topics import ALL_LEVELS, MAX_LEVELS, InvalidFilter, check_filter
from sync.common.regular_files import read_regular

FILE_NAME: Final = "fieldpost.toml"
LAST_PORT: Final = 65_535
MIN_BANDWIDTH: Final = 2_048
"""Minimum upload rate in bytes per second: twice the minimum that the receiver accepts."""
LARGEST: Final = 10**15
"""Maximum of a numeric option, so that sums of options fit into the 64-bit integers of SQLite."""

SECTIONS: Final[dict[str, type[Section]]] = {
    "gateway": Gateway,
    "xmpp": Xmpp,
    "mqtt": Mqtt,
    "uplink": Uplink,
    "web": Web,
    "log": Log,
    "pubsub": Pubsub,
    "flash": Flash,
    "limits": Limits,
}
"""The sections of the file, in the order in which they are written."""

ARRAYS: Final[dict[str, type[Rule]]] = {"access": AccessRule, "readings": Readings}
"""The arrays of tables, which are written after the sections. Their order matters, and a reload
applies them."""


class Address(NamedTuple):
    """A host name or IP address (IPv6 without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Config(Section, frozen=True, kw_only=True):
    """The configuration of a gateway.

    Each configuration has its own section objects, because a reload changes the sections of a
    running gateway in place (`edge.config.changes`).
    """

    gateway: Gateway
    xmpp: Xmpp = field(default_factory=Xmpp)
    mqtt: Mqtt = field(default_factory=Mqtt)
    pubsub: Pubsub = field(default_factory=Pubsub)
    limits: Limits = field(default_factory=Limits)
    log: Log = field(default_factory=Log)
    uplink: Uplink = field(default_factory=Uplink)
    flash: Flash = field(default_factory=Flash)
    web: Web = field(default_factory=Web)
    access: Annotated[list[AccessRule], msgspec.Meta(max_length=AccessRule.most)] = field(
        default_factory=list
    )
    readings: Annotated[list[Readings], msgspec.Meta(max_length=Readings.most)] = field(
        default_factory=list
    )

    @property
    def listen(self) -> tuple[Address, ...]:
        """Return the addresses on which devices use STARTTLS or TLS from the first byte."""
        return parse_addresses(self.xmpp.listen, "xmpp.listen: ")

    @property
    def listen_tls(self) -> tuple[Address, ...]:
        """Return the addresses on which devices must use TLS from the first byte."""
        return parse_addresses(self.xmpp.listen_tls, "xmpp.listen_tls: ")

    @property
    def listen_mqtt(self) -> tuple[Address, ...]:
        """Return the addresses on which devices use MQTT, with or without TLS."""
        return parse_addresses(self.mqtt.listen, "mqtt.listen: ")

    @property
    def listen_mqtt_tls(self) -> tuple[Address, ...]:
        """Return the addresses on which devices must use MQTT over TLS."""
        return parse_addresses(self.mqtt.listen_tls, "mqtt.listen_tls: ")

    @property
    def listen_mqtt_ws(self) -> tuple[Address, ...]:
        """Return the addresses on which devices use MQTT over WebSocket."""
        return parse_addresses(self.mqtt.listen_ws, "mqtt.listen_ws: ")

    @property
    def has_mqtt(self) -> bool:
        """Return whether the gateway serves MQTT."""
        return bool(self.listen_mqtt or self.listen_mqtt_tls or self.listen_mqtt_ws)

    @property
    def listeners(self) -> tuple[tuple[str, str, tuple[Address, ...]], ...]:
        """Return the section, the option and the addresses of each listener of devices."""
        return (
            ("xmpp", "listen", self.listen),
            ("xmpp", "listen_tls", self.listen_tls),
            ("mqtt", "listen", self.listen_mqtt),
            ("mqtt", "listen_tls", self.listen_mqtt_tls),
            ("mqtt", "listen_ws", self.listen_mqtt_ws),
        )

    @property
    def component(self) -> Address | None:
        """Return the XMPP server to attach to, or `None` if the gateway is not a component."""
        return (
            parse_address(self.xmpp.component, "xmpp.component: ") if self.xmpp.component else None
        )


def load(folder: Path) -> Config:
    """Read and check `folder/fieldpost.toml`; raises `ConfigError`, which names the option."""
    text = read(folder)
    try:
        return parse(text)
    except ConfigError as error:
        advice = "`fieldpost config check` lists all mistakes"
        raise ConfigError(f"{folder / FILE_NAME}: {error}; {advice}") from None


def read_component_secret(folder: Path, config: Config) -> str:
    """Return the secret with which a component logs in; raises `ConfigError`."""
    path = folder / config.xmpp.component_secret
    try:
        secret = read_regular(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"xmpp.component_secret: {path} cannot be read: {reason}") from error
    if not secret:
        raise ConfigError(f"xmpp.component_secret: {path} is empty; write the secret to it")
    return secret


def read(folder: Path) -> bytes:
    """Return the bytes of `folder/fieldpost.toml`; raises `ConfigError` if it cannot be read."""
    path = folder / FILE_NAME
    try:
        return read_regular(path)
    except FileNotFoundError:
        advice = "create the gateway with `fieldpost init`, or name its folder with --dir"
        if folder.is_dir() and any(folder.iterdir()):
            advice = (
                "name the gateway's folder with --dir, restore the file from a backup, or write one"
                ' with the gateway\'s domain: `[gateway]`, and on the next line `domain = "NAME"`'
            )
        raise ConfigError(f"{path} does not exist; {advice}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def parse(text: bytes) -> Config:
    """Parse and check a configuration; raises `ConfigError`, which names the option."""
    tables = read_tables(text)
    try:
        config = msgspec.convert(tables, Config)
    except msgspec.ValidationError:
        from edge.config import faults  # only a faulty file needs it

        fault = next(faults.find_invalid(tables, SECTIONS, ARRAYS))
        raise ConfigError(str(fault)) from None
    for conflict in find_conflicts(config):
        raise conflict
    return config


def read_tables(text: bytes) -> dict[str, Any]:
    """Decode a configuration's TOML without checking the options; raises `ConfigError`."""
    try:
        return tomllib.loads(text.decode())
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(f"it is not UTF-8: byte {error.start} is 0x{byte:02x}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"it is not TOML: {error}") from None
    except ValueError:  # of int(), beyond sys.get_int_max_str_digits()
        raise ConfigError("it is not TOML: a number has too many digits") from None
    except RecursionError:
        raise ConfigError("it is not TOML: it is nested too deeply") from None


def tables_of(config: Config) -> Iterator[tuple[str, Section]]:
    """Yield each table of a configuration with its name, such as `limits`, or `readings[1]` for the
    first table of an array."""
    for name in SECTIONS:
        yield name, getattr(config, name)
    for name in ARRAYS:
        for number, table in enumerate(getattr(config, name), 1):
            yield f"{name}[{number}]", table


def find_conflicts(config: Config) -> Iterator[ConfigError]:
    """Yield an error for each forbidden value or combination in a `config` of valid types."""
    for check in _CHECKS:
        try:
            check(config)
        except ConfigError as error:
            yield error
    yield from _find_wrong_access(config)
    limits = config.limits
    for part, whole in _ORDERED_LIMITS:
        if getattr(limits, part) > getattr(limits, whole):
            yield ConfigError(f"limits.{part} must not exceed limits.{whole}")


_ORDERED_LIMITS: Final = (
    ("offline_messages", "offline_total_messages"),
    ("offline_bytes", "offline_total_bytes"),
    ("unacknowledged_bytes", "unacknowledged_total_bytes"),
    ("stanza_bytes", "unacknowledged_bytes"),
    ("stanza_bytes", "offline_bytes"),
    ("offline_messages_per_source", "offline_total_messages"),
    ("offline_bytes_per_source", "offline_total_bytes"),
    ("outbox_messages_per_account", "outbox_messages"),
    ("outbox_bytes_per_account", "outbox_bytes"),
    ("outbox_messages_per_source", "outbox_messages"),
    ("outbox_bytes_per_source", "outbox_bytes"),
    ("retry_after", "retry_most"),
    ("stanza_bytes", "bytes_at_once"),
    ("sessions_per_account", "sessions_per_address"),
    ("nodes_per_account", "nodes"),
    ("items_per_node", "items"),
    ("items_per_queue", "queue_items"),
    ("queue_bytes_per_queue", "queue_bytes"),
)
"""Pairs of limits of which the first must not exceed the second."""


def _check_fronts(config: Config) -> None:
    xmpp = config.xmpp
    for section, option, listen in config.listeners:
        require_tls = option == "listen_tls" or getattr(config, section).require_tls
        if not require_tls and not all(is_loopback(address.host) for address in listen):
            raise ConfigError(
                f"{section}.require_tls = false is allowed only if each address in"
                f" {section}.{option} is a loopback address"
            )
    has_xmpp = config.listen or config.listen_tls or config.component is not None
    if not has_xmpp and not config.has_mqtt:
        raise ConfigError(
            "xmpp.listen, xmpp.listen_tls, xmpp.component, mqtt.listen, mqtt.listen_tls and"
            " mqtt.listen_ws are all empty; set at least one"
        )
    if config.has_mqtt and config.component is not None:
        raise ConfigError(
            "if xmpp.component is set, mqtt.listen, mqtt.listen_tls and mqtt.listen_ws must be"
            " empty, because a component has no accounts and no nodes"
        )
    if config.component is not None and not xmpp.component_secret:
        raise ConfigError("xmpp.component is set, so xmpp.component_secret must be set too")
    if config.component is not None and (config.listen or config.listen_tls):
        raise ConfigError("if xmpp.component is set, xmpp.listen and xmpp.listen_tls must be empty")
    for domain in xmpp.trusted_domains:
        check_domain(domain, "xmpp.trusted_domains: ")


def _check_anonymous(config: Config) -> None:
    name = config.mqtt.anonymous
    if name and (not re.fullmatch(_LOCAL_PART, name) or name != name.lower()):
        raise ConfigError(
            f"mqtt.anonymous: {name!r} is not the name of an account in lower-case letters,"
            " without a domain"
        )


def _check_uplink(config: Config) -> None:
    uplink = config.uplink
    if uplink.folder and uplink.enrolment:
        raise ConfigError("uplink.folder and uplink.enrolment are both set; set only one")
    if 0 < uplink.bandwidth < MIN_BANDWIDTH:
        raise ConfigError(
            f"uplink.bandwidth: it must be 0 or at least {MIN_BANDWIDTH}; slower uploads time out"
        )
    if uplink.readings_share + uplink.logs_share >= 1:
        raise ConfigError("uplink.readings_share and uplink.logs_share must add up to less than 1")


def _check_names(config: Config) -> None:
    for name in config.gateway.names:
        try:
            usual = str(ipaddress.ip_address(name))
        except ValueError:
            usual = check_domain(name, "gateway.names: ")
        if name != usual:
            raise ConfigError(f"gateway.names: write {name!r} as {usual!r}")


def _check_web(config: Config) -> None:
    if config.web.listen:
        parse_address(config.web.listen, "web.listen: ")
    for name in config.web.names:
        try:
            check_domain(name)
        except ConfigError:
            raise ConfigError(
                f"web.names: {name!r} is not a host name in lower-case letters, digits, '-' and"
                " '.', without a port"
            ) from None


def _check_filters(config: Config) -> None:
    filters = {
        "pubsub.auto_create": config.pubsub.auto_create,
        "uplink.topics": config.uplink.topics,
    }
    for name, texts in filters.items():
        if texts and config.component is not None:
            raise ConfigError(f"{name} must be empty, because a component has no nodes")
        for text in texts:
            _check_filter(name, text)


def _check_filter(option: str, text: str) -> None:
    try:
        check_filter(text)
    except InvalidFilter as error:
        raise ConfigError(f"{option}: {text!r}: {error}") from None


def _find_wrong_access(config: Config) -> Iterator[ConfigError]:
    if config.access and config.component is not None:
        yield ConfigError("access must be empty, because a component has no nodes")
    for number, rule in enumerate(config.access, 1):
        table = f"access[{number}]"
        if not re.fullmatch(_LOCAL_PART, rule.device) or rule.device != rule.device.lower():
            yield ConfigError(
                f"{table}.device: {rule.device!r} is not the name of a device in lower-case"
                " letters, without a domain, or a pattern of such names"
            )
        for name, filters in (("publish", rule.publish), ("subscribe", rule.subscribe)):
            for text in filters:
                try:
                    _check_filter(f"{table}.{name}", text)
                except ConfigError as error:
                    yield error


_LOCAL_PART: Final = r"[^\s\"&'/:<>@]{1,1023}"


def _check_readings(config: Config) -> None:
    if config.readings and config.component is not None:
        raise ConfigError("readings must be empty, because a component has no nodes")
    numbers: dict[str, int] = {}
    for number, rule in enumerate(config.readings, 1):
        table = f"readings[{number}]"
        _check_filter(f"{table}.filter", rule.filter)
        if (first := numbers.setdefault(rule.filter, number)) != number:
            raise ConfigError(f"{table}.filter: readings[{first}] has the same filter and applies")
        _check_name(f"{table}.name", rule)
        if "" in rule.fields:
            raise ConfigError(f"{table}.fields: a path must not be empty")
        for path in rule.unit if isinstance(rule.unit, dict) else ():
            if rule.fields and not any(f"{path}.".startswith(f"{one}.") for one in rule.fields):
                raise ConfigError(f"{table}.unit: {path!r} is not in {table}.fields")


def _check_name(option: str, rule: Readings) -> None:
    """Check that the name of a rule's readings is a template that gives each field its name."""
    if not rule.name:
        raise ConfigError(f"{option}: it must not be empty")
    used = re.findall(r"%(.?)", rule.name, re.DOTALL)
    levels = MAX_LEVELS if rule.filter.endswith(ALL_LEVELS) else rule.filter.count("/") + 1
    for mark in used:
        if mark not in tuple("123456789f%"):
            raise ConfigError(f"{option}: '%{mark}' is not one of %1 to %9, %f and %%")
        if mark.isdigit() and int(mark) > levels:
            raise ConfigError(f"{option}: {rule.filter!r} has {levels} levels, and no level {mark}")
    if len(rule.fields) > 1 and "f" not in used:
        raise ConfigError(f"{option}: without %f, all fields would have the same name")


def _check_notify(config: Config) -> None:
    domain = config.gateway.domain
    for address in config.log.notify:
        local, _, host = address.partition("@")
        if not re.fullmatch(_LOCAL_PART, local) or local != local.lower():
            raise ConfigError(f"log.notify: {address!r} is not NAME@DOMAIN in lower-case letters")
        if config.component is None and host != domain:
            raise ConfigError(
                f"log.notify: {address!r} is not an account of this gateway (@{domain})"
            )
        if config.component is not None and host == domain:
            raise ConfigError(
                f"log.notify: {address!r}: a component has no accounts; name one at another domain"
            )
        check_domain(host, f"log.notify: {address!r}: ")


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address, which other machines cannot reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_room(config: Config) -> None:
    """Check that the database has room even if all stores of messages and segments are full."""
    limits = config.limits
    names: tuple[str, ...] = (
        "held_bytes",
        "outbox_bytes",
        "offline_total_bytes",
        "dead_bytes",
        "backlog_bytes",
        "recent_bytes",
        "database_reserve",
    )
    if config.has_mqtt:
        names += ("will_bytes",)
    needed = sum(getattr(limits, name) for name in names) + REJECTED_SEGMENT_BYTES
    if needed > limits.database_bytes:
        raise ConfigError(
            f"limits.database_bytes is {limits.database_bytes}, but {', '.join(names)} and"
            f" {REJECTED_SEGMENT_BYTES} bytes for rejected segments need {needed}; raise it, or"
            " lower these"
        )


def _check_numbers(config: Config) -> None:
    for section, table in tables_of(config):
        for name, value in msgspec.structs.asdict(table).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{section}.{name} must be a finite number")
            if isinstance(value, int | float) and value > LARGEST:
                raise ConfigError(f"{section}.{name} must not exceed {LARGEST}")


_CHECKS: Final[tuple[Callable[[Config], object], ...]] = (
    _check_numbers,
    lambda config: check_domain(config.gateway.domain),
    _check_names,
    _check_fronts,
    _check_anonymous,
    _check_notify,
    _check_uplink,
    _check_web,
    _check_filters,
    _check_readings,
    _check_room,
)


def check_domain(domain: str, option: str = "") -> str:
    """Return `domain` unchanged; raises `ConfigError` unless all labels are lower-case ASCII, and
    only encoded ones, `xn--...`, have hyphens where IDNA reserves them (RFC 5890, 2.3.1). The
    error's text begins with `option`."""
    label = r"(?!(?!xn)[a-z0-9-]{2}--)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    if len(domain) > 253 or not re.fullmatch(rf"{label}(\.{label})*", domain):
        raise ConfigError(
            f"{option}domain {domain!r} is not a domain name in lower-case ASCII letters, digits"
            " and '-'"
        )
    return domain


def parse_address(text: str, option: str = "") -> Address:
    """Parse `HOST:PORT` or `[IPV6]:PORT`; raises `ConfigError`, whose text begins with `option`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > LAST_PORT:
        raise ConfigError(f"{option}address {text!r} is not HOST:PORT or [IPV6]:PORT")
    return Address(match[1] or match[2], int(match[3]))


def parse_addresses(texts: str | list[str], option: str = "") -> tuple[Address, ...]:
    """Parse an option that is an address, a list of addresses, or empty; raises `ConfigError`."""
    addresses = [texts] if isinstance(texts, str) else texts
    return tuple(parse_address(text, option) for text in addresses if text)
