from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from sync.common.enrolment import read_enrolment
from tests.helpers.fleet import GATEWAY, HOST, OTHER, client, identity, make_fleet, segment
from tests.helpers.fleet_command import Command, fleet_command
from tests.helpers.processes import Process, start

URL = f"https://{HOST}:8443"
ADD = ("gateway", "add", GATEWAY, "--url", URL)


@pytest.fixture
def fleet(tmp_path: Path) -> Command:
    """Run a command on the folder `fleet`, set by the environment."""
    return partial(fleet_command, environ={"FIELDPOST_FLEET_DIR": str(tmp_path / "fleet")})


def test_enrolling_creates_the_folder_and_prints_the_enrolment(
    fleet: Command, tmp_path: Path
) -> None:
    done = fleet(*ADD)
    assert (done.returncode, done.stderr) == (0, "")
    enrolment = json.loads(done.stdout)
    assert (enrolment["version"], enrolment["gateway"], enrolment["url"]) == (1, GATEWAY, URL)
    assert enrolment["ca"] == (tmp_path / "fleet" / "pki" / "ca.pem").read_text()
    assert len(enrolment["token"]) == 43


def test_enrolling_into_a_file_does_not_print_the_token(fleet: Command, tmp_path: Path) -> None:
    out = tmp_path / "gw.json"
    done = fleet(*ADD, "--out", out)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert out.stat().st_mode & 0o777 == 0o600
    assert read_enrolment(out).token not in done.stdout


def test_second_enrolment_is_refused_without_renew(fleet: Command, tmp_path: Path) -> None:
    out = tmp_path / "gw.json"
    fleet(*ADD, "--out", out)
    before = out.read_bytes()
    refused = fleet(*ADD, "--out", tmp_path / "new.json")
    error = f"Error: {GATEWAY} is already enrolled; --renew gives it new credentials\n"
    assert (refused.returncode, refused.stderr) == (1, error)
    assert not (tmp_path / "new.json").exists()
    occupied = fleet("gateway", "add", OTHER, "--url", URL, "--out", out)
    assert (occupied.returncode, out.read_bytes()) == (1, before)
    assert OTHER not in fleet("gateway", "list").stdout
    assert fleet(*ADD, "--out", out, "--renew").returncode == 0
    assert out.read_bytes() != before


def test_unwritable_enrolment_file_enrols_nobody(fleet: Command, tmp_path: Path) -> None:
    out = tmp_path / "missing" / "gw.json"
    done = fleet(*ADD, "--out", out)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert fleet("gateway", "list").stdout == ""


def test_unwritable_record_leaves_no_enrolment_file(fleet: Command, tmp_path: Path) -> None:
    out = tmp_path / "gw.json"
    fleet("gateway", "add", OTHER, "--url", URL)
    (tmp_path / "fleet" / "gateways" / f"{GATEWAY}.json").mkdir()
    done = fleet(*ADD, "--out", out, "--renew")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert not out.exists()
    assert not list((tmp_path / "fleet" / "gateways").glob(".*"))


def test_gateways_are_listed_and_revoked(fleet: Command) -> None:
    for gateway in (GATEWAY, OTHER):
        fleet("gateway", "add", gateway, "--url", URL)
    assert fleet("gateway", "revoke", OTHER).stdout == f"revoked {OTHER}\n"
    first, second = fleet("gateway", "list").stdout.splitlines()
    assert first.startswith(f"{GATEWAY}  enrolled 20")
    assert second.startswith(f"{OTHER}  revoked 20")
    gateways = [json.loads(line) for line in fleet("gateway", "list", "--json").stdout.splitlines()]
    assert [(each["gateway"], each["revoked"] is None) for each in gateways] == [
        (GATEWAY, True),
        (OTHER, False),
    ]
    assert "token_sha256" not in gateways[0]
    unknown = fleet("gateway", "revoke", "unknown.example")
    assert (unknown.returncode, unknown.stderr) == (1, "Error: unknown.example is not enrolled\n")


