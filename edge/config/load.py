"""The configuration: TOML to frozen structs, checked once.

The options themselves are declared in `edge.config.options`; `edge.config.annotated_file` writes
them.
"""

from __future__ import annotations

import ipaddress
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from edge.config.limits import ASIDE_BYTES, Limits
from edge.config.options import Flash, Gateway, Log, Pubsub, Uplink, Web, Xmpp
from edge.errors import ConfigError
from edge.features.pubsub.rules.topic import InvalidFilter, parse_filter
from sync.common.regular_files import read_regular

FILE_NAME: Final = "fieldpost.toml"
LAST_PORT: Final = 65_535
_ALL: Final = "`fieldpost config check` names every fault"
LEAST_BANDWIDTH: Final = 2_048
"""Bytes a second: twice what the centre's receiver expects of a body in the long run."""

SECTIONS: Final[dict[str, type[Struct]]] = {
    "gateway": Gateway,
    "xmpp": Xmpp,
    "pubsub": Pubsub,
    "limits": Limits,
    "log": Log,
    "uplink": Uplink,
    "flash": Flash,
    "web": Web,
}
"""The tables of the file, in order."""


class Address(NamedTuple):
    """Where to listen: a host name or IP address (IPv6 without its brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole configuration of a gateway; `load` gives one that is consistent."""

    gateway: Gateway
    xmpp: Xmpp = Xmpp()
    pubsub: Pubsub = Pubsub()
    limits: Limits = Limits()
    log: Log = Log()
    uplink: Uplink = Uplink()
    flash: Flash = Flash()
    web: Web = Web()

    @property
    def listen(self) -> tuple[Address, ...]:
        """Where to listen for devices that start TLS themselves."""
        return parse_addresses(self.xmpp.listen, "xmpp.listen: ")

    @property
    def listen_tls(self) -> tuple[Address, ...]:
        """Where to listen for devices that speak TLS from the first byte."""
        return parse_addresses(self.xmpp.listen_tls, "xmpp.listen_tls: ")

    @property
    def component(self) -> Address | None:
        """The server to attach to, if the gateway is a component of one."""
        return (
            parse_address(self.xmpp.component, "xmpp.component: ") if self.xmpp.component else None
        )


def load(folder: Path) -> Config:
    """Read and check `folder/fieldpost.toml`; raises `ConfigError` that names the option."""
    text = read(folder)
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{folder / FILE_NAME}: {error}; {_ALL}") from None


