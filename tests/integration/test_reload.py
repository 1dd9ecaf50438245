from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from edge.config import changes, load
from edge.config.options import AccessRule
from edge.ops.certificates import pki
from edge.ops.gateway import control
from sync.common.enrolment import format_enrolment
from tests.helpers.folder import configure, fieldpost, set_access
from tests.helpers.gateway import DOMAIN, PASSWORD, Gateway, port_of
from tests.helpers.pki import issue_server, make_pki
from tests.helpers.processes import Process, free_port, start
from tests.helpers.scripted_centre import running_scripted_centre
from tests.helpers.scripted_server import SECRET, serving
from tests.helpers.xmpp import Client, authenticated, condition, log_in

SECONDS = 20
INFO = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
LOG = "<log xmlns='urn:xmpp:eventlog' id='Started' type='Notice'><message>It runs.</message></log>"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Process, bytes]]:
    """Run a gateway for all tests that change nothing but options; return its first options too."""
    folder = tmp_path_factory.mktemp("gw") / "gateway"
    gateway = Gateway(folder, "pump1", "olga", authenticate_delay=0.0)
    first = (folder / load.FILE_NAME).read_bytes()
    with gateway.run() as process:
        yield gateway, process, first
        assert process.terminate() == 0


@pytest.fixture
def gateway(running: tuple[Gateway, Process, bytes]) -> Iterator[Gateway]:
    """The running gateway, whose options are reset afterwards."""
    gateway, _, first = running
    yield gateway
    (gateway.folder / load.FILE_NAME).write_bytes(first)
    reload(gateway)


@pytest.fixture
def process(running: tuple[Gateway, Process, bytes]) -> Process:
    return running[1]


