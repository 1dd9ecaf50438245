from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge.cli import network
from edge.cli.commands import main
from edge.cli.device_login import Login, NetworkError
from edge.ops.devices import devices
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway
from tests.helpers.processes import Process
from tests.helpers.scripted_peer import Certificate, ScriptedPeer, Stanza

SOON_S = 30.0
JID = f"pump1@{DOMAIN}/cli"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    folder = tmp_path_factory.mktemp("gw") / "gateway"
    gateway = Gateway(folder, "pump1", "valve1", authenticate_delay=0.0)
    devices.add(gateway.folder, "cam1", None, trusted=True, certificate=True)
    gateway.configure_section("mqtt", listen_tls="127.0.0.1:0")
    return gateway


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        for node in ("plant/a", "levels/a"):
            gateway.command("node", "create", node, "--set", "publish_model=open")
        gateway.command("node", "create", "jobs", "--queue", "--set", "publish_model=open")
        yield process


class Commands:
    """Runs `send` and `listen` as devices of one gateway."""

    def __init__(self, gateway: Gateway, process: Process, folder: Path) -> None:
        self._gateway = gateway
        self._process = process
        self.password = folder / "password"
        self.password.write_text(f"{PASSWORD}\n")

    def words(
        self, command: str, name: str, *words: object, direct: bool = False, mqtt: bool = False
    ) -> list[str]:
        secret: tuple[object, ...] = ("--password-file", self.password)
        if name == "cam1":
            files = self._gateway.folder / "devices" / name
            secret = ("--certificate", files / "cert.pem", "--key", files / "key.pem")
        service = "mqtts" if mqtt else "xmpps" if direct else "xmpp"
        port = self._process.host_port(service)[1]
        server = ("--host", "127.0.0.1", "--port", port, "--ca", self._gateway.ca)
        jid = name if "@" in name else f"{name}@{DOMAIN}"
        end = ("--mqtt",) if mqtt else ("--direct-tls",) if direct else ()
        return [*map(str, (command, "--as", jid, *secret, *server, *end, *words))]

    async def run(self, *words: str, text: str = "") -> tuple[int, str, str]:
        """Run a command to its end, in a thread; return its status and output."""
        invoke = partial(CliRunner().invoke, main, words, input=text, catch_exceptions=False)
        async with asyncio.timeout(SOON_S):
            done = await asyncio.to_thread(invoke, prog_name="fieldpost")
        return done.exit_code, done.stdout, done.stderr

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        """Start `listen`, and wait until it listens."""
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "edge", *words), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        assert running.stderr is not None
        line = await asyncio.wait_for(running.stderr.readline(), SOON_S)
        assert line.startswith(b"listening to "), line
        return running


@pytest.fixture
def commands(gateway: Gateway, process: Process, tmp_path: Path) -> Commands:
    return Commands(gateway, process, tmp_path)


async def output(listening: asyncio.subprocess.Process) -> list[str]:
    out, err = await asyncio.wait_for(listening.communicate(), SOON_S)
    assert (listening.returncode, err) == (0, b"")
    return out.decode().splitlines()


async def test_messages_reach_a_device_at_each_level(commands: Commands) -> None:
    listening = await commands.begin(*commands.words("listen", "valve1", "--count", 3, "--json"))
    for qos in (0, 1, 2):
        words = commands.words("send", "pump1", "--to", "valve1", "--qos", qos, f"at {qos}")
        assert await commands.run(*words) == (0, "", "")
    found = [json.loads(line) for line in await output(listening)]
    assert [(one["qos"], one["text"]) for one in found] == [(n, f"at {n}") for n in (0, 1, 2)]
    assert all(one["from"].startswith(f"pump1@{DOMAIN}/cli-") for one in found)


async def test_items_reach_a_filter_and_a_share(commands: Commands) -> None:
    by_filter = await commands.begin(*commands.words("listen", "valve1", "plant/+", "--count", 1))
    by_share = await commands.begin(
        *commands.words("listen", "pump1", "$share:readers:plant/#", "--count", 1, "--json")
    )
    words = commands.words("send", "cam1", "--node", "plant/a", "--format", "json", direct=True)
    assert await commands.run(*words, text='{"watts": 7}\n') == (0, "", "")
    assert await output(by_filter) == ['plant/a  {"watts": 7}']
    (shared,) = map(json.loads, await output(by_share))
    assert (shared["json"], shared["publisher"]) == ({"watts": 7}, f"cam1@{DOMAIN}")


