"""Debian's Prometheus reads a running gateway, with the configuration of docs/how-to/monitor.md."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from tests.helpers import promtool
from tests.helpers.folder import configure
from tests.helpers.gateway import Gateway
from tests.helpers.processes import free_port, start

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "monitoring"
GUIDE: Final = (ROOT / "docs" / "how-to" / "monitor.md").read_text("utf-8")
WAIT_S: Final = 60.0
READ_TWICE: Final = (
    "timestamp(fieldpost_time_seconds) and count_over_time(fieldpost_time_seconds[1m]) > 1"
)

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus (make interop-packages)"
)


class Api:
    """The HTTP API of a Prometheus.

    Attributes:
        at: the time of queries in seconds since 1970; empty for now.
    """

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"
        self.at = ""

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer; a faulty query raises `HTTPError`."""
        url = f"{self._base}/{path}?{urlencode(query)}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:  # noqa: S310 - it is http
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression, time=self.at)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A Prometheus that has read a gateway with a front process twice, and evaluated the rules."""
    folder = tmp_path_factory.mktemp("prometheus")
    gateway = Gateway(folder / "gateway", processes=1)
    configure(gateway.folder, "web", listen="127.0.0.1:0")
    (documented,) = re.findall(r"^```yaml\n(rule_files:.+?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    shutil.copy(FOLDER / "fieldpost.rules.yml", folder)
    with gateway.run() as process:
        text = documented.replace("scrape_interval: 30s", "scrape_interval: 2s")
        gateways, centre = re.findall(r"targets: (\[.*\])", text)
        text = text.replace(gateways, '["{}:{}"]'.format(*process.host_port("web")))
        text = text.replace(centre, '["127.0.0.1:1"]')
        file = folder / "prometheus.yml"
        file.write_text(f"global: {{evaluation_interval: 1s}}\n{text}", "utf-8")
        promtool.run("check", "config", file)
        port = free_port()
        options = (f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}")
        with start("prometheus", f"--config.file={file}", *options, ready=False) as server:
            server.wait_for_stderr("Server is ready to receive web requests")
            api, deadline = Api(port), time.monotonic() + WAIT_S
            while not (
                (found := api.query(READ_TWICE))
                and all(rule["health"] != "unknown" for rule in api.rules())
            ):
                assert time.monotonic() < deadline, server.stderr
                time.sleep(0.05)
            api.at = found[0]["value"][1]  # a later reading may fail on a busy machine
            yield api


def test_a_gateway_without_problems_fires_no_alert(prometheus: Api) -> None:
    assert prometheus.query('up{job="fieldpost"}')[0]["value"][1] == "1"
    rules = prometheus.rules()
    assert len(rules) > 20
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_the_panels_of_the_dashboard_show_a_gateway(prometheus: Api) -> None:
    panels = json.loads((FOLDER / "fieldpost.dashboard.json").read_text("utf-8"))["panels"]
    empty = set()
    for panel in panels:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "1m")
            if not prometheus.query(text.replace("$job", "fieldpost").replace("$instance", ".+")):
                empty.add(panel["title"])
    assert empty == {"Failed log-ins by reason", "Refusals by rule"}, "of these there are none"
