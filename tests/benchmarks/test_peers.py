from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import native, peers, server_instructions
from benchmarks.exchanges import saturated
from benchmarks.load import Measurement
from benchmarks.machine import CHECKOUT
from benchmarks.peer_servers import PEERS, Options
from benchmarks.peers import Case, PeerRuns
from benchmarks.server import ServerError

FEATURES = (
    b"<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>"
    b"<mechanism>PLAIN</mechanism></mechanisms></stream:features>"
)
REQUEST = re.compile(rb"<iq type='set' id='([^']*)'.*?(?:msgId='([^']*)'.*?)?</iq>", re.DOTALL)


def built(source: tuple[str, ...]) -> Path:
    try:
        return native.build(*source)
    except native.BuildError as error:
        pytest.skip(str(error).splitlines()[0])


def offered(stanza_id: bytes, msg_id: bytes) -> bytes:
    content = b"<received xmlns='urn:xmpp:qos' msgId='%b'/>" % msg_id
    return b"<iq type='result' id='%b'>%b</iq>" % (stanza_id, content)


def released(stanza_id: bytes, _msg_id: bytes) -> bytes:
    return b"<iq id='%b' type='result'/>" % stanza_id


class Listener:
    """A server for one client, which answers all requests correctly except for the first wrong one.

    `wrong` returns the wrong answer, or `None` for a request that is to be answered correctly.
    """

    def __init__(self, wrong: Callable[[bytes, bytes], bytes | None]) -> None:
        self._wrong = wrong
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        client, _address = self._listener.accept()
        with closing(client):
            pending = b""
            while data := client.recv(65536):
                pending += data
                while (answer := self._answer(pending)) is not None:
                    pending = pending[answer[1] :]
                    client.sendall(answer[0])

    def _answer(self, data: bytes) -> tuple[bytes, int] | None:
        """Return the answer to the first request, and the request's size."""
        if data.startswith(b"<?xml") and b"jabber.org/streams'>" in data:
            return b"<stream:stream id='1'>" + FEATURES, len(data)
        if data.startswith(b"<auth ") and data.endswith(b"</auth>"):
            return b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>", len(data)
        if (found := REQUEST.match(data)) is None:
            return None
        stanza_id, msg_id = found[1], found[2] or b""
        if stanza_id == b"bind":
            return b"<iq type='result' id='bind'><bind><jid>a@b/fw</jid></bind></iq>", found.end()
        wrong = self._wrong(stanza_id, msg_id)
        if wrong is not None:
            self._wrong = lambda _stanza_id, _msg_id: None
            return wrong, found.end()
        right = offered if stanza_id.startswith(b"a") else released
        return right(stanza_id, msg_id), found.end()


REPORT = b"<message type='error' from='gw.example'><error type='modify'/></message>"

WRONG: dict[str, Callable[[bytes, bytes], bytes | None]] = {
    "refused": lambda one, key: offered(one, key).replace(b"'result'", b"'error'"),
    "another message": lambda one, _key: offered(one, b"another"),
    "not received": released,
    "not empty": lambda one, key: offered(one, key) if one[:1] == b"d" else None,
    "delivered twice": lambda one, key: 2 * released(one, key) if one[:1] == b"d" else None,
    "not used": lambda one, key: released(one, key) + REPORT if one[:1] == b"d" else None,
    "": lambda _one, _key: None,
}