@pytest.fixture
def stopped(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", "pump1")


def reload(gateway: Gateway, status: int = 0) -> dict[str, Any]:
    result = fieldpost(gateway.folder, "reload", "--json")
    assert result.exit_code == status, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def reloads(gateway: Gateway) -> list[dict[str, Any]]:
    return [event for event in gateway.events("system") if event["name"] == "reloaded"]


def allowed(gateway: Gateway, limit: str) -> object:
    """Return the value of a limit in the running gateway."""
    found = control.process_status(gateway.folder)
    assert found is not None
    return found.limits[limit]


async def pump(gateway: Gateway, process: Process, resource: str = "fw") -> Client:
    return await log_in(port_of(process), gateway.ca, "pump1", PASSWORD, resource)


def get(port: int, host: str = "localhost") -> int:
    """Return the status of the health page, or 0 if nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/health", headers={"Host": host})
        return connection.getresponse().status
    except ConnectionRefusedError:
        return 0
    finally:
        connection.close()


async def test_limits_apply_at_once(gateway: Gateway, process: Process) -> None:
    async with await pump(gateway, process) as first:
        configure(gateway.folder, "limits", sessions_per_account=1, held_messages_per_source=7)
        names = ("limits.sessions_per_account", "limits.held_messages_per_source")
        assert gateway.command("reload").splitlines() == [f"changed: {name}" for name in names]
        assert allowed(gateway, "held_messages_per_source") == 7
        assert "have changed" not in gateway.command("status")
        async with await authenticated(port_of(process), gateway.ca, "pump1", PASSWORD) as second:
            bind = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"
            assert condition(await second.iq("set", bind, to=None)) == "resource-constraint"
        assert (await first.iq("get", "<ping xmlns='urn:xmpp:ping'/>")).get("type") == "result"
    assert gateway.command("reload").startswith("no option was changed; ")
    logged = [(event["value"], event.get("text")) for event in reloads(gateway)[-2:]]
    assert logged == [(2.0, ", ".join(names)), (0.0, None)]


async def test_limits_of_waiting_units_and_of_logins_apply(
    gateway: Gateway, process: Process
) -> None:
    configure(gateway.folder, "limits", authenticate_failures=3, authenticate_again=1000.0)
    configure(gateway.folder, "limits", unauthenticated=1, waiting_units=2, handshakes=1)
    assert len(reload(gateway)["changed"]) == 5
    async with await Client.connect(port_of(process)) as idle:
        await idle.element()
        async with await Client.connect(port_of(process)) as refused:
            assert await refused.closed() == "resource-constraint"


def test_an_invalid_option_changes_nothing(gateway: Gateway, process: Process) -> None:
    configure(gateway.folder, "limits", sessions=77, nodes=-1)
    configure(gateway.folder, "log", notify=["olga@other.example"])
    report = reload(gateway, status=1)
    assert report["changed"] == []
    assert [fault.partition(":")[0] for fault in report["faults"]] == ["limits.nodes", "log.notify"]
    assert allowed(gateway, "sessions") == 1000
    result = fieldpost(gateway.folder, "reload")
    assert result.stdout.splitlines()[-1] == "nothing was changed"


@pytest.mark.parametrize("text", [5000 * "[", 5000 * "9", '"'], ids=["nested", "digits", "open"])
def test_a_file_that_cannot_be_parsed_changes_nothing(
    gateway: Gateway, process: Process, text: str
) -> None:
    path = gateway.folder / load.FILE_NAME
    path.write_text(f"{path.read_text('utf-8')}\nsegments = {text}\n", "utf-8")
    (fault,) = reload(gateway, status=1)["faults"]
    assert fault.startswith("it is not TOML: ")
    assert allowed(gateway, "sessions") == 1000


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("web", "; choose another in [web] listen"), ("uplink", "uplink.enrolment: "),
     ("certificate", "is not the key of"), ("descriptors", "file descriptors")],
)  # fmt: skip
def test_a_part_that_cannot_be_prepared_changes_nothing(
    gateway: Gateway, process: Process, fault: str, expected: str
) -> None:
    files, port = pki.files(gateway.folder), free_port()
    key = files.server_key.read_bytes()
    configure(gateway.folder, "limits", sessions=10**9 if fault == "descriptors" else 77)
    configure(gateway.folder, "uplink", enrolment="missing.json" if fault == "uplink" else "")
    if fault == "certificate":
        shutil.copy(files.ca_key, files.server_key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web_port = listener.getsockname()[1] if fault == "web" else port
        configure(gateway.folder, "web", listen=f"127.0.0.1:{web_port}")
        report = reload(gateway, status=1)
    files.server_key.write_bytes(key)
    assert expected in report["faults"][0]
    assert allowed(gateway, "sessions") == 1000
    assert get(port) == 0


def test_options_that_need_a_restart_are_named(gateway: Gateway, process: Process) -> None:
    configure(gateway.folder, "xmpp", listen="127.0.0.1:1", trust="roster")
    configure(gateway.folder, "uplink", heartbeat=1.0, segment_events=7)
    restart = ["xmpp.listen", "xmpp.trust", "uplink.heartbeat"]
    for changed in (["uplink.segment_events"], []):
        report = reload(gateway)
        assert (report["changed"], report["restart"]) == (changed, restart)
    event, _ = reloads(gateway)[-2:]
    assert event["tags"] == {"restart": ", ".join(restart)}


def test_options_valid_only_after_a_restart_are_refused(gateway: Gateway, process: Process) -> None:
    configure(gateway.folder, "xmpp", listen="", listen_tls="", component="127.0.0.1:1")
    configure(gateway.folder, "xmpp", component_secret="secret")
    configure(gateway.folder, "log", notify=["olga@other.example"])
    (fault,) = reload(gateway, status=1)["faults"]
    assert "log.notify" in fault
    assert "restart the gateway" in fault


def test_sighup_reloads(gateway: Gateway, process: Process) -> None:
    configure(gateway.folder, "limits", sessions=77)
    configure(gateway.folder, "xmpp", listen="127.0.0.1:1")
    os.kill(process.pid, signal.SIGHUP)
    process.wait_for_stderr("reloaded, but a restart is needed to change xmpp.listen")
    assert allowed(gateway, "sessions") == 77
    configure(gateway.folder, "limits", sessions=-1)
    os.kill(process.pid, signal.SIGHUP)
    process.wait_for_stderr("the configuration was not reloaded: limits.sessions: it is -1")
    assert allowed(gateway, "sessions") == 77


def test_reloading_a_stopped_gateway_fails(stopped: Gateway) -> None:
    result = fieldpost(stopped.folder, "reload")
    assert (result.exit_code, "is not running" in result.output) == (1, True)


async def test_users_are_notified_and_the_status_page_starts(
    gateway: Gateway, process: Process
) -> None:
    port = free_port()
    async with await log_in(port_of(process), gateway.ca, "olga", PASSWORD) as olga:
        olga.send("<presence/>")
        await olga.stanza()
        configure(gateway.folder, "log", notify=[f"olga@{DOMAIN}"], notify_level="Notice")
        configure(gateway.folder, "web", listen=f"127.0.0.1:{port}")
        assert len(reload(gateway)["changed"]) == 3
        reload(gateway)
        while "reloaded" not in str([each.attrib for each in (await olga.stanza()).iter()]):
            pass
    assert get(port) == 200


def listen(gateway: Gateway, address: str, status: int = 0) -> None:
    configure(gateway.folder, "web", listen=address)
    reload(gateway, status)


def test_the_status_page_starts_moves_and_stops(gateway: Gateway, process: Process) -> None:
    port = free_port()
    listen(gateway, f"127.0.0.1:{port}")
    assert (get(port), get(port, "gw1.example")) == (200, 421)
    configure(gateway.folder, "web", names=["gw1.example"])
    reload(gateway)
    assert get(port, "gw1.example") == 200
    listen(gateway, f"0.0.0.0:{port}")
    assert get(port, "gw1.example") == 200
    listen(gateway, "")
    assert get(port) == 0


def test_status_page_that_cannot_move_keeps_its_address(gateway: Gateway, process: Process) -> None:
    port, other = free_port(), free_port()
    listen(gateway, f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.2", other)):
        listen(gateway, f"0.0.0.0:{other}", status=1)
    assert get(port) == 200
    listen(gateway, f"192.0.2.1:{port}", status=1)
    assert get(port) == 200
    configure(gateway.folder, "limits", sessions=10**9)
    listen(gateway, f"0.0.0.0:{port}", status=1)
    assert get(port) == 200


async def test_topics_apply(gateway: Gateway, process: Process) -> None:
    publication = (
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='plant/t'>"
        f"<item>{LOG}</item></publish></pubsub>"
    )
    async with await pump(gateway, process) as device:

        async def publish() -> Element:
            return await device.iq("set", publication, f"pubsub.{DOMAIN}")

        assert condition(await publish()) == "item-not-found"
        configure(gateway.folder, "pubsub", auto_create=["plant/#"])
        reload(gateway)
        assert (await publish()).get("type") == "result"
        assert list(gateway.events("logs")) == []
        configure(gateway.folder, "uplink", topics=["plant/+"])
        reload(gateway)
        assert (await publish()).get("type") == "result"
        configure(gateway.folder, "uplink", topics=[])
        path = gateway.folder / "fieldpost.toml"
        path.write_text(f"{path.read_text()}\n[[readings]]\nfilter = 'plant/t'\n")
        assert reload(gateway)["changed"] == ["uplink.topics", "readings"]
        assert (await publish()).get("type") == "result"
    assert [event["topic"] for event in gateway.events("logs")] == ["plant/t"] * 2


async def test_access_rules_apply_to_existing_subscriptions(
    gateway: Gateway, process: Process
) -> None:
    service = f"pubsub.{DOMAIN}"
    own = AccessRule(device="*", publish=["%u/#"], subscribe=["#"])

    def pubsub(content: str) -> str:
        return f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{content}</pubsub>"

    async with await pump(gateway, process) as device:
        assert "access" in change_access(gateway, own)
        subscribe = f"<subscribe node='#' jid='pump1@{DOMAIN}/fw'/>"
        assert (await device.iq("set", pubsub(subscribe), service)).get("type") == "result"

        async def publish(node: str) -> tuple[str | None, int]:
            """Publish an item; return the answer's type, and the number of its notifications."""
            request = pubsub(f"<publish node='{node}'><item>{LOG}</item></publish>")
            device.send(f"<iq type='set' id='p' to='{service}'>{request}</iq>")
            device.send(f"<iq type='get' id='d' to='{service}'>{INFO}</iq>")
            found = [await device.stanza()]
            while found[-1].get("id") != "d":
                found.append(await device.stanza())
            (answer,) = [each.get("type") for each in found if each.get("id") == "p"]
            items = f".//{{http://jabber.org/protocol/pubsub#event}}items[@node='{node}']"
            return answer, sum(each.find(items) is not None for each in found)

        assert await publish("pump1/t") == ("result", 1)
        assert await publish("other/t") == ("error", 0)
        change_access(gateway, AccessRule(device="pump?", publish=["#"], subscribe=["other/#"]))
        assert await publish("pump1/t") == ("result", 0)
        assert await publish("other/t") == ("result", 1)
        assert change_access(gateway) == ["access"]
        assert await publish("pump1/t") == ("result", 1)
        assert reload(gateway)["changed"] == []


def change_access(gateway: Gateway, *rules: AccessRule) -> list[str]:
    set_access(gateway.folder, *rules)
    changed: list[str] = reload(gateway)["changed"]
    return changed


async def test_the_uplink_is_replaced(stopped: Gateway, tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (share / "fieldpost-segments").touch()
    async with running_scripted_centre(make_pki(tmp_path), DOMAIN) as centre:
        enrolment = stopped.folder / "enrolment.json"
        enrolment.write_text(format_enrolment(centre.enrolment))
        enrolment.chmod(0o600)
        configure(stopped.folder, "uplink", enrolment="enrolment.json", segment_age=1.0)
        with stopped.run() as process:
            await centre.wait_for_requests(1)
            configure(stopped.folder, "uplink", enrolment="", folder=str(share))
            report = await asyncio.to_thread(reload, stopped)
            assert report["changed"] == ["uplink.enrolment", "uplink.folder"]
            async with await pump(stopped, process):
                pass
            before = len(centre.requests)
            assert await asyncio.to_thread(process.terminate) == 0
        assert len(centre.requests) == before
    assert list(share.rglob("*.seg"))


async def test_certificates_are_reloaded(gateway: Gateway, process: Process) -> None:
    async def serial() -> object:
        context = ssl.create_default_context(cafile=str(gateway.ca))
        context.check_hostname = False
        _, port = process.host_port("xmpps")
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return found

    before = await serial()
    late = 4 * 365 * 86_400_000
    files = pki.files(gateway.folder)
    assert pki.renew_server(gateway.folder, DOMAIN, round(files.ca.stat().st_mtime * 1000) + late)
    reload(gateway)
    assert await serial() != before
    crl = files.crl.read_bytes()
    files.crl.write_text("no list")
    assert "crl.pem cannot be used" in reload(gateway, status=1)["faults"][0]
    await serial()
    files.crl.write_bytes(crl)


def test_an_expired_certificate_is_not_loaded(stopped: Gateway) -> None:
    files = pki.files(stopped.folder)
    with stopped.run() as process:
        issue_server(stopped.folder, DOMAIN, -1)
        expired = files.server.read_bytes()
        (fault,) = reload(stopped, status=1)["faults"]
        assert "server.pem has expired on " in fault
        assert "; the certificate in use stays: restart the gateway, which renews it" in fault
        context = ssl.create_default_context(cafile=str(stopped.ca))
        with (
            socket.create_connection(process.host_port("xmpps"), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=DOMAIN) as verified,
        ):
            assert verified.getpeercert()
        process.wait_for_stderr("certificates: ")
        assert json.loads(stopped.command("status", "--json"))["health"] == "degraded"
        assert process.terminate() == 0
    with stopped.run() as process:
        assert "health=" not in process.stdout, "it is renewed before the health is judged"
        assert process.terminate() == 0
        assert "certificates: " not in process.stderr
    assert files.server.read_bytes() != expired


def test_a_start_warns_of_keys_that_others_can_read(stopped: Gateway) -> None:
    key = pki.files(stopped.folder).server_key
    key.chmod(0o644)
    with stopped.run() as process:
        warning = f"secrets: other users can access {key} (mode 0644); chmod 600 {key}"
        process.wait_for_stderr(warning)
        assert process.terminate() == 0


async def test_a_component_reloads(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", listen="", listen_tls="")
    secret = gateway.folder / "component.secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    async with serving() as server:
        configure(gateway.folder, "xmpp", component=f"127.0.0.1:{server.port}")
        configure(gateway.folder, "xmpp", component_secret="component.secret")
        with start("fieldpost", "run", "--dir", gateway.folder, ready=False) as process:
            await (await server.link()).accept_handshake()
            await asyncio.to_thread(process.wait_ready)
            text = await asyncio.to_thread(gateway.command, "status", "--json")
            limits = json.loads(text)["limits"]
            assert limits["waiting_units"]["used"] == 0
            assert limits["handshakes"]["used"] is None  # these are the server's
            configure(gateway.folder, "limits", sessions=77)
            report = await asyncio.to_thread(reload, gateway)
            assert report["changed"] == ["limits.sessions"]
            secret.write_text("")
            report = await asyncio.to_thread(reload, gateway, 1)
            assert "component.secret is empty" in report["faults"][0]
            assert await asyncio.to_thread(process.terminate) == 0


def test_every_option_is_compared_merged_and_assigned() -> None:
    text = b'[gateway]\ndomain = "gw.example"'
    changed = b"\n[limits]\nsessions = 7\n[[readings]]\nfilter = 'a'"
    current, other = load.parse(text), load.parse(text + changed)
    limits, kept, readings = current.limits, current.xmpp, current.readings
    assert load.parse(text).limits is not limits
    assert changes.compare(current, other) == (["limits.sessions", "readings"], [])
    changes.assign(current, changes.merge(current, other))
    assert current.limits is limits
    assert current.readings is readings == other.readings
    assert (limits.sessions, current.xmpp) == (7, kept)
    assert changes.compare(current, other) == ([], [])
