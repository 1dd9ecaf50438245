from __future__ import annotations

import asyncio
import errno
import json
import os
import pwd
import shutil
import socket
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.config import load
from edge.config.load import Address
from edge.engine.limits import flash_wear
from edge.engine.limits.flash_wear import DailyWear, WriteCounts
from edge.engine.rules.service_time import DAY_MS
from edge.engine.store import database, events
from edge.engine.store.events import NewEvent
from edge.engine.time import clock as engine_clock
from edge.features.accounts.store import certificates
from edge.features.accounts.store.certificates import ExpiringDevice
from edge.features.eventlog.store import uplink_view
from edge.features.eventlog.store.uplink_view import (
    Notice,
    SetAsideSegments,
    UndeclaredRange,
    UnsealedEvents,
)
from edge.features.queues.store import depth_events, queue_items
from edge.features.queues.store.queue_items import NewQueuedItem
from edge.ops import current_time, setup
from edge.ops.certificates import pki
from edge.ops.checks import database as database_checks
from edge.ops.checks import folder as folder_checks
from edge.ops.checks import machine, space
from edge.ops.checks import uplink as uplink_checks
from edge.ops.checks.finding import NOTICE, OK, WRONG, Finding
from edge.ops.checks.health import process
from edge.ops.devices import devices
from edge.ops.gateway import status, uplink
from edge.ops.gateway.control import FrontStatus
from edge.ops.gateway.uplink import Route, UplinkStatus
from edge.ops.machine import hardware
from edge.ops.machine.hardware import Disk
from edge.ops.machine.listen_error import listen_error
from edge.ops.transactions import changing
from sync.common.enrolment import Enrolment, format_enrolment, new_token
from tests.helpers import queue_rows, waiting
from tests.helpers.folder import change, configure, fieldpost, query
from tests.helpers.pki import issue_server, make_pki
from tests.helpers.scripted_centre import Script, answers, running_scripted_centre

GIB = 2**30
NOW = 1_760_000_000_000
HOUR = 3_600_000


def diagnose(folder: Path, *options: str) -> dict[str, list[Finding]]:
    result = fieldpost(folder, "doctor", "--json", *options)
    report = json.loads(result.output)
    assert result.exit_code == (report["verdict"] == WRONG)
    by_name: dict[str, list[Finding]] = {}
    for each in report["findings"]:
        by_name.setdefault(each["name"], []).append(Finding(**each))
    return by_name


def verdicts(findings: Iterable[Finding]) -> list[str]:
    return [finding.verdict for finding in findings]


def write(folder: Path, text: str) -> None:
    (folder / load.FILE_NAME).write_text(f'[gateway]\ndomain = "gw.example"\n{text}', "utf-8")


def test_new_gateway_has_no_fault_except_that_it_is_stopped(folder: Path) -> None:
    configure(folder, "xmpp", listen="127.0.0.1:0", listen_tls="127.0.0.1:0")
    by_name = diagnose(folder)
    assert {name for name, findings in by_name.items() if findings[0].verdict != OK} <= {
        *("clock", "uplink", "gateway", "temperature", "service", "disk")
    }
    assert set(by_name) >= {
        *("configuration", "secrets", "certificates", "clock", "database", "gateway", "disk"),
        *("WAL", "limits", "dead", "queues", "uplink", "backlog", "wear"),
    }
    for findings in by_name.values():
        for finding in findings:
            assert bool(finding.remedy) == (finding.verdict != OK), finding
            assert finding.text
    wrong = [each for findings in by_name.values() for each in findings if each.verdict == WRONG]
    assert [finding.text for finding in wrong] == ["the gateway is not running"]


def test_findings_are_printed_with_their_remedy(folder: Path) -> None:
    lines = fieldpost(folder, "doctor").output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("notice  uplink"))
    remedy = "enrol the gateway at a centre, or use `fieldpost uplink export`"
    assert lines[at + 1] == f"        -> {remedy}"


def test_invalid_configuration_ends_the_diagnosis(folder: Path) -> None:
    write(folder, "[limits]\nsessions = 0\nnodes = -1")
    by_name = diagnose(folder)
    assert set(by_name) == {"configuration"}
    assert len(by_name["configuration"]) == 2


