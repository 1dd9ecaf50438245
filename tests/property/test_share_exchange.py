"""A share at each level, whose members come, go, answer, refuse and crash: nobody has an item that
is another's, and none disappears without being counted.

The gateway is real, with SQLite; members are models of the specification, small enough to be read.
What is on its way is lost with a session, also the answers to what has arrived.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, deque
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.config.limits import Limits
from tests.helpers.custody import Handed, come, done, handed, received, refusal
from tests.helpers.shares import NODE, join, leave, name, publish, told, waiting
from tests.helpers.store import DOMAIN, Gateway, new_database
from tests.helpers.subscribing import create

NAMES: Final = ("ant", "bee", "cat")
CAPACITY: Final = 3
WHO: Final = st.sampled_from(NAMES)
PUBLISHER: Final = f"queen@{DOMAIN}/fw"


class Shares(RuleBasedStateMachine):
    """A publisher, and three members that are one account each."""

    level = 1

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        limits = Limits(outbox_window=2)
        self.gateway = Gateway(new_database(Path(self._folder.name)), limits)
        for user in (*NAMES, "queen"):
            self.gateway.add(user)
        create(self.gateway, PUBLISHER, NODE)
        self.members: set[str] = set()
        self.pending: dict[str, deque[Handed]] = {user: deque() for user in NAMES}
        self.held: dict[tuple[str, str], str] = {}
        self.bound: dict[str, str] = {}
        self.published: list[str] = []
        self.had: Counter[str] = Counter()
        for user in NAMES:
            self.come(user)
            self.join(user)

    def teardown(self) -> None:
        self.settle()
        self.gateway.close()
        self._folder.cleanup()

    def full(self, user: str) -> str:
        return f"{user}@{DOMAIN}/fw"

    def there(self, user: str) -> bool:
        return self.gateway.is_bound(self.full(user))

    # What happens

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        for _ in range(count):
            item = f"i{len(self.published)}"
            self.published.append(item)
            publish(self.gateway, item, full=PUBLISHER)
            if not self.members:
                self.had[item] += 1  # nobody shares it

    @rule(user=WHO)
    def come(self, user: str) -> None:
        if not self.there(user):
            come(self.gateway, self.full(user))

    @rule(user=WHO)
    def join(self, user: str) -> None:
        if self.there(user) and user not in self.members:
            join(self.gateway, self.full(user), qos=str(self.level), queue_requests=str(CAPACITY))
            self.members.add(user)

    @rule(user=WHO)
    def leave(self, user: str) -> None:
        if self.there(user) and user in self.members:
            leave(self.gateway, self.full(user))
            self.members.remove(user)

    @rule(user=WHO, answered=st.integers(0, 2), arrive=st.integers(0, 3))
    def cut(self, user: str, answered: int, arrive: int) -> None:
        """End a session; some of what is on its way still arrives, no answer comes back."""
        if not self.there(user):
            return
        if answered:
            self.answer(user, answered, "")
        self.look(user)
        for _ in range(min(arrive, len(self.pending[user]))):
            self.take(user)
        self.pending[user].clear()
        self.gateway.leave(self.full(user))

    @rule(user=WHO, count=st.integers(1, 4), how=st.sampled_from(["", "", "", "cancel", "wait"]))
    def answer(self, user: str, count: int, how: str) -> None:
        """Take and answer what is on its way: well, or by an error of a type."""
        if not self.there(user):
            return
        for _ in range(count):
            self.look(user)
            if self.pending[user]:
                answer = self.refuse(user, how) if how else self.take(user)
                self.gateway.send(self.full(user), answer)

    def refuse(self, user: str, how: str) -> str:
        one = self.pending[user].popleft()
        return refusal(one, how, "resource-constraint" if how == "wait" else "not-allowed")

    @rule()
    def crash(self) -> None:
        for user in NAMES:
            self.pending[user].clear()
        self.gateway.crash()
        self.gateway.sent.clear()
        self.gateway.ring()

    @rule(seconds=st.sampled_from([1, 60, 4000]))
    def time(self, seconds: float) -> None:
        self.gateway.clock.service += seconds
        self.gateway.ring()

    # A member, as the specification has it

    def look(self, user: str) -> None:
        if self.level:
            found = handed(self.gateway, self.full(user))
            self.pending[user] += found
            if self.level == 2:
                self.bind(user, found)
        else:
            self.had.update(item or "" for item in told(self.gateway, self.full(user)))

    def bind(self, user: str, found: list[Handed]) -> None:
        """What was offered to a member at level 2 is offered to no other."""
        for one in found:
            if one.step == "assured":
                item = name(one.message) or ""
                assert self.bound.setdefault(item, user) == user, item

    def take(self, user: str) -> str:
        """Let what is first on its way arrive; returns the answer."""
        one = self.pending[user].popleft()
        key = user, one.msg_id or ""
        if one.step == "assured":
            self.held[key] = name(one.message) or ""
            return received(one)
        if one.step == "acknowledged":
            self.had[name(one.message) or ""] += 1
        elif key in self.held:
            self.had[self.held.pop(key)] += 1
        return done(one)

    # What holds

    @invariant()
    def nobody_has_more_than_it_takes(self) -> None:
        assert all(count <= CAPACITY for count in self.in_flight().values())

    @invariant()
    def levels_0_and_2_have_an_item_once(self) -> None:
        if self.level != 1:
            assert all(count == 1 for count in self.had.values()), self.had

    @invariant()
    def nothing_waits_while_a_member_has_room(self) -> None:
        if self.level == 0:
            return  # where what was sent has no lock
        in_flight = self.in_flight()
        sql = "SELECT count(*) FROM queue_items WHERE state = 'ready' AND holder IS NOT ?"
        for user in self.members:  # but for what it gave back, which waits for another
            if self.there(user) and self.gateway.count(sql, self.full(user)):
                assert in_flight[f"{user}@{DOMAIN}"] == CAPACITY

    def in_flight(self) -> Counter[str]:
        sql = """
        SELECT s.jid FROM queue_items AS i JOIN subscriptions AS s ON s.id = i.subscription
        WHERE i.state = 'locked'
        """
        return Counter(jid for (jid,) in self.gateway.connection.execute(sql))

    @invariant()
    def nothing_is_lost_without_being_counted(self) -> None:
        gone = sum(
            round(event.value or 0)
            for event in self.gateway.events()
            if event.name in ("share_ended", "share_lost")
        )
        letters = self.gateway.count("SELECT count(*) FROM dead")
        kept = {item for item, _state in waiting(self.gateway)}
        under_way = self.gateway.count("SELECT count(*) FROM temp.under_way WHERE kind = 'share'")
        known = kept | set(self.had)
        assert len(self.published) <= len(known) + gone + letters + under_way + self.crashed()

    def crashed(self) -> int:
        """What a crash may lose at level 0, which nobody counts."""
        return len(self.published) if self.level == 0 else 0

    @precondition(lambda self: bool(self.published))
    @rule()
    def settle(self) -> None:
        """Let everybody come and answer all: then nothing waits any more."""
        for user in NAMES:
            self.come(user)
            self.join(user)
        for _ in range(100):
            for user in NAMES:
                self.look(user)
                while self.pending[user]:
                    self.gateway.send(self.full(user), self.take(user))
                    self.look(user)
            self.gateway.clock.service += 4000
            self.gateway.ring()
            if all(state == "dead" for _item, state in waiting(self.gateway)):
                break
        assert all(state == "dead" for _item, state in waiting(self.gateway))
        assert self.gateway.count("SELECT count(*) FROM outbox") == 0


class AtLevel0(Shares):
    level = 0


class AtLevel2(Shares):
    level = 2


EXAMPLES: Final = 400 if os.environ.get("FIELDPOST_TEST_LONG") == "1" else 12

SETTINGS: Final = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)

TestAtLevel0 = AtLevel0.TestCase
TestAtLevel0.settings = SETTINGS
TestAtLevel1 = Shares.TestCase
TestAtLevel1.settings = SETTINGS
TestAtLevel2 = AtLevel2.TestCase
TestAtLevel2.settings = SETTINGS
