"""The hooks by which features register with the engine, and the context that hooks are given.

A feature's modules under `edge.features` have functions `register(hooks)`. That of `xmpp` registers
readers, encoders, error mappings and, in XMPP's own registry (`edge.routing.xmpp.hooks`), handlers
of stanzas and features to advertise; that of `service` registers destinations and functions that
run at certain events. What needs the gateway to have accounts of its own is registered by functions
`register_for_accounts(hooks)`, which are not called on a component.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from edge.config.limits import Limits
from edge.config.options import AccessRule, Pubsub, Readings, Uplink, Xmpp
from edge.engine.dispatch.addresses import AddressKind
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.engine.dispatch.message import Message as Message
from edge.engine.rules.access import Sender, Trust
from edge.engine.rules.quota import ExceededLimit
from edge.engine.store import in_flight
from edge.engine.store.database import SentMessage, Transaction
from edge.engine.store.events import NewEvent
from edge.errors import FieldpostError, ServiceError
from edge.jid import Jid

P = ParamSpec("P")
K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=ServiceError[Any])


class Context(NamedTuple):
    """The gateway's domain, configuration and hooks, passed to every hook.

    A unit of work depends on this context, the database's rows and the time (`Transaction.now`)
    only. Figures of the process, such as its memory, are not part of the context;
    `edge/server/control_server.py` reports them to `fieldpost status`.

    Attributes:
        has_accounts: whether the gateway has accounts of its own; a component has no accounts.
        trusted_domains: the domains whose users the gateway trusts; empty if it is not a server's
            component.
        uplink: the section `[uplink]`; its `topics` select the nodes whose items are sent to the
            centre.
        access: the rules `[[access]]`; a reload changes them in place.
        readings: the tables `[[readings]]`; what is published to nodes that one of their filters
            matches is also sent to the centre.
    """

    domain: str
    limits: Limits
    xmpp: Xmpp
    pubsub: Pubsub
    has_accounts: bool
    trusted_domains: Sequence[str]
    uplink: Uplink
    access: Sequence[AccessRule]
    readings: Sequence[Readings]
    hooks: Hooks

    @property
    def trust(self) -> Trust:
        """Which accounts a sender may reach (`access.may_reach`): the option `[xmpp] trust`."""
        return self.xmpp.trust

    def load_images(self, tx: Transaction) -> None:
        """Load the images of rows (copies in memory, `Hooks.images`) that are not loaded yet."""
        for load in self.hooks.images:
            load(tx)

    def run_external_change(self, tx: Transaction) -> None:
        """Run the features' hooks for a change by another process, and then the timers: the state
        of revoked accounts' sessions ends."""
        for hook in self.hooks.on_external_change:
            hook(self, tx)
        tx.wake_at(tx.now.service)


Work: TypeAlias = Callable[[Transaction, Sender], bytes]
"""A unit of work for a session that still exists; returns the answer, or empty bytes."""


class OffloadedWork(NamedTuple):
    """Work whose preparation takes milliseconds of processor time, or whose answer is large.

    `prepare` runs on a thread beside the event loop. Meanwhile the session handles nothing else.
    """

    prepare: Callable[[], Work]


class PartedWork(NamedTuple):
    """Work in several units, between which those of other sessions run, because all together take
    milliseconds. Meanwhile the session handles nothing else.

    Attributes:
        parts: the units, in order. If a part fails, the parts before it remain done, and no other
            is run. Their results must not be empty.
        answer: makes the answer of their results.
    """

    parts: Sequence[Work]
    answer: Callable[[Sequence[bytes]], bytes]


SessionHook: TypeAlias = Callable[[Context, Transaction, Sender], None]
"""Runs when the state of a session changes, while its row exists."""

TimerHook: TypeAlias = Callable[[Context, Transaction], None]
"""Runs for the whole gateway, not one session (`Hooks.on_timer`, `Hooks.on_external_change`)."""

StateHook: TypeAlias = "Callable[[Context, Transaction, str], None]"
"""Runs when the state that is kept for sessions of a full address ends."""

ReceiptHook: TypeAlias = Callable[[Context, Transaction, Sender | None, Sequence[int]], None]
"""Handles rows, given by number, when a session has received their messages or has ended.

The `Sender` is that of the session, or `None` if it has ended.
"""

ImageHook: TypeAlias = Callable[[Transaction], None]
"""Copies a feature's rows into memory (`Transaction.cache`), unless they are there already."""

