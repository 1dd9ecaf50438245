from __future__ import annotations

import json
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from edge import credentials
from edge.engine.rules.service_time import DAY_MS
from edge.engine.store import meta
from edge.features.accounts.store import accounts
from edge.ops import current_time
from edge.ops.transactions import changing
from tests.helpers import queue_rows, waiting
from tests.helpers.folder import fieldpost, query

NEW: dict[str, Any] = {
    "downgrade": False, "revoked": None, "seen": None, "held": 0, "outbox": 0, "offline": 0,
    "durable": [], "state": "offline", "sessions": [],
}  # fmt: skip


def device(folder: Path, *args: object, text: str | None = None) -> Result:
    return fieldpost(folder, "device", *args, text=text)


def has_password(folder: Path, password: str) -> bool:
    stored = query(folder, lambda tx: accounts.credentials(tx, "pump1", "SCRAM-SHA-256"))
    return stored is not None and credentials.verify(password, stored)


def listed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in device(folder, "list", "--json").stdout.splitlines()]


def test_add_prints_the_folder_of_a_usable_certificate(folder: Path) -> None:
    place = folder / "devices" / "pump1"
    result = device(folder, "add", "pump1", "--certificate")
    assert (result.exit_code, result.stdout) == (0, f"pump1@gw.example\n{place}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(place / "cert.pem", place / "key.pem")
    assert listed(folder)[0]["password"] is False


def test_add_generates_a_password(folder: Path) -> None:
    jid, password = device(folder, "add", "pump1").stdout.splitlines()
    assert jid == "pump1@gw.example"
    assert has_password(folder, password)


def test_add_with_a_certificate_and_a_password(folder: Path) -> None:
    text = "secret\r\nmore\n"
    result = device(folder, "add", "pump1", "--certificate", "--password-stdin", text=text)
    assert result.stdout == f"pump1@gw.example\n{folder / 'devices' / 'pump1'}\n"
    assert has_password(folder, "secret")


def test_certificate_prints_its_folder(folder: Path) -> None:
    device(folder, "add", "pump1")
    for option in ((), ("--revoke-old",)):
        result = device(folder, "certificate", "pump1", *option)
        assert (result.exit_code, result.output) == (0, f"{folder / 'devices' / 'pump1'}\n")


def test_only_a_generated_password_is_printed(folder: Path) -> None:
    device(folder, "add", "pump1", "--password", "old")
    generated = device(folder, "passwd", "pump1").stdout.rstrip("\n")
    assert has_password(folder, generated)
    result = device(folder, "passwd", "pump1", "--password-stdin", text="newer\n")
    assert (result.exit_code, result.output) == (0, "")
    assert has_password(folder, "newer")


@pytest.mark.parametrize("command", ["add", "passwd"])
def test_a_password_on_the_command_line_causes_a_warning(folder: Path, command: str) -> None:
    if command == "passwd":
        device(folder, "add", "pump1")
    result = device(folder, command, "pump1", "--password", "seen")
    printed = "pump1@gw.example\n" if command == "add" else ""
    assert (result.exit_code, result.stdout) == (0, printed)
    assert result.stderr == (
        "warning: other users of this machine can see --password in the process list;"
        " use --password-stdin\n"
    )
    assert has_password(folder, "seen")


def test_revoke_and_restore(folder: Path) -> None:
    device(folder, "add", "pump1", "--certificate")
    for count in ("1 certificate", "0 certificates"):
        result = device(folder, "revoke", "pump1")
        assert (result.exit_code, result.stdout) == (0, f"pump1 and {count} are revoked\n")
    again = device(folder, "add", "pump1")
    assert again.exit_code == 1
    assert "device passwd pump1" in again.output
    for command in (("passwd", "pump1"), ("certificate", "pump1")):
        device(folder, "revoke", "pump1")
        result = device(folder, *command)
        assert (result.exit_code, result.stderr) == (0, "pump1 was revoked and is restored\n")


def test_remove_asks_for_confirmation(folder: Path) -> None:
    device(folder, "add", "pump1")
    assert device(folder, "remove", "pump1", text="n\n").exit_code == 1
    assert len(listed(folder)) == 1
    confirmed = device(folder, "remove", "pump1", text="y\n")
    assert confirmed.stdout.endswith("pump1 is removed; 0 messages waited for it\n")
    device(folder, "add", "pump1")
    without_prompt = device(folder, "remove", "pump1", "--yes")
    assert (without_prompt.exit_code, listed(folder)) == (0, [])
    assert without_prompt.output == "pump1 is removed; 0 messages waited for it\n"


def test_remove_reports_the_waiting_messages(folder: Path) -> None:
    for name in ("pump1", "pump2"):
        device(folder, "add", name, "--password", "x")
    with changing(folder) as tx:
        waiting.store(tx, "pump2@gw.example", "pump1")
        waiting.queue(tx, "pump2@gw.example", "m1", "pump1")
        waiting.hold(tx, "pump2@gw.example", "m2", recipient="pump1")
    result = device(folder, "remove", "pump1", "--yes")
    assert result.output.splitlines() == [
        "pump1 is removed; 3 messages waited for it",
        "1 plain, deleted",
        "1 in its outbox, listed by `fieldpost dead list` once the gateway runs",
        "1 in custody, refused when the sender asks for delivery",
    ]


def test_downgrade_can_be_switched_on_and_off(folder: Path) -> None:
    device(folder, "add", "pump1")
    for switch, expected in (
        ("off", "downgrade of pump1 is off already\n"),
        ("on", "downgrade of pump1 is on\n"),
        ("on", "downgrade of pump1 is on already\n"),
        ("off", "downgrade of pump1 is off\n"),
    ):
        result = device(folder, "downgrade", "pump1", switch)
        assert (result.exit_code, result.output) == (0, expected)
    assert device(folder, "downgrade", "pump1", "maybe").exit_code == 2
    assert device(folder, "downgrade", "pump2", "on").exit_code == 1
    device(folder, "add", "pump3", "--downgrade")
    assert [row["downgrade"] for row in listed(folder)] == [False, True]


def test_list_as_json(folder: Path) -> None:
    device(folder, "add", "pump2", "--no-trust", "--password", "x")
    device(folder, "add", "pump1", "--certificate")
    first, second = listed(folder)
    now = current_time.now().wall
    created, ends = first.pop("created"), first.pop("not_after")
    assert 0 <= now - created < 60_000
    assert 0 <= ends - created - 364 * DAY_MS <= DAY_MS
    assert first == NEW | {
        "name": "pump1", "jid": "pump1@gw.example", "trusted": True, "password": False, "days": 364,
    }  # fmt: skip
    second.pop("created")
    assert second == NEW | {
        "name": "pump2", "jid": "pump2@gw.example", "trusted": False, "password": True,
        "days": None, "not_after": None,
    }  # fmt: skip
    device(folder, "revoke", "pump1")
    assert 0 <= listed(folder)[0]["revoked"] - now < 60_000


def test_list_as_text(folder: Path) -> None:
    assert device(folder, "list").output == ""
    device(folder, "add", "both", "--certificate", "--password", "x")
    device(folder, "add", "gone", "--password", "x")
    device(folder, "revoke", "gone")
    device(folder, "add", "late", "--certificate", "--no-trust", "--downgrade")
    with changing(folder) as tx:
        tx.run("UPDATE certificates SET not_after = 0 WHERE name = 'late'")
        tx.run("UPDATE certificates SET not_after = ? WHERE name = 'both'", (tx.now.wall + 10**8,))
    day = r"\d{4}-\d\d-\d\d"
    state = r" +offline +-  +-  +-  +-  +never +0  +0  +-  "
    patterns = (
        r"device  state .*",
        rf"both{state}password, certificate until {day} \(1 day\)",
        rf"gone{state}REVOKED {day}, no password, no certificate",
        rf"late{state}not trusted, downgrade, certificate EXPIRED 1970-01-01",
    )
    lines = device(folder, "list").output.splitlines()
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def test_durable_sessions_that_are_away_are_listed(folder: Path) -> None:
    device(folder, "add", "pump1", "--password", "x")
    with changing(folder) as tx:
        meta.write(tx, meta.SERVICE, 1000.0)
        for resource, seconds, expires in (
            ("fw", 600.0, 1300.0),
            ("new", 60.0, None),
            ("", 0.0, None),
        ):
            values = f"pump1@gw.example/{resource}", seconds, expires
            tx.run("INSERT INTO durable_sessions SELECT ?, id, ?, ? FROM accounts", values)
    ago, time = r"5 min( \d s)? ago", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    patterns = (
        "device .*",
        r"pump1 +offline +-  +-  +-  +-  +never +0  +0  +-  +password",
        rf" +away +-  +{time}  +-  +fw +{ago} +0  +0",
        r" +away +-  +-  +-  +new +-  +0  +0",
    )
    lines = device(folder, "list").output.splitlines()
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line
    (found,) = listed(folder)
    assert [one["resource"] for one in found["durable"] if one["left"] is None] == ["", "new"]
    shown = device(folder, "show", "pump1").output.splitlines()
    assert re.fullmatch(rf"fw +{time}  until {time} +0 +0", shown[-2]), shown
    assert re.fullmatch(r"new +- +1 min after its connection +0 +0", shown[-1]), shown


def test_show_of_one_device(folder: Path) -> None:
    device(folder, "add", "pump1", "--password", "x")
    lines = device(folder, "show", "pump1").output.splitlines()
    assert lines[0] == "pump1@gw.example: offline"
    assert "access     password" in lines
    missing = device(folder, "show", "pump2")
    assert missing.exit_code == 1
    assert "'pump2' does not exist" in missing.output


@pytest.mark.parametrize("command", [("passwd", "pump1"), ("add", "pump2")], ids=" ".join)
@pytest.mark.parametrize(
    "options", [("--password", ""), ("--password", "a", "--password-stdin"), ("--password-stdin",)]
)
def test_contradictory_or_empty_passwords_are_wrong_usage(
    folder: Path, command: tuple[str, ...], options: tuple[str, ...]
) -> None:
    device(folder, "add", "pump1", "--password", "old")
    assert device(folder, *command, *options, text="\n").exit_code == 2
    assert len(listed(folder)) == 1
    assert has_password(folder, "old")


def test_examples_of_the_guide_run(folder: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "devices.md"
    examples = re.findall(r"^\$ fieldpost (.+)$", guide.read_text("utf-8"), re.MULTILINE)
    assert len(examples) == 13
    for example in examples:
        result = fieldpost(folder, *example.split())
        assert result.exit_code == 0, f"{example}: {result.output}"


def test_remove_says_what_becomes_of_nodes_and_items_before_it_asks(folder: Path) -> None:
    name = queue_rows.OWNER.partition("@")[0]
    for added in (name, "pump9"):
        assert device(folder, "add", added).exit_code == 0
    with changing(folder) as tx:
        queue_rows.node(tx)
    asked = device(folder, "remove", name, text="n\n")
    assert asked.exit_code == 1
    owned, choice, question = asked.stderr.splitlines()[:3]
    assert owned == f"{name} is the only owner of 1 node: work"
    assert choice == (
        "the gateway will own this; --give-to DEVICE gives it to another device, --purge deletes it"
    )
    assert question.startswith(f"Remove {name} and ")
    given = device(folder, "remove", name, "--give-to", "pump9", "--yes")
    assert (given.exit_code, given.stderr) == (0, f"{owned}\n")
    assert device(folder, "remove", "pump9", "--yes").stderr.count("\n") == 2
    unused = device(folder, "add", "pump8")
    assert (unused.exit_code, device(folder, "remove", "pump8", "--yes").stderr) == (0, "")