def read(folder: Path) -> bytes:
    """Return the text of `folder/fieldpost.toml`; raises `ConfigError` where there is none."""
    path = folder / FILE_NAME
    try:
        return read_regular(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; `fieldpost init` makes it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def parse(text: bytes) -> Config:
    """Read and check a configuration; raises `ConfigError` that names the option."""
    try:
        config = msgspec.toml.decode(text, type=Config)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(said(error)) from None
    for fault in faults(config):
        raise fault
    return config


def said(error: Exception) -> str:
    """Say what a decoder found, with the option in front, as everywhere else."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
    what, at, option = str(error).removesuffix("`").partition(" - at `$.")
    if what.startswith("Object contains unknown field `"):
        name = what.split("`")[1]
        return f"{option}.{name}: no such option" if at else f"{name}: no such section"
    return f"{option}: {what[:1].lower()}{what[1:]}" if at else str(error)


def faults(config: Config) -> Iterator[ConfigError]:
    """Find what is wrong with options that are well written each: one fault of a check, mostly."""
    for check in _CHECKS:
        try:
            check(config)
        except ConfigError as error:
            yield error
    limits = config.limits
    for part, whole in _PARTS:
        if getattr(limits, part) > getattr(limits, whole):
            yield ConfigError(f"limits.{part} must not be above limits.{whole}")


_PARTS: Final = (
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
    ("subscriptions_per_account", "subscriptions"),
    ("items_per_node", "items"),
    ("items_per_queue", "queue_items"),
    ("queue_bytes_per_queue", "queue_bytes"),
)
"""Limits that are a part of another."""


def _check_fronts(config: Config) -> None:
    xmpp = config.xmpp
    if not xmpp.require_tls and not all(_is_loopback(address.host) for address in config.listen):
        raise ConfigError("xmpp.require_tls = false is for loopback, and xmpp.listen is not")
    if not config.listen and not config.listen_tls and config.component is None:
        raise ConfigError("xmpp.listen, xmpp.listen_tls and xmpp.component are all empty")
    if config.component is not None and not xmpp.component_secret:
        raise ConfigError("xmpp.component needs xmpp.component_secret")
    if config.component is not None and (config.listen or config.listen_tls):
        raise ConfigError("with xmpp.component, xmpp.listen and xmpp.listen_tls are empty")
    for domain in xmpp.trusted_domains:
        check_domain(domain)


def _check_uplink(config: Config) -> None:
    uplink = config.uplink
    if uplink.folder and uplink.enrolment:
        raise ConfigError("uplink.folder and uplink.enrolment are two ways: choose one")
    if 0 < uplink.bandwidth < LEAST_BANDWIDTH:
        raise ConfigError(
            f"uplink.bandwidth: 0, or {LEAST_BANDWIDTH} and more; below, the centre gives bodies up"
        )
    if uplink.readings_share + uplink.logs_share >= 1:
        raise ConfigError("uplink.readings_share and uplink.logs_share leave nothing for the rest")


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
    """Filters are read here once, so that none is found to be wrong by what is published."""
    filters = {
        "pubsub.auto_create": config.pubsub.auto_create,
        "uplink.topics": config.uplink.topics,
    }
    if config.uplink.topics and config.component is not None:
        raise ConfigError("uplink.topics: a component has no nodes")
    for name, texts in filters.items():
        for text in texts:
            try:
                parse_filter(text)
            except InvalidFilter as error:
                raise ConfigError(f"{name}: {text!r}: {error}") from None


def _check_notify(config: Config) -> None:
    """Who is told of events has an account here; where this is a component, at some server."""
    domain = config.gateway.domain
    for jid in config.log.notify:
        local, _, host = jid.partition("@")
        if not re.fullmatch(r"[^\s\"&'/:<>@]{1,1023}", local) or local != local.lower():
            raise ConfigError(f"log.notify: {jid!r} is not NAME@DOMAIN, in lower-case letters")
        if config.component is None and host != domain:
            raise ConfigError(f"log.notify: {jid!r} is not an account of this gateway, @{domain}")
        if config.component is not None and host == domain:
            raise ConfigError(f"log.notify: {jid!r}: a component has no accounts of its own")
        try:
            check_domain(host)
        except ConfigError as error:
            raise ConfigError(f"log.notify: {jid!r}: {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_room(config: Config) -> None:
    """What may be kept has to fit, or the database fills before anything makes room in it."""
    limits = config.limits
    names = (
        "held_bytes",
        "outbox_bytes",
        "offline_total_bytes",
        "dead_bytes",
        "backlog_bytes",
        "recent_bytes",
        "database_reserve",
    )
    needed = sum(getattr(limits, name) for name in names) + ASIDE_BYTES
    if needed > limits.database_bytes:
        raise ConfigError(
            f"limits.database_bytes is {limits.database_bytes}, and limits.{', '.join(names)}"
            f" with {ASIDE_BYTES} for segments set aside are {needed}"
        )


def _check_finite(config: Config) -> None:
    """TOML can write `inf` and `nan`, and a limit that is either is none."""
    for section, options in msgspec.to_builtins(config).items():
        for name, value in options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{section}.{name} must be a finite number")


_CHECKS: Final[tuple[Callable[[Config], object], ...]] = (
    _check_finite,
    lambda config: check_domain(config.gateway.domain),
    _check_fronts,
    _check_notify,
    _check_uplink,
    _check_web,
    _check_filters,
    _check_room,
)


def check_domain(domain: str) -> str:
    """Return the domain if it can be one: lower-case labels of letters, digits and `-`."""
    label = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    if len(domain) > 253 or not re.fullmatch(rf"{label}(\.{label})*", domain):
        raise ConfigError(
            f"domain {domain!r} is not a domain name in lower-case ASCII letters, digits and '-'"
        )
    return domain


def parse_address(text: str, option: str = "") -> Address:
    """Split `HOST:PORT` or `[IPV6]:PORT`; raises `ConfigError`, which begins with `option`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > LAST_PORT:
        raise ConfigError(f"{option}address {text!r} is not HOST:PORT or [IPV6]:PORT")
    return Address(match[1] or match[2], int(match[3]))


def parse_addresses(texts: str | list[str], option: str = "") -> tuple[Address, ...]:
    """Read an option that is an address, a list of them, or empty; raises `ConfigError`."""
    listed = [texts] if isinstance(texts, str) else texts
    return tuple(parse_address(text, option) for text in listed if text)
