"""The programs in `examples/` that are not Python: with libstrophe in C, and with xmpp.js."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.helpers import clients
from tests.helpers.clients import Login
from tests.helpers.gateway import DOMAIN
from tests.interop.conftest import Site

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60.0

Program: TypeAlias = Callable[[Login, Path], list[str | Path]]


@pytest.fixture(scope="module", params=["libstrophe", "xmpp.js"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return the words that start an example with a login and its folder."""
    folder = tmp_path_factory.mktemp("example")
    return strophe(folder) if request.param == "libstrophe" else xmppjs(folder)


def strophe(folder: Path) -> Program:
    """Compile the example by the command in its head."""
    clients.strophe_flags()
    source = Path(shutil.copy(EXAMPLES / "strophe_assured.c", folder))
    found = re.search(r"^ \*  +cc (.+)$", source.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    command = f"cc -Wall -Wextra -Werror {found[1]}"
    subprocess.run(["sh", "-euc", command], cwd=folder, check=True, timeout=WAIT_S)
    return lambda login, state: [
        *(folder / "strophe_assured", login.host, str(login.port), login.ca, login.jid, state)
    ]


def xmppjs(folder: Path) -> Program:
    """Copy the example to a folder that has the packages of the tests."""
    node, packages = clients.node_with("xmppjs")
    script = shutil.copy(EXAMPLES / "xmppjs" / "send.js", folder)
    example, tested = (
        json.loads(path.read_text("utf-8"))["dependencies"]["@xmpp/client"]
        for path in (EXAMPLES / "xmppjs" / "package.json", packages.parent / "package.json")
    )
    assert example == tested
    shutil.copy(EXAMPLES / "xmppjs" / "package.json", folder)
    (folder / "node_modules").symlink_to(packages)
    return lambda login, state: [
        *(node, script, login.host, str(login.port), DOMAIN, login.jid.partition("@")[0], state)
    ]


def run(
    program: Program, login: Login, state: Path, msg_id: str, text: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program(login, state), msg_id, text],
        input=f"{login.password}\n",
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(login.ca)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def texts(site: Site, login: Login) -> list[str]:
    return [event["text"] for event in site.events(login)]


@pytest.fixture
def login(site: Site, tmp_path: Path) -> Login:
    """Provision a device of its own for each test."""
    return site.login(tmp_path.name.lower(), "SCRAM-SHA-256")


def test_repeated_calls_deliver_once(
    site: Site, program: Program, login: Login, tmp_path: Path
) -> None:
    for _ in range(2):
        done = run(program, login, tmp_path, "m1", "dry <run> & \N{DEGREE SIGN}")
        assert (done.returncode, done.stdout) == (0, "delivered\n"), done.stderr
    assert texts(site, login) == ["dry <run> & \N{DEGREE SIGN}"]


def test_a_message_that_the_gateway_holds_is_not_offered_again(
    site: Site, program: Program, login: Login, tmp_path: Path
) -> None:
    """The program was killed between the gateway's answer and the request to deliver."""
    with site.start("slixmpp", login) as client:
        client.expect("online")
        client.ask("assured", "m1", "Note", "held", answer="answered")
    (tmp_path / "m1.released").touch()
    done = run(program, login, tmp_path, "m1", "offered again")
    assert (done.returncode, done.stdout) == (0, "delivered\n"), done.stderr
    assert texts(site, login) == ["held"]


def test_failures_are_reported(site: Site, program: Program, login: Login, tmp_path: Path) -> None:
    done = run(program, login._replace(password="not this one"), tmp_path, "m1", "text")
    assert done.returncode == 1
    assert texts(site, login) == []
    done = run(program, login, tmp_path, "m1", "text")
    assert done.returncode == 0, done.stderr
    assert texts(site, login) == ["text"]
