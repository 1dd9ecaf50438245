"""The judgement of a soak: growth is found, and noise is none."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

import pytest

from firmware_sim.device.sender_rules import State
from sync.segment import Event
from tests.proof.site import Device, MqttSession, XmppSession, judge
from tests.proof.slopes import slope
from tests.proof.soak import MEASURES, Sample, slopes

MB: Final = 1_000_000.0
HOUR_S, EACH_S = 3600, 5


@dataclass(frozen=True)
class Growth:
    """What each measure gains in an hour."""

    memory: float = 0.0
    descriptors: float = 0.0
    threads: float = 0.0
    wal: float = 0.0
    database: float = 0.0
    revoked: float = 0.0


def samples(growth: Growth, seed: int) -> list[Sample]:
    """Return an hour of samples of a gateway that warms up, with noise."""
    chance = random.Random(seed)
    found = []
    for at in range(0, HOUR_S, EACH_S):
        hours = at / HOUR_S
        warm = min(hours / 0.2, 1.0)
        found.append(
            Sample(
                at,
                MB * (50 + 15 * warm + chance.gauss(0, 0.3)) + growth.memory * hours,
                40 + chance.randrange(-8, 9) + int(growth.descriptors * hours),
                8 + chance.randrange(2) + int(growth.threads * hours),
                4 * MB * warm + growth.wal * hours,
                MB * warm + growth.database * hours,
                growth.revoked * hours,
            )
        )
    return found


@pytest.mark.parametrize("seed", range(5))
def test_noise_after_a_warm_up_is_flat(seed: int) -> None:
    assert all(one.is_flat for one in slopes(samples(Growth(), seed)).values())


@pytest.mark.parametrize(
    "growth",
    [
        Growth(memory=2 * MB),
        Growth(descriptors=10),
        Growth(threads=4),
        Growth(wal=0.1 * MB),
        Growth(database=0.1 * MB),
        Growth(revoked=0.1 * MB),
    ],
    ids=MEASURES,
)
def test_a_leak_is_found_in_the_measure_that_has_it(growth: Growth) -> None:
    found = slopes(samples(growth, 1))
    (name,) = [name for name, value in vars(growth).items() if value]
    assert [each for each, one in found.items() if not one.is_flat] == [name]
    assert found[name].low <= getattr(growth, name) <= found[name].high


def test_a_slope_is_the_median_of_the_pairs() -> None:
    assert slope((0, 1, 2, 3, 4), (0, 2, 4, 60, 8)).estimate == 2.0
    with pytest.raises(ValueError, match="three samples"):
        slope((0, 1), (0, 1))


def site() -> tuple[list[Device], dict[str, dict[int, Event]]]:
    """Return two devices that sent two messages each, and the log with them."""
    devices = [Device("xmpp0", XmppSession, 2), Device("mqtt0", MqttSession, 0, 1)]
    devices[0].sent = {1: (2, State.DONE), 2: (2, State.DONE)}
    devices[1].sent = {1: (1, State.DONE), 2: (0, State.DONE)}
    tagged = [Event(n, 0, True, "log", "xmpp0@gw.example/fw", tags={"n": str(n)}) for n in (1, 2)]
    reading = Event(1, 0, True, "reading", "mqtt0@gw.example/fw", value=1.0)
    system = Event(1, 0, True, "system", value=7.0)
    return devices, {
        "logs": {event.seq: event for event in tagged},
        "readings": {1: reading},
        "system": {1: system},
    }


def test_a_log_with_each_message_is_exact_without_those_of_level_0() -> None:
    devices, log = site()
    verdict = judge(devices, log, [])
    assert verdict.exact
    assert verdict.numbers["delivered"] == 3


def test_lost_repeated_and_doubtful_messages_and_faults_of_the_log_are_found() -> None:
    devices, log = site()
    log["logs"][3] = log["logs"][1]._replace(seq=3)
    del log["readings"][1]
    devices[0].sent[2] = 2, State.IN_DOUBT
    verdict = judge(devices, log, ["lane logs is not 1 to 3"])
    assert set(verdict.faults) == {"missing", "duplicate", "in doubt", "log"}