async def test_items_of_a_queue_are_taken_once(commands: Commands, gateway: Gateway) -> None:
    words = commands.words("send", "pump1", "--node", "jobs", "--lines", "--qos", 2)
    assert await commands.run(*words, text="one\ntwo\nthree\n") == (0, "", "")
    words = commands.words("listen", "valve1", "--take", "jobs")
    assert await commands.run(*words, "--count", "2") == (
        *(0, "jobs  one\njobs  two\n", "listening to items of jobs\n"),
    )
    _, out, _ = await commands.run(*words, "--count", "1", "--json")
    found = json.loads(out)
    assert (found["text"], found["publisher"]) == ("three", f"pump1@{DOMAIN}")
    listed = map(json.loads, gateway.command("queue", "list", "--json").splitlines())
    assert [queue["items"] for queue in listed if queue["name"] == "jobs"] == [0]


async def test_options_of_an_item_decide_when_it_is_taken(
    commands: Commands, gateway: Gateway
) -> None:
    gateway.command("node", "create", "timed", "--queue", "--set", "publish_model=open")
    for options in ((), ("--priority", 5), ("--delay", 3600), ("--ttl", 0)):
        text = "".join(map(str, options)) or "low"
        words = commands.words("send", "pump1", "--node", "timed", *options)
        assert await commands.run(*words, text=text) == (0, "", "")
    words = commands.words("listen", "valve1", "--take", "timed", "--idle", 0.1)
    _, out, _ = await commands.run(*words)
    assert out == "timed  --priority5\ntimed  low\n"
    words = commands.words("send", "pump1", "--node", "timed", "--ttl", 1, "--lines")
    assert await commands.run(*words, text="one\ntwo\n") == (0, "", "")


async def test_the_password_is_the_first_line_of_the_input(
    commands: Commands, gateway: Gateway
) -> None:
    words = commands.words("send", "pump1", "--node", "plant/a")
    index = words.index("--password-file")
    words[index : index + 2] = ["--password-stdin"]
    assert await commands.run(*words, text=f"{PASSWORD}\nthe text\n") == (0, "", "")
    error = "Error: the server refused the password or offers no safe mechanism\n"
    assert await commands.run(*words, text="wrong\nthe text\n") == (1, "", error)