TimeOffHook: TypeAlias = Callable[[Transaction, float, float], None]
"""Called as `(tx, before, seconds)`: adds `seconds`, for which the gateway was off, to the age of
rows that were stored until the service second `before`."""

Encoder: TypeAlias = Callable[[Context, Any], bytes]
"""Encodes a message of one type as the bytes that a session is sent."""

UnacknowledgedHook: TypeAlias = Callable[[Context, Transaction, Iterable[SentMessage]], None]
"""Re-routes, in order, messages that an ended session did not receive and that no table stores."""

OverflowHook: TypeAlias = Callable[[Context, Transaction, int, Sequence[SentMessage]], None]
"""Re-routes messages, in order, that a session (given by its generation) has no room for."""

RejectionHook: TypeAlias = Callable[[Transaction, SentMessage], None]
"""Sends an error to the sender of a message that can be neither delivered nor stored."""


MAX_REASON: Final = 200
"""Maximum characters of the reason why a payload is unreadable; the rest is cut off."""


class UnreadablePayload(Exception):
    """A message is malformed, or its content is of a kind that the event log does not take."""


class PublishedItem(NamedTuple):
    """An item for a node: ItemID (empty if it gets a random one), payload (empty if there is none),
    the payload's namespace, and what else the publication says."""

    id: str
    payload: bytes
    namespace: str
    attributes: ItemAttributes = NO_ATTRIBUTES


class Contents(NamedTuple):
    """The contents that a destination read from a message: events, or an item, perhaps with events.

    `events` are pairs of a lane and an event. `unreadable` is the reason why the message cannot be
    read, or empty. `unlogged` is the reason why the events in an item cannot be read, although the
    item can be published, or empty.
    """

    events: list[tuple[str, NewEvent]]
    unreadable: str = ""
    item: PublishedItem | None = None
    unlogged: str = ""


def unreadable(reason: object) -> Contents:
    """Return the contents of a message or payload that cannot be read."""
    return Contents([], str(reason)[:MAX_REASON])


class Acceptance(NamedTuple):
    """Whether a sender may hand messages over, and the error if the address takes no messages."""

    allowed: bool
    error: ServiceError[Any] | None = None


ALLOWED = Acceptance(allowed=True)
NOT_ALLOWED = Acceptance(allowed=False)


class Plan(NamedTuple):
    """The findings of `Destination.check` that `Destination.deliver` needs, too."""

    values: Any


class Destination(Protocol):
    """Receives the messages to one kind of address, at any level of quality of service."""

    @property
    def kind(self) -> AddressKind:
        """Return the kind of address."""

    def acceptance(self, context: Context, tx: Transaction, sender: Sender, to: Jid) -> Acceptance:
        """Return whether the sender may hand messages over, and whether the address takes them."""

    def room_to_hold(
        self, context: Context, tx: Transaction, message: Message
    ) -> ExceededLimit | None:
        """Return the limit that taking a message into custody would exceed, if any; the message's
        contents are not read yet.

        When a message to an account is stored in custody, this room is reserved in its outbox.
        """

    def read(self, context: Context, message: Message) -> Contents:
        """Read the contents of a message that no protocol's reader reads (`Hooks.readers`)."""

    def check(
        self, context: Context, tx: Transaction, message: Message, contents: Contents
    ) -> ServiceError[Any] | ExceededLimit | Plan | None:
        """Return the error that refuses the contents of a message, or the limit that its delivery
        now would exceed; if there is none, what `deliver` can reuse, or `None`."""

    def deliver(
        self,
        context: Context,
        tx: Transaction,
        message: Message,
        contents: Contents,
        plan: Plan | None,
    ) -> str:
        """Deliver a message, in the transaction that removes it from custody.

        Args:
            plan: what `check` has returned in this transaction, if that is a plan.

        Returns:
            Why the address does not accept the message, which is then not delivered; else "".
        """


Reader: TypeAlias = Callable[[Context, Message, Any], Contents]
"""Reads the contents of a message. The last argument is the body as the protocol has parsed it, or
`None`."""


class Event(Generic[P]):
    """A hook event that one feature defines and triggers, and other features register for.

    The type parameter lists the arguments of the functions that can be registered for it.
    """


class RegistrationError(FieldpostError):
    """Two features register a value for the same key."""


class Registry:
    """Tables of what features register, filled once at start."""

    def add(self, table: dict[K, V], key: K, value: V) -> None:
        """Register a value in one of the tables; raises `RegistrationError` if the key is taken."""
        if key in table:
            name = next(name for name, each in vars(self).items() if each is table)
            raise RegistrationError(f"two features register the same key in {name}: {key}")
        table[key] = value


