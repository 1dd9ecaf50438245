"""A worker against a scripted service over real TLS: each step, each answer, each interruption."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from firmware_sim.device.jobs import Job, JobCounter, JobState
from firmware_sim.device.limits import ReconnectPolicy, WorkLimits
from firmware_sim.device.worker import Worker
from firmware_sim.errors import CannotDo, DeviceStopped, NoAnswer, RequestRefused
from tests.helpers.scripted_peer import Certificate, ScriptedPeer, Stanza

JID = "worker1@gw.example/w"
EVENT = "http://jabber.org/protocol/pubsub#event"
UNLOCK = "<unlock xmlns='urn:xmpp:pubsub:queueing:0' id='j1'/>"
RETRACT = "<retract id='j1'/>"
ITEM = "<item id='j1'><job xmlns='urn:x' n='1'/></item>"
NODE = "jobs"


def said(stanza: Stanza) -> str:
    """Return the name of a request: subscribe, retract, unlock..."""
    return stanza.payload[0].tag.rpartition("}")[2]


class Service:
    """A scripted service: it answers each request with `result`, or as `answers` says."""

    def __init__(self, certificate: Certificate) -> None:
        self.answers: dict[str, Callable[[Stanza], str]] = {}
        self.peer = ScriptedPeer(certificate, script=self._answer)

    def _answer(self, stanza: Stanza) -> str:
        return self.answers.get(said(stanza), Stanza.result)(stanza)

    def tell(self, content: str, node: str = NODE) -> None:
        event = f"<event xmlns='{EVENT}'><items node='{node}'>{content}</items></event>"
        self.peer.say(f"<message from='pubsub.gw.example' to='{JID}'>{event}</message>")

    async def asked(self, what: str, times: int = 1) -> Stanza:
        """Wait for the request of that number, and return it."""
        await self.peer.until(lambda: len(self.all(what)) >= times)
        return self.all(what)[times - 1]

    def all(self, what: str) -> list[Stanza]:
        return [stanza for stanza in self.peer.seen if said(stanza) == what]

    def refuse(self, what: str, kind: str, condition: str) -> None:
        self.answers[what] = lambda stanza: stanza.error(kind, condition)


class Work:
    """The work of a worker; it waits for `go`."""

    def __init__(self) -> None:
        self.began: list[Job] = []
        self.committed: list[Job] = []
        self.fails: Exception | None = None
        self.fails_to_commit = False
        self.go = asyncio.Event()
        self.go.set()

    async def work(self, job: Job) -> None:
        self.began.append(job)
        await self.go.wait()
        if self.fails is not None:
            raise self.fails

    def commit(self, job: Job, _db: sqlite3.Connection) -> None:
        if self.fails_to_commit:
            raise ValueError(job.item)
        self.committed.append(job)


class At:
    """A worker that is subscribed, its work, and the service."""

    def __init__(self, service: Service, path: Path, certificate: Certificate, by_account: bool):
        self.service, self.path = service, path
        self._ca, self._by_account = certificate.ca_file, by_account
        self.work = Work()
        self.worker = self._make()

    def _make(self) -> Worker:
        return Worker(
            JID,
            "secret",
            node=NODE,
            path=self.path,
            ca_file=self._ca,
            work=self.work.work,
            commit=self.work.commit,
            host="127.0.0.1",
            port=self.service.peer.port,
            by_account=self._by_account,
            limits=WorkLimits(requests=3),
            reconnect=ReconnectPolicy(base=0.02, cap=0.1, timeout=5.0),
        )

    async def start(self) -> None:
        await self.worker.start()
        await asyncio.wait_for(self.worker.subscribed(), 10)

    async def restart(self) -> None:
        await self.worker.kill()
        self.worker = self._make()
        await self.start()

    def state(self) -> JobState | None:
        return next((record.state for record in self.worker.jobs.records()), None)

    async def begin(self) -> None:
        """Let it begin the item's work, which waits for `go`."""
        self.work.go.clear()
        self.service.tell(ITEM)
        await self.until(lambda: self.worker.active_items == 1)

    async def confirm(self) -> None:
        """Confirm the deletion of the item."""
        self.service.tell(RETRACT)
        await self.until(lambda: self.state() is JobState.DONE)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until what was said has arrived: an answer to a request of its own comes behind."""
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110 - what it waits for is in a file
                await asyncio.sleep(0)


@pytest.fixture
async def stopped(
    certificate: Certificate, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[At]:
    """A worker before its start; it subscribes its account if that is the fixture's parameter."""
    service = Service(certificate)
    async with service.peer.running():
        found = At(service, tmp_path / "w.db", certificate, getattr(request, "param", False))
        yield found
        await found.worker.close()


