"""Servers that are compared: gateways of one or two checkouts, mosquitto, NATS, Prosody, RabbitMQ.

Each runs on a free loopback port with its data in a folder of its own, and is killed at the end,
except RabbitMQ.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from benchmarks import native, server
from benchmarks.machine import CHECKOUT
from benchmarks.payload import DOMAIN
from benchmarks.peer import PASSWORD, Target, device
from benchmarks.server import Server, ServerError, Started
from edge.ops import current_time
from edge.ops.certificates import pki

LEVELS: Final = {0: "at most once", 1: "at least once", 2: "exactly once"}
"""Guarantees of delivery, by the QoS of MQTT."""

PUBSUB: Final = f"pubsub.{DOMAIN}"
NODE: Final = "readings"

CREATE: Final = (
    f"<iq type='set' id='create' to='{PUBSUB}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>"
    f"<create node='{NODE}'/><configure><x xmlns='jabber:x:data' type='submit'>"
    "<field var='FORM_TYPE' type='hidden'>"
    "<value>http://jabber.org/protocol/pubsub#node_config</value></field>"
    "<field var='pubsub#publish_model'><value>open</value></field>"
    "<field var='pubsub#persist_items'><value>1</value></field></x></configure></pubsub></iq>"
)
"""Request of the first account: create the node to which all accounts publish. Prosody refuses it
if the node exists."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_PREPARE: Final = (
    "import json, sys; from pathlib import Path; from benchmarks import server;"
    " server.prepare(Path(sys.argv[1]), int(sys.argv[2]), **json.loads(sys.argv[3]))"
)

_MOSQUITTO: Final = """
user {user}
listener {port} 127.0.0.1
allow_anonymous false
password_file {folder}/passwords
log_type error
log_type warning
max_queued_messages 0
{more}
"""
_TLS: Final = """
certfile {files.server}
keyfile {files.server_key}
"""
_SAVE: Final = """
persistence true
persistence_location {folder}/
autosave_interval 1
autosave_on_changes true
"""
_SQLITE: Final = """
global_plugin {plugin}
plugin_opt_db_file {folder}/mosquitto.sqlite
"""
_SYNC: Final = """
plugin_opt_sync full
plugin_opt_flush_period 0
"""

_NATS: Final = """
listen = "127.0.0.1:{port}"
server_name = "nats"
jetstream {{ store_dir = "{folder}/data", {more} }}
authorization {{ users = [
{users}
] }}
"""
STREAM: Final = {
    "name": NODE,
    "subjects": [f"{NODE}.*"],
    "retention": "limits",
    "storage": "file",
    "num_replicas": 1,
}
"""The stream of NATS to which all accounts publish."""

_RABBITMQ: Final = """
listeners.tcp.1 = 127.0.0.1:{port}
load_definitions = {folder}/definitions.json
log.console = false
log.file.level = warning
disk_free_limit.absolute = 100MB
"""
_PERMISSIONS: Final = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
RABBITMQ: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""RabbitMQ's program, which does not change the user, as that in /usr/sbin does."""

_PROSODY: Final = """
run_as_root = {root}
daemonize = false
data_path = "{folder}/data"
plugin_paths = {{}}
modules_enabled = {{ "saslauth", "disco", "iq", "presence", "message" }}
modules_disabled = {{ "s2s", "posix", "tls" }}
authentication = "internal_plain"
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
s2s_ports = {{}}
http_ports = {{}}
https_ports = {{}}
log = {{ {{ levels = {{ min = "warn" }}, to = "file", filename = "{folder}/prosody.log" }} }}
storage = "sql"
sql = {{ driver = "SQLite3", database = "prosody.sqlite" }}
VirtualHost "{domain}"
    storage = {{ accounts = "internal" }}
Component "{pubsub}" "pubsub"
    admins = {{ "{admin}@{domain}" }}
"""


def find_program(name: str) -> str | None:
    """Return the path of a program; servers may be where a user's PATH does not look."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")


class Options(NamedTuple):
    """The folder of a server, its number of accounts, a gateway's checkout, seconds by which fsync
    is slower, the root folder of a Debian system from which the program is taken if the server has
    `other_root`, and a command that runs the server."""

    folder: Path
    accounts: int
    checkout: Path = CHECKOUT
    fsync_delay: float = 0.0
    root: Path | None = None
    tool: Sequence[str] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables that delay fsync."""
        if not self.fsync_delay:
            return {}
        library = native.build(*native.SLOW_FSYNC)
        return {"LD_PRELOAD": str(library), "FSYNC_DELAY_US": f"{self.fsync_delay * 1e6:.0f}"}


