"""Declarations of sessions, and the hooks that run when these change."""

from __future__ import annotations

import pytest

from edge.engine.rules.access import Sender
from edge.engine.sessions import sessions
from edge.engine.sessions.sessions import SessionRow
from edge.engine.store.database import Transaction
from tests.helpers.people import PUMP
from tests.helpers.store import Gateway


def sender(gateway: Gateway, full: str = PUMP) -> Sender:
    found = gateway.tx(lambda tx: sessions.sender(tx, gateway.generation(full)))
    assert found is not None
    return found


def find(gateway: Gateway, full: str = PUMP) -> SessionRow:
    found = gateway.tx(lambda tx: sessions.find(tx, full))
    assert found is not None
    return found


class Hooked:
    """A session, and the names of the hooks that ran for it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.ran: list[str] = []
        gateway.add("pump1")
        gateway.bind(PUMP)
        hooks = gateway.router.context.hooks
        for name in ("on_accepting", "on_qos_known", "on_unavailable"):
            getattr(hooks, name)[:] = [lambda _c, _t, _s, name=name: self.ran.append(name)]

    def set_available(self, priority: int, *, renewed: bool = False) -> list[str]:
        self.ran.clear()
        who, context, accepts = sender(self.gateway), self.gateway.router.context, priority >= 0

        def unit(tx: Transaction) -> None:
            sessions.set_available(
                context, tx, who, accepts=accepts, rank=priority, renewed=renewed
            )

        self.gateway.tx(unit)
        return self.ran


@pytest.fixture
def hooked(gateway: Gateway) -> Hooked:
    return Hooked(gateway)


@pytest.mark.parametrize(
    ("before", "now", "begins"),
    [
        (None, 0, True),
        (None, 127, True),
        (None, -1, False),
        (0, 0, False),
        (0, 5, False),
        (5, -1, False),
        (-1, -2, False),
        (-1, 0, True),
    ],
)
def test_messages_are_delivered_from_the_first_non_negative_priority(
    hooked: Hooked, before: int | None, now: int, begins: bool
) -> None:
    if before is not None:
        hooked.set_available(before)
    assert hooked.set_available(now) == (["on_accepting"] if begins else [])
    session = find(hooked.gateway)
    assert (session.available, session.accepts, session.rank) == (True, now >= 0, now)
    assert hooked.set_available(now, renewed=True) == (["on_accepting"] if now >= 0 else [])


def test_session_that_becomes_available_gets_items_again(hooked: Hooked) -> None:
    gateway, context = hooked.gateway, hooked.gateway.router.context
    generation = gateway.generation(PUMP)
    for available_before in (False, True):
        gateway.tx(lambda tx: sessions.set_gets_items(tx, generation, False))
        assert not find(gateway).gets_items
        hooked.set_available(0)
        assert find(gateway).gets_items is not available_before
    who = sender(gateway)
    gateway.tx(lambda tx: sessions.set_unavailable(context, tx, who))
    assert hooked.ran == ["on_unavailable"]
    session = find(gateway)
    assert (session.available, session.accepts, session.rank) == (False, False, 0)


def test_hooks_of_a_session_depend_on_whether_it_accepts_messages(hooked: Hooked) -> None:
    gateway, context = hooked.gateway, hooked.gateway.router.context
    who = sender(gateway)
    gateway.tx(lambda tx: sessions.run_ready_hooks(context, tx, who))
    assert hooked.ran == ["on_qos_known"]
    hooked.set_available(3)
    hooked.ran.clear()
    gateway.tx(lambda tx: sessions.run_ready_hooks(context, tx, who))
    assert hooked.ran == ["on_accepting"]