async def test_refusals_are_one_line(commands: Commands) -> None:
    words = commands.words("send", "pump1", "--node", "missing", "text")
    status, out, err = await commands.run(*words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"Error: pubsub.{DOMAIN}/missing: failed: cancel/item-not-found")
    words = commands.words("listen", "pump1", "missing")
    error = "Error: item-not-found: the node does not exist\n"
    assert await commands.run(*words) == (1, "", error)
    status, _, err = await commands.run(*commands.words("listen", "pump1", "jobs"))
    assert (status, err.count("\n")) == (1, 1)
    words = commands.words("send", "pump1", "--node", "plant/a", "--ttl", 1, "text")
    status, _, err = await commands.run(*words)
    assert (status, "require a queue node" in err, err.count("\n")) == (1, True, 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_that_the_gateway_cannot_use_is_an_error(
    commands: Commands, qos: int
) -> None:
    words = commands.words("send", "pump1", "--to", DOMAIN, "--qos", qos)
    status, out, err = await commands.run(*words, "hi")
    problem = "the message has no log event, no sensor data and no JSON container"
    expected = f"Error: {DOMAIN}: failed: modify/not-acceptable: {problem}\n"
    assert (status, out, err) == (1, "", expected)
    log = "<message xmlns='jabber:client'><log xmlns='urn:xmpp:eventlog' type='Event'/></message>"
    status, _, err = await commands.run(*words, "--format", "xml", log)
    assert status == 1
    assert "log type 'Event' is not one of XEP-0337: Debug, Informational, Notice, Warning" in err
    assert await commands.run(*words, "--format", "json", '{"watts": 7}') == (0, "", "")


async def test_a_refused_message_at_level_0_is_an_error(commands: Commands) -> None:
    words = commands.words("send", "pump1", "--to", "nobody", "--qos", 0, "--lines")
    status, out, err = await commands.run(*words, text="one\ntwo\n")
    error = f"Error: nobody@{DOMAIN}: failed: cancel/service-unavailable"
    assert (status, out, err.count("\n"), err.startswith(error)) == (1, "", 1, True), err


async def test_the_operator_learns_why_a_login_is_refused(
    commands: Commands, gateway: Gateway, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("guess\n")
    devices.add(gateway.folder, "gone1", PASSWORD, trusted=True)
    devices.revoke(gateway.folder, "gone1")
    refused = "Error: the server refused the password or offers no safe mechanism"
    for name, secret, reason in (
        ("pump1", wrong, "the password is not that of device pump1"),
        ("nobody", wrong, "there is no device nobody"),
        ("gone1", commands.password, "device gone1 is revoked"),
        ("cam1", wrong, "device cam1 has no password"),
    ):
        words = commands.words("send", "pump1", "--to", "valve1", "text")
        words[words.index("--as") + 1] = f"{name}@{DOMAIN}"
        words[words.index("--password-file") + 1] = str(secret)
        assert await commands.run(*words) == (1, "", f"{refused}\n"), "the same for all"
        status, _, err = await commands.run(*words, "--dir", str(gateway.folder))
        assert (status, err.count("\n")) == (1, 1)
        assert err.startswith(f"{refused}: {reason}")


async def test_a_wrong_domain_is_named(commands: Commands) -> None:
    words = commands.words("send", "pump1@other.example", "--to", "valve1", "text")
    status, _, err = await commands.run(*words)
    text = "'other.example' is not served here; this gateway's domain is gw.example"
    assert (status, err) == (1, f"Error: stream error host-unknown: {text}\n")


@pytest.mark.parametrize(("as_device", "args"), [(False, ("quiet/#",)), (True, ("--take", "jobs"))])
async def test_listening_ends_with_ctrl_c(
    commands: Commands, gateway: Gateway, as_device: bool, args: tuple[str, ...]
) -> None:
    words = ["listen", *args, "--dir", str(gateway.folder)]
    if as_device:
        words = commands.words("listen", "pump1", *args)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in background it is ignored
    try:
        listening = await commands.begin(*words)
    finally:
        signal.signal(signal.SIGINT, before)
    listening.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(listening.communicate(), SOON_S)
    assert (listening.returncode, out, err) == (0, b"", b"")


@asynccontextmanager
async def scripted(
    certificate: Certificate, script: Callable[[Stanza], str]
) -> AsyncIterator[Login]:
    async with ScriptedPeer(certificate, script=script).running() as peer:
        yield Login(JID, "secret", certificate.ca_file, "127.0.0.1", peer.port, None, None, False)


async def test_a_service_that_does_not_answer_is_reported(certificate: Certificate) -> None:
    async with scripted(certificate, lambda _stanza: "") as login:
        with pytest.raises(NetworkError, match=r"^not subscribed in 3 s$"):
            await network.listen(login, ("a",), lambda _: False, lambda: None, 3.0, None)


async def test_a_recipient_that_asks_to_wait_is_reported(certificate: Certificate) -> None:
    error = r"^not confirmed in 3 s: wait/resource-constraint \("
    notices: list[str] = []
    async with scripted(certificate, lambda one: one.error("wait", "resource-constraint")) as login:
        with pytest.raises(NetworkError, match=error):
            await network.send(
                login, DOMAIN, ["<message><body>x</body></message>"], 2, 3.0, None, notices.append
            )
    assert notices == [
        f"waiting up to 3 s, because {DOMAIN} asks to send later: wait/resource-constraint"
    ]


async def test_a_full_queue_is_reported(certificate: Certificate) -> None:
    notices: list[str] = []
    error = r"^not published in 1 s: wait/resource-constraint$"
    async with scripted(certificate, lambda one: one.error("wait", "resource-constraint")) as login:
        body = "<message><body>x</body></message>"
        with pytest.raises(NetworkError, match=error):
            await network.publish(login, "jobs", [body], {}, 1.0, notices.append)
    assert notices == [
        "waiting up to 1 s, because jobs asks to send later: wait/resource-constraint"
    ]


async def test_unanswered_messages_stay_in_the_outbox(
    commands: Commands, gateway: Gateway, tmp_path: Path
) -> None:
    outbox = ("--outbox", tmp_path / "outbox.db", "--to", "valve1", "--qos", 2)
    words = commands.words("send", f"pump1@{DOMAIN}/cli", *outbox, "kept")
    for _ in range(2):
        assert await commands.run(*words) == (0, "", "")
    assert (tmp_path / "outbox.db").exists()
    _, out, _ = await commands.run(*commands.words("listen", "valve1", "--count", 2))
    assert [line.partition("  ")[2] for line in out.splitlines()] == ["kept", "kept"]


# MQTT


async def test_messages_reach_a_filter_by_mqtt_at_each_level(commands: Commands) -> None:
    listening = await commands.begin(
        *commands.words(
            "listen", "valve1", "levels/+", "--qos", 2, "--count", 3, "--json", mqtt=True
        )
    )
    for qos in (0, 1, 2):
        options = ("--node", "levels/a", "--qos", qos, "--format", "json")
        words = commands.words("send", "pump1", *options, mqtt=True)
        assert await commands.run(*words, text=f'{{"n": {qos}}}\n') == (0, "", "")
    found = [json.loads(line) for line in await output(listening)]
    assert [(one["topic"], one["qos"], one["json"]) for one in found] == [
        ("levels/a", n, {"n": n}) for n in (0, 1, 2)
    ]
    assert found[0]["content_type"] == "application/json"
    assert found[0]["properties"] == [["payload-format", "1"]]


async def test_a_retained_message_is_shown_to_a_later_listener(commands: Commands) -> None:
    options = ("--node", "plant/a", "--retain", "--qos", 1, "--lines")
    words = commands.words("send", "cam1", *options, mqtt=True)
    assert await commands.run(*words, text="old\nkept\n") == (0, "", "")
    words = commands.words("listen", "valve1", "plant/a", "--qos", 1, "--count", 1, mqtt=True)
    assert await commands.run(*words) == (
        *(0, "plant/a (application/octet-stream, payload-format=1)  kept\n"),
        "listening to plant/a\n",
    )


async def test_items_of_a_share_are_taken_by_mqtt(commands: Commands) -> None:
    target = "$share/takers/plant/#"
    words = commands.words("listen", "valve1", target, "--qos", 2, "--count", 2, mqtt=True)
    listening = await commands.begin(*words)
    words = commands.words("send", "pump1", "--node", "plant/a", "--qos", 2, "--lines")
    assert await commands.run(*words, text="one\ntwo\n") == (0, "", "")
    lines = await output(listening)
    assert [one.partition("<body")[2].partition("<")[0][-3:] for one in lines] == ["one", "two"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("send", "pump1", "--node", "other", "--qos", 1, "x"), "other: refused: not authorized"),
        (("send", "pump1", "--node", "other", "--qos", 2, "x"), "other: refused: not authorized"),
        (("send", "pump1", "--node", "plant/+", "x"), "topic name invalid"),
        (("send", "pump1", "--node", "n" * 65_536, "x"), "Publish cannot be encoded"),
        (("listen", "pump1", "a/#/b"), "a/#/b: refused: topic filter invalid"),
        (("listen", "nobody", "#"), "refused the log-in: bad user name or password"),
    ],
)
async def test_what_is_refused_by_mqtt_is_reported(
    commands: Commands, words: tuple[object, ...], error: str
) -> None:
    command, name, *rest = words
    status, out, err = await commands.run(
        *commands.words(str(command), str(name), *rest, mqtt=True)
    )
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert error in err


async def test_a_refused_log_in_by_mqtt_is_explained(commands: Commands, gateway: Gateway) -> None:
    commands.password.write_text("wrong\n")
    words = commands.words("listen", "pump1", "#", "--dir", gateway.folder, mqtt=True)
    status, _, err = await commands.run(*words)
    assert (status, err) == (
        1,
        "Error: the gateway refused the log-in: bad user name or password: the password is not"
        " that of device pump1; `fieldpost device passwd pump1` sets a new one\n",
    )


async def test_a_server_that_does_not_answer_by_mqtt_is_reported(commands: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        words = commands.words("send", "pump1", "--node", "a", "--timeout", 0.1, "x", mqtt=True)
        words[words.index("--port") + 1] = str(port)
        assert await commands.run(*words) == (1, "", "Error: not connected in 0.1 s\n")
    status, _, err = await commands.run(*words)
    assert (status, err.startswith(f"Error: 127.0.0.1:{port}: ")) == (1, True)
