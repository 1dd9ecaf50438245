"""Debian's tools that send one message and end: go-sendxmpp and sendxmpp, in scripts everywhere.

Both log in by PLAIN under TLS whatever else is offered, verify the certificate, bind and send. They
receive nothing: what they sent is found in the event log, or at another device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.helpers.clients import Login
from tests.helpers.gateway import DOMAIN, Gateway
from tests.interop.conftest import Site

SECONDS = 60
READS = 40
EVENT = (
    f"<message to='{DOMAIN}'><log xmlns='urn:xmpp:eventlog' id='Sent'>"
    "<message>by a script</message></log></message>"
)
TOOLS = ["go-sendxmpp", "sendxmpp"]
TOOLS_AND_TRANSPORTS = [*product(TOOLS, ["starttls", "direct"])]


def command(tool: str, login: Login) -> list[str]:
    """Return the command that logs in over the login's transport."""
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} (make interop-packages)")
    user, _, domain = login.bare.partition("@")
    server = f"{login.host}:{login.port}"
    direct = login.transport == "direct"
    if tool == "go-sendxmpp":
        words = ["-u", login.bare, "-j", server, *(["-t"] if direct else [])]
    else:
        words = ["-u", user, "-o", domain, "-j", server, "-e" if direct else "-t"]
        words += ["-a", str(login.ca), "-d", "-d"]
    return [tool, "-p", login.password, *words]


def send(
    tool: str, login: Login, home: Path, what: str = EVENT, to: str = "--raw"
) -> subprocess.CompletedProcess[str]:
    """Send a text to a bare JID, or unchanged XML to the JID that it names."""
    # Without a home that has a configuration file; Go takes its authorities from $SSL_CERT_FILE.
    environment = os.environ | {"HOME": str(home), "SSL_CERT_FILE": str(login.ca)}
    return subprocess.run(
        [*command(tool, login), to],
        input=what,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=SECONDS,
        env=environment,
    )


@pytest.mark.parametrize(("tool", "transport"), TOOLS_AND_TRANSPORTS)
def test_a_tools_event_is_logged(site: Site, tool: str, transport: str, tmp_path: Path) -> None:
    login = site.login(f"{tool}-{transport}", "PLAIN", transport)
    done = send(tool, login, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    if tool == "sendxmpp":
        assert "mechanism='PLAIN'" in done.stderr
    reads = (site.events(login) for _ in range(READS))  # go-sendxmpp waits for nothing
    found = next(filter(None, reads), [])
    assert [(event["name"], event["text"]) for event in found] == [("Sent", "by a script")]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tools_message_reaches_a_device(site: Site, tool: str, tmp_path: Path) -> None:
    login = site.login(f"{tool}-writer", "PLAIN")
    reader_login = site.login(f"{tool}-reader", "SCRAM-SHA-256")
    with site.start("slixmpp", reader_login) as reader:
        jid = reader.expect("online").split()[0]
        reader.send_line("presence")
        reader.expect("presence", jid, "available")
        done = send(tool, login, tmp_path, "valve <7> & pump", jid.partition("/")[0])
        assert done.returncode == 0, done.stdout + done.stderr
        sender, _, text = reader.expect("message").partition(" ")
        assert sender.startswith(f"{tool}-writer@{DOMAIN}/")
        assert text == "valve <7> & pump"
        assert reader.quit() == 0
        assert reader.unread("message") == []


@pytest.mark.parametrize("tool", TOOLS)
def test_a_wrong_password_sends_nothing(site: Site, tool: str, tmp_path: Path) -> None:
    login = site.login(f"{tool}-guessed", "PLAIN")
    done = send(tool, login._replace(password="not this one"), tmp_path)
    assert done.returncode != 0
    assert "not-authorized" in done.stdout + done.stderr
    assert site.events(login) == []


@pytest.mark.long
@pytest.mark.parametrize(("tool", "transport"), TOOLS_AND_TRANSPORTS)
def test_a_tool_refuses_a_gateway_of_another_ca(
    site: Site, tool: str, transport: str, tmp_path: Path
) -> None:
    login = site.login(f"{tool}-{transport}-careful", "PLAIN", transport)
    other = Gateway(tmp_path / "other")
    done = send(tool, login._replace(ca=other.ca), tmp_path)
    assert done.returncode != 0
    assert "mechanism='PLAIN'" not in done.stderr
    assert site.events(login) == []
