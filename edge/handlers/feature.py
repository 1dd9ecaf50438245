"""What a feature says of itself: what it handles and what it advertises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element

from edge.rules import quota
from edge.rules.access import Sender
from edge.store.database import Transaction
from edge.wire.stanza import Stanza

if TYPE_CHECKING:
    from edge.config import Limits
    from edge.store.events import NewEvent


class House(NamedTuple):
    """What handlers know of the gateway: its domain, its limits, and its features."""

    domain: str
    limits: Limits
    quota: quota.Limits
    features: tuple[str, ...]
    contents: Mapping[str, Decoder]


Work: TypeAlias = Callable[[Transaction, Sender], bytes]
"""A unit of work for a sender who is still there; returns what to send back, perhaps nothing."""

Handler: TypeAlias = Callable[[House, Stanza], Work | bytes]
"""Turns a stanza into work, or into an answer that needs none; raises `StanzaError`."""

Decoder: TypeAlias = Callable[[Element], "list[tuple[str, NewEvent]]"]
"""Turns a message's payload into events and their lanes; raises `Unreadable`."""


class Unreadable(Exception):
    """A message's content is not what its name promises, or nothing that is taken here."""


class Feature(NamedTuple):
    """A feature, for the router.

    `here` and `anywhere` map (stanza, type, payload's name) to handlers: of stanzas addressed to
    the gateway, and of those that the handler itself checks the address of. An empty type or name
    stands for any. `contents` maps names of message payloads that the event log takes to their
    decoders, and `advertises` is told by service discovery.
    """

    here: Mapping[tuple[str, str, str], Handler] = {}
    anywhere: Mapping[tuple[str, str, str], Handler] = {}
    contents: Mapping[str, Decoder] = {}
    advertises: tuple[str, ...] = ()