class Peer(NamedTuple):
    """A server to compare: how it starts, and how it is loaded."""

    label: str
    start: Callable[[Options], AbstractContextManager[Server]]
    protocol: str
    tls: bool = False
    subscriber: str = ""
    """The MQTT subscriber during a measurement: `away`, `live` or none."""
    checkout: Path = CHECKOUT
    fsync_delay: float = 0.0
    needs: str = ""
    """A program that must be installed, and in a Debian system the name of its package."""
    other_root: bool = False
    """Whether the program is in another Debian system, whose root folder is an option."""
    alone: bool = False
    """Whether no other server may run, because this one is busy even without load."""
    qos: int = 2
    """Of a protocol with one QoS: 2 if an exchange delivers exactly once, else 1."""

    def is_installed(self, root: Path | None) -> bool:
        """Return whether the program is installed; `root` is the other system's root folder."""
        if self.other_root:
            return root is not None and (root / "usr/sbin" / self.needs).exists()
        return not self.needs or find_program(self.needs) is not None


@contextmanager
def gateway(
    options: Options, *, raised: bool = True, protocol: str = "xmpp", fronts: int = 0
) -> Iterator[Server]:
    """Run a checkout's gateway; without `raised`, with the default configuration.

    `protocol` is the name of the listener to load, and `fronts` the number of front processes. A
    folder that exists is used again.
    """
    _prepare(options, protocol, {"processes": str(fronts)})
    if not raised:
        _restore_defaults(options.folder / "fieldpost.toml")
    with _running(options, options.tool, protocol, cut=True) as running:
        yield running
    server.check_effects(options.folder)


@contextmanager
def counted_gateway(options: Options, protocol: str) -> Iterator[Server]:
    """Run a checkout's gateway under valgrind, which logs its instructions at the end."""
    _prepare(options, protocol)
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    with _running(options, tool, protocol, cut=False) as running:
        yield running
    server.check_effects(options.folder)