@pytest.fixture
async def at(stopped: At) -> At:
    """A worker that is subscribed."""
    await stopped.start()
    return stopped


async def test_a_deletion_is_requested_after_the_work_and_committed_when_confirmed(at: At) -> None:
    at.service.tell(ITEM)
    retract = await at.service.asked("retract")
    assert retract.payload[0].get("node") == NODE
    assert retract.payload[0][0].get("id") == "j1"
    assert at.state() is JobState.DELETION_REQUESTED
    assert at.work.committed == []
    await at.confirm()
    job = Job("j1", '<job xmlns="urn:x" n="1"/>', 0)
    assert at.work.began == at.work.committed == [job]
    at.service.tell(RETRACT)
    await at.until(lambda: at.worker.jobs.counts()[JobCounter.REPEATED] == 1)
    assert at.work.committed == [job]


@pytest.mark.parametrize(
    ("stopped", "who"), [(False, JID), (True, "worker1@gw.example")], indirect=["stopped"]
)
async def test_a_worker_subscribes_with_its_request_limit(at: At, who: str) -> None:
    subscribe, options = at.service.all("subscribe")[0].payload
    assert (subscribe.get("node"), subscribe.get("jid")) == (NODE, who)
    fields = {each.get("var"): each[0].text for each in options[0]}
    assert fields["pubsub#queue_requests"] == "3"


async def test_an_item_that_cannot_be_done_is_unlocked(at: At) -> None:
    at.work.fails = CannotDo("no")
    at.service.tell(ITEM)
    unlock = await at.service.asked("unlock")
    assert unlock.payload[0].tag == "{urn:xmpp:pubsub:queueing:0}unlock"
    assert unlock.payload[0].get("node") == NODE
    assert unlock.payload[0][0].get("id") == "j1"
    await at.until(lambda: at.worker.jobs.counts()[JobCounter.UNLOCKED] == 1)
    assert at.service.all("retract") == []
    assert at.state() is None


async def test_failed_work_is_logged_and_its_item_unlocked(
    at: At, caplog: pytest.LogCaptureFixture
) -> None:
    at.work.fails = RuntimeError("broken")
    at.service.refuse("unlock", "wait", "unexpected-request")
    at.service.tell(ITEM)
    await at.service.asked("unlock")
    assert "item j1 failed" in caplog.text
    assert at.worker.jobs.counts()[JobCounter.UNLOCKED] == 0


async def test_work_on_an_item_is_dropped_when_its_lock_ends(at: At) -> None:
    await at.begin()
    at.service.tell(UNLOCK)
    await at.until(lambda: at.worker.active_items == 0)
    at.work.go.set()
    at.service.tell(ITEM.replace("j1", "j2"))
    assert (await at.service.asked("retract")).payload[0][0].get("id") == "j2"
    assert len(at.service.all("retract")) == 1


async def test_work_on_a_redelivered_item_starts_again(at: At) -> None:
    at.work.go.clear()
    at.service.tell(ITEM)
    await at.until(lambda: len(at.work.began) == 1)
    at.service.tell(ITEM)
    await at.until(lambda: len(at.work.began) == 2)
    at.work.go.set()
    await at.service.asked("retract")
    await at.confirm()
    assert len(at.service.all("retract")) == len(at.work.committed) == 1


async def test_items_above_the_request_limit_are_unlocked(at: At) -> None:
    at.work.go.clear()
    for number in range(7):  # it asked for three, and may have three of a lost session
        at.service.tell(ITEM.replace("j1", f"j{number}"))
    unlock = await at.service.asked("unlock")
    assert unlock.payload[0][0].get("id") == "j6"
    assert at.worker.active_items == 6
    at.service.tell(ITEM.replace("j1", "j5"))  # again: that is no more
    await at.until(lambda: len(at.work.began) == 7)
    assert len(at.service.all("unlock")) == 1


