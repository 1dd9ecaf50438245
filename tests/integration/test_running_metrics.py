"""The status page and metrics of a running gateway."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge.cli.commands import main
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import Process
from tests.helpers.xmpp import log_in, log_message

SECONDS = 20


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    made = Gateway(tmp_path / "gateway", "pump1")
    path = made.folder / "fieldpost.toml"
    before, web = path.read_text("utf-8").split("[web]\n")
    web = web.replace('listen = ""', 'listen = "127.0.0.1:0"')
    path.write_text(f"{before}[web]\n{web}", "utf-8")
    return made


@pytest.fixture
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as started:
        yield started


def get(process: Process, path: str) -> str:
    host, port = process.host_port("web")
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def figure(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def test_figures_follow_sessions_messages_and_commits(
    gateway: Gateway, process: Process
) -> None:
    before = get(process, "/metrics")
    assert figure(before, "fieldpost_listener_up") == 1
    async with await log_in(port_of(process), gateway.ca, "pump1", PASSWORD) as pump:
        await pump.assured("m1", log_message(1))
        assert json.loads(get(process, "/health"))["status"] == "ok"
        after = get(process, "/metrics")
        assert figure(after, 'fieldpost_limit_used{limit="sessions"}') == 1
    for name in ("stanzas_total", "commits_total", "database_written_bytes_total"):
        assert figure(after, f"fieldpost_{name}") > figure(before, f"fieldpost_{name}")
    page = get(process, "/")
    assert "<td>pump1" in page or '<th scope="row">pump1' in page
    assert "devices can connect" in page
    assert "m1" not in page
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(process, "/../fieldpost.toml")
    refused.value.close()
    assert refused.value.code == 404
    result = CliRunner().invoke(main, ["doctor", "--json", "--dir", str(gateway.folder)])
    names = {each["name"]: each["verdict"] for each in json.loads(result.output)["findings"]}
    assert names["gateway"] == names["database"] == "ok"