@pytest.mark.parametrize("what", WRONG)
def test_the_load_generator_counts_wrong_answers(what: str) -> None:
    program = built(native.LOAD)
    with closing(Listener(WRONG[what])) as listener:
        options = {
            "protocol": "xmpp", "host": "127.0.0.1", "port": listener.port, "connections": 1,
            "window": 2, "seconds": 0.01, "password": "benchmark", "domain": "gw.example",
            "to": "gw.example", "body": "<a b='/>'/>",
        }  # fmt: skip
        command = [str(program), *(f"{name}={value}" for name, value in options.items())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("measuring\nmeasured\n")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == bool(what)
    assert ("wrong answer: <" in done.stderr) == bool(what)


def test_the_library_makes_fsync_slower() -> None:
    library = built(native.SLOW_FSYNC)
    code = (
        "import os, tempfile, time; file = tempfile.TemporaryFile(); began = time.monotonic();"
        " os.{name}(file.fileno()); print(time.monotonic() - began)"
    )
    for name in ("fsync", "fdatasync"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(name=name)],
            env={**os.environ, "LD_PRELOAD": str(library), "FSYNC_DELAY_US": "200000"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(done.stdout) >= 0.2


@pytest.mark.long
def test_the_instructions_of_a_gateways_exchange_are_counted(tmp_path: Path) -> None:
    built(native.LOAD)
    case = Case("log", connections=2)
    found = server_instructions.count(case, CHECKOUT, tmp_path, (20, 120))
    if found is None:
        pytest.skip("no valgrind")
    # A parser alone needs more than the lower bound; the start of Python exceeds the upper one.
    assert 50_000 < found < 10_000_000


RUN = Measurement(
    exchanges=100, seconds=1.0, errors=0, server_main=0.25, server_others=0.25, load=0.1,
    machine=0.65, median=0.01, slow=0.02,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "component"),
    [
        ({"load": 0.95}, "the load generator"),
        ({"server_main": 0.75}, "the server"),
        ({"machine": os.cpu_count() or 1}, "the machine, by other processes"),
        ({"machine": 0.6}, "none: waits for commits"),
    ],
)
def test_saturated_names_the_limiting_component(changes: dict[str, Any], component: str) -> None:
    assert saturated(replace(RUN, **changes)) == component


def runs_with_rates(connections: int, **rates: tuple[int, ...]) -> PeerRuns:
    """Make the results of servers with these rates, one a round."""
    runs = {
        name.replace("_", "-"): [replace(RUN, exchanges=rate) for rate in each]
        for name, each in rates.items()
    }
    servers = {name: PEERS[name] for name in runs if name in PEERS}
    return PeerRuns(servers, {Case("log", connections): runs})


def test_a_goal_is_judged_by_the_median_of_the_ratios_of_the_rounds() -> None:
    found = runs_with_rates(50, gateway=(300, 310, 100), mosquitto_queue=(100, 100, 100))
    (goal,) = peers.goals(found)
    assert "3.00 times" in goal.text
    assert goal.reached
    found = runs_with_rates(50, gateway=(400, 290, 290), mosquitto_queue=(100, 100, 100))
    (goal,) = peers.goals(found)
    assert not goal.reached


def test_mosquitto_of_another_system_is_measured_if_its_folder_is_given(tmp_path: Path) -> None:
    chosen = "mosquitto-sqlite", "mosquitto-sqlite-queue"
    plan = peers.Plan(peers=chosen)
    assert peers.select(plan) == {}
    assert peers.select(plan._replace(chroot=tmp_path)) == {}
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/mosquitto").touch()
    found = peers.select(plan._replace(chroot=tmp_path))
    assert tuple(found) == chosen
    options = Options(tmp_path / "m", 1, root=tmp_path)
    with pytest.raises(ServerError, match=r"are mosquitto .* installed there"):
        found["mosquitto-sqlite"].start(options).__enter__()


@pytest.mark.parametrize(("share", "reached"), [(0.91, True), (0.89, False)])
def test_a_slow_fsync_is_compared_with_two_syncs_an_exchange(share: float, reached: bool) -> None:
    # At 1,000/s an exchange of all 50 takes 50 ms; two delays of 10 ms make that 70 ms.
    found = runs_with_rates(50, gateway=(1000,), gateway_slow=(round(share * 50 / 0.07),))
    runs = found.runs[Case("log", 50)]
    runs["gateway+10ms"] = runs.pop("gateway-slow")
    found.peers["gateway+10ms"] = PEERS["gateway"]._replace(fsync_delay=0.01)
    (goal,) = peers.goals(found)
    assert str(share) in goal.text
    assert goal.reached is reached
