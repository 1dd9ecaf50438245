"""Stateful test of who gets what is published while subscriptions, rights and nodes change.

After each change, what is remembered of each node equals what its rows say, and each item reaches
the subscriptions of a model. Changes of filters leave publications without statements.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.config.options import Pubsub
from edge.engine.dispatch.item_attributes import ItemAttributes
from edge.engine.sessions import sessions
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.publication import PublicationShape
from edge.features.pubsub.rules.subscription import DeliveryOptions
from edge.features.pubsub.service import publishing, subscriptions
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.service.publishing import NewItem, Publication
from edge.features.pubsub.service.subscriptions import Target
from edge.topics import is_filter, matches
from tests.helpers.people import make_available
from tests.helpers.pubsub import (
    OWNER,
    PUBSUB,
    affiliate,
    element,
    form,
    notifications,
    send_request,
    subscribe,
)
from tests.helpers.pubsub_image import DryRunGateway
from tests.helpers.store import new_database

LONG: Final = os.environ.get("FIELDPOST_TEST_LONG") == "1"
EXAMPLES: Final = 300 if LONG else 15

NODES: Final = ("a/1", "a/2", "b")
"""Nodes that exist at times; publications need none of them."""

FILTERS: Final = ("a/+", "a/#", "#", "+")
SHARE: Final = "$share:s:a/#"
ADMIN: Final = "pump1@gw.example/fw"
READERS: Final = ("valve@gw.example/fw", "panel@gw.example/fw")
UNKEPT: Final = ItemAttributes("a/b", retain=False)

METER: Final = "meter@gw.example/fw"
"""A session that gets each item once, as by MQTT; `SHARED` are options with which it does."""

SHARED: Final = (
    DeliveryOptions(only_items=True),
    DeliveryOptions(only_items=True, retain_as_published=True),
    DeliveryOptions(only_items=True, identifier=7),
)

names = st.sampled_from(NODES)
readers = st.sampled_from(READERS)
ACCESS: Final = {"open": ("none", "member"), "whitelist": ("member",)}
"""The affiliations that may subscribe, for each access model."""


class Recipients(RuleBasedStateMachine):
    """Nodes of one owner, who publishes; two others subscribe and try to publish."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = new_database(Path(self._folder.name))
        self.gateway = DryRunGateway(path, pubsub=Pubsub(auto_create=["#"]))
        self.models: dict[str, tuple[str, str]] = {}
        self.affiliations: dict[tuple[str, str], str] = {}
        self.subscribed: set[tuple[str, str]] = set()
        self.sharers: set[str] = set()
        for full in (ADMIN, *READERS, METER):
            self.gateway.add(full.partition("@")[0])
            make_available(self.gateway, full)

    def teardown(self) -> None:
        self.gateway.close()
        self._folder.cleanup()

    def affiliation(self, node: str, full: str) -> str:
        return "owner" if full == ADMIN else self.affiliations.get((node, full), "none")

    def may_subscribe(self, node: str, full: str) -> bool:
        model = self.models.get(node, ("open", ""))[0]
        return self.affiliation(node, full) in ACCESS[model]

    def may_publish(self, node: str, full: str) -> bool:
        if node not in self.models or full == ADMIN:
            return True
        found, model = self.affiliation(node, full), self.models[node][1]
        subscribed = model == "subscribers" and (full, node) in self.subscribed
        return found != "outcast" and (model == "open" or subscribed)

    def end_unauthorized(self, node: str) -> None:
        for full in READERS:
            if not self.may_subscribe(node, full):
                self.subscribed.discard((full, node))

    @rule(
        node=names,
        access=st.sampled_from(sorted(ACCESS)),
        publish=st.sampled_from(("open", "subscribers", "publishers")),
    )
    def create_or_configure(self, node: str, access: str, publish: str) -> None:
        config = form("node_config", {"access_model": access, "publish_model": publish})
        if node in self.models:
            content = element("configure", config, node=node)
            reply = send_request(self.gateway, ADMIN, content, ns=OWNER)
        else:
            content = element("create", node=node) + element("configure", config)
            reply = send_request(self.gateway, ADMIN, content, ns=PUBSUB)
        assert reply.type == "result", reply.text
        self.models[node] = access, publish
        self.end_unauthorized(node)

    @rule(node=names)
    def delete(self, node: str) -> None:
        reply = send_request(self.gateway, ADMIN, element("delete", node=node), ns=OWNER)
        assert (reply.type == "result") is (node in self.models)
        self.models.pop(node, None)
        for full in READERS:
            self.subscribed.discard((full, node))
            self.affiliations.pop((node, full), None)

    @rule(node=names, full=readers, affiliation=st.sampled_from(("none", "member", "outcast")))
    def affiliate(self, node: str, full: str, affiliation: str) -> None:
        account = full.partition("@")[0]
        reply = affiliate(self.gateway, ADMIN, node, **{account: affiliation})
        assert (reply.type == "result") is (node in self.models)
        if node in self.models:
            self.affiliations[node, full] = affiliation
            self.end_unauthorized(node)

    @rule(full=readers, to=st.sampled_from((*NODES, *FILTERS)))
    def subscribe(self, full: str, to: str) -> None:
        reply = subscribe(self.gateway, full, to, full)
        expected = is_filter(to) or (to in self.models and self.may_subscribe(to, full))
        assert (reply.type == "result") is expected
        if expected:
            self.subscribed.add((full, to))

    @rule(full=readers, to=st.sampled_from((*NODES, *FILTERS)))
    def unsubscribe(self, full: str, to: str) -> None:
        content = element("unsubscribe", node=to, jid=full)
        reply = send_request(self.gateway, full, content)
        assert (reply.type == "result") is ((full, to) in self.subscribed)
        self.subscribed.discard((full, to))

    @rule(
        filters=st.lists(st.sampled_from(FILTERS), min_size=1),
        options=st.sampled_from((*SHARED, None)),
    )
    def change_filters(self, filters: list[str], options: DeliveryOptions | None) -> None:
        """Subscribe the meter to filters, or unsubscribe it, while the recipients of all nodes are
        cached; the caches are compared with the rows."""
        for node in NODES:
            self.gateway.commit(self.publication(node, ADMIN))

        def act(tx: Transaction) -> None:
            sender = sessions.sender(tx, self.gateway.generation(METER))
            context = self.gateway.router.context
            assert sender is not None
            for filter in filters:
                target = Target(filter, None, filter)
                if options is not None:
                    subscriptions.subscribe(
                        context, tx, sender, target, METER, {}, f"{METER} {filter}", options
                    )
                    continue
                with suppress(PubsubError):  # it is not subscribed
                    subscriptions.unsubscribe(context, tx, sender, target, METER)

        self.gateway.commit(act)

    @rule(full=readers, joins=st.booleans())
    def share(self, full: str, joins: bool) -> None:
        if joins:
            assert subscribe(self.gateway, full, SHARE, full).type == "result"
            self.sharers.add(full)
        else:
            content = element("unsubscribe", node=SHARE, jid=full)
            reply = send_request(self.gateway, full, content)
            assert (reply.type == "result") is (full in self.sharers)
            self.sharers.discard(full)

    @rule(node=names, full=st.sampled_from((ADMIN, *READERS)))
    def publish(self, node: str, full: str) -> None:
        for reader in READERS:
            notifications(self.gateway, reader)
        allowed = self.may_publish(node, full)
        refused = True
        with suppress(PubsubError):
            self.gateway.commit(self.publication(node, full))
            refused = False
        assert refused is not allowed
        self.check_received(node if allowed else None)

    @precondition(lambda self: not self.sharers)  # the members of shares are not cached
    @rule(node=names, full=readers, filter=st.sampled_from(FILTERS))
    def publish_after_a_filter(self, node: str, full: str, filter: str) -> None:
        self.publish(node, ADMIN)
        if (full, filter) in self.subscribed:
            self.unsubscribe(full, filter)
        else:
            self.subscribe(full, filter)
        self.gateway.commit_in_memory(self.publication(node, ADMIN))
        self.check_received(node)

    def publication(self, node: str, full: str) -> Callable[[Transaction], None]:
        request = Publication(node, PublicationShape(1, 1), NewItem("i1", b"1", attributes=UNKEPT))

        def act(tx: Transaction) -> None:
            sender = sessions.sender(tx, self.gateway.generation(full))
            assert sender is not None
            publishing.publish(self.gateway.router.context, tx, sender, request)

        return act

    def check_received(self, node: str | None) -> None:
        for reader in READERS:
            found = [one for one in notifications(self.gateway, reader) if one.node == node]
            wanted = [
                target
                for full, target in self.subscribed
                if full == reader and node is not None and self.may_subscribe(node, reader)
                if (matches(target, node) if is_filter(target) else target == node)
            ]
            assert len(found) == len(wanted)
            assert all((one.subid is not None) is (len(wanted) > 1) for one in found)

    @rule()
    def crash(self) -> None:
        self.gateway.crash()
        for full in (ADMIN, *READERS, METER):
            make_available(self.gateway, full)

    @invariant()
    def drop_notifications(self) -> None:
        for reader in READERS:
            notifications(self.gateway, reader)
        self.gateway.sends(METER)


TestRecipients = Recipients.TestCase
TestRecipients.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, print_blob=True
)
