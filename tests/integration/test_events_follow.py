"""`fieldpost events --follow` beside a running gateway, which stops and starts."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.event_follower import following
from tests.helpers.gateway import Gateway


def test_events_of_a_running_gateway_are_followed_over_a_restart(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with following(gateway.folder, "--since", "1h", "--kind", "system") as follower:
        for _ in range(2):
            with gateway.run() as process:
                assert follower.next_name() == "start"
                assert process.terminate() == 0
            while (name := follower.next_name()) != "stop":
                assert name in {"heartbeat", "clock_synchronised"}