def _prepare(options: Options, protocol: str, more: Mapping[str, str] = _NOTHING) -> None:
    """Create the folder of a gateway by the code of its checkout, if it does not exist."""
    if options.folder.exists():
        return
    more = {**more, **({} if protocol == "xmpp" else server.MQTT)}
    arguments = str(options.folder), str(options.accounts), json.dumps(more)
    command = [sys.executable, "-c", _PREPARE, *arguments]
    done = subprocess.run(
        command,
        cwd=options.checkout,
        env=os.environ | {"PYTHONPATH": str(options.checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"{options.checkout} makes no gateway: {done.stderr[-2000:]}")


def _running(
    options: Options, tool: Sequence[str], protocol: str, *, cut: bool
) -> AbstractContextManager[Server]:
    return server.running(
        [*tool, sys.executable, "-m", "edge", "run", "--dir", str(options.folder)],
        options.folder / "server.log",
        cut=cut,
        wait=partial(server.ready_line, protocol=protocol),
        cwd=options.checkout,
        env=options.environment() | {"PYTHONPATH": str(options.checkout), "PYTHONHASHSEED": "0"},
    )


def _restore_defaults(configuration: Path) -> None:
    lines = configuration.read_text("utf-8").splitlines()
    kept = [line for line in lines if line.partition(" = ")[0] not in server.RAISED]
    configuration.write_text("\n".join(kept) + "\n", "utf-8")


@contextmanager
def mosquitto(
    options: Options, *, save: bool = False, sqlite: str | None = None, tls: bool = False
) -> Iterator[Server]:
    """Run a mosquitto that keeps everything in memory, or saves on each change.

    With `save`, it writes its whole file at each save. With `sqlite`, the further options of its
    plugin `persist-sqlite`, it stores each change; version 2.1, which `options.root` has, has this
    plugin. It keeps all messages for a subscriber that is away. A folder that exists is used again.
    """
    folder, port, program = options.folder, free_port(), [find_program("mosquitto") or "mosquitto"]
    folder.mkdir(parents=True, exist_ok=True)
    more = _SAVE.format(folder=folder) if save else ""
    if sqlite is not None:
        assert options.root is not None
        plugin = _find_file(options.root, "usr/lib/*/mosquitto*/*persist_sqlite.so")
        more += _SQLITE.format(plugin=plugin, folder=folder) + sqlite
        program = _foreign_command(options.root, "usr/sbin/mosquitto")
    if tls:
        if not (folder / "pki").exists():
            pki.create(folder, DOMAIN, current_time.now().wall)
        more += _TLS.format(files=pki.files(folder))
    passwords = folder / "passwords"
    lines = (f"{device(number)}:{PASSWORD}\n" for number in range(options.accounts))
    passwords.write_text("".join(lines), "utf-8")
    passwords.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    configuration = folder / "mosquitto.conf"
    configuration.write_text(
        _MOSQUITTO.format(user=getpass.getuser(), port=port, folder=folder, more=more), "utf-8"
    )
    with _listening([*program, "-c", str(configuration)], port, options) as running:
        yield running


def _foreign_command(root: Path, program: str) -> list[str]:
    """Return a command that runs a program of another Debian system with the libraries of that
    system, without `chroot`, which needs root."""
    loader = _find_file(root, "usr/lib/*/ld-linux-*.so.*")
    return [str(loader), "--library-path", str(loader.parent), str(root / program)]


def _find_file(root: Path, pattern: str) -> Path:
    found = next(iter(sorted(root.glob(pattern))), None)
    if found is None:
        raise ServerError(f"{root} has no {pattern}; are mosquitto 2.1 and NATS installed there?")
    return found


@contextmanager
def prosody(options: Options) -> Iterator[Server]:
    """Run a Prosody whose pubsub nodes are stored in SQLite. A folder that exists is used again."""
    folder, port = options.folder, free_port()
    accounts = folder / "data" / DOMAIN.replace(".", "%2e") / "accounts"
    accounts.mkdir(parents=True, exist_ok=True)
    for number in range(options.accounts):
        (accounts / f"{device(number)}.dat").write_text(
            f'return {{ ["password"] = "{PASSWORD}"; }};\n', "utf-8"
        )
    configuration = folder / "prosody.cfg.lua"
    configuration.write_text(
        _PROSODY.format(
            root="true" if os.geteuid() == 0 else "false",
            folder=folder,
            port=port,
            domain=DOMAIN,
            pubsub=PUBSUB,
            admin=device(0),
        ),
        "utf-8",
    )
    command = ["prosody", "-F", "--config", str(configuration)]
    with _listening(command, port, options) as running:
        yield running


@contextmanager
def nats(options: Options, *, more: str = "", foreign: bool = False) -> Iterator[Server]:
    """Run a NATS server with JetStream, with `more` in its configuration of JetStream.

    If `foreign`, the program is that of `options.root`. A folder that exists is used again.
    """
    folder, port, program = options.folder, free_port(), [find_program("nats-server") or ""]
    folder.mkdir(parents=True, exist_ok=True)
    if foreign:
        assert options.root is not None
        program = _foreign_command(options.root, "usr/sbin/nats-server")
    users = "\n".join(
        f"{{ user: {device(number)}, password: {PASSWORD} }}" for number in range(options.accounts)
    )
    configuration = folder / "nats.conf"
    configuration.write_text(
        _NATS.format(port=port, folder=folder, more=more, users=users), "utf-8"
    )
    with _listening([*program, "-c", str(configuration)], port, options) as running:
        yield running


@contextmanager
def rabbitmq(options: Options) -> Iterator[Server]:
    """Run a RabbitMQ without plugins. A folder that exists is used again.

    Its Erlang does not wait actively for work, which would count as processor time. It is stopped,
    not killed: it stores the name of a new quorum queue some seconds later, or at its end, and
    discards the messages of a queue without a name when it starts again.
    """
    folder, port, distribution, epmd = options.folder, *(free_port() for _ in range(3))
    folder.mkdir(parents=True, exist_ok=True)
    names = [device(number) for number in range(options.accounts)]
    salted = base64.b64encode(bytes(4) + hashlib.sha256(bytes(4) + PASSWORD.encode()).digest())
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": n, "password_hash": salted.decode(), "tags": ""} for n in names],
        "permissions": [{"user": name, **_PERMISSIONS} for name in names],
    }
    (folder / "definitions.json").write_text(json.dumps(definitions), "utf-8")
    (folder / "enabled_plugins").write_text("[].\n", "ascii")
    configuration = folder / "rabbitmq.conf"
    configuration.write_text(_RABBITMQ.format(port=port, folder=folder), "utf-8")
    more = {
        "HOME": str(folder),
        "RUNNING_UNDER_SYSTEMD": "1",  # the process is replaced by Erlang
        "RABBITMQ_NODENAME": "benchmark@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(configuration),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
    }
    try:
        with _listening([RABBITMQ], port, options, more, cut=False) as running:
            yield running
    finally:
        command = ["epmd", "-port", str(epmd), "-kill"]
        subprocess.run(command, capture_output=True, check=False)


def _listening(
    command: list[str],
    port: int,
    options: Options,
    more: Mapping[str, str] | None = None,
    *,
    cut: bool = True,
) -> AbstractContextManager[Server]:
    log = options.folder / "server.log"
    return server.running(
        [*options.tool, *command],
        log,
        cut=cut,
        wait=partial(_connect, port),
        env=options.environment() | dict(more or {}),
    )


def _connect(port: int, started: Started) -> Target:
    """Wait until a server that does not print when it is ready accepts connections."""
    end = time.monotonic() + server.READY_TIME
    while started.process.poll() is None and time.monotonic() < end:
        with closing(socket.socket()) as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return Target("127.0.0.1", port)
        time.sleep(0.05)
    raise ServerError(f"the server is not ready: {started.log.read_text()[-2000:]}")


def free_port() -> int:
    """Return a port that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


DURABLE: Final[dict[str, Peer]] = {
    "gateway": Peer("the gateway", gateway, "xmpp"),
    "gateway-tls": Peer("the gateway, TLS", gateway, "xmpp", tls=True),
    "gateway-default": Peer(
        "the gateway, default configuration (TLS)",
        partial(gateway, raised=False),
        "xmpp",
        tls=True,
    ),
    "mosquitto-save": Peer(
        "mosquitto, saving on each change", partial(mosquitto, save=True), "mqtt", needs="mosquitto"
    ),
    "mosquitto-queue": Peer(
        "mosquitto, saving on each change, with a subscriber that is away",
        partial(mosquitto, save=True),
        "mqtt",
        subscriber="away",
        needs="mosquitto",
    ),
    "mosquitto-sqlite-default": Peer(
        "mosquitto 2.1, persist-sqlite, default",
        partial(mosquitto, sqlite=""),
        "mqtt",
        needs="mosquitto",
        other_root=True,
    ),
    "mosquitto-sqlite": Peer(
        "mosquitto 2.1, persist-sqlite",
        partial(mosquitto, sqlite=_SYNC),
        "mqtt",
        needs="mosquitto",
        other_root=True,
    ),
    "mosquitto-sqlite-queue": Peer(
        "mosquitto 2.1, persist-sqlite, with a subscriber that is away",
        partial(mosquitto, sqlite=_SYNC),
        "mqtt",
        subscriber="away",
        needs="mosquitto",
        other_root=True,
    ),
    "mosquitto-memory": Peer("mosquitto, in memory", mosquitto, "mqtt", needs="mosquitto"),
    "prosody": Peer("Prosody, publish with SQLite", prosody, "pubsub", needs="prosody", qos=1),
    "nats": Peer("NATS JetStream, default", nats, "nats", needs="nats-server", qos=1),
    "nats-sync": Peer(
        "NATS JetStream, sync_interval: always",
        partial(nats, more="sync_interval: always", foreign=True),
        "nats",
        needs="nats-server",
        other_root=True,
        qos=1,
    ),
    "rabbitmq": Peer(
        "RabbitMQ, quorum queue", rabbitmq, "amqp", needs="rabbitmq-server", alone=True, qos=1
    ),
    "gateway-mqtt": Peer("the gateway, MQTT", partial(gateway, protocol="mqtt"), "mqtt"),
    "gateway-front": Peer("the gateway, a front process", partial(gateway, fronts=1), "xmpp"),
    "gateway-mqtt-front": Peer(
        "the gateway, MQTT, a front process", partial(gateway, protocol="mqtt", fronts=1), "mqtt"
    ),
}
"""The servers of the topic `peers`."""

MQTT: Final[dict[str, Peer]] = {
    "gateway-mqtt": DURABLE["gateway-mqtt"],
    "mosquitto-memory": DURABLE["mosquitto-memory"],
    "mosquitto-sqlite": DURABLE["mosquitto-sqlite"],
    "gateway-mqtts": Peer(
        "the gateway, MQTT, TLS", partial(gateway, protocol="mqtts"), "mqtt", tls=True
    ),
    "mosquitto-memory-tls": Peer(
        "mosquitto, in memory, TLS",
        partial(mosquitto, tls=True),
        "mqtt",
        tls=True,
        needs="mosquitto",
    ),
    "mosquitto-sqlite-tls": Peer(
        "mosquitto 2.1, persist-sqlite, TLS",
        partial(mosquitto, sqlite=_SYNC, tls=True),
        "mqtt",
        tls=True,
        needs="mosquitto",
        other_root=True,
    ),
}
"""The servers of the topic `mqtt`."""

PEERS: Final = DURABLE | MQTT
