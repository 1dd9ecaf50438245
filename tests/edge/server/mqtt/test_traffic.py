from __future__ import annotations

from math import exp

import pytest

from edge.server.mqtt.traffic import COUNTED, MINUTES, LoadAverages, Traffic


def test_averages_approach_the_rate_a_minute() -> None:
    traffic = Traffic()
    averages = LoadAverages(traffic, 100.0)
    assert set(averages.values.values()) == {0.0}
    for step in range(1, 7):  # one each second
        traffic.received += 10
        averages.update(100.0 + 10.0 * step)
    for minutes in MINUTES:
        expected = 60 * (1 - exp(-1 / minutes))
        assert averages.values[f"messages/received/{minutes}min"] == pytest.approx(expected)
    averages.update(160.0 + 3600.0)
    assert all(value < 1 for value in averages.values.values())


def test_each_count_has_averages() -> None:
    traffic = Traffic()
    averages = LoadAverages(traffic, 0.0)
    for number, attribute in enumerate(COUNTED.values(), 1):
        setattr(traffic, attribute, 1000 * number)
    averages.update(60.0)
    found = [averages.values[f"{name}/1min"] for name in COUNTED]
    assert found == [pytest.approx(1000 * n * (1 - exp(-1))) for n in range(1, len(COUNTED) + 1)]
