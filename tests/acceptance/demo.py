"""Run devices, a gateway, a centre and a report end to end: `make demo`.

Starts a gateway and a centre on free ports in a temporary folder, lets simulated devices send
assured events through faults, kills the gateway in the middle and starts it again, connects a
device by MQTT, ships, ingests, reports, and checks that what was sent was logged, landed and
reported, each once. Ends with status
0 if every check passed. The folder with the report stays; nothing is left running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from edge.mqtt.packets import Disconnect
from sync.segment import decode
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process, free_port, start

SEGMENT_AGE = 2.0
"""Seconds after which the demonstration's segments are sealed: five minutes would be too long."""

HEARTBEAT = 5.0

COMMAND_S = 300.0
"""Seconds that any one command may take; Spark needs some thirty."""


class Check(NamedTuple):
    what: str
    expected: int
    found: int

    @property
    def passed(self) -> bool:
        return self.expected == self.found


class DemoRun(NamedTuple):
    """The folders and the size of one run."""

    root: Path
    seed: int
    devices: int
    messages: int
    seconds: float
    with_report: bool

    @property
    def fleet(self) -> Path:
        return self.root / "fleet"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def accounts(self) -> Path:
        return self.root / "accounts.json"

    def prepare(self) -> tuple[str, Gateway]:
        """Make both folders and provision the devices; return the centre's address too."""
        centre = f"127.0.0.1:{free_port()}"
        names = [f"sensor{number:02}" for number in range(1, self.devices + 1)]
        gateway = Gateway(self.root / "gateway", *names)
        call(
            "fieldpost-fleet", "gateway", "add", DOMAIN, "--dir", self.fleet,
            "--url", f"https://{centre}", "--out", gateway.folder / "enrolment.json",
        )  # fmt: skip
        gateway.configure(
            listen=f"127.0.0.1:{free_port()}",
            enrolment="enrolment.json",
            segment_age=SEGMENT_AGE,
            heartbeat=HEARTBEAT,
        )
        gateway.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False)
        self.accounts.write_text(json.dumps(dict.fromkeys(names, PASSWORD)), "utf-8")
        return centre, gateway

    def simulate(self, gateway: Gateway, port: int) -> subprocess.Popen[str]:
        command = Path(sys.executable).with_name("fieldpost-sim")
        return subprocess.Popen(
            [
                command, "run", "count", "--port", str(port), "--domain", DOMAIN,
                "--ca", gateway.ca, "--accounts", self.accounts,
                "--devices", str(self.devices), "--messages", str(self.messages),
                "--seconds", str(self.seconds), "--seed", str(self.seed),
                "--faults", "0.05", "--retry-base", "1",
                "--state", self.root / "devices", "--gateway-dir", gateway.folder, "--json",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip


def main() -> int:
    options = _options()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    root = Path(tempfile.mkdtemp(prefix="fieldpost-demo-"))
    demo = DemoRun(
        root, seed, options.devices, options.messages, options.seconds, not options.no_report
    )
    print_progress(f"seed {seed}, folder {root}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        checks = run_steps(demo)
    except KeyboardInterrupt:
        print_progress("interrupted; nothing is left running")
        return 130
    print(f"\n{'':<40}{'expected':>10}{'found':>10}")
    for check in checks:
        mark = "" if check.passed else "   <-- differs"
        print(f"{check.what:<40}{check.expected:>10}{check.found:>10}{mark}")
    print(f"\nthe report: {demo.report / 'index.html'}" if demo.with_report else "")
    print(f"the folder {root} stays, with the passwords of its devices: remove it when you like")
    failed = [check.what for check in checks if not check.passed]
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def run_steps(demo: DemoRun) -> list[Check]:
    """Run all steps, and return the checks."""
    print_progress("making a gateway and a centre")
    centre, gateway = demo.prepare()
    serve = ("fieldpost-fleet", "serve", "--dir", demo.fleet, "--listen", centre)
    with start(*serve):
        verdict = run_devices(demo, gateway)
    landed = count_landed(demo.fleet)
    checks = compare_segments(demo, verdict, landed)
    return [*checks, *report(demo, landed)] if demo.with_report else checks


def run_devices(demo: DemoRun, gateway: Gateway) -> dict[str, Any]:
    print_progress(f"{demo.devices} devices send {demo.messages} assured events each")
    process = gateway.run()
    try:
        devices = demo.simulate(gateway, process.host_port("xmpp")[1])
        try:
            time.sleep(demo.seconds / 2)
            if devices.poll() is not None:
                raise SystemExit(f"the simulation ended early, with status {devices.returncode}")
            print_progress("kill -9 of the gateway")
            process.kill9()
            process = gateway.run()
            print_progress("the gateway is back; a device connects to it by MQTT")
            asyncio.run(connect_by_mqtt(process))
            out, _ = devices.communicate(timeout=COMMAND_S)
        finally:
            devices.kill()
            devices.wait()
        if devices.returncode != 0:
            print_progress(f"the simulation ended with status {devices.returncode}")
        print_progress("stopping the gateway: it seals and ships what it has")
        if (status := process.terminate()) != 0:
            raise SystemExit(f"the gateway ended with status {status}\n{process.stderr}")
    finally:
        process.close()
    if not out:
        raise SystemExit(f"the simulation ended with status {devices.returncode} and no verdict")
    verdict: dict[str, Any] = json.loads(out)
    return verdict


async def connect_by_mqtt(process: Process) -> None:
    """Begin and end a session of MQTT as the first device, at an address of its own.

    The end of a clean session drops the unfinished messages of its address.
    """
    async with await MqttClient.connect(process, "sensor01", "mqtt") as client:
        await client.ask(Disconnect())


def count_landed(fleet: Path) -> Counter[str]:
    """Count the events in the segments that the centre holds, lane by lane."""
    counts: Counter[str] = Counter()
    seen: set[tuple[str, str, int]] = set()
    for path in sorted((fleet / "landing").rglob("*.seg")):
        segment = decode(path.read_bytes())
        for event in segment.events:
            key = (segment.header.epoch, segment.header.lane, event.seq)
            counts["twice"] += key in seen
            seen.add(key)
        counts[segment.header.lane] += len(segment.events)
    return counts


def compare_segments(demo: DemoRun, verdict: dict[str, Any], landed: Counter[str]) -> list[Check]:
    """Compare the numbers of events from the devices to the centre."""
    sent = demo.devices * demo.messages
    return [
        Check("sent by the devices", sent, verdict["sent"]),
        Check("delivered, according to the devices", sent, verdict["delivered"]),
        Check("logged by the gateway", sent, verdict["logged"]),
        Check("logged twice", 0, verdict["duplicates"]),
        Check("landed at the centre", sent, landed["logs"]),
        Check("landed twice", 0, landed["twice"]),
    ]


def report(demo: DemoRun, landed: Counter[str]) -> list[Check]:
    """Ingest twice and report, and compare the numbers of events with those that have landed."""
    print_progress("ingesting")
    print_progress(call("fieldpost-fleet", "ingest", "--dir", demo.fleet).strip())
    print_progress("ingesting again: there is nothing new")
    again = json.loads(call("fieldpost-fleet", "ingest", "--dir", demo.fleet, "--json"))
    print_progress("making the report")
    call("fieldpost-fleet", "report", "--dir", demo.fleet, "--out", demo.report)
    found = json.loads((demo.report / "report.json").read_text("utf-8"))
    totals = found["totals"]
    reported = {lane: sum(kinds.values()) for lane, kinds in totals["lanes"].items()}
    by_mqtt = (row for row in found["tables"]["sessions"] if row["protocol"] == "mqtt")
    return [
        Check("reported", demo.devices * demo.messages, reported.get("logs", 0)),
        Check("the broker's own, landed and reported", landed["system"], reported.get("system", 0)),
        Check("sessions by MQTT, reported", 1, sum(row["sessions"] for row in by_mqtt)),
        Check("ingested again", 0, again["events"]),
        Check("duplicates in the tables", 0, totals["duplicates"]),
        Check("unexplained", 0, totals["unexplained"]),
    ]


def call(*argv: str | Path) -> str:
    """Run a command of the project and return its output; ends the demonstration if it fails."""
    with start(*argv, ready=False) as process:
        if process.wait(COMMAND_S) != 0:
            text = f"{process.stdout}{process.stderr}"
            raise SystemExit(f"{' '.join(map(str, argv))} failed:\n{text}")
        return process.stdout


def _stop(number: int, _frame: object) -> None:
    """Exit by an exception, so that all started processes are ended too."""
    raise SystemExit(128 + number)


def print_progress(text: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:5.1f} s] {text}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the faults; random if not given")
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--no-report", action="store_true", help="neither ingest nor report")
    return parser.parse_args()


_BEGAN = time.monotonic()

if __name__ == "__main__":
    sys.exit(main())
