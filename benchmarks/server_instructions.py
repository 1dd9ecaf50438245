"""Instructions of an exchange in the gateway's whole process, which other load does not change.

`python -m benchmarks.server_instructions` counts them with valgrind, in user space: two runs with
different numbers of exchanges, whose difference excludes the start and the logins. With `--qos`, it
also counts publications over MQTT, and divides them by the exchange over XMPP.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import load, machine, native, peer_servers, peers
from benchmarks.load import LoadError
from benchmarks.machine import CHECKOUT
from benchmarks.peer_servers import PEERS, Options, Peer
from benchmarks.peers import Case, Plan
from edge.mqtt.packets import V5

CONNECTIONS: Final = 50

EXCHANGES: Final = (500, 2_500)
"""Exchanges of the two runs."""

LIMIT: Final = 1_200.0
"""Seconds for one run: valgrind is about fifty times slower than the processor."""

_COUNTED: Final = re.compile(r"I +refs: +([\d,]+)")


def count(
    case: Case,
    checkout: Path,
    folder: Path,
    exchanges: tuple[int, int] = EXCHANGES,
    fsync_delay: float = 0.0,
    peer: str = "gateway",
) -> int | None:
    """Return the instructions of an exchange, or `None` if valgrind is not installed.

    `fsync_delay` is the number of seconds by which fsync is slower, and `peer` is a gateway.
    """
    if shutil.which("valgrind") is None:
        return None
    few, many = (
        _run(
            PEERS[peer],
            case,
            Options(
                folder / f"{peer}-{case.qos}-{number}", case.connections, checkout, fsync_delay
            ),
            number,
        )
        for number in exchanges
    )
    return round((many - few) / (exchanges[1] - exchanges[0]))


def _run(peer: Peer, case: Case, options: Options, exchanges: int) -> int:
    with peer_servers.counted_gateway(options, peer.protocol) as server:
        wanted = peers.load_options(Plan(version=V5), case, peer, server.address)
        command = load.exchange_command({**wanted, "exchanges": exchanges}, 0.0, LIMIT)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    log = (options.folder / "server.log").read_text("utf-8")
    match = _COUNTED.search(log)
    if done.returncode or match is None:
        raise LoadError(f"instructions are not counted: {done.stderr[-500:]} {log[-500:]}")
    return int(match[1].replace(",", ""))


def main(arguments: Sequence[str] | None = None) -> None:
    """Count and print the instructions for one or two checkouts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.server_instructions", description=__doc__
    )
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--payload", choices=peers.PAYLOADS, default="log")
    parser.add_argument("--other", type=Path, metavar="DIR", help="a second checkout")
    parser.add_argument("--fsync-ms", type=float, default=0.0, help="how much slower fsync is")
    parser.add_argument("--qos", nargs="+", type=int, choices=(0, 1, 2), default=(),
                        help="count publications over MQTT, too")  # fmt: skip
    options = parser.parse_args(arguments)
    case = Case(options.payload, options.connections)
    kinds = [("gateway", case), *(("gateway-mqtt", case._replace(qos=qos)) for qos in options.qos)]
    native.FOLDER.mkdir(exist_ok=True)
    for checkout in filter(None, (CHECKOUT, options.other)):
        print(f"{machine.describe_checkout(checkout)}:", flush=True)
        first = None
        for peer, each in kinds:
            with tempfile.TemporaryDirectory(dir=native.FOLDER) as folder:
                delay, place = options.fsync_ms / 1e3, checkout.resolve()
                found = count(each, place, Path(folder), fsync_delay=delay, peer=peer)
            if found is None:
                print("valgrind is missing")
                return
            first = first or found
            what = "an exchange" if peer == "gateway" else f"a publication at QoS {each.qos}"
            print(f"{found:,} instructions {what}, {found / first:.2f}", flush=True)


if __name__ == "__main__":
    main()