R = TypeVar("R", bound=Registry)


@dataclass(eq=False)
class Hooks(Registry):
    """The registry of the hooks that all protocols share.

    Features add to the attributes. The engine, and the features that run hooks, read them.
    Functions in a list run in the order of their modules' names.

    Attributes:
        stores_messages: whether messages are stored for accounts without an available session.
    """

    stores_messages: bool = True

    # What a feature handles, by keys that only one feature may have (`add`)
    destinations: dict[AddressKind, Destination] = field(default_factory=dict)
    """Destinations of messages, by the kind of their address."""
    readers: dict[tuple[str, AddressKind], Reader] = field(default_factory=dict)
    """Protocols' readers of messages, by content type and kind of address. Messages of other
    content types are read by their destinations."""
    operator_messages: dict[str, Callable[[bytes, str, str], Any]] = field(default_factory=dict)
    """Readers of the operator's messages, by the protocol that they are written in: from the bytes,
    the sender's address and the recipient's to a message to an account. They raise
    `UnreadablePayload`."""
    encoders: dict[tuple[str, type[Any]], Encoder] = field(default_factory=dict)
    """Encoders of what sessions are sent, by protocol and type of the message."""
    kinds: dict[type[Any], str] = field(default_factory=dict)
    """Kinds of the messages of the gateway that rows store, by type (`store`)."""
    stored: dict[str, Callable[[bytes], SentMessage]] = field(default_factory=dict)
    """Functions that return the message that a row stores, by the row's kind."""
    exports: dict[str, Callable[[bytes], tuple[bytes, str]]] = field(default_factory=dict)
    """Functions that return what other protocols are sent for a payload that only one protocol can
    read, and its content type; by the content type under which the payload is stored."""
    message_ids: dict[str, Callable[[bytes], str | None]] = field(default_factory=dict)
    """Functions that return the id that a device gave a message which it handed over, or `None`, by
    the content type of the message."""
    returned: dict[type[Any], Callable[[Context, Any], SentMessage]] = field(default_factory=dict)
    """Functions that convert a message which its session did not receive into a message to the
    account, which is routed again, by the type of the first message."""
    error_mappings: dict[tuple[str, type[Any]], Callable[[Any], Any]] = field(default_factory=dict)
    """Functions that map a service's errors, by protocol and type of the error, to what handlers of
    this protocol answer with."""
    implementations: dict[str, Any] = field(default_factory=dict)
    """Features' implementations of interfaces that other features declare, by name."""
    on_acknowledged: dict[str, ReceiptHook] = field(default_factory=dict)
    """By kind of row (`Receipt`): run when a session acknowledges messages made from such rows,
    except messages that await an answer (`AWAITS_ANSWER`)."""
    on_unacknowledged: dict[str, ReceiptHook] = field(default_factory=dict)
    """By kind of row (`Receipt`): run when a session ends, for the rows of the kind that are in
    flight to it. Their messages were not received, or await an answer (`AWAITS_ANSWER`)."""

    # When a feature runs
    on_session_bound: list[SessionHook] = field(default_factory=list)
    """Run when a session is bound. Nothing can be sent to the session yet."""
    on_accepting: list[SessionHook] = field(default_factory=list)
    """Run when a session begins to accept its account's messages, and when it becomes known whether
    a session that accepts them supports QoS."""
    on_unavailable: list[SessionHook] = field(default_factory=list)
    """Run when a session is no longer available."""
    on_qos_known: list[SessionHook] = field(default_factory=list)
    """Run when it becomes known whether a session supports QoS, unless it accepts its account's
    messages: then `on_accepting` runs."""
    on_detached: list[SessionHook] = field(default_factory=list)
    """Run when a session has lost its connection and can be resumed."""
    on_resumed: list[SessionHook] = field(default_factory=list)
    """Run when a session is resumed."""
    on_session_end: list[SessionHook] = field(default_factory=list)
    """Run when a session ends, for any reason; after `on_session_lost` and `on_shutdown`."""
    on_session_lost: list[SessionHook] = field(default_factory=list)
    """Run when a session ends while the gateway continues to run."""
    on_shutdown: list[SessionHook] = field(default_factory=list)
    """Run when a session ends because the gateway stops."""
    on_state_end: list[StateHook] = field(default_factory=list)
    """Run when the state of a durable session ends (`durable_sessions`): delete what belongs to its
    full address alone."""
    on_timer: list[TimerHook] = field(default_factory=list)
    """Run at start and when the timer fires: do what is due, and call `Transaction.wake_at`
    for what comes next."""
    images: list[ImageHook] = field(default_factory=lambda: [in_flight.load])
    """Copy rows into memory (`Transaction.cache`) before units of work need them. These functions
    may read many rows, because they run on the database's thread, not on the event loop."""
    on_external_change: list[TimerHook] = field(default_factory=list)
    """Run when another process has changed the database."""
    on_time_off: list[TimeOffHook] = field(default_factory=list)
    """Run if it becomes known only after the start how long the gateway was off. This time is added
    to the age of rows that wait for days, not of rows that wait for an hour at most."""
    on_unacknowledged_messages: list[UnacknowledgedHook] = field(default_factory=list)
    """Run when a session ends, with those of its unreceived messages that are not in a table."""
    on_overflow: list[OverflowHook] = field(default_factory=list)
    """Run when a session has no room for messages of other sessions."""
    on_rejected_message: list[RejectionHook] = field(default_factory=list)
    """Run for each message that a session did not receive, or had no room for, and that the
    database then failed to store."""
    _events: dict[Event[Any], list[Callable[..., None]]] = field(default_factory=dict)
    _registries: dict[type[Registry], Any] = field(default_factory=dict)

    def of(self, registry: type[R]) -> R:
        """Return the registry of a protocol or a feature, given by its class."""
        found: R | None = self._registries.get(registry)
        if found is None:
            found = self._registries[registry] = registry()
        return found

    def encode(
        self, protocol: str, message_type: type[V], encoder: Callable[[Context, V], bytes]
    ) -> None:
        """Register a protocol's encoder of a type of messages that sessions are sent."""
        self.add(self.encoders, (protocol, message_type), encoder)

    def store(self, kind: str, message_type: type[tuple[Any, ...]]) -> None:
        """Register a type of messages that rows store under a kind.

        Rows store the fields in their order, and outlive this version: later versions may add
        fields with defaults after the others.
        """
        self.add(self.kinds, message_type, kind)
        self.add(self.stored, kind, msgspec.msgpack.Decoder(message_type).decode)

    def error_mapping(
        self, protocol: str, error_type: type[E], mapping: Callable[[E], object]
    ) -> None:
        """Register a function that maps a service's errors of a type for handlers of a protocol."""
        self.add(self.error_mappings, (protocol, error_type), mapping)

    def on(self, event: Event[P], hook: Callable[P, None]) -> None:
        """Register a function that runs when a feature triggers `event`."""
        self._events.setdefault(event, []).append(hook)

    def trigger(self, event: Event[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run the functions that are registered for a feature's event."""
        for hook in self._events.get(event, ()):
            hook(*args, **kwargs)


def new_context(
    domain: str,
    limits: Limits,
    xmpp: Xmpp | None = None,
    pubsub: Pubsub | None = None,
    *,
    accounts: bool = True,
    uplink: Uplink | None = None,
    access: Sequence[AccessRule] = (),
    without: Collection[str] = (),
    readings: Sequence[Readings] = (),
) -> Context:
    """Return a context with the hooks of all features; without `accounts`, that of a component.

    `without` are the names of protocols whose modules are not imported.
    """
    xmpp = xmpp or Xmpp()
    hooks = Hooks(xmpp.offline == "store")
    register_features(hooks, accounts=accounts, without=without)
    options = domain, limits, xmpp, pubsub or Pubsub(), accounts
    trusted = () if accounts else xmpp.trusted_domains
    return Context(*options, trusted, uplink or Uplink(), access, readings, hooks)


def register_features(hooks: Hooks, *, accounts: bool, without: Collection[str] = ()) -> None:
    """Register all features; without `accounts`, omit what needs accounts."""
    names = ("register", "register_for_accounts") if accounts else ("register",)
    for module in _feature_modules(frozenset(without)):
        for name in names:
            if hasattr(module, name):
                getattr(module, name)(hooks)


@cache
def _feature_modules(without: frozenset[str]) -> tuple[ModuleType, ...]:
    """Import every module under `edge.features`, except those named in `without`, and return them
    in the order of their names."""
    package = import_module("edge.features")
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = sorted(module.name for module in found)
    return tuple(import_module(name) for name in names if without.isdisjoint(name.split(".")))
