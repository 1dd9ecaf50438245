"""Benchmark: MQTT publications to the gateway and to mosquitto at QoS 0, 1 and 2, in one run.

`python -m benchmarks.mqtt` has the options of `python -m benchmarks.peers`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import load, peers
from benchmarks.load import Measurement
from benchmarks.peer_servers import MQTT, Peer
from benchmarks.peers import AWAY, Case, PeerRuns, Plan
from benchmarks.report import Goal, Settings, Topic, table
from edge.mqtt.packets import V5

PLAN: Final = Plan(
    peers=tuple(MQTT),
    payloads=("log",),
    base="gateway-mqtt",
    qos=(0, 1, 2),
    subscribers=("", AWAY),
    version=V5,
    cuts=0,
)

SUBSCRIBERS: Final = {"": "none", AWAY: "away", "live": "connected"}

RECOVERED: Final = 50
"""Connections that load a server which is then killed."""

ABOUT: Final = (
    "One load generator in C, closed loop, with MQTT {version} and {window} publication{s} in"
    " flight for each connection, or as many as the server's receive maximum allows. Each"
    " connection has an account and a topic of its own; all messages are retained, and every answer"
    " is checked. A publication lasts until PUBACK at QoS 1, and until PUBCOMP at QoS 2. At QoS 0,"
    " each connection's publications in flight are followed by a PINGREQ, and last until its"
    " PINGRESP."
    " The gateway answers after its commit is synced; mosquitto acknowledges before it saves. The"
    " gateway's limits of rate and of waiting messages and its card's write budget are raised, and"
    " mosquitto may have any number of messages waiting."
)

ABOUT_RECOVERED: Final = (
    "Each server has a new folder and a subscriber that is away, and is killed (SIGKILL) while at"
    " most {connections} connections publish. Then it starts again, and the subscriber gets what"
    " the server has: of what was acknowledged, nothing may be missing. A power cut can lose more"
    " than a kill, because the system's cache is then lost, too."
)

AIMS: Final = (
    (1, 50, "gateway-mqtt", "mosquitto-sqlite", 0.5),
    (1, 500, "gateway-mqtt", "mosquitto-sqlite", 0.5),
    (2, 50, "gateway-mqtt", "mosquitto-sqlite", 0.4),
    (2, 500, "gateway-mqtt", "mosquitto-sqlite", 0.4),
    (2, 50, "other-mqtt", "mosquitto-sqlite", 0.3),
    (2, 500, "other-mqtt", "mosquitto-sqlite", 0.3),
)
"""QoS, connections, two servers, and the least ratio of their rates without a subscriber. The other
checkout is taken for the gateway in pure Python, beside a compiled one."""


def measure(settings: Settings) -> Topic:
    """Measure all servers that are installed."""
    plan = PLAN.quick() if settings.quick else PLAN
    return topic(plan, run(plan, settings.folder))


def run(plan: Plan, folder: Path) -> PeerRuns:
    """Measure all servers in turn; then kill each without TLS after publications at QoS 1 and 2,
    and count what it has kept."""
    found = peers.run(plan, folder)
    recovered = {
        (name, qos): _recover(plan, peer, qos, folder / f"{name}-{qos}")
        for name, peer in found.peers.items()
        for qos in plan.qos
        if qos and not peer.tls
    }
    return found._replace(recovered=recovered)


def _recover(plan: Plan, peer: Peer, qos: int, folder: Path) -> Measurement:
    with ExitStack() as stack:  # the server is killed when the stack closes
        server = stack.enter_context(peers.start(plan, peer, folder))
        case = Case(plan.payloads[0], min(RECOVERED, *plan.connections), qos, AWAY)
        options = peers.load_options(plan, case, peer, server.address)

        def restart() -> int:
            stack.close()
            return stack.enter_context(peers.start(plan, peer, folder)).address.port

        return load.measure_exchanges(options, plan.warm_up, plan.seconds, server.pid, restart)


def topic(plan: Plan, found: PeerRuns) -> Topic:
    """Describe the results."""
    version = "5.0" if plan.version == V5 else "3.1.1"
    blocks = [
        peers.versions(plan),
        ABOUT.format(version=version, window=plan.window, s="s" if plan.window > 1 else ""),
        peers.ABOUT_MOSQUITTO,
        peers.about_values(plan),
        "## Rates: the gateway / this",
        _ratios(plan, found),
        "## Messages after the server was killed",
        ABOUT_RECOVERED.format(connections=RECOVERED),
        _recovered(found),
        *peers.case_blocks(plan, found, _title),
    ]
    return Topic("mqtt", "MQTT publications to the gateway and to mosquitto", blocks, goals(found))


def _title(case: Case) -> str:
    return f"{case.title}, QoS {case.qos}, subscriber: {SUBSCRIBERS[case.subscriber]}"


def _ratios(plan: Plan, found: PeerRuns) -> str:
    others = [name for name in found.peers if name != plan.base]
    rows = (
        (
            *(f"QoS {case.qos}", SUBSCRIBERS[case.subscriber], case.payload, case.connections),
            *(
                peers.spread(peers.ratios(runs, plan.base, name), "{:.2f}".format)
                for name in others
            ),
        )
        for case, runs in found.runs.items()
    )
    head = "", "subscriber", "payload", "connections"
    return table((*head, *(found.peers[name].label for name in others)), rows)


def _recovered(found: PeerRuns) -> str:
    rows = (
        (found.peers[name].label, f"QoS {qos}", each.sent, each.missing, each.repeated)
        for (name, qos), each in found.recovered.items()
    )
    return table(("", "", "acknowledged", "missing", "repeated"), rows)


def goals(found: PeerRuns) -> list[Goal]:
    """Compare the ratios with what is wanted, and count the gateway's lost messages."""
    reached = peers.rate_goals(found, AIMS)
    kept = [
        (name, each)
        for case, runs in found.runs.items()
        for name, runs_of_one in runs.items()
        for each in runs_of_one
        if case.qos
    ]
    kept += [(name, each) for (name, _qos), each in found.recovered.items()]
    ours = [each for name, each in kept if name.startswith(("gateway", "other"))]
    if ours:
        lost, twice = sum(each.missing for each in ours), sum(each.repeated for each in ours)
        text = f"of the gateway's messages of QoS 1 and 2, {lost} are missing and {twice} repeated"
        reached.append(Goal(f"{text} (goal: 0)", not lost and not twice))
    return reached


if __name__ == "__main__":
    peers.main(PLAN, run, topic)