@pytest.mark.parametrize(
    ("kind", "condition", "state"),
    [
        ("cancel", "conflict", JobState.UNDONE),
        ("auth", "forbidden", JobState.UNDONE),
        ("wait", "unexpected-request", JobState.UNDONE),
        ("cancel", "item-not-found", JobState.UNDONE),
        ("wait", "resource-constraint", JobState.DELETION_REQUESTED),
    ],
)
async def test_state_after_refusal(at: At, kind: str, condition: str, state: JobState) -> None:
    at.service.refuse("retract", kind, condition)
    at.service.tell(ITEM)
    await at.service.asked("retract")
    at.service.tell(ITEM.replace("j1", "j2"), node="others")
    await at.until(lambda: at.state() is state)
    assert at.work.committed == []
    await at.confirm()  # it had deleted it after all, in a session that was lost


async def test_an_unanswered_deletion_is_requested_again_in_the_next_session(at: At) -> None:
    at.service.answers["retract"] = lambda _stanza: ""
    at.service.tell(ITEM)
    await at.service.asked("retract")
    at.worker.cut()
    await at.service.asked("retract", 2)
    await at.service.asked("subscribe", 2)
    await at.confirm()
    assert len(at.work.began) == 1


async def test_a_crash_drops_active_items_and_keeps_finished_ones(at: At) -> None:
    at.service.answers["retract"] = lambda _stanza: ""
    at.service.tell(ITEM)
    await at.service.asked("retract")
    at.work.go.clear()
    at.service.tell(ITEM.replace("j1", "j2"))
    await at.until(lambda: at.worker.active_items == 1)
    await at.restart()
    assert at.worker.active_items == 0
    asked = await at.service.asked("retract", 2)
    assert asked.payload[0][0].get("id") == "j1"
    await at.confirm()
    assert [job.item for job in at.work.committed] == ["j1"]


async def test_work_continues_while_the_connection_is_lost(at: At) -> None:
    await at.begin()
    at.service.peer.drop()
    await at.service.asked("subscribe", 2)
    at.work.go.set()
    await at.service.asked("retract")


async def test_a_worker_leaves_and_rejoins(at: At) -> None:
    await at.begin()
    await at.worker.leave()
    assert at.worker.active_items == 0
    assert at.service.all("unsubscribe")[0].payload[0].get("jid") == JID
    await at.worker.rejoin()
    await at.service.asked("subscribe", 2)
    at.worker.hide()
    await at.service.peer.until(
        lambda: any(each.get("type") == "unavailable" for each in at.service.peer.others)
    )
    await at.worker.rejoin()
    await at.service.asked("subscribe", 3)
    at.service.refuse("unsubscribe", "cancel", "unexpected-request")
    with pytest.raises(RequestRefused, match="unexpected-request"):
        await at.worker.leave()


async def test_a_failed_commit_stops_the_worker_and_is_repeated_after_a_restart(at: At) -> None:
    at.service.tell(ITEM)
    await at.service.asked("retract")
    at.work.fails_to_commit = True
    at.service.tell(RETRACT)
    await at.until(lambda: at.worker.failure is not None and not at.worker.online)
    assert isinstance(at.worker.failure, ValueError)
    at.work.fails_to_commit = False
    await at.restart()
    await at.service.asked("retract", 2)
    await at.confirm()


async def test_a_refused_subscription_is_reported_and_retried(stopped: At) -> None:
    stopped.service.refuse("subscribe", "auth", "forbidden")
    await stopped.worker.start()
    await stopped.service.asked("subscribe", 2)
    assert "forbidden" in stopped.worker.last_error
    stopped.service.answers.clear()
    await asyncio.wait_for(stopped.worker.subscribed(), 10)


async def test_a_stopped_worker_raises_errors(stopped: At) -> None:
    with pytest.raises(DeviceStopped):
        stopped.worker.jobs  # noqa: B018 - it raises
    with pytest.raises(NoAnswer):
        await stopped.worker.leave()
    with pytest.raises(ValueError, match="full JID"):
        Worker("w@gw.example", "", node="n", path="p", ca_file="c", work=stopped.work.work)