def test_a_silent_or_changed_gateway_is_reported(folder: Path) -> None:
    stopped, settings = status.read(folder), load.load(folder)
    busy = stopped._replace(state=status.NO_ANSWER, trouble="it is busy", changed=True)
    assert verdicts(process(busy, settings)) == [WRONG, NOTICE]
    running = stopped._replace(state=status.RUNNING, accepts_devices=True)
    assert verdicts(process(running, settings)) == [OK]
    assert verdicts(process(stopped, settings)) == [WRONG]


def test_ports_that_cannot_be_used_are_reported(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        write(folder, f'[xmpp]\nlisten = "127.0.0.1:{port}"\nlisten_tls = "192.0.2.1:5223"')
        _, in_use, no_address = diagnose(folder)["gateway"]
        write(folder, f'[xmpp]\nlisten = ""\nlisten_tls = ""\n[mqtt]\nlisten = "127.0.0.1:{port}"')
        _, by_mqtt = diagnose(folder)["gateway"]
    assert in_use.verdict == no_address.verdict == WRONG
    name = Path("/proc/self/comm").read_text("utf-8").strip()
    process_and_advice = f"(pid {os.getpid()}, {name}); choose another in [xmpp] listen"
    assert in_use.text == f"port {port} is already in use {process_and_advice}"
    reason = "192.0.2.1:5223: Cannot assign requested address"
    assert no_address.text == f"xmpp.listen_tls: cannot listen on {reason}"
    assert by_mqtt.text.endswith("choose another in [mqtt] listen")
    write(folder, '[xmpp]\nlisten = "127.0.0.1:0"\nlisten_tls = ""\n[web]\nlisten = "[::1]:0"')
    assert len(diagnose(folder)["gateway"]) == 1


@pytest.mark.parametrize(
    ("listen", "verdict"), [("127.0.0.1:0", []), ("0.0.0.0:0", [NOTICE]), ("[::]:0", [NOTICE])]
)
def test_anonymous_clients_of_the_network_are_reported(listen: str, verdict: list[str]) -> None:
    text = f'[gateway]\ndomain = "gw.example"\n[mqtt]\nlisten_ws = "{listen}"\n'
    assert verdicts(machine.anonymous(load.parse(text.encode()))) == []
    found = list(machine.anonymous(load.parse((text + 'anonymous = "old1"\n').encode())))
    assert verdicts(found) == verdict
    assert all("old1" in finding.text and listen in finding.text for finding in found)


def test_port_of_another_users_process_is_in_use() -> None:
    error = listen_error("web", "listen", Address("::1", 1), OSError(errno.EADDRINUSE, "in use"))
    assert str(error) == "port 1 is already in use; choose another in [web] listen"


def test_damaged_database_is_not_read(folder: Path) -> None:
    path = folder / database.FILE_NAME
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 20] = os.urandom(4096 * 17)
    path.write_bytes(data)
    by_name = diagnose(folder)
    assert by_name["database"][0].verdict == WRONG
    assert "limits" not in by_name


def test_deep_check_finds_dangling_references(folder: Path) -> None:
    assert diagnose(folder, "--deep")["database"][0].verdict == OK
    with closing(sqlite3.connect(folder / database.FILE_NAME)) as connection, connection:
        connection.execute("INSERT INTO queue_bodies (id, body) VALUES (77, x'')")
    assert diagnose(folder)["database"][0].verdict == OK
    (finding,) = diagnose(folder, "--deep")["database"]
    assert "queue_bodies" in finding.text


def test_large_database_needs_a_deep_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_checks, "QUICK_CHECK_TIME", -1.0)
    monkeypatch.setattr(database_checks, "PROGRESS_STEPS", 1)
    (finding,) = diagnose(folder)["database"]
    assert (finding.verdict, "--deep" in finding.remedy) == (NOTICE, True)


@pytest.mark.parametrize("size", [0, 50, 4096, 100_000])
def test_truncated_database(folder: Path, size: int) -> None:
    path = folder / database.FILE_NAME
    full_size = path.stat().st_size
    os.truncate(path, size)
    (finding,) = diagnose(folder)["database"]
    assert finding.verdict == WRONG
    assert f"{path} is truncated: it has {size} " in finding.text
    assert (f" of {full_size} bytes" in finding.text) == (size >= 100)
    assert f"`fieldpost restore FILE --dir {folder}`" in finding.remedy


