from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from sync.cli.main import cli
from sync.common.fleet_folder import FleetFolder, archive_path, segment_path
from sync.ingest.inspect_file import inspect_file
from sync.ingest.quarantine import Quarantine
from sync.storage.locations import FleetStorage
from sync.tables.delta import Counts
from tests.helpers.committed import Committer
from tests.helpers.fleet_tables import (
    NOON,
    Lane,
    as_version,
    fleet_folder,
    land,
    put,
    some_events,
    waiting_segments,
)
from tests.helpers.local_ingest import ingest
from tests.helpers.stored_rows import stored_rows


@pytest.fixture
def fleet(tmp_path: Path) -> FleetFolder:
    return fleet_folder(tmp_path / "fleet")


def quarantine(
    fleet: FleetFolder, *arguments: str, typed: str = "", charset: str = "utf-8"
) -> Result:
    command = ["quarantine", *arguments, "--dir", str(fleet.root)]
    return CliRunner(charset).invoke(cli, command, input=typed)


SEALED = Lane().seal(some_events(3))[1]


@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(lambda data: b"\x89FPS" + data),
        st.tuples(st.integers(0, len(SEALED) - 1), st.integers(1, 255)).map(
            lambda flip: (
                SEALED[: flip[0]] + bytes([SEALED[flip[0]] ^ flip[1]]) + SEALED[flip[0] + 1 :]
            )
        ),
    )
)
def test_any_bytes_can_be_inspected(data: bytes) -> None:
    inspection = inspect_file(data)
    assert inspection.size == len(data)
    assert inspection.reason is not None
    assert "\n" not in "".join([*inspection.header, *inspection.header.values()])
    assert len(inspection.first) <= 64 * 3


def test_show_escapes_control_characters(fleet: FleetFolder) -> None:
    spoiled = bytearray(SEALED.replace(b"0.1.0", b"\x1b[2J\n"))
    spoiled[-40] ^= 1
    path = put(fleet.quarantine / "gw.example" / "\x1b[2J.0123.seg", bytes(spoiled))
    for name in (str(path), str(path.relative_to(fleet.quarantine))):
        result = quarantine(fleet, "show", name)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert "reason      checksum" in result.stdout
        assert r"software  \x1b[2J\n" in result.stdout
    assert "\x1b" not in quarantine(fleet, "list").stdout
    document = json.loads(quarantine(fleet, "show", str(path), "--json").stdout)
    assert document["header"]["gateway"] == "gw.example"
    assert document["sha256"] == sha256(spoiled).hexdigest()


ODD = (
    *("a\x1b.seg", r"a\x1b.seg", r"a\\x1b.seg", "a\nb.seg", r"a\nb.seg", "a\\/b.seg", r"\q.seg"),
    *("\udcff \u202e.seg", "M\xfcller's pump.seg", r"M\xfcller's pump.seg", "\U0001f600.seg"),
)


def put_odd(fleet: FleetFolder) -> dict[str, Path]:
    """Quarantine files with odd names; return them by the digest that `show` prints."""
    paths = {name: put(fleet.quarantine / name, name.encode("utf-8", "replace")) for name in ODD}
    by_digest = {sha256(path.read_bytes()).hexdigest(): path for path in paths.values()}
    assert len(by_digest) == len(ODD)
    return by_digest


