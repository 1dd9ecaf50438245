"""A worker against a scripted service over real TLS: each step, each answer, each interruption."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from firmware_sim.device.errors import CannotDo, DeviceStopped, NoAnswer, RequestRefused
from firmware_sim.device.jobs import Job, JobCounter, JobState
from firmware_sim.device.limits import ReconnectPolicy, WorkLimits
from firmware_sim.device.worker import Worker
from tests.helpers.scripted_peer import Certificate, ScriptedPeer, Stanza

JID = "worker1@gw.example/w"
EVENT = "http://jabber.org/protocol/pubsub#event"
UNLOCK = "<unlock xmlns='urn:xmpp:pubsub:queueing:0' id='j1'/>"
RETRACT = "<retract id='j1'/>"
ITEM = "<item id='j1'><job xmlns='urn:x' n='1'/></item>"
NODE = "jobs"


def request_name(stanza: Stanza) -> str:
    """Return the name of a request: subscribe, retract, unlock..."""
    return stanza.payload[0].tag.rpartition("}")[2]


class Service:
    """A scripted service: it answers each request with `result`, or as `answers` says."""

    def __init__(self, certificate: Certificate) -> None:
        self.answers: dict[str, Callable[[Stanza], str]] = {}
        self.peer = ScriptedPeer(certificate, script=self._answer)

    def _answer(self, stanza: Stanza) -> str:
        return self.answers.get(request_name(stanza), Stanza.result)(stanza)

    def notify(self, content: str, node: str = NODE) -> None:
        event = f"<event xmlns='{EVENT}'><items node='{node}'>{content}</items></event>"
        self.peer.send_xml(f"<message from='pubsub.gw.example' to='{JID}'>{event}</message>")

    async def request(self, name: str, number: int = 1) -> Stanza:
        """Wait for the request of that number, and return it."""
        await self.peer.wait_until(lambda: len(self.requests(name)) >= number)
        return self.requests(name)[number - 1]

    def requests(self, name: str) -> list[Stanza]:
        return [stanza for stanza in self.peer.requests if request_name(stanza) == name]

    def refuse(self, name: str, kind: str, condition: str) -> None:
        self.answers[name] = lambda stanza: stanza.error(kind, condition)


class Work:
    """The work of a worker; it waits for `proceed`."""

    def __init__(self) -> None:
        self.started: list[Job] = []
        self.committed: list[Job] = []
        self.fails: Exception | None = None
        self.fails_to_commit = False
        self.proceed = asyncio.Event()
        self.proceed.set()

    async def work(self, job: Job) -> None:
        self.started.append(job)
        await self.proceed.wait()
        if self.fails is not None:
            raise self.fails

    def commit(self, job: Job, _db: sqlite3.Connection) -> None:
        if self.fails_to_commit:
            raise ValueError(job.item)
        self.committed.append(job)


class Case:
    """A subscribed worker, its work, and the service."""

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

    async def start_work(self) -> None:
        """Let it begin the item's work, which waits for `proceed`."""
        self.work.proceed.clear()
        self.service.notify(ITEM)
        await self.until(lambda: self.worker.active_items == 1)

    async def confirm(self) -> None:
        """Confirm the deletion of the item."""
        self.service.notify(RETRACT)
        await self.until(lambda: self.state() is JobState.DONE)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what it waits for is in a file
                await asyncio.sleep(0)


@pytest.fixture
async def stopped(
    certificate: Certificate, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Case]:
    """A worker before its start; it subscribes its account if that is the fixture's parameter."""
    service = Service(certificate)
    async with service.peer.running():
        case = Case(service, tmp_path / "w.db", certificate, getattr(request, "param", False))
        yield case
        await case.worker.close()


@pytest.fixture
async def case(stopped: Case) -> Case:
    """A worker that is subscribed."""
    await stopped.start()
    return stopped


async def test_deletion_is_requested_after_work_and_committed_when_confirmed(case: Case) -> None:
    case.service.notify(ITEM)
    retract = await case.service.request("retract")
    assert retract.payload[0].get("node") == NODE
    assert retract.payload[0][0].get("id") == "j1"
    assert case.state() is JobState.DELETION_REQUESTED
    assert case.work.committed == []
    await case.confirm()
    job = Job("j1", '<job xmlns="urn:x" n="1"/>', 0)
    assert case.work.started == case.work.committed == [job]
    case.service.notify(RETRACT)
    await case.until(lambda: case.worker.jobs.counts()[JobCounter.REPEATED] == 1)
    assert case.work.committed == [job]


@pytest.mark.parametrize(
    ("stopped", "jid"), [(False, JID), (True, "worker1@gw.example")], indirect=["stopped"]
)
async def test_a_worker_subscribes_with_its_request_limit(case: Case, jid: str) -> None:
    subscribe, options = case.service.requests("subscribe")[0].payload
    assert (subscribe.get("node"), subscribe.get("jid")) == (NODE, jid)
    fields = {each.get("var"): each[0].text for each in options[0]}
    assert fields["pubsub#queue_requests"] == "3"


async def test_an_item_that_cannot_be_done_is_unlocked(case: Case) -> None:
    case.work.fails = CannotDo("no")
    case.service.notify(ITEM)
    unlock = await case.service.request("unlock")
    assert unlock.payload[0].tag == "{urn:xmpp:pubsub:queueing:0}unlock"
    assert unlock.payload[0].get("node") == NODE
    assert unlock.payload[0][0].get("id") == "j1"
    await case.until(lambda: case.worker.jobs.counts()[JobCounter.UNLOCKED] == 1)
    assert case.service.requests("retract") == []
    assert case.state() is None