def test_truncated_database_with_a_write_ahead_log(folder: Path) -> None:
    path = folder / database.FILE_NAME
    os.truncate(path, 4096)
    path.with_name(f"{path.name}-wal").write_bytes(b"x" * 100)
    (finding,) = diagnose(folder)["database"]
    assert finding.text.startswith(f"{path} is damaged: ")
    assert "`fieldpost restore FILE --dir " in finding.remedy


def test_missing_database(folder: Path) -> None:
    (folder / database.FILE_NAME).unlink()
    by_name = diagnose(folder)
    (finding,) = by_name["database"]
    assert (finding.verdict, finding.remedy) == (WRONG, database.lost_advice(folder))
    assert verdicts(by_name["secrets"]) == [OK]


def test_readable_or_missing_secrets(folder: Path) -> None:
    files = pki.files(folder)
    files.ca_key.chmod(0o640)
    files.server_key.unlink()
    first, second = folder_checks.secrets(folder, load.load(folder))
    assert (first.verdict, "0640" in first.text) == (WRONG, True)
    assert "is missing" in second.text
    write(folder, '[uplink]\nenrolment = "e.json"')
    assert len(list(folder_checks.secrets(folder, load.load(folder)))) == 3


def test_secret_of_a_component_is_checked(folder: Path) -> None:
    xmpp = 'listen = ""\nlisten_tls = ""\ncomponent = "127.0.0.1:1"\ncomponent_secret = "secret"'
    write(folder, f"[xmpp]\n{xmpp}")
    secret, settings = folder / "secret", load.load(folder)
    secret.write_bytes(b"x")
    secret.chmod(0o604)
    (finding,) = folder_checks.secrets(folder, settings)
    assert (finding.verdict, finding.remedy) == (WRONG, f"chmod 600 {secret}")
    secret.chmod(0o600)
    assert verdicts(folder_checks.secrets(folder, settings)) == [OK]


def test_secret_of_another_owner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat
    keys = pki.files(folder).ca_key

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        result = real(path, follow_symlinks=follow_symlinks)
        return os.stat_result((*result[:4], result.st_uid + (path == keys), *result[5:]))

    monkeypatch.setattr(Path, "stat", stat)
    (finding,) = folder_checks.secrets(folder, load.load(folder))
    assert "another owner" in finding.text


def test_expiring_certificates_of_the_gateway(folder: Path) -> None:
    devices.add(folder, "pump1", None, trusted=True, certificate=True)
    now = current_time.now().wall

    def ends(years: float) -> list[str]:
        return verdicts(
            folder_checks.certificates(folder, "gw.example", now + round(years * 365) * DAY_MS)
        )

    assert ends(0) == [OK, OK]
    assert ends(4.95) == [NOTICE, OK]
    assert ends(6) == [WRONG, OK]
    assert ends(21) == [WRONG, WRONG]
    pki.files(folder).server.unlink()
    assert ends(0) == [WRONG, OK]


def test_a_certificate_that_devices_refuse_is_reported(folder: Path, tmp_path: Path) -> None:
    now = current_time.now().wall

    def fault(domain: str = "gw.example") -> tuple[str, str]:
        found = pki.server_fault(folder, domain, now)
        assert found is not None
        finding = next(iter(folder_checks.certificates(folder, domain, now)))
        assert finding == Finding("certificates", WRONG, *found)
        return found

    assert pki.server_fault(folder, "gw.example", now) is None
    text, remedy = fault("gw2.example")
    assert text.endswith("server.pem is not for gw2.example, but for gw.example")
    assert remedy == "replace it by a certificate for gw2.example, and run `fieldpost reload`"
    issue_server(folder, "gw.example", days=-1)
    text, remedy = fault()
    assert "server.pem has expired on 20" in text
    assert remedy == "restart the gateway, which renews it"
    setup.init(tmp_path / "other", "other.example")
    issue_server(folder, "gw.example", days=-1, issuer=tmp_path / "other")
    assert fault()[1].startswith("replace it by a new certificate from its CA")
    issue_server(folder, "*.example", days=1)
    assert pki.server_fault(folder, "gw.example", now) is None


