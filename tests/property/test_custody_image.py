"""Property tests of custody: its image in memory, its rows, and a model of what must be held.

Transactions begin in memory, as behind a group that is committed, and get their connection when a
unit needs it. They commit, roll back, or are lost with the process. The bounds of the image are so
small that its bodies are dropped and its released keys are written all the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.config.limits import Limits
from edge.engine.dispatch.destinations import find
from edge.engine.dispatch.hooks import new_context
from edge.engine.rules.access import Sender
from edge.engine.rules.quota import charge
from edge.engine.rules.service_time import Now
from edge.engine.store.database import NeedsDatabase, Transaction
from edge.errors import ServiceError
from edge.features.accounts.store import accounts
from edge.features.custody import service, store
from edge.features.custody.rules import Reason
from edge.features.custody.service import CustodyError
from edge.features.outbox.store import outbox
from tests.helpers import custody_image
from tests.helpers.store import DOMAIN, WALL, in_memory, log

EXAMPLES = 2000 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 15

MANY = 100_000
LIMITS = Limits(
    held_messages_per_source=2,
    held_ttl=100.0,
    held_grace=10.0,
    released_keys=3,
    outbox_messages_per_source=MANY,
    outbox_messages_per_account=MANY,
)
PAGE_KEYS, RELEASED_ROWS, EXPIRY_BATCH = 1, 2, 2
DEVICE = "valve"
GENERATION = 1
RECOUNT = """
SELECT count(*), coalesce(sum(bytes), 0)
FROM (SELECT bytes FROM held WHERE recipient IS NOT NULL UNION ALL SELECT bytes FROM outbox)
"""
PARSED = Element("message")
PAGES = "SELECT count(*), max(length(keys)) FROM released_pages GROUP BY source"

Key = tuple[str, str, str]
"""The source, the sender and the msgId of a message."""

KEYS: Final[list[Key]] = [
    (f"{name}@gw.example", f"{name}@gw.example/{resource}", msg_id)
    for name, resource in ("ar", "as", "br")
    for msg_id in ("m0", "m1", "m2", "m3", "m4")
]
keys = st.sampled_from(KEYS)
bodies = st.sampled_from(
    [log("x"), log("y" * 150), log("z" * 400), "<message xmlns='jabber:client'/>"]
).map(str.encode)
destinations = st.sampled_from([None, f"{DEVICE}@{DOMAIN}"])


class Held(NamedTuple):
    """A message that must be held."""

    body: bytes
    since: float
    for_device: bool
    exclusive: bool = False


class Model(NamedTuple):
    """The messages to hold, oldest first, and each source's released keys, latest last."""

    held: dict[Key, Held]
    released: dict[str, list[Key | None]]  # None: was forgotten

    def copy(self) -> Model:
        return Model(dict(self.held), {name: list(keys) for name, keys in self.released.items()})

    def of_source(self, source: str) -> list[Key]:
        return [key for key in self.held if key[0] == source]

    def release(self, key: Key) -> None:
        self.end(key)
        self.released.setdefault(key[0], []).append(key)

    def remove(self, key: Key) -> None:
        self.end(key)
        released = self.released.get(key[0], [])
        released[:] = [None if same_id(other, key) else other for other in released]

    def end(self, key: Key) -> None:
        del self.held[key]
        for other, held in self.held.items():
            if same_id(other, key):
                self.held[other] = held._replace(exclusive=True)

    def move(self, key: Key, to: Key) -> None:
        held = {to if one == key else one: held for one, held in self.held.items()}
        self.held.clear()
        self.held.update(held)

    def was_released(self, key: Key, last: int | None = None) -> bool:
        """Return whether a session of the source has released the msgId, of its `last` releases."""
        released = self.released.get(key[0], [])
        return any(same_id(one, key) for one in (released[-last:] if last else released))


def same_id(one: Key | None, other: Key) -> bool:
    return one is not None and (one[0], one[2]) == (other[0], other[2])


def sender(key: Key) -> Sender:
    source, full, _ = key
    return Sender(full, source, source.partition("@")[0], True, True, GENERATION)


