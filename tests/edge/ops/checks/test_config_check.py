"""`fieldpost config check`: all mistakes, and the options that differ from the defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge.cli.commands import main
from edge.config.faults import Fault
from edge.ops.checks import config_check
from edge.ops.checks.config_check import ChangedOption

DOMAIN = '[gateway]\ndomain = "gw.example"\n'


def check(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["config", "check", "--dir", str(folder), *options])


def write(folder: Path, text: str) -> None:
    (folder / "fieldpost.toml").write_text(text, "utf-8")


def faults(text: str) -> list[tuple[str, str]]:
    return [(fault.option, fault.text) for fault in config_check.check_text(text.encode()).faults]


def test_new_configuration_differs_in_the_domain_and_the_access_rule_only(folder: Path) -> None:
    result = check(folder)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        'gateway.domain = "gw.example"',
        'access[1].device = "*"',
        'access[1].publish = ["%u/#"] (default: [])',
        'access[1].subscribe = ["#"] (default: [])',
        "no mistakes found",
    ]


def test_all_mistakes_are_reported_at_once() -> None:
    text = f"""{DOMAIN}domian = 1
[xmpp]
listen = 5
[limits]
sessions = 0
dead_mesages = 5
[nosuch]
a = 1
[uplink]
bandwidth = 1
"""
    assert faults(text) == [
        ("gateway.domian", "there is no such option; did you mean gateway.domain?"),
        ("xmpp.listen", "it is 5, but must be a string or a list of strings"),
        ("limits.sessions", "it is 0, but must be an integer, at least 1 (unit: sessions)"),
        ("limits.dead_mesages", "there is no such option; did you mean limits.dead_messages?"),
        ("nosuch", "there is no such section"),
        ("uplink.bandwidth", "it must be 0 or at least 2048; slower uploads time out"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("gateway.domain", "it is missing")),
        ("[gateway]\ndomain = 3", ("gateway.domain", "it is 3, but must be a string")),
        ("x = 1\n" + DOMAIN, ("x", "there is no such section")),
        (DOMAIN + "[limits]\nretry_after = 61\nretry_most = 60",
         ("", "limits.retry_after must not exceed limits.retry_most")),
        ("gateway = 1", ("gateway", "it must be a section that begins with [gateway]")),
        ("[gateway", ("", "it is not TOML: Expected ']' at the end of a table declaration"
                      " (at end of document)")),
        ("x = " + 5000 * "[", ("", "it is not TOML: it is nested too deeply")),
        (DOMAIN + "[limits]\nsessions = " + 5000 * "9",
         ("", "it is not TOML: a number has too many digits")),
        (DOMAIN + '[limits]\nheld_ttl = "\\n"', ("limits.held_ttl",
         r'it is "\n", but must be a number, greater than 0 (unit: seconds of service)')),
        (DOMAIN + "[uplink]\nlive_share = 1.0", ("uplink.live_share",
         "it is 1.0, but must be a number, at least 0.1 and at most 0.9 (unit: fraction)")),
        (DOMAIN + "[limits]\nstanza_bytes = true", ("limits.stanza_bytes",
         "it is true, but must be an integer, at least 10,000 and at most 1,048,576"
         " (unit: bytes)")),
        (DOMAIN + "[xmpp]\ntrust = 'all'",
         ("xmpp.trust", 'it is "all", but must be one of "site", "roster"')),
        (DOMAIN + "[xmpp]\ncomponent_secret = 12345",
         ("xmpp.component_secret", "it must be a string")),
        (DOMAIN + f"[web]\nnames = {['a.example'] * 17}", ("web.names",
         'it is ["a.example", "a.example", "a.example", "a.example", "a.exam...,'
         " but must be a list of strings with at most 16 entries")),
    ],
)  # fmt: skip
def test_mistake_is_reported(text: str, expected: tuple[str, str]) -> None:
    assert faults(text) == [expected]


def test_changed_options_are_shown_without_secrets(folder: Path) -> None:
    write(folder, DOMAIN + '[flash]\ncommit_wait = 0.02\n[xmpp]\ncomponent_secret = "hush"\n')
    result = check(folder)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        'gateway.domain = "gw.example"',
        'xmpp.component_secret = "(not shown)" (default: "")',
        "flash.commit_wait = 0.02 (default: 0.05)",
        "no mistakes found",
    ]


def test_invalid_option_is_not_listed_as_changed() -> None:
    report = config_check.check_text((DOMAIN + '[flash]\ncommit_wait = "x"').encode())
    assert report.changed == [ChangedOption("gateway.domain", "gw.example", None)]
    assert [fault.option for fault in report.faults] == ["flash.commit_wait"]


def test_mistakes_and_changes_in_an_array_are_reported_by_number(folder: Path) -> None:
    rules = DOMAIN + "[[readings]]\nfilter = 'a'\nfields = ['b']\nunit = {'b.c' = 'W'}\n"
    write(folder, f"{rules}[[readings]]\nfilter = 5\nnam = '%f'\n")
    result = check(folder)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "wrong: readings[2].filter: it is 5, but must be a string",
        "wrong: readings[2].nam: there is no such option; did you mean readings[2].name?",
        'gateway.domain = "gw.example"',
    ]
    write(folder, f"{rules}[[readings]]\nfilter = '#a'\n")
    assert check(folder).output.splitlines() == [
        "wrong: readings[2].filter: '#a': # must be a whole level, but the level is #a",
        'gateway.domain = "gw.example"',
        'readings[1].filter = "a"',
        'readings[1].fields = ["b"] (default: [])',
        'readings[1].unit = {"b.c" = "W"} (default: "")',
    ]


def test_all_mistakes_of_access_rules_are_reported() -> None:
    text = f"""{DOMAIN}[[access]]