def test_certificates_that_are_not_valid_yet_are_reported(folder: Path) -> None:
    findings = list(folder_checks.certificates(folder, "gw.example", 2 * DAY_MS))
    assert verdicts(findings) == [WRONG, WRONG]
    for finding in findings:
        assert "is not valid before 20" in finding.text
        assert finding.text.endswith(", and the clock shows 1970-01-03T00:00Z")
        assert "timedatectl" in finding.remedy


@pytest.mark.parametrize(
    ("name", "other", "problem"),
    [
        ("server.key", "ca.key", "server.key is not the key of "),
        ("server.key", "crl.pem", "cannot be used"),
        ("ca.pem", "ca.key", "is not a certificate in PEM"),
        ("crl.pem", "ca.key", "crl.pem cannot be used: it is not a revocation list in PEM"),
    ],
)
def test_mismatched_files_are_reported(folder: Path, name: str, other: str, problem: str) -> None:
    shutil.copy(folder / "pki" / other, folder / "pki" / name)
    wrong = [each for each in diagnose(folder)["certificates"] if each.verdict == WRONG]
    assert any(problem in finding.text for finding in wrong), wrong
    assert all(finding.remedy for finding in wrong)


def check_revocation_list(folder: Path, now: int) -> list[Finding]:
    revoked = query(folder, certificates.list_revoked)
    return list(folder_checks.revocation_list(folder, now, revoked))


def test_revocation_list_that_is_stale_or_of_another_authority(
    folder: Path, tmp_path: Path
) -> None:
    now = current_time.now().wall
    devices.add(folder, "pump1", None, trusted=True, certificate=True)
    crl = pki.files(folder).crl
    before = crl.read_bytes()
    devices.revoke(folder, "pump1")
    assert check_revocation_list(folder, now + DAY_MS) == []
    (expired,) = check_revocation_list(folder, now + 21 * 365 * DAY_MS)
    (early,) = check_revocation_list(folder, now - 3 * DAY_MS)
    crl.write_bytes(before)
    (stale,) = check_revocation_list(folder, now + DAY_MS)
    setup.init(tmp_path / "other", "other.example")
    shutil.copy(pki.files(tmp_path / "other").crl, crl)
    (foreign,) = check_revocation_list(folder, now + DAY_MS)
    assert "has expired" in expired.text
    assert "is not valid before" in early.text
    assert "lacks 1 revoked certificate" in stale.text
    assert "is not signed by the gateway's CA" in foreign.text
    for finding in (expired, early, stale, foreign):
        assert (finding.name, finding.verdict) == ("certificates", WRONG)
        assert finding.remedy
    crl.unlink()
    crl.mkdir()
    assert verdicts(check_revocation_list(folder, now)) == [WRONG]
    crl.rmdir()
    assert verdicts(check_revocation_list(folder, now)) == [NOTICE]
    devices.revoke(folder, "pump1")
    assert check_revocation_list(folder, now + DAY_MS) == []


def test_expiring_certificates_of_devices(folder: Path) -> None:
    many = [ExpiringDevice(f"pump{number}", 0) for number in range(7)]
    (finding,) = folder_checks.expiring_devices(many)
    assert finding.verdict == NOTICE
    assert "pump0 (1970-01-01), pump1 (1970-01-01)," in finding.text
    assert finding.text.endswith("pump4 (1970-01-01) and 2 more")


def test_expired_certificates_of_devices(folder: Path) -> None:
    devices.add(folder, "pump1", None, trusted=True, certificate=True)
    devices.add(folder, "pump2", "secret", trusted=True)
    change(folder, lambda tx: tx.run("UPDATE certificates SET not_after = 86400000"))
    (finding,) = (each for each in diagnose(folder)["certificates"] if "devices" in each.text)
    assert (finding.verdict, "pump1 (1970-01-02)" in finding.text) == (WRONG, True)
    assert "fieldpost device certificate" in finding.remedy