class Custody(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(store, "PAGE_KEYS", PAGE_KEYS)
        patch.setattr(store, "RELEASED_ROWS", RELEASED_ROWS)
        patch.setattr(store, "EXPIRY_BATCH", EXPIRY_BATCH)
        patch.setattr(store, "BODY_BYTES", 600)
        self.db = self.stack.enter_context(in_memory())
        self.context = new_context(DOMAIN, LIMITS)
        self.cache: dict[str, Any] = {}
        self.model = Model({}, {})
        self.device = False
        self.seconds = 1000.0
        self.every_step = False
        self.begin()

    def teardown(self) -> None:
        self.stack.close()

    @initialize(every_step=st.booleans())
    def first(self, every_step: bool) -> None:
        """Choose how often the rows are compared, because that writes all changes to them."""
        self.every_step = every_step

    # Transactions.

    def begin(self) -> None:
        self.tx = Transaction(None, self.now(), self.cache)
        self.connected = False
        self.before = self.model.copy(), self.device

    def now(self) -> Now:
        return Now(self.seconds, WALL, True)

    def connect(self) -> None:
        if not self.connected:
            self.db.execute("BEGIN")
            self.tx.connect(self.db, self.now())
            self.connected = True

    def run(self, unit: Callable[[Transaction], object]) -> ServiceError[Any] | None:
        """Run a unit, in memory if that is possible; return how it was refused."""
        if not self.connected:
            before = self.content()
            try:
                return self.outcome(unit)
            except NeedsDatabase:
                self.tx.undo()
                assert self.content() == before
            self.connect()
        return self.outcome(unit)

    def outcome(self, unit: Callable[[Transaction], object]) -> ServiceError[Any] | None:
        refused = None
        try:
            unit(self.tx)
        except ServiceError as error:
            refused = error
        self.tx.take_sends()
        return refused

    def content(self) -> dict[str, Any] | None:
        image: store._CustodyImage | None = self.cache.get("custody")
        return None if image is None else custody_image.content(image)

    @rule(lost=st.booleans())
    def commit(self, lost: bool) -> None:
        """Commit; perhaps the process ends after that."""
        self.connect()
        self.tx.run_before_commit()
        self.db.execute("COMMIT")
        self.compare(Transaction(self.db, self.now(), self.cache))
        if lost:
            self.cache.clear()
        self.begin()

    @rule()
    def roll_back(self) -> None:
        if self.connected:
            self.db.execute("ROLLBACK")
        self.cache.clear()
        self.model, self.device = self.before
        self.begin()

    @rule(seconds=st.sampled_from([1.0, 11.0, 101.0]))
    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        if self.connected:
            self.tx.now = self.now()

    # Units.

    @rule(key=keys, body=bodies, to=destinations)
    def offer(self, key: Key, body: bytes, to: str | None) -> None:
        request = service.request(find(self.context, to), body, msg_id=key[2])
        refused = self.run(lambda tx: service.offer(self.context, tx, sender(key), request))
        held = self.model.held.get(key)
        mine = self.model.of_source(key[0])
        evicted = mine[: max(0, len(mine) + 1 - LIMITS.held_messages_per_source)]
        if held is not None:
            assert reason(refused) == (None if held.body == body else Reason.CONFLICT)
        elif to is not None and not self.device:
            assert refused is not None
        elif any(self.age_of(old) <= LIMITS.held_grace for old in evicted):
            assert reason(refused) == Reason.NO_ROOM
        else:
            assert refused is None
            for old in evicted:
                self.model.remove(old)
            self.model.held[key] = Held(body, self.tx.now.service, to is not None)

    def age_of(self, key: Key) -> float:
        return self.tx.now.service - self.model.held[key].since

    @rule(key=keys)
    def deliver(self, key: Key) -> None:
        refused = self.run(lambda tx: service.deliver(self.context, tx, sender(key), key[2]))
        held = self.model.held.get(key)
        if held is None:  # no session has a connection: what others have released counts, too
            if self.model.was_released(key, LIMITS.released_keys):
                assert refused is None
            elif not self.model.was_released(key):
                assert reason(refused) == Reason.NOT_HELD
        elif held.for_device and not self.device:
            assert refused is not None
            self.model.remove(key)
        else:
            assert refused is None
            self.model.release(key)

    @rule(messages=st.lists(st.tuples(keys, bodies), max_size=8), undone=st.booleans())
    def exchange(self, messages: list[tuple[Key, bytes]], undone: bool) -> None:
        """Hold or else release each message, all in one unit; perhaps undo that."""

        def unit(tx: Transaction) -> None:
            for key, body in messages:
                if (held := store.find(tx, *key)) is None:
                    digest = sha256(body).digest()
                    size = charge(key[2], body)
                    store.hold(tx, *key, DOMAIN, body, digest, size, None, PARSED, GENERATION)
                else:
                    store.release(tx, held, LIMITS.released_keys, GENERATION)

        if undone:  # it runs in memory, on an image of committed rows
            self.commit(lost=False)
            before = self.content()
            with suppress(NeedsDatabase):  # another session uses the same msgId
                unit(self.tx)
            assert self.tx.is_in_memory
            self.tx.undo()
            assert self.content() == before
            return
        assert self.run(unit) is None
        for key, body in messages:
            if key in self.model.held:
                self.model.release(key)
            else:
                self.model.held[key] = Held(body, self.tx.now.service, False)

    @rule(source=st.sampled_from([key[0] for key in KEYS]))
    def remove(self, source: str) -> None:
        """Remove the oldest message of a source, as an eviction or a refused `deliver` does."""
        for key in self.model.of_source(source)[:1]:

            def unit(tx: Transaction, key: Key = key) -> None:
                held = store.find(tx, *key)
                assert held is not None
                store.remove(tx, held, LIMITS.released_keys)

            self.run(unit)
            self.model.remove(key)

    @rule(key=keys)
    def move(self, key: Key) -> None:
        """Let the other session of the source take a message over."""
        source, full, msg_id = key
        to = source, f"{source}/{'s' if full.endswith('r') else 'r'}", msg_id
        if key not in self.model.held or to in self.model.held:
            return

        def unit(tx: Transaction) -> None:
            held = store.find(tx, *key)
            assert held is not None
            store.move(tx, held, to[1])

        self.run(unit)
        self.model.move(key, to)

    @rule()
    def expire(self) -> None:
        self.run(lambda tx: service.expire(self.context, tx))
        for key in list(self.model.held)[:EXPIRY_BATCH]:
            if self.model.held[key].since <= self.tx.now.service - LIMITS.held_ttl:
                self.model.remove(key)
        if self.model.held:
            due = next(iter(self.model.held.values())).since + LIMITS.held_ttl
            assert self.tx.due is not None
            assert self.tx.due <= due

    @rule(ago=st.floats(0, 50), seconds=st.floats(0, 50))
    def settle_time_off(self, ago: float, seconds: float) -> None:
        before = self.seconds - ago
        self.run(lambda tx: store.age(tx, before, seconds))
        for key, held in self.model.held.items():
            if held.since <= before:
                self.model.held[key] = held._replace(since=held.since - seconds)

    @rule()
    def add_or_remove_the_device(self) -> None:
        """Change an account, which drops all images in the middle of the transaction."""
        if self.device:
            self.run(lambda tx: accounts.remove(tx, DEVICE))
        else:
            self.run(lambda tx: accounts.add(tx, DEVICE, (), trusted=True))
        self.device = not self.device

    # What must be true.

    @invariant()
    def the_image_is_the_model(self) -> None:
        image: store._CustodyImage | None = self.cache.get("custody")
        if image is None:
            return
        found = {}
        for held in custody_image.messages(image):
            key = held.source, held.sender, held.msg_id
            found[key] = held.digest, held.since, bool(held.recipient), held.exclusive
        expected = {
            key: (sha256(held.body).digest(), *held[1:]) for key, held in self.model.held.items()
        }
        assert list(found.items()) == list(expected.items())

    @invariant()
    def the_rows_are_the_image(self) -> None:
        if self.every_step and self.connected:
            self.compare_rows()

    @rule()
    def compare_rows(self) -> None:
        """Compare before the commit; in memory, this begins the transaction."""
        self.connect()
        self.compare(self.tx)

    def compare(self, tx: Transaction) -> None:
        """Compare all rows with the image and the model."""
        custody_image.image_equals_rows(tx)
        for key, expected in self.model.held.items():
            held = store.find(tx, *key)
            assert held is not None
            assert held.digest == sha256(expected.body).digest()
            assert store.read_body(tx, held)[0] == expected.body
            others = [one for one in self.model.held if same_id(one, key) and one != key]
            found, rest = store.find_all(tx, *key)
            assert found is held
            assert [(one.source, one.sender, one.msg_id) for one in rest] == others
        assert [outbox.usage(tx, DEVICE, "")[1].total] == self.db.execute(RECOUNT).fetchall()
        for key in KEYS:
            released = self.model.released.get(key[0], [])
            known = store.was_released(tx, *key)
            assert known or key not in released[-LIMITS.released_keys :]
            assert key in released or not known
        self.keys_are_limited()

    def keys_are_limited(self) -> None:
        """The pages of a source form a ring, and every row of keys is at most a page."""
        size = PAGE_KEYS * store.KEY_BYTES
        for count, longest in self.db.execute(PAGES):
            assert count <= -(-LIMITS.released_keys // PAGE_KEYS)
            assert longest <= size
        for (longest,) in self.db.execute("SELECT length(keys) FROM released_latest"):
            assert longest <= size


def reason(refused: ServiceError[Any] | None) -> Reason | None:
    assert refused is None or isinstance(refused, CustodyError)
    return None if refused is None else refused.reason


TestCustody = Custody.TestCase
TestCustody.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
