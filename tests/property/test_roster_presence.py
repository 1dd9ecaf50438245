"""Accounts that subscribe, appear and leave at random; each client's view matches the tables.

Each session keeps the view of a client: the presence that it sees, and its roster from pushes. A
client that comes back requests its roster by the version that it has. After every step the views
are compared with the tables and the rules of RFC 6121, and the two sides of each pair with each
other.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.config.limits import Limits
from edge.features.presence.rules.subscriptions import FIELDS, RosterFields, SubscriptionType
from tests.helpers.rosters import CLIENT, bare, describe, describe_item, request_roster, state_of
from tests.helpers.store import Gateway, new_database

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
EXAMPLES: Final = 200 if LONG else 12
NAMES: Final = ("panel", "pump1", "valve")
LIMITS: Final = Limits(unacknowledged_stanzas=16)
"""Limits with which a page of contacts holds two of at most four."""
SESSIONS: Final = tuple(f"{name}@gw.example/{r}" for name in NAMES for r in ("a", "b"))
BARES: Final = tuple(f"{name}@gw.example" for name in NAMES)

sessions = st.sampled_from(SESSIONS)
contacts = st.sampled_from(BARES)


class Client:
    """A client's view: the presence it sees, and its roster as text by JID."""

    def __init__(self) -> None:
        self.available = False
        self.sees: set[str] = set()
        self.roster: dict[str, str] | None = None
        self.version = ""

    def take(self, stanza: Element) -> None:
        """Apply a stanza from the server to the view."""
        if stanza.tag == f"{CLIENT}iq":
            assert self.roster is not None
            (item,) = stanza[0]
            contact, before = item.get("jid", ""), self.version
            self.version = stanza[0].get("ver", "")
            assert self.version
            assert self.version != before or self.roster.get(contact) == describe_item(item)
            self.roster[contact] = describe_item(item)
            if item.get("subscription") == "remove":
                del self.roster[contact]
            return
        kind, who = describe(stanza).split(" ", 1)
        if kind == "available":
            self.sees.add(who)
        elif kind == "unavailable":
            assert who in self.sees, f"{who} became unavailable without being available"
            self.sees.discard(who)


class Accounts(RuleBasedStateMachine):
    """Three accounts with two sessions each."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.gateway = Gateway(new_database(Path(self._folder.name)), LIMITS)
        for name in NAMES:
            self.gateway.add(name)
        self.clients: dict[str, Client] = {}
        self.caches: dict[str, tuple[str, dict[str, str]]] = {}

    def teardown(self) -> None:
        self.gateway.close()
        self._folder.cleanup()

    def _client(self, full: str) -> Client:
        if full not in self.clients:
            self.gateway.bind(full)
            self.clients[full] = Client()
        return self.clients[full]

    def _send(self, full: str, xml: str) -> None:
        self._client(full)
        reply = self.gateway.send(full, xml)
        assert reply is None or reply.error is None
        self._update_views()

    def _update_views(self) -> None:
        while self.gateway.sent:  # a stanza may trigger the next page
            for full, client in self.clients.items():
                for stanza in self.gateway.elements(full):
                    client.take(stanza)

    @initialize()
    def begin(self) -> None:
        """Make one session of each account available, with its roster."""
        for full in SESSIONS[::2]:
            self.request_roster(full)
            self.become_available(full, 0)

    @rule(full=sessions, other=sessions)
    def subscribe(self, full: str, other: str) -> None:
        """Subscribe one account to another, which random steps rarely achieve."""
        self.subscription(full, bare(other), SubscriptionType.SUBSCRIBE)
        self.subscription(other, bare(full), SubscriptionType.SUBSCRIBED)

    @rule(full=sessions, contact=contacts, kind=st.sampled_from(SubscriptionType))
    def subscription(self, full: str, contact: str, kind: SubscriptionType) -> None:
        if contact != bare(full):
            self._send(full, f"<presence type='{kind.value}' to='{contact}'/>")

    @rule(full=sessions, priority=st.integers(-1, 1))
    def become_available(self, full: str, priority: int) -> None:
        self._client(full).available = True
        self._send(full, f"<presence><priority>{priority}</priority></presence>")

    @rule(full=sessions)
    def become_unavailable(self, full: str) -> None:
        self._send(full, "<presence type='unavailable'/>")
        self.clients[full].available = False
        self.clients[full].sees.clear()

    @rule(full=sessions)
    def leave(self, full: str) -> None:
        client = self.clients.pop(full, None)
        if client is not None:
            if client.roster is not None:
                self.caches[full] = client.version, client.roster
            self.gateway.end(full)
            self._update_views()

    @rule(full=sessions)
    def request_roster(self, full: str) -> None:
        client = self._client(full)
        version, cached = self.caches.pop(full, ("", {}))
        if client.roster is not None:
            version, cached = client.version, client.roster
        query = f"<query xmlns='jabber:iq:roster' ver='{version}'/>"
        reply = self.gateway.ask(full, f"<iq type='get' id='r'>{query}</iq>")
        assert reply.type == "result"
        if reply.payload is None:  # the invariant compares it with the table
            client.version, client.roster = version, cached
            return
        client.version = reply.payload.get("ver", "")
        items = [describe_item(item) for item in reply.payload]
        client.roster = {item.split()[0]: item for item in items}

    @rule(full=sessions, contact=contacts, name=st.sampled_from(["", "P"]))
    def rename(self, full: str, contact: str, name: str) -> None:
        if contact != bare(full):
            self._set(full, f"<item jid='{contact}' name='{name}'/>")

    @rule(full=sessions, contact=contacts)
    def remove(self, full: str, contact: str) -> None:
        self.request_roster(full)
        if contact in (self.clients[full].roster or {}):
            self._set(full, f"<item jid='{contact}' subscription='remove'/>")

    def _set(self, full: str, item: str) -> None:
        self._client(full)
        xml = f"<iq type='set' id='s'><query xmlns='jabber:iq:roster'>{item}</query></iq>"
        reply = self.gateway.ask(full, xml)
        assert reply.type == "result"
        self._update_views()

    def _fields(self, one: str, other: str) -> RosterFields:
        return FIELDS[state_of(self.gateway, one, other)]

    @invariant()
    def both_sides_of_a_pair_agree(self) -> None:
        for one in BARES:
            for other in BARES:
                mine, theirs = self._fields(one, other), self._fields(other, one)
                assert (mine.subscription in ("to", "both")) is (
                    theirs.subscription in ("from", "both")
                )
                assert mine.ask is theirs.pending

    @invariant()
    def clients_see_available_visible_sessions(self) -> None:
        for full, client in self.clients.items():
            expected = set(self._visible(bare(full))) if client.available else set()
            assert client.sees == expected, full

    def _visible(self, watcher: str) -> Iterator[str]:
        for full, client in self.clients.items():
            sees = self._fields(watcher, full).subscription in ("to", "both")
            if client.available and (sees or bare(full) == watcher):
                yield full

    @invariant()
    def interested_clients_have_their_roster(self) -> None:
        for full, client in self.clients.items():
            if client.roster is not None:
                assert sorted(client.roster.values()) == sorted(request_roster(self.gateway, full))


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, print_blob=True
)