device = "pump?"
publish = ["a/#/b", "c+"]
[[access]]
device = "PUMP"
"""
    assert [option for option, _text in faults(text)] == [
        "access[1].publish", "access[1].publish", "access[2].device",
    ]  # fmt: skip


def test_mistake_sets_the_exit_status_of_text_and_json(folder: Path) -> None:
    write(folder, DOMAIN + "[web]\nlisten = 9105")
    result = check(folder)
    assert result.exit_code == 1
    assert "wrong: web.listen: it is 9105, but must be a string" in result.output
    result = check(folder, "--json")
    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "faults": [Fault("web.listen", "it is 9105, but must be a string")._asdict()],
        "changed": {"gateway.domain": {"value": "gw.example", "default": None}},
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file or directory"), (b" \n", "is empty"), (b"\xff", "it is not UTF-8")],
)
def test_unusable_secret_of_a_component_is_reported(
    folder: Path, content: bytes | None, problem: str
) -> None:
    component = "component = '127.0.0.1:1'\ncomponent_secret = 'hush'\n"
    write(folder, f"{DOMAIN}[xmpp]\nlisten = ''\nlisten_tls = ''\n{component}")
    if content is not None:
        (folder / "hush").write_bytes(content)
    result = check(folder)
    assert result.exit_code == 1
    assert "wrong: xmpp.component_secret: " in result.output
    assert problem in result.output
    (folder / "hush").write_text("between us")
    assert check(folder).exit_code == 0


def test_missing_enrolment_is_reported(folder: Path) -> None:
    write(folder, f"{DOMAIN}[uplink]\nenrolment = 'gw.enrolment'\n")
    result = check(folder)
    assert result.exit_code == 1
    assert "wrong: uplink.enrolment: " in result.output
    assert "does not exist" in result.output


def test_missing_file_is_reported(tmp_path: Path) -> None:
    result = check(tmp_path)
    assert result.exit_code == 1
    assert "does not exist; create the gateway with `fieldpost init`" in result.output
