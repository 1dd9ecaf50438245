"""Other people's clients among each other: messages in both directions, rosters, presence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import permutations

import pytest

from tests.helpers.clients import Client
from tests.interop.conftest import Site
from tests.interop.test_clients import PROGRAMS

TEXT = "valve <7> & 'pump' \N{SNOWMAN}"


def test_each_client_reaches_each_other(site: Site) -> None:
    jids = {}
    with ExitStack() as stack:
        running = {}
        for program, mechanism in PROGRAMS.items():
            login = site.login(f"chat-{program}", mechanism)
            running[program] = stack.enter_context(site.start(program, login))
        for program, client in running.items():
            jids[program] = client.expect("online").split()[0]
        for sender, receiver in permutations(running, 2):
            running[sender].send_line("message", jids[receiver], f"{TEXT} from {sender}")
            text = running[receiver].expect("message", jids[sender])
            assert text == f"{TEXT} from {sender}"
        for client in running.values():
            assert client.quit() == 0
            assert client.unread("message") == []


@pytest.mark.parametrize(("program", "mechanism"), PROGRAMS.items())
def test_a_subscription_delivers_presence_and_is_in_both_rosters(
    site: Site, program: str, mechanism: str
) -> None:
    watcher_at = site.login(f"watch-{program}", mechanism)
    watched_at = site.login(f"watched-by-{program}", "SCRAM-SHA-256")
    with (
        site.start(program, watcher_at) as watcher,
        site.start("slixmpp", watched_at) as watched,
    ):
        watcher_jid = watcher.expect("online").split()[0]
        watched_jid = watched.expect("online").split()[0]
        assert watcher.ask("roster", answer="roster") == ""
        watched.ask("roster", answer="roster")
        for client, jid in ((watcher, watcher_jid), (watched, watched_jid)):
            client.send_line("presence")
            client.expect("presence", jid, "available")
        watcher.send_line("presence", watched_at.bare, "subscribe")
        watched.expect("presence", watcher_at.bare, "subscribe")
        watched.send_line("presence", watcher_at.bare, "subscribed")
        watcher.expect("presence", watched_at.bare, "subscribed")
        watcher.expect("presence", watched_jid, "available")
        assert watcher.ask("roster", answer="roster") == f"{watched_at.bare}:to"
        assert watched.ask("roster", answer="roster") == f"{watcher_at.bare}:from"
        assert watched.quit() == 0
        watcher.expect("presence", watched_jid, "unavailable")
        assert watcher.quit() == 0


@pytest.fixture(scope="module")
def sender(site: Site) -> Iterator[Client]:
    with site.start("slixmpp", site.login("mail", "SCRAM-SHA-256")) as client:
        client.expect("online")
        yield client
        assert client.quit() == 0


@pytest.mark.parametrize(("program", "mechanism"), PROGRAMS.items())
def test_a_message_waits_for_its_offline_recipient(
    site: Site, sender: Client, program: str, mechanism: str
) -> None:
    login = site.login(f"away-{program}", mechanism)
    sender.send_line("message", login.bare, TEXT)
    sender.ask("ping", answer="pong")
    with site.start(program, login) as away:
        away.expect("online")
        away.send_line("presence")
        assert away.expect("message", site.login("mail", "SCRAM-SHA-256").jid) == TEXT
        assert away.quit() == 0
        assert away.unread("message") == []