def test_an_enrolment_may_have_another_authority(fleet: Command, tmp_path: Path) -> None:
    make_fleet(tmp_path / "foreign")
    foreign = tmp_path / "foreign" / "pki" / "ca.pem"
    done = fleet(*ADD, "--ca", foreign)
    assert json.loads(done.stdout)["ca"] == foreign.read_text()
    for wrong in ("no certificate", "ä" * 10, "-" * 40_000):
        foreign.write_text(wrong)
        refused = fleet("gateway", "add", OTHER, "--url", URL, "--ca", foreign)
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1
    assert OTHER not in fleet("gateway", "list").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("gateway", "add", "Not A Domain", "--url", URL),
        ("gateway", "add", GATEWAY),
        ("gateway", "add", GATEWAY, "--url", "http://centre.example"),
        ("serve", "--listen", "here"),
        ("serve", "--listen", ":1"),
        ("serve", "--listen", "127.0.0.1:65536"),
        ("serve", "--key", "/dev/null"),
        ("serve", "--rate", "0"),
        ("serve", "--reserve", "-1"),
        ("serve", "--behind-proxy", "--listen", "0.0.0.0:0"),
        ("serve", "--behind-proxy", "--trust-proxy", "proxy.example"),
        ("serve", "--behind-proxy", "--client-certificate-header", "no header"),
        ("serve", "--behind-proxy", "--certificate", "/dev/null", "--key", "/dev/null"),
        ("serve", "--trust-proxy", "192.0.2.1"),
        ("serve", "--metrics", "9100"),
        ("nonsense",),
    ],
)
def test_wrong_usage_exits_with_2(fleet: Command, words: tuple[str, ...], tmp_path: Path) -> None:
    assert fleet(*words).returncode == 2
    assert not (tmp_path / "fleet").exists()


def test_serving_a_folder_that_is_not_a_fleet_folder_exits_with_1(fleet: Command) -> None:
    done = fleet("serve", "--listen", f"{HOST}:0")
    assert done.returncode == 1
    assert "`fieldpost-fleet gateway add` creates one" in done.stderr


def test_help_names_every_command(fleet: Command) -> None:
    done = fleet("--help")
    assert done.returncode == 0
    folder = Path(__file__).parents[2] / "sync" / "cli" / "commands"
    for name in (path.stem for path in folder.glob("[a-z]*.py")):
        assert f"\n  {name} " in done.stdout


def serving(folder: Path, *words: str | Path) -> Process:
    return start(
        *("fieldpost-fleet", "serve", "--dir", folder / "fleet", "--listen", f"{HOST}:0"), *words
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_receiver_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    make_fleet(tmp_path / "fleet")
    with serving(tmp_path) as process:
        assert process.stdout == "ready https={}:{}\n".format(*process.host_port("https"))
        os.kill(process.pid, number)
        assert process.wait() == 0
        assert process.stderr == ""


async def test_certificate_of_another_authority_is_used(tmp_path: Path) -> None:
    tokens = make_fleet(tmp_path / "fleet")
    make_fleet(tmp_path / "foreign")
    foreign = tmp_path / "foreign" / "pki"
    words = ["--metrics", f"{HOST}:0", "--rate", "1000", "--reserve", "0"]
    words += ["--landing-cap", str(2 * len(segment()) - 1)]
    files = ("--certificate", foreign / "server.pem", "--key", foreign / "server.key")
    with serving(tmp_path, *words, *files) as process:
        address = process.host_port("https")
        async with client(address, tokens, foreign / "ca.pem") as connected:
            assert (await connected.put(segment())).status == 201
            full = await connected.put(segment(identity(4, 6)), identity(4, 6))
            assert full.status == 507, "the landing folder has reached its quota"
            health = "http://{}:{}/health".format(*process.host_port("metrics"))
            async with connected.session.get(health) as answer:
                assert answer.status == 503
        assert process.terminate() == 0


def test_key_of_another_certificate_is_reported(fleet: Command, tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet")
    pki = tmp_path / "fleet" / "pki"
    words = ("serve", "--certificate", pki / "ca.pem", "--key", pki / "server.key")
    done = fleet(*words, "--listen", f"{HOST}:0")
    assert done.returncode == 1
    assert "do not match" in done.stderr
    assert done.stderr.count("\n") == 1


async def test_enrolment_and_upload_with_commands_only(fleet: Command, tmp_path: Path) -> None:
    """A new gateway: enrol, serve, upload, revoke. A refusal is one line of JSON."""
    out = tmp_path / "gw.json"
    assert fleet(*ADD, "--host", HOST, "--out", out).returncode == 0
    enrolment = read_enrolment(out)
    ca = tmp_path / "ca.pem"
    ca.write_text(enrolment.ca)
    with serving(tmp_path) as process:
        tokens = {GATEWAY: enrolment.token}
        async with client(process.host_port("https"), tokens, ca) as connected:
            assert [(await connected.put(segment())).status for _ in range(2)] == [201, 200]
            assert (await connected.put(segment(text="x"))).status == 409
            assert fleet("gateway", "revoke", GATEWAY).returncode == 0
            assert (await connected.put(segment(identity(4, 6)), identity(4, 6))).status == 401
        assert process.terminate() == 0
        log_lines = [json.loads(line) for line in process.stderr.splitlines()]
    assert [line["status"] for line in log_lines] == [409, 401]
    assert enrolment.token not in process.stderr
    landed = [path.name for path in (tmp_path / "fleet" / "landing").rglob("*.seg")]
    assert landed == ["1-3.seg"]
