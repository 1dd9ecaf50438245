from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from edge.ops.certificates import pki
from sync.common.enrolment import Enrolment, new_token, write_enrolment
from tests.helpers.gateway import DOMAIN, Gateway


def enrolled_gateway(folder: Path, port: int) -> Gateway:
    """Create a gateway that ships to a port of this machine."""
    gateway = Gateway(folder, enrolment="enrol.json")
    ca = pki.files(folder).ca.read_text("utf-8")
    url = f"https://127.0.0.1:{port}"
    write_enrolment(folder / "enrol.json", Enrolment(DOMAIN, url, new_token(), ca))
    return gateway


def uplink_status(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.command("uplink", "status", "--json"))
    return found


def test_clean_stop_seals_everything_without_a_reachable_centre(tmp_path: Path) -> None:
    with ExitStack() as stack:
        closed, silent = (stack.enter_context(socket.socket()) for _ in range(2))
        for each in (closed, silent):
            each.bind(("127.0.0.1", 0))
        silent.listen()  # the kernel accepts connections, and nothing answers
        gateways = [
            enrolled_gateway(tmp_path / name, each.getsockname()[1])
            for name, each in (("closed", closed), ("silent", silent))
        ]
        running = [stack.enter_context(gateway.run()) for gateway in gateways]
        for gateway in gateways:
            assert uplink_status(gateway)["unsealed"]["events"] > 0, "there are events to be sealed"
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(lambda process: process.terminate(), running)) == [0, 0]
    for gateway in gateways:
        found = uplink_status(gateway)
        assert found["unsealed"] == {"events": 0, "since": None, "service": None}
        assert all(lane["last"] == lane["sealed"] for lane in found["lanes"])
        assert found["taken"] is None
        *_, last = gateway.events("system")
        assert (last["kind"], last["name"]) == ("system", "stop"), "the closing event comes last"
