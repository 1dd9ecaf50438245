from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks import native, peers, power_cuts, readme
from benchmarks.peer_servers import PEERS, Options, find_program
from benchmarks.peers import Case, PeerRuns, Plan
from benchmarks.power_cuts import PowerCuts, Step
from benchmarks.server import Server, ServerError
from benchmarks.traced_calls import ANSWER, REQUEST
from tests.benchmarks.test_peers import RUN, built
from tests.helpers.power_cut import Record


def steps(kinds: str) -> list[Step]:
    """Make the steps of one connection, which answer one message after the other."""
    found, number = [], 0
    for kind in kinds:
        number += kind == REQUEST
        message = str(number) if kind in (REQUEST, ANSWER) else ""
        found.append(Step(Record(kind, 1, 0, 0, b"", 0), message))
    return found


@pytest.mark.parametrize(
    ("kinds", "order", "is_synced"),
    [
        ("QWSA" * 3, "request, write, sync, answer", True),
        ("QWWSWSAWSWS" * 3, "request, write, sync, answer, write, sync", True),
        ("QWSUWSWSUA" * 3, "request, write, sync, unlink, answer", True),
        ("QAWS" * 3, "request, answer, write, sync", False),
        ("QWSA" + "QWAS" * 3, "request, write, answer, sync", False),
        ("QA" * 3, "request, answer", False),
    ],
)
def test_the_order_is_the_most_frequent_one(kinds: str, order: str, is_synced: bool) -> None:
    found = power_cuts.order(steps(kinds))
    assert found == order
    assert PowerCuts(found).is_synced is is_synced


def test_cuts_lose_what_was_acknowledged_before_it_was_synced(tmp_path: Path) -> None:
    """The smallest run: of NATS, which syncs later, and of a mosquitto in memory."""
    chosen = [name for name in ("nats", "mosquitto-memory") if PEERS[name].is_installed(None)]
    built(native.LOAD)
    if find_program("strace") is None:
        pytest.skip("no strace (make interop-packages)")
    if not chosen:
        pytest.skip("neither NATS nor mosquitto (make interop-packages)")
    plan = Plan(peers=chosen, rounds=1, connections=(1, 2), payloads=["log"], cuts=4, qos=(1,))
    found = peers.run(plan._replace(seconds=0.1, warm_up=0.0), tmp_path)
    for name in chosen:
        cuts, (idle, full) = found.cuts[name], found.memory[name]
        assert cuts.cuts == 4
        assert cuts.missing > 0
        assert not cuts.is_synced
        assert 0 < idle <= full + 2**20
        assert [run.errors for run in found.runs[Case("log", 2, 1)][name]] == [0]
    page = "\n".join(peers.topic(plan, found).blocks)
    assert all(page.count(f"| {PEERS[name].label} |") == 4 for name in chosen)


@pytest.mark.long
@pytest.mark.parametrize(("name", "cuts"), [("gateway-mqtt", 10), ("rabbitmq", 2)])
def test_cuts_of_a_server_that_syncs_first_lose_nothing(
    name: str, cuts: int, tmp_path: Path
) -> None:
    """The cuts alone, without measurements. RabbitMQ starts slowly, so it has few."""
    built(native.LOAD)
    if find_program("strace") is None:
        pytest.skip("no strace (make interop-packages)")
    if not PEERS[name].is_installed(None):
        pytest.skip(f"no {PEERS[name].needs}")
    plan = Plan(peers=[name], rounds=0, payloads=["log"], cuts=cuts)
    result = peers.run(plan, tmp_path)
    found = result.cuts[name]
    assert (found.cuts, found.missing, found.refused, found.is_synced) == (cuts, 0, 0, True)
    assert found.acknowledged > 0
    page = "\n".join(peers.topic(plan, result).blocks)
    assert page.count("|  |") == page.count(f"| {PEERS[name].label} |") == 1


def test_a_server_that_cannot_be_recorded_does_not_end_the_run(tmp_path: Path) -> None:
    if find_program("strace") is None:
        pytest.skip("no strace (make interop-packages)")

    def fail(options: Options) -> AbstractContextManager[Server]:
        raise ServerError("it does not start")

    servers = {"nats": PEERS["nats"]._replace(start=fail)}
    found = peers.cut_all(Plan(), servers, tmp_path)
    assert found == {"nats": PowerCuts("not observed: ServerError")}


def test_the_readme_compares_servers_with_one_row_each(tmp_path: Path) -> None:
    names = "gateway", "gateway-mqtt", "nats-sync", "mosquitto-memory"
    runs = {
        Case("log", 50, 1): {"gateway-mqtt": [RUN], "nats-sync": [RUN]},
        Case("log", 50, 2): {"gateway": [RUN], "gateway-mqtt": [RUN]},
        Case("log", 500, 2): {"gateway-mqtt": [RUN]},
        Case("sensor", 500, 1): {"nats-sync": [RUN]},
    }
    cuts = {"gateway-mqtt": PowerCuts("request, sync, answer", 2, 60, 0)}
    found = PeerRuns({name: PEERS[name] for name in names}, runs, cuts=cuts)
    file = tmp_path / "README.md"
    file.write_text(f"before\n{readme.BEGIN}old\n{readme.END}after\n", "utf-8")
    readme.write(readme.comparison(found), file)
    text = file.read_text("utf-8")
    assert text.startswith(f"before\n{readme.BEGIN}|  | delivers |")
    assert text.endswith(f"\n{readme.END}after\n")
    gateway, nats = "**Fieldpost**, MQTT", PEERS["nats-sync"].label
    assert [line for line in text.splitlines() if "once" in line] == [
        f"| {gateway} | exactly once | 100 | 100 | 5,000 | after a sync | 0 of 60 |",
        f"| {gateway} | at least once | 100 | not measured | 5,000 | after a sync | 0 of 60 |",
        f"| {nats} | at least once | 100 | not measured | 5,000 | not measured | not measured |",
    ]
    assert readme.comparison(PeerRuns({}, {})) == ""


def test_the_readme_has_a_place_for_the_table() -> None:
    before, begin, rest = readme.README.read_text("utf-8").partition(readme.BEGIN)
    text, end, after = rest.partition(readme.END)
    assert all((before, begin, text, end, after))