def test_free_disk_space(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = status.read(folder)
    read_only = os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, os.ST_RDONLY, 255))

    def check(free: int, wal: int = 0) -> list[str]:
        found = stopped._replace(disk_bytes=free, wal_bytes=wal)
        return verdicts(space.room(folder, *status.space_of(found)))

    assert check(4 * GIB) == [OK, OK]
    assert check(GIB // 2) == [NOTICE, OK]
    assert check(2**20) == [WRONG, OK]
    assert check(4 * GIB, GIB) == [WRONG]
    monkeypatch.setattr(os, "statvfs", lambda _path: read_only)
    assert check(4 * GIB) == [WRONG, OK]


@pytest.mark.parametrize(("synchronised", "verdict"), [(True, OK), (False, NOTICE)])
def test_clock_synchronisation(
    synchronised: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_clock, "is_clock_synchronised", lambda: synchronised)
    assert verdicts(machine.clock()) == [verdict]


def sys_file(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_temperature_and_voltage(tmp_path: Path) -> None:
    def check() -> list[tuple[str, str]]:
        return [(finding.name, finding.verdict) for finding in machine.climate(tmp_path)]

    assert check() == []
    sys_file(tmp_path, "sys/class/thermal/thermal_zone0/temp", "48312\n")
    assert check() == [("temperature", OK)]
    sys_file(tmp_path, "sys/class/thermal/thermal_zone1/temp", "81000\n")
    sys_file(tmp_path, "sys/class/hwmon/hwmon0/name", "cpu_thermal\n")
    sys_file(tmp_path, "sys/class/hwmon/hwmon1/name", "rpi_volt\n")
    sys_file(tmp_path, "sys/class/hwmon/hwmon1/in0_lcrit_alarm", "0\n")
    assert check() == [("temperature", NOTICE), ("voltage", OK)]
    sys_file(tmp_path, "sys/class/hwmon/hwmon1/in0_lcrit_alarm", "1\n")
    assert check()[1] == ("voltage", WRONG)


def test_systemd_service(tmp_path: Path) -> None:
    assert list(machine.service(tmp_path)) == []
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert verdicts(machine.service(tmp_path)) == [NOTICE]
    unit = tmp_path / "etc/systemd/system/fieldpost.service"
    sys_file(tmp_path, "etc/systemd/system/fieldpost.service", "[Service]\nWatchdogSec=60s\n")
    assert verdicts(machine.service(tmp_path)) == [WRONG]
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "fieldpost.service").symlink_to(unit)
    assert verdicts(machine.service(tmp_path)) == [OK]
    sys_file(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu io\n")
    assert verdicts(machine.service(tmp_path)) == [OK, NOTICE]
    sys_file(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
    assert verdicts(machine.service(tmp_path)) == [OK]


@pytest.mark.parametrize(
    ("unit", "change", "has_watchdog"),
    [
        ("WatchdogSec=60s", None, True), ("WatchdogSec = 60s", None, True), ("", None, False),
        ("# WatchdogSec=60s", None, False), ("", "WatchdogSec=30", True),
        ("WatchdogSec=60s", "WatchdogSec=0", False), ("WatchdogSec=60s", "WatchdogSec=", False),
    ],
)  # fmt: skip
def test_watchdog_of_the_service(
    tmp_path: Path, unit: str, change: str | None, has_watchdog: bool
) -> None:
    """An installed unit may be older than the gateway; `systemctl edit` adds changes to it."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    sys_file(tmp_path, "lib/systemd/system/fieldpost.service", f"[Service]\n{unit}\n")
    if change is not None:
        changes = "etc/systemd/system/fieldpost.service.d/override.conf"
        sys_file(tmp_path, changes, f"[Service]\n{change}\n")
    texts = [finding.text for finding in machine.service(tmp_path)]
    assert any("has no watchdog" in text for text in texts) is not has_watchdog


@pytest.mark.parametrize(
    ("written", "endurance", "verdict"),
    [(1, 0, OK), (0, 0, OK), (20, 0, NOTICE), (200, 0, WRONG), (1, 100, WRONG)],
)
def test_expected_life_of_the_card(  # sizes in GiB
    folder: Path, written: int, endurance: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "disk", lambda _folder: Disk("mmcblk0", 32 * GIB))
    write(folder, f"[flash]\nendurance_bytes = {endurance * GIB}")
    days = [DailyWear(1, 43_200.0, written * GIB // 2, 1, 1)]
    (finding,) = machine.wear(folder, load.load(folder), days)
    assert finding.verdict == verdict
    if written:
        assert ("assumed" in finding.text) == (endurance == 0)
        years = (endurance or 500 * 32) / written / 365
        assert f"a new card lasts about {years:.1f} years. This is an estimate" in finding.text


def test_wear_reported_by_a_card_is_judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load.load(folder)
    for worn, verdict in ((20, OK), (90, WRONG)):
        monkeypatch.setattr(hardware, "disk", lambda _folder, w=worn: Disk("mmcblk0", GIB, w))
        reported, unknown = machine.wear(folder, settings, [DailyWear(1, 3_599.0, GIB, 1, 1)])
        assert (reported.verdict, unknown.verdict) == (verdict, OK)


def test_disk_properties(tmp_path: Path) -> None:
    assert hardware.disk(tmp_path, tmp_path).name == "the file system"
    device = tmp_path.stat().st_dev
    place = f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    sys_file(tmp_path, f"{place}/size", "62333952\n")
    assert hardware.disk(tmp_path, tmp_path).bytes == 62_333_952 * 512
    sys_file(tmp_path, f"{place}/device/life_time", "0x01 0x03\n")
    assert hardware.disk(tmp_path, tmp_path).worn == 30


def test_dead_letters_and_stuck_queues(folder: Path) -> None:
    with changing(folder) as tx:
        waiting.add_dead_letter(tx, "m1")
        queue = queue_rows.node(tx)
        for item in ("a", "b"):
            queue_items.enqueue(tx, queue, NewQueuedItem("work", item, queue_rows.PUBLISHER, b""))
        queue_items.dead_letter(tx, 2, "expired")
    by_name = diagnose(folder)
    assert by_name["dead"][0].verdict == NOTICE
    assert "1 queue item is dead" in by_name["queues"][0].text
    depths = query(folder, depth_events.depths)
    later = status.read(folder)._replace(service=depths[0].oldest + 7200)  # type: ignore[operator]
    first, _dead = database_checks.queues(depths, later)
    assert "the oldest for 2 h" in first.text


def test_limits_nearly_used_or_reached_are_reported(folder: Path) -> None:
    write(folder, "[limits]\ndead_messages = 10")
    with changing(folder) as tx:
        for number in range(9):
            waiting.add_dead_letter(tx, f"m{number}")
    (finding,) = diagnose(folder)["limits"]
    assert finding[1:3] == (NOTICE, "dead_messages: 9 of 10 messages are used")
    change(folder, lambda tx: waiting.add_dead_letter(tx, "last"))
    assert diagnose(folder)["limits"][0].verdict == WRONG


def test_bytes_written_per_day(folder: Path) -> None:
    change(folder, lambda tx: flash_wear.add(tx, WriteCounts(7200.0, 10**6, 1, 1), 0))
    assert "per day to" in diagnose(folder)["wear"][-1].text


def uplink_report(folder: Path, waiting: int = 0, **changes: Any) -> UplinkStatus:
    report = uplink.read(folder)
    lane = report.lanes[0]._replace(bytes=waiting, oldest=NOW - 50 * HOUR)
    return report._replace(lanes=[lane], **changes)


def test_routes_to_the_centre(folder: Path) -> None:
    assert verdicts(uplink_checks.route(Route(""), NOW)) == [NOTICE]
    broken = Route("e.json", problem="e.json: torn")
    assert verdicts(uplink_checks.route(broken, NOW)) == [WRONG]
    for days, expected in ((90, []), (20, [NOTICE]), (-1, [WRONG])):
        route = Route("https://centre.example", certificate_end=NOW + days * DAY_MS)
        assert verdicts(uplink_checks.route(route, NOW)) == [OK, *expected]
    early = Route("https://centre.example", certificate_begin=NOW + DAY_MS)
    assert verdicts(uplink_checks.route(early, NOW)) == [OK, WRONG]


def enrol(folder: Path, enrolment: Enrolment) -> None:
    (folder / "e.json").write_text(format_enrolment(enrolment))
    (folder / "e.json").chmod(0o600)
    write(folder, '[uplink]\nenrolment = "e.json"')


def test_enrolment_of_another_gateway(folder: Path, tmp_path: Path) -> None:
    ca = pki.files(folder).ca.read_text()
    enrol(folder, Enrolment("gw2.example", "https://127.0.0.1:1", new_token(), ca))
    text = "e.json is for gw2.example, but this gateway is gw.example"
    assert diagnose(folder)["uplink"][0][1:3] == (WRONG, text)


async def test_doctor_queries_the_centre(folder: Path, tmp_path: Path) -> None:
    async def check(*heads: Script) -> list[tuple[str, str]]:
        centre.watermark_scripts.extend(heads)
        by_name = await asyncio.to_thread(diagnose, folder)
        return [(finding.verdict, finding.text) for finding in by_name["uplink"]]

    loopback = make_pki(tmp_path)
    async with running_scripted_centre(loopback, "gw.example") as centre:
        enrol(folder, centre.enrolment)
        assert [verdict for verdict, _ in await check()] == [OK, OK]
        assert centre.watermark_requests == [
            f"/v1/gateways/gw.example/epochs/{status.read(folder).epoch}"
        ]
        assert (await check(answers(404)))[1] == (OK, "the centre answers")
        refused = (await check(answers(403, {"error": "revoked"})))[1]
        assert refused == (WRONG, "the centre refuses this gateway: 403: revoked")
        broken = (await check(answers(503)))[1]
        assert broken[0] == WRONG
        assert broken[1].startswith("the centre cannot be reached: 503")
    (unreachable,) = (await check())[1:]
    assert unreachable[0] == WRONG
    change(folder, uplink_view.record_upload)
    assert (await check())[1][0] == NOTICE


def test_silent_centre_is_reported_if_segments_wait(folder: Path) -> None:
    def check(bytes: int, hours: float, to: str = "x", notice: Notice | None = None) -> list[str]:
        uploaded = NOW - round(hours * HOUR)
        report = uplink_report(folder, bytes, last_upload=uploaded, last_notice=notice)
        findings = uplink_checks.backlog(report, to, NOW)
        return verdicts(finding for finding in findings if finding.name == "uplink")

    assert check(100, 1) == []
    assert check(100, 3) == [NOTICE]
    assert check(100, 30, notice=Notice("unreachable", "no route", NOW)) == [WRONG]
    assert check(0, 30) == []
    assert check(100, 30, to="") == []


def test_full_backlog(folder: Path) -> None:
    quota = uplink_report(folder).quota

    def check(part: float, hours: float | None = None) -> Finding:
        report = uplink_report(folder, round(part * quota), hours_until_full=hours)
        (finding,) = uplink_checks.backlog(report, "", NOW)
        return finding

    assert check(0.4).verdict == OK
    assert check(0.6, 12.0).text.endswith(" and is full in 12 h")
    assert (check(0.6).verdict, check(0.95).verdict) == (NOTICE, WRONG)


def test_rejected_segments_and_lost_ranges(folder: Path) -> None:
    report = uplink_report(
        folder,
        rejected=[SetAsideSegments("logs", "refused", 2, 100)],
        lost=[UndeclaredRange("logs", 1, 5, "full")],
    )
    texts = [finding.text for finding in uplink_checks.backlog(report, "", NOW)]
    assert texts[1].startswith("the centre rejected 2 segments")
    assert texts[2].startswith("1 range of events was dropped")


def test_missing_enrolment(folder: Path) -> None:
    write(folder, '[uplink]\nenrolment = "e.json"')
    (finding,) = diagnose(folder)["uplink"]
    assert finding[1:3] == (WRONG, "e.json does not exist")
    assert "fieldpost-fleet gateway add" in finding.remedy


def test_missing_uplink_folder(folder: Path) -> None:
    write(folder, '[uplink]\nfolder = "share"')
    (finding,) = diagnose(folder)["uplink"]
    assert (finding.verdict, "fieldpost-segments" in finding.text) == (WRONG, True)
    (folder / "share").mkdir()
    (folder / "share" / "fieldpost-segments").touch()
    assert diagnose(folder)["uplink"] == [Finding("uplink", OK, "segments go to share")]


def test_remedy_for_another_user_names_the_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / load.FILE_NAME).unlink()
    owner = pwd.getpwuid(folder.stat().st_uid).pw_name
    assert diagnose(folder)["configuration"][0].remedy.startswith("if a file is missing")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    remedy = f"run this command as {owner}, who owns {folder}"
    assert diagnose(folder)["configuration"][0].remedy == remedy


def test_notice_before_the_last_upload_is_not_a_reason(folder: Path) -> None:
    old = Notice("conflict", "409", NOW - 10 * HOUR)
    report = uplink_report(folder, 100, last_upload=NOW - 4 * HOUR, last_notice=old)
    first, *_ = uplink_checks.backlog(report, "x", NOW)
    assert first.text == "the centre has not accepted a segment for 4 h"
    new = old._replace(time=NOW - 3 * HOUR)
    first, *_ = uplink_checks.backlog(report._replace(last_notice=new), "x", NOW)
    assert first.text == "the centre has not accepted a segment for 4 h (conflict: 409)"


@pytest.mark.parametrize(("sealed", "text"), [(-4, "4 h"), (9000, None)])
def test_an_upload_in_the_future_does_not_hide_a_silent_link(
    folder: Path, sealed: int, text: str | None
) -> None:
    """The clock was ahead when the last segments were sent, and has been set right."""
    report = uplink_report(folder, 100, last_upload=NOW + 9000 * HOUR)
    lanes = [lane._replace(oldest=NOW + sealed * HOUR) for lane in report.lanes]
    first, *_ = uplink_checks.backlog(report._replace(lanes=lanes), "x", NOW)
    assert first.text.startswith(
        "the backlog" if text is None else f"the centre has not accepted a segment for {text}"
    )


def test_unsealed_events(folder: Path) -> None:
    def check(report: UplinkStatus, state: status.Status) -> list[Finding]:
        return list(uplink_checks.unsealed(report, 300.0, state, NOW))

    stopped = status.read(folder)._replace(service=2000.0)
    running = stopped._replace(state=status.RUNNING)
    sealed = uplink_report(folder, unsealed=UnsealedEvents(0, None, None))
    unsealed = uplink_report(folder, unsealed=UnsealedEvents(7, NOW - 3 * HOUR, 1000.0))
    assert check(sealed, stopped) == check(sealed, running) == []
    (finding,) = check(unsealed, stopped)
    text = "7 events are not in a segment yet, the oldest for"
    assert finding[1:3] == (NOTICE, f"{text} 3 h, because the gateway is not running")
    (finding,) = check(unsealed, running)
    assert finding[1:3] == (WRONG, f"{text} 16 min 40 s")
    assert check(unsealed, running._replace(service=1300.0)) == []


def test_unsealed_events_without_a_running_gateway(folder: Path) -> None:
    heartbeat = NewEvent("system", name="heartbeat")
    change(folder, lambda tx: events.append(tx, events.SYSTEM, heartbeat))
    (first, _second) = diagnose(folder)["backlog"]
    assert (first.verdict, "the gateway is not running" in first.text) == (NOTICE, True)


def test_fronts_that_the_kernel_could_confine_are_reported(tmp_path: Path) -> None:
    free = FrontStatus(number=2, pid=41, restarts=0, connections=0, confined=False)
    confined = msgspec.structs.replace(free, number=1, confined=True)
    fronts = [confined, free, msgspec.structs.replace(free, number=3, pid=None)]
    assert list(machine.confinement(fronts, tmp_path)) == [], "it is not known what the kernel has"
    modules = tmp_path / "sys" / "kernel" / "security" / "lsm"
    modules.parent.mkdir(parents=True)
    modules.write_text("capability,apparmor")
    assert list(machine.confinement(fronts, tmp_path)) == []
    modules.write_text("capability,landlock,apparmor")
    (found,) = machine.confinement(fronts, tmp_path)
    assert (found.verdict, found.text) == (
        NOTICE,
        "front processes are not confined by Landlock: 2",
    )
    assert list(machine.confinement([confined], tmp_path)) == []