def shown_digest(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return result.stdout.split("sha256")[1].split()[0]


@pytest.mark.parametrize("charset", ["utf-8", "ascii"])
def test_printed_names_are_accepted(fleet: FleetFolder, charset: str) -> None:
    odd = put_odd(fleet)
    listed = quarantine(fleet, "list", charset=charset)
    names = [line.split(maxsplit=4)[4] for line in listed.stdout.splitlines()]
    assert len(set(names)) == len(names) == len(odd)
    assert all(name.isprintable() for name in names)
    digests = {shown_digest(quarantine(fleet, "show", name)): name for name in names}
    assert digests.keys() == odd.keys()
    for name in names:
        result = quarantine(fleet, "show", name, charset=charset)
        assert f"path        {name}\n" in result.stdout
    assert quarantine(fleet, "readmit", *names).exit_code == 0
    landed = {sha256(path.read_bytes()).hexdigest() for path in fleet.landing.rglob("*.seg")}
    assert landed == odd.keys()


def test_an_absolute_path_is_accepted_as_it_is(fleet: FleetFolder) -> None:
    for digest, path in put_odd(fleet).items():
        assert shown_digest(quarantine(fleet, "show", str(path))) == digest


@pytest.mark.parametrize("name", ODD)
def test_a_name_is_accepted_unless_another_is_printed_like_it(
    fleet: FleetFolder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(fleet.quarantine / name, b"spoiled")
    monkeypatch.chdir(fleet.root)
    for argument in (name, f"quarantine/{name}", str(path)):
        shown_digest(quarantine(fleet, "show", argument))


def test_messages_name_files_as_the_list_does(fleet: FleetFolder) -> None:
    identity, data = Lane().seal(some_events(3))
    put(fleet.archive / archive_path(segment_path(identity)), data)
    put(fleet.quarantine / "a\\\x1b.seg", data)
    result = quarantine(fleet, "readmit", r"a\\\x1b.seg")
    assert r"not re-admitted a\\\x1b.seg: a segment" in result.stderr
    dropped = quarantine(fleet, "drop", r"a\\\x1b.seg", "--yes")
    assert dropped.stdout == "dropped a\\\\\\x1b.seg\n"


@pytest.mark.parametrize("name", [r"\x00.seg", r"\ud800.seg", r"\U00110000.seg", "\\"])
def test_impossible_names_are_refused(fleet: FleetFolder, name: str) -> None:
    result = quarantine(fleet, "show", name)
    assert result.exit_code == 1
    assert "is not a file in the quarantine" in result.stderr


def test_files_outside_the_quarantine_are_refused(fleet: FleetFolder) -> None:
    outside = land(fleet, Lane().seal(some_events(1)))
    for name in (str(outside), "../landing/x.seg", "none.seg", "."):
        assert "is not a file in the quarantine" in quarantine(fleet, "drop", name, "--yes").stderr
    assert outside.exists()


def test_drop_asks_for_confirmation(fleet: FleetFolder) -> None:
    path = put(fleet.quarantine / "x.seg", b"spoiled")
    for typed, status, exists in (("n\n", 1, True), ("y\n", 0, False)):
        assert quarantine(fleet, "drop", "x.seg", typed=typed).exit_code == status
        assert path.exists() is exists


def test_an_accepted_segment_cannot_be_readmitted(fleet: FleetFolder) -> None:
    identity, data = Lane().seal(some_events(3))
    put(fleet.archive / archive_path(segment_path(identity)), data)
    path = put(fleet.quarantine / "1-3.seg", data)
    result = quarantine(fleet, "readmit", "1-3.seg")
    assert (result.exit_code, path.exists()) == (1, True)
    assert "was accepted or waits already" in result.stderr
    assert quarantine(fleet, "readmit").exit_code == 2
    assert "nothing to re-admit" in quarantine(fleet, "readmit", "--reason", "days").stdout


def test_a_file_that_cannot_be_moved_leaves_the_others_reported(fleet: FleetFolder) -> None:
    for name in ("a.seg", "b.seg", "c.seg"):
        put(fleet.quarantine / name, name.encode())
    target = fleet.landing / "readmitted" / f"{sha256(b'b.seg').hexdigest()}.seg"
    target.mkdir(parents=True)
    done = quarantine(fleet, "readmit", "a.seg", "b.seg", "c.seg", "a.seg")
    assert (done.exit_code, done.stdout.count("re-admitted ")) == (1, 2)
    assert "not re-admitted b.seg: " in done.stderr
    assert [path.name for path in fleet.quarantine.iterdir()] == ["b.seg"]


@pytest.mark.parametrize("part", ["landing", "archive"])
def test_refusing_a_fork_says_whether_its_gateway_has_a_new_epoch(
    fleet: FleetFolder, part: str
) -> None:
    identity, data = Lane().seal(some_events(3))
    name = f"gw.example/1-3.{sha256(data).hexdigest()[:16]}.seg"
    path = put(fleet.quarantine / name, data)
    quarantined = Quarantine(FleetStorage.of(fleet))
    [file] = quarantined.files()
    fork = file._replace(reason="fork", detail="overlaps 1-3")
    epoch, later = identity.epoch, f"{identity.epoch[:-1]}Z"
    hints = {epoch: "begins a new epoch by itself", later: f"has begun the epoch {later}"}
    for epoch, hint in hints.items():
        put(fleet.root / part / segment_path(identity._replace(epoch=epoch)), b"x")
        [], [text] = quarantined.readmit([fork])
        assert "contradicts an accepted segment: overlaps 1-3. " in text
        assert hint in text
    assert path.exists()


def test_nothing_is_readmitted_during_an_ingest_or_after_an_interrupted_one(
    fleet: FleetFolder,
) -> None:
    path = put(fleet.quarantine / "x.seg", b"spoiled")
    committer = Committer(fleet.tables)
    with committer.tables.lease():
        assert "another command is at work" in quarantine(fleet, "readmit", "x.seg").stderr
    committer.tables.commit(*committer.begin([]))
    assert "was interrupted" in quarantine(fleet, "readmit", "x.seg").stderr
    assert path.exists()


def test_a_newer_minor_version_is_read_and_a_newer_major_one_is_quarantined(
    fleet: FleetFolder,
) -> None:
    def listed() -> dict[str, str]:
        lines = quarantine(fleet, "list", "--json").stdout.splitlines()
        return {row["path"]: row["reason"] for row in map(json.loads, lines)}

    lane = Lane()
    identity, data = lane.seal(some_events(3))
    newer = as_version(data, (1, 1), {"battery": 80}, {"mood": {"text": "calm"}})
    land(fleet, (identity, newer), at=NOON / 1000)
    lane.previous = newer[-32:]
    second, data = lane.seal(some_events(2))
    alien = as_version(data, (2, 0), {"first": "4", "shape": [1, 2]}, {})
    land(fleet, (second, alien), at=NOON / 1000 + 1)
    clone = Lane().seal(some_events(9))
    land(fleet, clone, at=NOON / 1000 + 2)

    assert ingest(fleet).counts == Counts(segments=1, events=3, quarantined=2)

    reasons = listed()
    assert sorted(reasons.values()) == ["fork", "version"]
    [alien_name] = [name for name, reason in reasons.items() if reason == "version"]
    output = quarantine(fleet, "show", alien_name).stdout
    assert "version     2.0" in output
    assert "version: the segment has version 2.0; supported is 1" in output
    assert "  shape     [1, 2]" in output
    assert alien[:64].hex(" ") in output

    # the fork stays; the other file is re-admitted, refused again and still listed once
    result = quarantine(fleet, "readmit", *reasons)
    readmitted = f"landing/readmitted/{sha256(alien).hexdigest()}.seg"
    assert (result.exit_code, waiting_segments(fleet)) == (1, {readmitted})
    assert "contradicts an accepted segment: overlaps 1-3 (" in result.stderr
    assert ingest(fleet).counts == Counts(quarantined=1)
    assert sorted(listed().values()) == ["fork", "version"]

    # after an upgrade that can read the file: here its bytes in this version, new to the tables
    upgraded = put(fleet.quarantine / "some" / "where.seg", data, NOON / 1000 + 99)
    assert quarantine(fleet, "readmit", str(upgraded)).exit_code == 0
    assert waiting_segments(fleet) == {f"landing/{segment_path(second)}"}
    assert ingest(fleet).counts == Counts(segments=1, events=2)
    events, segments = stored_rows(fleet)
    assert len(events) == 5
    refused = sorted(row["reason"] for row in segments if row["reason"])
    assert refused == ["fork", "version", "version"]
    assert (fleet.archive / archive_path(segment_path(second))).read_bytes() == data
