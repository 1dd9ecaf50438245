from __future__ import annotations

from pathlib import Path

from edge.config import load
from edge.engine.limits.usage import LimitUsage
from edge.engine.rules.service_time import DAY_MS
from edge.ops import current_time
from edge.ops.checks import health
from edge.ops.checks.health import DEGRADED, FAILING, HEALTHY, Health
from edge.ops.gateway import status
from edge.ops.gateway.control import FrontStatus
from edge.ops.gateway.status import RUNNING, Status

NOW = current_time.now().wall
GIB = 2**30


def judge(folder: Path, found: Status, now: int = NOW) -> Health:
    return health.judge(folder, load.load(folder), found, now)


def running(folder: Path) -> Status:
    found = status.read(folder)
    return found._replace(state=RUNNING, accepts_devices=True, disk_bytes=GIB)


def texts(found: Health) -> list[str]:
    return [each.text for each in found.problems]


def test_a_running_gateway_with_room_is_healthy(folder: Path) -> None:
    found = judge(folder, running(folder))
    assert (found.state, found.problems) == (HEALTHY, [])


def test_what_stops_all_devices_or_messages_is_a_failure(folder: Path) -> None:
    healthy = running(folder)
    for found, text in (
        (status.read(folder), "the gateway is not running"),
        (healthy._replace(accepts_devices=False), "devices cannot connect"),
        (healthy._replace(disk_bytes=2**20), "new messages are refused"),
        (healthy._replace(wal_bytes=GIB), "new messages are refused"),
        (healthy._replace(database_bytes=GIB), "new messages are refused"),
        (healthy._replace(store_error="it is locked"), "the gateway cannot write: it is locked"),
    ):
        judged = judge(folder, found)
        assert judged.state == FAILING
        assert text in texts(judged)[0]
        assert all(each.remedy for each in judged.problems)
    assert judge(folder, healthy, NOW + 10 * 365 * DAY_MS).state == FAILING, "its certificate"


def front(number: int, pid: int | None) -> FrontStatus:
    return FrontStatus(number=number, pid=pid, restarts=0, connections=0, confined=True)


def test_a_front_that_does_not_run_degrades_the_gateway(folder: Path) -> None:
    healthy = running(folder)
    found = judge(folder, healthy._replace(fronts=[front(1, 41), front(2, 42)]))
    assert found.state == HEALTHY
    found = judge(folder, healthy._replace(fronts=[front(1, 41), front(2, None)]))
    assert found.state == DEGRADED
    assert texts(found) == ["front processes that do not run: 2; devices use the others"]
    ended = healthy._replace(fronts=[front(1, None)], accepts_devices=False)
    found = judge(folder, ended)
    assert found.state == FAILING
    assert texts(found) == ["devices cannot connect: no front process runs"]
    assert all(each.remedy for each in found.problems)


def test_a_lost_link_of_a_component_names_the_server(folder: Path) -> None:
    lost = running(folder)._replace(accepts_devices=False, link_error="it refused the secret")
    text = (folder / load.FILE_NAME).read_text("utf-8")
    assert "component" in text
    (folder / load.FILE_NAME).write_text(
        '[gateway]\ndomain = "gw.example"\n[xmpp]\nlisten = ""\nlisten_tls = ""\n'
        'component = "127.0.0.1:5347"\ncomponent_secret = "secret"\n',
        "utf-8",
    )
    (problem,) = judge(folder, lost).problems
    assert problem.name == health.LINK
    assert problem.text.endswith("to the XMPP server 127.0.0.1:5347: it refused the secret")


def test_a_limit_that_is_reached_degrades_the_gateway(folder: Path) -> None:
    found = running(folder)
    limits = [
        limit._replace(used=LimitUsage(int(limit.allowed))) if limit.name == "nodes" else limit
        for limit in found.limits
    ]
    judged = judge(folder, found._replace(limits=limits))
    assert (judged.state, judged.failures) == (DEGRADED, [])
    assert texts(judged)[0].startswith("nodes: ")
