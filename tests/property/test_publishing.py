"""Stateful test of publishing by iq and by message at each QoS, with repetitions and crashes.

The node has the items of a model, its subscriber is notified of each publication once, and the
totals are right.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.config.limits import Limits
from tests.helpers.people import make_available
from tests.helpers.pubsub import (
    NODE,
    PUBSUB,
    SERVICE,
    create,
    embedded,
    item,
    item_ids,
    notifications,
    publish,
    reading,
    retract,
    retrieve,
    send_message,
    subscribe,
)
from tests.helpers.pubsub_image import DryRunGateway
from tests.helpers.store import assured, deliver, new_database

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
EXAMPLES: Final = 300 if LONG else 10
AT: Final = f"{SERVICE}/{NODE}"
MAX_ITEMS: Final = 3
OWNER: Final = "pump1@gw.example/fw"
OTHER: Final = "valve@gw.example/fw"
READER: Final = "panel@gw.example/fw"
FULLS: Final = (OWNER, OTHER, READER)

publishers = st.sampled_from((OWNER, OTHER))
names = st.sampled_from("abcde")
numbers = st.integers(0, 9)


def item_in_message(id: str, watts: int) -> str:
    return f"<item xmlns='{PUBSUB}' id='{id}'>{reading(watts)}</item>"


class Publishing(RuleBasedStateMachine):
    """A node with two publishers and a subscriber by name and by filter."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = new_database(Path(self._folder.name))
        self.gateway = DryRunGateway(path, Limits(items=MAX_ITEMS))
        self.items: dict[str, tuple[str, int]] = {}
        self.held: dict[tuple[str, str], tuple[str, int]] = {}
        self.unread: list[tuple[str, str | None]] = []
        for full in FULLS:
            self.gateway.add(full.partition("@")[0])
            make_available(self.gateway, full)
        create(self.gateway, OWNER, NODE, publish_model="open", max_items=str(MAX_ITEMS))
        for target in (NODE, "plant/#"):
            assert subscribe(self.gateway, READER, target).type == "result"

    def teardown(self) -> None:
        self.gateway.close()
        self._folder.cleanup()

    def may_replace(self, full: str, id: str) -> bool:
        """Return whether publishing an ItemID is accepted: it is new or the publisher's own,
        or the publisher owns the node."""
        return full == OWNER or self.items.get(id, (full, 0))[0] == full

    def apply_publication(self, full: str, id: str, watts: int) -> None:
        """Apply a publication to the model, unless it is refused."""
        if not self.may_replace(full, id):
            return
        self.items.pop(id, None)
        self.items[id] = (full, watts)
        if len(self.items) > MAX_ITEMS:
            del self.items[next(iter(self.items))]
        self.unread.append((id, str(watts)))

    @rule(full=publishers, id=names, watts=numbers)
    def publish_by_iq(self, full: str, id: str, watts: int) -> None:
        reply = publish(self.gateway, full, NODE, item(id, reading(watts)))
        assert (reply.type == "result") is self.may_replace(full, id)
        self.apply_publication(full, id, watts)

    @rule(full=publishers, id=names, watts=numbers)
    def publish_by_plain_message(self, full: str, id: str, watts: int) -> None:
        reply = send_message(self.gateway, full, 0, item_in_message(id, watts))
        assert (reply is None) is self.may_replace(full, id)
        self.apply_publication(full, id, watts)

    @rule(full=publishers, id=names, watts=numbers)
    def publish_by_acknowledged_message(self, full: str, id: str, watts: int) -> None:
        reply = send_message(self.gateway, full, 1, item_in_message(id, watts))
        assert reply is not None
        assert (reply.type == "result") is self.may_replace(full, id)
        self.apply_publication(full, id, watts)

    @rule(full=publishers, id=names, watts=numbers, msg_id=st.sampled_from(("m1", "m2")))
    def offer_assured(self, full: str, id: str, watts: int, msg_id: str) -> None:
        id, watts = self.held.get((full, msg_id), (id, watts))  # a repetition has the same content
        message = embedded(item_in_message(id, watts))
        reply = self.gateway.ask(full, assured(msg_id, message, AT))
        assert reply.type == "result"
        self.held[full, msg_id] = (id, watts)

    @rule(full=publishers, msg_id=st.sampled_from(("m1", "m2")), times=st.integers(1, 2))
    def deliver_assured(self, full: str, msg_id: str, times: int) -> None:
        for _ in range(times):
            self.gateway.send(full, deliver(msg_id, AT))
        found = self.held.pop((full, msg_id), None)
        if found is not None:
            self.apply_publication(full, *found)

    @rule(full=publishers, id=names)
    def retract(self, full: str, id: str) -> None:
        reply = retract(self.gateway, full, NODE, id)
        allowed = id in self.items and self.may_replace(full, id)
        assert (reply.type == "result") is allowed
        if allowed:
            del self.items[id]
            self.unread.append((id, "-None"))

    @rule()
    def crash(self) -> None:
        self.check_notifications()
        self.gateway.crash()
        for full in FULLS:
            make_available(self.gateway, full)

    @invariant()
    def check_notifications(self) -> None:
        """Each subscription of the reader is notified of each publication once, in order."""
        found = notifications(self.gateway, READER)
        assert all(one.subid for one in found)
        for subid in {one.subid for one in found}:
            mine = [entry for one in found if one.subid == subid for entry in one.items]
            assert mine == self.unread
        assert len(found) == 2 * len(self.unread)
        self.unread.clear()

    @invariant()
    def check_items(self) -> None:
        reply = retrieve(self.gateway, READER, NODE)
        assert item_ids(reply) == list(self.items)
        found = [int(entry[0].get("watts", "")) for entry in reply.content[0]]
        assert found == [watts for _publisher, watts in self.items.values()]

    @invariant()
    def check_totals(self) -> None:
        query = self.gateway.connection.execute
        totals = query("SELECT count(*), coalesce(sum(bytes), 0) FROM items").fetchone()
        assert query("SELECT items, bytes FROM items_total").fetchone() == totals
        assert query("SELECT items, bytes FROM nodes").fetchone() == totals


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, print_blob=True
)
