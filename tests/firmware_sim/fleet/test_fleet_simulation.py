"""Tests of the simulated fleet: reproducible bytes, and truth that matches the files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from firmware_sim.__main__ import main
from firmware_sim.errors import SimulationFailed
from firmware_sim.fleet.faults import FAULTS, spread
from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.simulate import write_fleet
from sync.ingest.ledger import Claim, judge
from sync.segment import Event, Segment, SegmentError, decode

START = 1_772_409_600_000
"""2026-03-02 00:00:00 UTC, in milliseconds."""


def sparse_fleet(
    gateways: int, days: int, seed: int, faults: frozenset[str] = frozenset(FAULTS)
) -> FleetSettings:
    return FleetSettings(
        gateways, days, seed, START, readings=100, heartbeat=1_800.0, seal=7_200.0, faults=faults
    )


class Sim(NamedTuple):
    """A simulated fleet, read back: files by path (None: not valid), in the order of arrival."""

    truth: dict[str, Any]
    files: dict[str, Segment | None]
    accepted: list[Segment]
    outcomes: Counter[str]

    def of(self, fault: str) -> str:
        """Return the gateway with a planted fault, or the subject of a fault of the fleet."""
        planted = next(each for each in self.truth["planted"] if each["fault"] == fault)
        return str(planted["gateway"] or planted["subject"])

    def events(self, gateway: str) -> Iterator[Event]:
        for segment in self.accepted:
            if segment.header.gateway == gateway:
                yield from segment.events

    def named(self, gateway: str, name: str) -> list[Event]:
        return [event for event in self.events(gateway) if event.name == name]

    def lane(self, gateway: str, lane: str) -> dict[str, Any]:
        found = next(each for each in self.truth["gateways"] if each["gateway"] == gateway)
        [row] = [row for row in found["lanes"] if row["lane"] == lane]
        return dict(row)


def read_back(folder: Path) -> Sim:
    files: dict[str, Segment | None] = {}
    root = folder / "segments"
    for path in sorted(root.rglob("*.seg"), key=lambda each: (each.stat().st_mtime_ns, str(each))):
        try:
            files[str(path.relative_to(root))] = decode(path.read_bytes())
        except SegmentError:
            files[str(path.relative_to(root))] = None
    whole = [each for each in files.values() if each is not None]
    claims = [
        Claim(*each.header.identity, each.digest.hex(), each.header.previous.hex())
        for each in whole
    ]
    verdicts = judge(claims, [])
    accepted = [e for e, v in zip(whole, verdicts, strict=True) if v.fate == "accepted"]
    truth = json.loads((folder / "truth.json").read_text())
    return Sim(truth, files, accepted, Counter(verdict.fate for verdict in verdicts))


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Sim:
    folder = tmp_path_factory.mktemp("fleet") / "all"
    write_fleet(sparse_fleet(26, 2, 7), folder)
    return read_back(folder)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*.seg")
    }


def test_bytes_depend_on_the_arguments_alone(tmp_path: Path) -> None:
    outputs = []
    for at, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(at)
        write_fleet(sparse_fleet(3, 1, seed), folder)
        outputs.append((contents(folder), (folder / "truth.json").read_bytes()))
    assert outputs[0] == outputs[1]
    assert outputs[0][0].keys() != outputs[2][0].keys()


def test_each_fault_has_its_own_gateway_if_there_are_enough(sim: Sim) -> None:
    found = Counter(entry["fault"] for entry in sim.truth["planted"])
    assert found.keys() == FAULTS.keys()
    assert {max(map(len, spread(FAULTS, 26, seed))) for seed in range(20)} == {1}
    shared = spread(FAULTS, 12, 3)
    assert sorted(name for names in shared for name in names) == sorted(FAULTS)
    many = spread(FAULTS, 100, 3, per_fault=4)
    assert Counter(name for names in many for name in names) == dict.fromkeys(FAULTS, 4)
    for names in shared:
        groups = [FAULTS[name].group for name in names]
        assert len(groups) == len(set(groups))
        assert len(names) == 1 or not any(FAULTS[name].alone for name in names)


def test_truth_matches_the_files(sim: Sim) -> None:
    totals = sim.truth["totals"]
    assert sim.outcomes["accepted"] == totals["segments"]
    assert sim.outcomes["duplicate"] == totals["repeated"] > 0
    assert sim.outcomes["fork"] == totals["forks"] > 0
    assert len(sim.files) == totals["files"]
    assert list(sim.files.values()).count(None) == totals["bad"] == 5
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for segment in sim.accepted:
        kinds[segment.header.lane].update(event.kind for event in segment.events)
    assert kinds == totals["lanes"]
    for gateway in sim.truth["gateways"]:
        check_gateway(sim, gateway)


def check_gateway(sim: Sim, gateway: dict[str, Any]) -> None:
    """Compare the truth about a gateway with the events in its files."""
    latencies: defaultdict[int, list[int]] = defaultdict(list)
    sums: defaultdict[tuple[str, str], list[Decimal]] = defaultdict(list)
    for event in sim.events(gateway["gateway"]):
        if event.qos is not None and event.latency_ms is not None:
            latencies[event.qos].append(event.latency_ms)
        if event.kind == "reading" and event.value is not None:
            assert event.source is not None
            assert event.name is not None
            sums[event.source, event.name].append(Decimal(repr(event.value)))
    assert {row["qos"]: (row["events"], row["max_ms"]) for row in gateway["delivery"]} == {
        level: (len(found), max(found)) for level, found in latencies.items()
    }
    for row in gateway["delivery"]:
        found = latencies[row["qos"]]
        at_most = sum(latency <= row["p95_ms"] for latency in found)
        below = sum(latency < row["p95_ms"] for latency in found)
        assert 100 * below < 95 * len(found) <= 100 * at_most
    assert {
        (row["source"], row["name"]): (row["readings"], Decimal(row["sum"]))
        for row in gateway["sensors"]
    } == {key: (len(values), sum(values)) for key, values in sums.items()}


def test_without_faults_nothing_is_missing_or_reported(tmp_path: Path) -> None:
    truth = write_fleet(sparse_fleet(3, 2, 5, faults=frozenset()), tmp_path)
    fleet = read_back(tmp_path)
    assert truth["planted"] == []
    assert truth == fleet.truth
    for name in ("missing", "repeated", "forks", "chain_breaks", "bad"):
        assert truth["totals"][name] == 0
    assert fleet.outcomes.keys() == {"accepted"}
    kinds = {(e.kind, e.name) for g in truth["gateways"] for e in fleet.events(g["gateway"])}
    names = {name for kind, name in kinds if kind not in ("log", "reading")}
    assert names == {"start", "heartbeat", "stop", "depth", "wear", "began", "ended"}
    assert {e.clock for g in truth["gateways"] for e in fleet.events(g["gateway"])} == {True}


def test_segments_arrive_out_of_order_after_an_outage(sim: Sim) -> None:
    lanes: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for segment in sim.accepted:
        lanes[segment.header.identity[:3]].append(segment.header.first_seq)
    shuffled = {lane[0] for lane, order in lanes.items() if order != sorted(order)}
    assert len(shuffled) > 5


def test_lanes_that_lose_events(sim: Sim) -> None:
    gap = sim.lane(sim.of("gap"), "readings")
    assert gap["missing"] == gap["unexplained"] > 0
    evicted = sim.lane(sim.of("evictions"), "readings")
    assert evicted["missing"] == evicted["declared"] > 0
    [eviction] = sim.named(sim.of("evictions"), "evicted")
    assert eviction.value == evicted["declared"]
    assert int(eviction.tags["last"]) - int(eviction.tags["first"]) + 1 == evicted["declared"]


def test_copied_segments_and_cloned_gateway(sim: Sim) -> None:
    assert all(sim.lane(sim.of("clone"), lane)["forks"] for lane in ("readings", "logs", "system"))
    assert sum(sim.lane(sim.of("duplicates"), lane)["repeated"] for lane in ("readings", "logs"))
    newer = [each for each in sim.accepted if each.header.version == (1, 1)]
    assert {each.header.gateway for each in newer} == {sim.of("minor-version")}
    damaged = {path for path, segment in sim.files.items() if segment is None}
    assert {path.split("/")[0] for path in damaged} == {sim.of("corrupt")}


def test_restarts_and_restored_gateway(sim: Sim) -> None:
    by_gateway = Counter(
        event.tags["previous"]
        for fault in ("outage", "unclean-restart", "restored")
        for event in sim.named(sim.of(fault), "start")
    )
    assert by_gateway["unclean"] == 3
    restored = sim.of("restored")
    [epoch] = sim.named(restored, "epoch")
    epochs = sorted({s.header.epoch for s in sim.accepted if s.header.gateway == restored})
    assert len(epochs) == 2
    assert epoch.tags["before"] == epochs[0]
    last = max(event.time for event in sim.events(sim.of("silent")))
    assert last < START + 0.8 * 2 * 86_400_000
    assert sim.named(sim.of("silent"), "stop")[-1].time < last


def test_clocks(sim: Sim) -> None:
    [step] = sim.named(sim.of("clock-step"), "clock_stepped")
    assert step.value == 900
    years = [
        event.time < START - 19 * 365 * 86_400_000 for event in sim.events(sim.of("clock-years"))
    ]
    assert True in years
    assert False in years
    lost = [event.clock for event in sim.events(sim.of("clock-unsynchronised"))]
    assert 0.5 < lost.count(False) / len(lost) < 0.7
    drifting = [s.header for s in sim.accepted if s.header.gateway == sim.of("clock-drift")]
    wall = (drifting[-1].sealed_at - drifting[0].sealed_at) / 1000
    service = drifting[-1].service_seconds - drifting[0].service_seconds
    assert wall / service - 1 == pytest.approx(200e-6, rel=0.01)


def test_sensors(sim: Sim) -> None:
    def values(fault: str) -> list[tuple[int, float]]:
        source = f"temperature-1@{sim.of(fault)}/fw"
        events = [e for e in sim.events(sim.of(fault)) if e.source == source]
        return [(event.time, event.value or 0.0) for event in sorted(events, key=lambda e: e.time)]

    assert max(time for time, _ in values("sensor-silent")) < START + 0.61 * 2 * 86_400_000
    flat = [value for time, value in values("sensor-flat") if time > START + 0.31 * 2 * 86_400_000]
    assert len(flat) > 5
    assert len(set(flat)) == 1
    assert max(value for _, value in values("sensor-anomaly")) > 50


def test_events_of_queues_limits_and_disks(sim: Sim) -> None:
    assert sim.named(sim.of("queue-dead"), "queue_dead")
    assert sum(event.value or 0 for event in sim.named(sim.of("refusals"), "rate")) > 1_000
    assert sum(event.value or 0 for event in sim.named(sim.of("repeats"), "repeated")) > 1_000
    depths = sim.named(sim.of("queue-stuck"), "depth")
    assert {(event.value, event.tags["delivered"]) for event in depths} == {(40.0, "0")}
    disk = [s.header.disk_used for s in sim.accepted if s.header.gateway == sim.of("disk-full")]
    assert max(disk) - min(disk) > 300_000_000


def test_faulty_version_logs_more_errors(sim: Sim) -> None:
    logged: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for segment in sim.accepted:
        if segment.header.lane == "logs":
            levels = (event.level or "" for event in segment.events)
            logged[segment.header.software].update(levels)
    shares = {name: levels["Error"] / levels.total() for name, levels in logged.items()}
    assert shares["0.10.0"] > 5 * shares["0.9.1"] > 0


def test_fleet_command(tmp_path: Path) -> None:
    args = ["fleet", "--gateways", "1", "--days", "1", "--readings", "50", "--heartbeat", "3600"]
    args += ["--seal", "7200", "--faults", "none", "--out", str(tmp_path / "fleet")]
    done = CliRunner().invoke(main, [*args, "--json"])
    assert done.exit_code == 0
    truth = json.loads((tmp_path / "fleet" / "truth.json").read_text())
    assert json.loads(done.output) == truth["totals"] | {"planted": 0}
    again = CliRunner().invoke(main, args)
    assert again.exit_code == 1
    assert "not empty" in again.output
    wrong = CliRunner().invoke(main, [*args, "--faults", "gap,typo"])
    assert wrong.exit_code == 2
    assert "typo" in wrong.output


def test_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(SimulationFailed):
        write_fleet(FleetSettings(1, 1, 1, START), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
