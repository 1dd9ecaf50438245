"""What a feature says of itself: what it handles and what it advertises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element

from edge.config.options import Pubsub, Xmpp
from edge.engine.access import Sender
from edge.engine.database import Transaction
from edge.engine.events import NewEvent
from edge.features.custody import quota
from edge.features.pubsub.rules.topic import Filter
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza

if TYPE_CHECKING:
    from edge.config.limits import Limits
    from edge.engine.destinations import Destination, Place
    from edge.features.outbox.rules import Input, State
    from edge.features.outbox.store.outbox import OutboxRow


class House(NamedTuple):
    """What handlers know of the gateway: its domain, its options, and its features.

    `accounts` tells whether accounts are its own: as a component it has none. `takes` is what all
    features do when a session may take messages, `away` what they do when it says that it goes,
    `destinations` what takes custody of messages.
    `verbs` are the requests of publish-subscribe, and `of_pubsub` what that service advertises;
    `commands` are its ad-hoc commands, by their nodes. `handed` is told of messages that were
    handed on for items of queues; `known` is done when it is known what a session takes that may
    not take messages for its account. `topics` match the nodes whose items go to the centre.
    """

    domain: str
    limits: Limits
    xmpp: Xmpp
    quota: quota.Limits
    features: tuple[str, ...]
    contents: Mapping[str, Decoder]
    accounts: bool
    takes: tuple[Turn, ...] = ()
    destinations: Mapping[Place, Destination] = {}
    pubsub: Pubsub = Pubsub()
    verbs: Mapping[tuple[str, str], Handler] = {}
    of_pubsub: tuple[str, ...] = ()
    away: tuple[Turn, ...] = ()
    commands: Mapping[str, Command] = {}
    handed: tuple[Handed, ...] = ()
    known: tuple[Turn, ...] = ()
    topics: tuple[Filter, ...] = ()

    @property
    def trusted_domains(self) -> Sequence[str]:
        """The domains whose users are all trusted: none where accounts are the gateway's own."""
        return () if self.accounts else self.xmpp.trusted_domains


Work: TypeAlias = Callable[[Transaction, Sender], bytes]
"""A unit of work for a sender who is still there; returns what to send back: one stanza or nothing.

What others are sent, and what is pushed, goes by `tx.send`."""

Handler: TypeAlias = "Callable[[House, Stanza], Work | Slow | bytes]"
"""Turns a stanza into work, or into an answer that needs none; raises `StanzaError`."""

Decoder: TypeAlias = Callable[[Element], "list[tuple[str, NewEvent]]"]
"""Turns a message's payload into events and their lanes; raises `Unreadable`."""


Confirm: TypeAlias = "Callable[[House, Transaction, Sender | None, Sequence[int]], None]"
"""What becomes of rows that were handed to a session: given the session, if it is still there."""

Offered: TypeAlias = "Callable[[Xmpp], bool]"
"""Whether the options let a feature be there."""

Announce: TypeAlias = "Callable[[House], bytes]"
"""Makes a feature of the stream (RFC 6120, section 4.3.2), one element."""

Turn: TypeAlias = "Callable[[House, Transaction, Sender], None]"
"""What a feature does when something happens to a session, while its row is there."""

Chore: TypeAlias = "Callable[[House, Transaction], None]"
"""What a feature does for the whole gateway."""


class Outcome(NamedTuple):
    """What a command has come to: a word for people, and a form that tells the rest, as XML.

    `failed` says that it did not do what it was asked to.
    """

    text: str
    form: bytes = b""
    failed: bool = False


class Command(NamedTuple):
    """An ad-hoc command of one form (XEP-0050).

    `form` is that, as XML. `act` is given what was filled in, and does it: it raises
    `StanzaError` where it cannot be, and has changed nothing then.
    """

    node: str
    name: str
    form: bytes
    act: Callable[[House, Transaction, Sender, Mapping[str, list[str]]], Outcome]


Handed: TypeAlias = "Callable[[House, Transaction, OutboxRow, Input, State, StanzaError], None]"
"""Takes a message out of the outbox by which an item of a queue was sent: given what has ended it,
or parted it from its session, what it has become, and why, if it was not delivered."""


class Slow(NamedTuple):
    """Work that is dear: it takes milliseconds of the processor before it can begin, which are
    spent beside the loop, or its answer is large. Its session has one at a time, and nothing else.
    """

    prepare: Callable[[], Work]


class Unreadable(Exception):
    """A message's content is not what its name promises, or nothing that is taken here."""


class Feature(NamedTuple):
    """A feature, for the router.

    `here`, `mine`, `others` and `anywhere` map (stanza, type, payload's name) to handlers: of
    stanzas addressed to the gateway, of iqs for the sender's own account, of iqs for the bare JID
    of another, and of those that the handler itself checks the address of. An empty type or name
    stands for any. `contents` maps names of message payloads that the event log takes to their
    decoders, and `advertises` is told by service discovery, where the feature is `offered`;
    `stream` makes what stands among the features of an authenticated stream.
    `settled` and `lost` map a kind of receipt to what is done when the peer has the
    stanza of such a row, or went without it. `answers` maps a kind of the gateway's own iqs
    (`asking`) to the handler of the results and errors that answer them.
    `enters` is done when a session is bound, and sends nothing yet;
    `takes` is done when a session may take messages for its account, or may do so again; `known`
    when it is known whether one that may not takes quality of service; `detaches` when it has lost
    its connection and may be resumed, `resumes` when it has one again, `away` when it has told all
    that it is unavailable, `leaves` when it ends; before that, `gone` if the gateway goes on, and
    `stops` if it does not.
    `due` does what has fallen due, and asks for the alarm for what comes next; `changed` looks at
    what another process has changed.
    `destinations` are what takes messages, with quality of service, at kinds of addresses.
    `service` is as `here`, of iqs for the publish-subscribe service; of its requests, `verbs` maps
    (type, name of the element in `<pubsub/>`) to handlers. `of_pubsub` is what that service
    advertises, and `commands` are those that can be executed there. `handed` does what the end of a
    message means that was handed on for an item of a queue. What
    `accounts` are needed for is absent where the gateway is a component.
    """

    here: Mapping[tuple[str, str, str], Handler] = {}
    mine: Mapping[tuple[str, str, str], Handler] = {}
    others: Mapping[tuple[str, str, str], Handler] = {}
    anywhere: Mapping[tuple[str, str, str], Handler] = {}
    contents: Mapping[str, Decoder] = {}
    advertises: tuple[str, ...] = ()
    offered: Offered = lambda _xmpp: True
    stream: Announce | None = None
    settled: Mapping[str, Confirm] = {}
    lost: Mapping[str, Confirm] = {}
    answers: Mapping[str, Handler] = {}
    enters: tuple[Turn, ...] = ()
    detaches: tuple[Turn, ...] = ()
    takes: tuple[Turn, ...] = ()
    known: tuple[Turn, ...] = ()
    resumes: tuple[Turn, ...] = ()
    leaves: tuple[Turn, ...] = ()
    gone: tuple[Turn, ...] = ()
    stops: tuple[Turn, ...] = ()
    away: tuple[Turn, ...] = ()
    due: tuple[Chore, ...] = ()
    changed: tuple[Chore, ...] = ()
    destinations: Mapping[Place, Destination] = {}
    service: Mapping[tuple[str, str, str], Handler] = {}
    verbs: Mapping[tuple[str, str], Handler] = {}
    of_pubsub: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    handed: tuple[Handed, ...] = ()
    accounts: bool = False