async def test_failed_work_is_logged_and_its_unlock_requested(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    case.work.fails = RuntimeError("broken")
    case.service.refuse("unlock", "wait", "unexpected-request")
    case.service.notify(ITEM)
    await case.service.request("unlock")
    assert "item j1 failed" in caplog.text
    assert case.worker.jobs.counts()[JobCounter.UNLOCKED] == 0


async def test_work_on_an_item_is_dropped_when_its_lock_ends(case: Case) -> None:
    await case.start_work()
    case.service.notify(UNLOCK)
    await case.until(lambda: case.worker.active_items == 0)
    case.work.proceed.set()
    case.service.notify(ITEM.replace("j1", "j2"))
    assert (await case.service.request("retract")).payload[0][0].get("id") == "j2"
    assert len(case.service.requests("retract")) == 1


async def test_work_on_a_redelivered_item_starts_again(case: Case) -> None:
    case.work.proceed.clear()
    case.service.notify(ITEM)
    await case.until(lambda: len(case.work.started) == 1)
    case.service.notify(ITEM)
    await case.until(lambda: len(case.work.started) == 2)
    case.work.proceed.set()
    await case.service.request("retract")
    await case.confirm()
    assert len(case.service.requests("retract")) == len(case.work.committed) == 1


async def test_items_above_twice_the_request_limit_are_unlocked(case: Case) -> None:
    case.work.proceed.clear()
    for number in range(7):  # it requests 3, and 3 of a lost session may come
        case.service.notify(ITEM.replace("j1", f"j{number}"))
    unlock = await case.service.request("unlock")
    assert unlock.payload[0][0].get("id") == "j6"
    assert case.worker.active_items == 6
    case.service.notify(ITEM.replace("j1", "j5"))  # a redelivered item is not counted again
    await case.until(lambda: len(case.work.started) == 7)
    assert len(case.service.requests("unlock")) == 1


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
async def test_refusal_sets_state(case: Case, kind: str, condition: str, state: JobState) -> None:
    case.service.refuse("retract", kind, condition)
    case.service.notify(ITEM)
    await case.service.request("retract")
    case.service.notify(ITEM.replace("j1", "j2"), node="others")
    await case.until(lambda: case.state() is state)
    assert case.work.committed == []
    await case.confirm()  # an earlier session deleted the item


async def test_an_unanswered_deletion_is_requested_again_in_the_next_session(case: Case) -> None:
    case.service.answers["retract"] = lambda _stanza: ""
    case.service.notify(ITEM)
    await case.service.request("retract")
    case.worker.cut()
    await case.service.request("retract", 2)
    await case.service.request("subscribe", 2)
    await case.confirm()
    assert len(case.work.started) == 1


async def test_a_crash_drops_active_items_and_keeps_finished_ones(case: Case) -> None:
    case.service.answers["retract"] = lambda _stanza: ""
    case.service.notify(ITEM)
    await case.service.request("retract")
    case.work.proceed.clear()
    case.service.notify(ITEM.replace("j1", "j2"))
    await case.until(lambda: case.worker.active_items == 1)
    await case.restart()
    assert case.worker.active_items == 0
    repeated = await case.service.request("retract", 2)
    assert repeated.payload[0][0].get("id") == "j1"
    await case.confirm()
    assert [job.item for job in case.work.committed] == ["j1"]


async def test_work_continues_while_the_connection_is_lost(case: Case) -> None:
    await case.start_work()
    case.service.peer.drop()
    await case.service.request("subscribe", 2)
    case.work.proceed.set()
    await case.service.request("retract")


async def test_a_worker_leaves_and_rejoins(case: Case) -> None:
    await case.start_work()
    await case.worker.leave()
    assert case.worker.active_items == 0
    assert case.service.requests("unsubscribe")[0].payload[0].get("jid") == JID
    await case.worker.rejoin()
    await case.service.request("subscribe", 2)
    case.worker.hide()
    await case.service.peer.wait_until(
        lambda: any(each.get("type") == "unavailable" for each in case.service.peer.others)
    )
    await case.worker.rejoin()
    await case.service.request("subscribe", 3)
    case.service.refuse("unsubscribe", "cancel", "unexpected-request")
    with pytest.raises(RequestRefused, match="unexpected-request"):
        await case.worker.leave()


async def test_a_failed_commit_stops_the_worker_and_is_repeated_after_a_restart(case: Case) -> None:
    case.service.notify(ITEM)
    await case.service.request("retract")
    case.work.fails_to_commit = True
    case.service.notify(RETRACT)
    await case.until(lambda: case.worker.failure is not None and not case.worker.online)
    assert isinstance(case.worker.failure, ValueError)
    case.work.fails_to_commit = False
    await case.restart()
    await case.service.request("retract", 2)
    await case.confirm()


async def test_a_refused_subscription_is_reported_and_retried(stopped: Case) -> None:
    stopped.service.refuse("subscribe", "auth", "forbidden")
    await stopped.worker.start()
    await stopped.service.request("subscribe", 2)
    assert "forbidden" in stopped.worker.last_error
    stopped.service.answers.clear()
    await asyncio.wait_for(stopped.worker.subscribed(), 10)


async def test_a_stopped_worker_raises_errors(stopped: Case) -> None:
    with pytest.raises(DeviceStopped):
        stopped.worker.jobs  # noqa: B018 - it raises
    with pytest.raises(NoAnswer):
        await stopped.worker.leave()
    with pytest.raises(ValueError, match="full JID"):
        Worker("w@gw.example", "", node="n", path="p", ca_file="c", work=stopped.work.work)
