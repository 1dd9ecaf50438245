from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from sync.cli.main import cli
from tests.helpers.command_tree import leaves

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "centre"
UNITS = sorted(path for path in (FOLDER / "systemd").iterdir() if path.is_file())
SERVICES = [path for path in UNITS if path.suffix == ".service"]
GATEWAY = ROOT / "deploy" / "raspberrypi" / "fieldpost.service"
TIMERS = [path for path in UNITS if path.suffix == ".timer"]
COMMON = FOLDER / "systemd" / "fieldpost-fleet-.service.d" / "10-common.conf"
DEBIAN = ROOT / "deploy" / "debian"
COMMAND = DEBIAN / "fieldpost-fleet"
GUIDE = (FOLDER / "README.md").read_text("utf-8")
DOCUMENTS = [FOLDER / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
VERIFY = ROOT / ".ci" / "verify-unit"
PROGRAM = "/opt/fieldpost-fleet/bin/fieldpost-fleet"
COMMANDS = leaves(cli)
EXPOSURE = 1.5
"""The highest exposure that `systemd-analyze security` may give a unit (0 is none, 10 all)."""

SECONDS = 60

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze (make interop-packages)"
)


def settings(path: Path) -> dict[str, list[str]]:
    """Return each setting with all its values, in order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def parse(words: list[str]) -> None:
    """Parse a command line of `fieldpost-fleet`; raises `click.UsageError` if it is wrong."""
    count = next(count for count in (1, 2) if tuple(words[:count]) in COMMANDS)
    COMMANDS[tuple(words[:count])].make_context(words[count - 1], words[count:])


def verify(*units: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VERIFY, *units], capture_output=True, text=True, check=False, timeout=SECONDS
    )


@needs_systemd
def test_units_are_valid_without_warnings() -> None:
    done = verify(GATEWAY, *UNITS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
@pytest.mark.parametrize(
    ("name", "line", "mistake"),
    [
        ("fieldpost-fleet-.service.d/10-common.conf", "ProtectHome=yes", "ProtectHom=yes"),
        ("fieldpost-fleet-report.timer", "05:15:00 UTC", "05:75:00 UTC"),
        ("fieldpost-fleet-serve.service", "Type=notify", "Type=notified"),
        ("fieldpost.service", "ProtectSystem=strict", "ProtectSystem=very"),
        ("fieldpost.service", "NoNewPrivileges=yes", "NoNewPrivilege=yes"),
    ],
)
def test_mistake_in_a_unit_is_found(tmp_path: Path, name: str, line: str, mistake: str) -> None:
    copy = tmp_path / "systemd"
    shutil.copytree(FOLDER / "systemd", copy)
    shutil.copy(GATEWAY, copy)
    text = (copy / name).read_text("utf-8")
    assert line in text
    (copy / name).write_text(text.replace(line, mistake), "utf-8")
    done = verify(*(copy / unit.name for unit in (GATEWAY, *UNITS)))
    assert done.returncode == 1
    assert Path(name).name in done.stderr


@needs_systemd
@pytest.mark.parametrize("unit", [GATEWAY, *SERVICES], ids=lambda path: path.stem)
def test_exposure_is_low(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze (older than 250) rates no files")
    verdict = re.search(rf"Overall exposure level for {unit.name}: ([\d.]+)", done.stdout)
    assert verdict, done.stdout + done.stderr
    assert float(verdict[1]) <= EXPOSURE


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.stem)
def test_unit_starts_an_existing_command(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(
        pair.split("=", 1) for line in settings(COMMON)["Environment"] for pair in line.split()
    )
    monkeypatch.setenv("FIELDPOST_FLEET_DIR", environment["FIELDPOST_FLEET_DIR"])
    [line] = settings(unit)["ExecStart"]
    program, *words = shlex.split(line)
    assert program == PROGRAM
    assert words[0] == unit.stem.removeprefix("fieldpost-fleet-")
    parse(words)


def test_only_the_receiver_notifies_systemd() -> None:
    [serve] = [path for path in SERVICES if settings(path)["Type"] == ["notify"]]
    assert serve.stem == "fieldpost-fleet-serve"
    assert settings(serve)["NotifyAccess"] == ["main"]


def test_wrong_option_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse(["serve", "--dir", "x", "--lissten", "0.0.0.0:1"])


def commands(text: str) -> list[list[str]]:
    """Return the commands of `fieldpost-fleet` in code blocks, except synopses with `[OPTIONS]`."""
    lines = re.findall(r"^(?:\$ |    )((?:sudo )?fieldpost-fleet [a-z].*)$", text, re.MULTILINE)
    cut = (re.split(r" (?:>|\||&&) ", line)[0] for line in lines if "[" not in line)
    return [shlex.split(line.removeprefix("sudo "))[1:] for line in cut]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documented_commands_of_the_centre_exist(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELDPOST_FLEET_DIR", "/srv/fleet")
    monkeypatch.chdir(tmp_path)
    for words in commands(path.read_text("utf-8")):
        parse([word.replace("/media/stick", str(tmp_path)) for word in words])


def test_guide_contains_commands_of_the_centre() -> None:
    assert {words[0] for words in commands(GUIDE)} == {"gateway", "quarantine", "retain"}


def test_units_are_enabled_and_part_of_the_target() -> None:
    assert settings(COMMON)["PartOf"] == ["fieldpost-fleet.target"]
    enabled = {word for line in re.findall(r"enable --now (.+)", GUIDE) for word in line.split()}
    [others] = re.findall(r"others='(fieldpost-fleet[^']+)'", (DEBIAN / "build").read_text("utf-8"))
    enabled.update(others.split())
    for unit in UNITS:
        found = settings(unit)
        if unit.suffix == ".service" and "WantedBy" not in found:
            assert unit.with_suffix(".timer") in TIMERS
            continue
        if unit.suffix == ".timer":
            assert found["PartOf"] == ["fieldpost-fleet.target"]
            assert "Persistent" in found
        assert {unit.name, unit.stem} & enabled, unit.name


def test_units_wrapper_and_guide_use_the_same_paths() -> None:
    common, wrapper = settings(COMMON), COMMAND.read_text("utf-8")
    assert common["ReadWritePaths"] == common["RequiresMountsFor"] == ["/srv/fleet"]
    for text in (wrapper, GUIDE):
        assert "/srv/fleet" in text
        assert PROGRAM.removesuffix("/bin/fieldpost-fleet") in text
    assert f"runuser -u {common['User'][0]} --" in wrapper
    assert "folders='/srv/fleet:700" in (DEBIAN / "build").read_text("utf-8")
    assert COMMAND.stat().st_mode & 0o111


def test_clock_synchronisation_can_be_read() -> None:
    """A filter without these calls would stamp every event as of an unsynchronised clock."""
    assert "ProtectClock" not in settings(GATEWAY)
    added = " ".join(settings(GATEWAY)["SystemCallFilter"][2:]).split()
    assert {"adjtimex", "clock_adjtime"} <= set(added)


def test_front_processes_can_confine_themselves_and_may_be_killed() -> None:
    unit = settings(GATEWAY)
    calls = {f"landlock_{each}" for each in ("create_ruleset", "add_rule", "restrict_self")}
    assert calls <= set(" ".join(unit["SystemCallFilter"][2:]).split())
    expected = {"KillMode": ["mixed"], "OOMPolicy": ["continue"]}
    assert {name: unit[name] for name in expected} == expected


def test_service_restarts_after_any_exit_and_when_it_hangs() -> None:
    expected = {"WatchdogSec": ["60s"], "Restart": ["always"], "StartLimitIntervalSec": ["0"]}
    unit = settings(GATEWAY)
    assert {name: unit[name] for name in expected} == expected


def test_package_and_unit_use_the_same_paths() -> None:
    unit, command = settings(GATEWAY), (DEBIAN / "fieldpost").read_text("utf-8")
    program, folder = "/opt/fieldpost/bin/fieldpost", "/var/lib/fieldpost/gateway"
    assert unit["ExecStart"] == [f"{program} run --dir {folder}"]
    assert unit["ExecReload"] == [f"{program} reload --dir {folder}"]
    assert unit["AssertPathExists"] == [f"{folder}/fieldpost.toml"]
    assert unit["User"] == ["fieldpost"]
    assert folder == f"/var/lib/{unit['StateDirectory'][0]}/gateway"
    for text in (program, folder, f"runuser -u {unit['User'][0]} --"):
        assert text in command


def test_containers_use_the_packages_paths_and_write_to_volumes_alone() -> None:
    images = (ROOT / "deploy" / "container" / "Containerfile").read_text("utf-8")
    compose = (ROOT / "deploy" / "container" / "compose.yaml").read_text("utf-8")
    hardened = compose.partition("&hardened\n")[2].partition("\n\n")[0]
    assert {"  read_only: true", "  cap_drop: [ALL]"} <= set(hardened.splitlines())
    for target, package, folder in (
        ("gateway", "fieldpost", f"/var/lib/{settings(GATEWAY)['StateDirectory'][0]}"),
        ("centre", "fieldpost-fleet", settings(COMMON)["ReadWritePaths"][0]),
    ):
        [_, image] = images.split(f" AS {target}\n")
        image = image.partition("FROM ")[0]
        for line in (
            f"USER {package}\n",
            f"VOLUME {folder}",
            f'["/opt/{package}/bin/{package}"]\n',
        ):
            assert line in image
        assert f"/dist/{package}_*+deb13_" in image
        assert "HEALTHCHECK" in image
        service = compose.partition(f"\n  {target}:\n")[2].partition("\n\n")[0]
        assert "<<: *hardened\n" in service
        assert f':{folder}"' in service
