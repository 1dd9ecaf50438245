"""The benchmark that compares servers: its load generator, its slow fsync, its goals."""

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

import pytest

from benchmarks import native, peers, server_instructions
from benchmarks.load import Measurement
from benchmarks.machine import CHECKOUT
from benchmarks.peer_servers import PEERS
from benchmarks.peers import Case, Found

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
    return (
        b"<iq type='result' id='%b'><received xmlns='urn:xmpp:qos' msgId='%b'/></iq>"
        % (stanza_id, msg_id)
    )  # fmt: skip


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


def refused(stanza_id: bytes, msg_id: bytes) -> bytes | None:
    return offered(stanza_id, msg_id).replace(b"'result'", b"'error'")


def another_message(stanza_id: bytes, _msg_id: bytes) -> bytes | None:
    return offered(stanza_id, b"another")


def not_received(stanza_id: bytes, msg_id: bytes) -> bytes | None:
    return released(stanza_id, msg_id)


def not_empty(stanza_id: bytes, msg_id: bytes) -> bytes | None:
    return offered(stanza_id, msg_id) if stanza_id.startswith(b"d") else None


def delivered_twice(stanza_id: bytes, msg_id: bytes) -> bytes | None:
    if stanza_id.startswith(b"d"):
        return released(stanza_id, msg_id) + released(stanza_id, msg_id)
    return None


def all_right(_stanza_id: bytes, _msg_id: bytes) -> bytes | None:
    return None


@pytest.mark.parametrize(
    ("wrong", "errors"),
    [
        (all_right, 0), (refused, 1), (another_message, 1), (not_received, 1), (not_empty, 1),
        (delivered_twice, 1),
    ],
)  # fmt: skip
def test_the_load_generator_counts_wrong_answers(
    wrong: Callable[[bytes, bytes], bytes | None], errors: int
) -> None:
    program = built(native.LOAD)
    with closing(Listener(wrong)) as listener:
        options = {
            "protocol": "xmpp",
            "host": "127.0.0.1",
            "port": listener.port,
            "connections": 1,
            "window": 2,
            "seconds": 0.01,
            "password": "benchmark",
            "domain": "gw.example",
            "to": "gw.example",
            "body": "<a b='/>'/>",
        }
        command = [str(program), *(f"{name}={value}" for name, value in options.items())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("measuring\nmeasured\n")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == errors
    assert ("wrong answer: <iq" in done.stderr) == bool(errors)


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
    exchanges=100,
    seconds=1.0,
    errors=0,
    server_main=0.5,
    server_others=0.5,
    load=0.2,
    machine=1.3,
    median=0.01,
    slow=0.02,
)


def found_rates(connections: int, **rates: tuple[int, ...]) -> Found:
    """Make the results of servers with these rates, one a round."""
    runs = {
        name.replace("_", "-"): [replace(RUN, exchanges=rate) for rate in each]
        for name, each in rates.items()
    }
    servers = {name: PEERS[name] for name in runs if name in PEERS}
    return Found(servers, {Case("log", connections): runs})


def test_a_goal_is_judged_by_the_median_of_the_ratios_of_the_rounds() -> None:
    found = found_rates(50, gateway=(300, 310, 100), mosquitto_queue=(100, 100, 100))
    (goal,) = peers.goals(found)
    assert "3.00 times" in goal.text
    assert goal.reached
    found = found_rates(50, gateway=(400, 290, 290), mosquitto_queue=(100, 100, 100))
    (goal,) = peers.goals(found)
    assert not goal.reached


@pytest.mark.parametrize(("share", "reached"), [(0.91, True), (0.89, False)])
def test_a_slow_fsync_is_compared_with_two_syncs_an_exchange(share: float, reached: bool) -> None:
    # At 1,000/s an exchange of all 50 takes 50 ms; two delays of 10 ms make that 70 ms.
    found = found_rates(50, gateway=(1000,), gateway_slow=(round(share * 50 / 0.07),))
    runs = found.runs[Case("log", 50)]
    runs["gateway+10ms"] = runs.pop("gateway-slow")
    found.peers["gateway+10ms"] = PEERS["gateway"]._replace(fsync_delay=0.01)
    (goal,) = peers.goals(found)
    assert str(share) in goal.text
    assert goal.reached is reached
