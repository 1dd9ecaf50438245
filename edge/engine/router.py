"""From a stanza to the feature that handles it.

The router finds the handler, sees to the address of what is for the gateway alone, and makes work
do nothing when its session was replaced meanwhile. It knows no feature by name.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from edge import features as feature_packages
from edge.config.options import Pubsub, Xmpp
from edge.engine import destinations, iq_ids, sessions
from edge.engine.database import Transaction
from edge.engine.destinations import Destination, Place
from edge.engine.feature import Decoder, Feature, Handler, House, Slow, Work
from edge.features.custody import quota
from edge.features.pubsub.rules import topic
from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.stanza import Stanza

if TYPE_CHECKING:
    from edge.config.limits import Limits

_KINDS: Final = {
    "{jabber:client}iq": "iq",
    "{jabber:client}message": "message",
    "{jabber:client}presence": "presence",
}


def features() -> list[Feature]:
    """Find the features: every module below this package that has one."""
    modules = (import_module(m.name) for m in _modules())
    return [module.FEATURE for module in modules if hasattr(module, "FEATURE")]


def _modules() -> list[pkgutil.ModuleInfo]:
    found = pkgutil.walk_packages(feature_packages.__path__, f"{feature_packages.__name__}.")
    return sorted(found, key=lambda module: module.name)


def _quota(limits: Limits) -> quota.Limits:
    return quota.Limits(
        quota.Usage(limits.held_messages_per_source, limits.held_bytes_per_source),
        quota.Usage(limits.held_messages, limits.held_bytes),
    )


class Router:
    """Routes the stanzas of all sessions.

    Attributes:
        stanzas: how many it has routed.
    """

    def __init__(
        self,
        domain: str,
        limits: Limits,
        xmpp: Xmpp | None = None,
        pubsub: Pubsub | None = None,
        *,
        accounts: bool = True,
        topics: Sequence[str] = (),
    ) -> None:
        self.features = [f for f in features() if accounts or not f.accounts]
        self._here: dict[tuple[str, str, str], Handler] = {}
        self._mine: dict[tuple[str, str, str], Handler] = {}
        self._others: dict[tuple[str, str, str], Handler] = {}
        self._anywhere: dict[tuple[str, str, str], Handler] = {}
        self._service: dict[tuple[str, str, str], Handler] = {}
        self._answers: dict[str, Handler] = {}
        contents: dict[str, Decoder] = {}
        places: dict[Place, Destination] = {}
        verbs: dict[tuple[str, str], Handler] = {}
        for feature in self.features:
            self._here.update(feature.here)
            self._mine.update(feature.mine)
            self._others.update(feature.others)
            self._anywhere.update(feature.anywhere)
            self._answers.update(feature.answers)
            contents.update(feature.contents)
            places.update(feature.destinations)
            self._service.update(feature.service)
            verbs.update(feature.verbs)
        xmpp = xmpp or Xmpp()
        there = [feature for feature in self.features if feature.offered(xmpp)]
        advertised = tuple(sorted({name for feature in there for name in feature.advertises}))
        of_pubsub = tuple(sorted({name for feature in there for name in feature.of_pubsub}))
        commands = {one.node: one for feature in self.features for one in feature.commands}
        takes = tuple(turn for feature in self.features for turn in feature.takes)
        away = tuple(turn for feature in self.features for turn in feature.away)
        known = tuple(turn for feature in self.features for turn in feature.known)
        handed = tuple(told for feature in self.features for told in feature.handed)
        self.house = House(
            domain,
            limits,
            xmpp,
            _quota(limits),
            advertised,
            contents,
            accounts,
            takes,
            places,
            pubsub or Pubsub(),
            verbs,
            of_pubsub,
            away,
            commands,
            handed,
            known,
            tuple(map(topic.parse_filter, topics)),
        )
        self.stanzas = 0
        self.stream_features = b"".join(f.stream(self.house) for f in there if f.stream)

    def route(self, stanza: Stanza, full: str) -> Work | Slow | bytes:
        """Return the work that a stanza of the session `full` asks for, or its answer."""
        self.stanzas += 1
        try:
            return self._find(stanza, full)(self.house, stanza)
        except StanzaError as error:
            return refusal(stanza, error, full)

    def _find(self, stanza: Stanza, full: str) -> Handler:
        kind = _KINDS[stanza.name]
        if kind != "iq":
            return self._anywhere.get((kind, "", ""), _ignore)
        type_ = stanza.attrs.get("type", "")
        if type_ in ("result", "error"):
            asked = iq_ids.parse(stanza.attrs.get("id", ""))
            own = None if asked is None else self._answers.get(asked.kind)
            return own or self._anywhere.get((kind, "result", ""), _ignore)
        if type_ not in ("get", "set") or "id" not in stanza.attrs or len(stanza.children) != 1:
            raise StanzaError("bad-request", "an iq has an id, a type, and one payload")
        key = (kind, type_, stanza.children[0].name)
        to, domain = stanza.attrs.get("to"), self.house.domain
        handler = self._anywhere.get(key)
        if to == domain and handler is not None:
            return handler
        try:
            place = destinations.place(domain, to, full.partition("/")[0])
        except StanzaError:
            if handler is None:
                raise
            return handler
        if place is Place.SESSION:
            handler = self._anywhere.get((kind, "", ""))
        elif handler is None:
            handler = self._of(place, key, to)
        if handler is None:
            raise StanzaError("service-unavailable")
        return handler

    def _of(self, place: Place, key: tuple[str, str, str], to: str | None) -> Handler | None:
        if place is Place.GATEWAY:
            return self._here.get(key)
        if place is Place.SERVICE:
            return self._service.get(key)
        if place is Place.NODE:
            raise StanzaError("item-not-found", "requests are for the service, not for its nodes")
        if place is Place.OWN:
            return self._mine.get(key) or (self._here.get(key) if to is None else None)
        return self._others.get(key)

    def due(self, tx: Transaction) -> None:
        """Do what has fallen due in the features."""
        for feature in self.features:
            for chore in feature.due:
                chore(self.house, tx)

    def changed(self, tx: Transaction) -> None:
        """Look at what another process has changed."""
        for feature in self.features:
            for chore in feature.changed:
                chore(self.house, tx)


def _ignore(_house: House, _stanza: Stanza) -> bytes:
    return b""


def refusal(stanza: Stanza, error: StanzaError, full: str) -> bytes:
    """Answer a stanza with an error; one that is an error itself, or a presence, gets none."""
    if stanza.attrs.get("type") in ("error", "result"):
        return b""
    from_ = stanza.attrs.get("to")
    if stanza.name == "{jabber:client}message":
        return serialize.message_error(stanza, error, to=full, from_=from_)
    if stanza.name == "{jabber:client}iq":
        return serialize.iq_error(stanza, error, to=full, from_=from_)
    return b""


def guarded(work: Work, generation: int) -> Callable[[Transaction], bytes]:
    """Make a unit of work that does nothing if the session of `generation` is over."""

    def unit(tx: Transaction) -> bytes:
        sender = sessions.sender(tx, generation)
        return b"" if sender is None else work(tx, sender)

    return unit
