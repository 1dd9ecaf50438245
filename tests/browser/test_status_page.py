"""The gateway's status page in a browser: on a phone and a desktop, light and dark."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.engine.store.database import Transaction
from edge.features.queues.store import queue_items
from edge.features.queues.store.queue_items import Lock, NewQueuedItem
from edge.ops.certificates import pki
from sync.common.enrolment import Enrolment, format_enrolment, new_token
from tests.browser.chromium import DESKTOP, PHONE, Browser, Scheme, chromium, missing
from tests.helpers import queue_rows
from tests.helpers.folder import change, configure
from tests.helpers.gateway import PASSWORD, Gateway
from tests.helpers.mqtt import MqttClient
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client, log_in

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")

BROKEN_WORDS = r"""
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const word of walker.currentNode.data.matchAll(/[A-Za-z]+/g)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, word.index);
        range.setEnd(walker.currentNode, word.index + word[0].length);
        if (range.getClientRects().length > 1) found.push(word[0]);
      }
    }
    return found;
"""
OVERFLOWING = """
    const wide = document.documentElement.clientWidth;
    return [...document.querySelectorAll("body *")]
      .filter(each => each.getBoundingClientRect().right > wide + 0.5)
      .map(each => each.outerHTML.slice(0, 100));
"""
FAINT = """
    const rgb = color => color.match(/[\\d.]+/g).slice(0, 3).map(each => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    const light = color => {
      const [red, green, blue] = rgb(color);
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    };
    const behind = each => {
      const color = getComputedStyle(each).backgroundColor;
      return color == "rgba(0, 0, 0, 0)" ? behind(each.parentElement) : color;
    };
    return [...document.querySelectorAll("body *")].filter(each => {
      const [one, other] = [light(getComputedStyle(each).color), light(behind(each))];
      return Math.max(one, other) / Math.min(one, other) < 4.5;
    }).map(each => each.outerHTML.slice(0, 100));
"""
"""Elements whose text has less contrast than 4.5 to 1 (WCAG 2.2, success criterion 1.4.3)."""

SEEN = (
    "Devices can connect, and messages are accepted",
    "2 sessions: 1 mqtt, 1 xmpp",
    # the uplink and its backlog
    "segments go to https://127.0.0.1:1",
    "last upload: never",
    "unreachable: ",
    "the backlog uses ",
    # queues
    "the queue has no subscribers",
    "no more items are accepted: the limit items_per_queue = 3 is reached",
    "no subscriber is connected: spare@gw.example",
    "delivered to pump1@gw.example/fw ",
    "the lock ends ",
    "delivery 1 of ",
    "dead: given out 5 times",
    "0 of 1 subscriber connected",
    # devices and limits
    "mqtt 5.0",
    "offline",
    "nodes_per_account",
    "75%",
    "wrong password",
)


def read_page(process: Process) -> str:
    host, port = process.host_port("web")
    with urllib.request.urlopen(f"http://{host}:{port}/", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def fill(tx: Transaction) -> None:
    """Create a queue without subscribers, one whose subscriber is away, and one with a locked
    item and a dead one."""
    for name in ("jobs/nobody", "jobs/away", "jobs/a-long-name-without-any-space/of-a-boiler-room"):
        queue = queue_rows.node(tx, name)
        rows = [
            queue_items.enqueue(tx, queue, NewQueuedItem(name, item, queue_rows.PUBLISHER, b""))
            for item in ("one", "two", "three")
        ]
        if name == "jobs/away":
            queue_rows.join(tx, queue, "spare@gw.example")
        if "long" in name:
            lock = Lock(0, "pump1@gw.example/fw", tx.now.service + 3600)
            queue_items.lock(tx, queue, rows[0], lock)
            queue_items.dead_letter(tx, rows[1].row, "given out 5 times")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
async def page(tmp_path: Path) -> Path:
    """The page of a gateway with sessions, queues that do not move, and no way to the centre."""
    gateway = Gateway(tmp_path / "gateway", "pump1", "valve", "spare", require_tls=False)
    change(gateway.folder, fill)
    ca = pki.files(gateway.folder).ca.read_text("utf-8")
    enrolment = Enrolment("gw.example", "https://127.0.0.1:1", new_token(), ca)
    (gateway.folder / "enrolment.json").write_text(format_enrolment(enrolment), "utf-8")
    (gateway.folder / "enrolment.json").chmod(0o600)
    configure(gateway.folder, "web", listen="127.0.0.1:0")
    configure(gateway.folder, "mqtt", listen="127.0.0.1:0", require_tls=False)
    configure(gateway.folder, "uplink", enrolment="enrolment.json", segment_age=0.1)
    configure(gateway.folder, "limits", nodes_per_account=4, items_per_queue=3)
    with gateway.run() as process:
        port = process.host_port("xmpp")[1]
        async with await Client.connect(port) as client:
            await client.element()
            await client.authenticate("SCRAM-SHA-256", "pump1", "wrong")
        process.wait_for_stderr("wrong password")
        process.wait_for_stderr("uplink unreachable")
        valve = await MqttClient.connect(process, "valve", "valve-in-the-cellar")
        async with await log_in(port, gateway.ca, "pump1", PASSWORD), valve:
            text = read_page(process)
        assert process.terminate() == 0
    file = tmp_path / "page.html"
    file.write_text(text, "utf-8")
    return file


async def test_the_status_page_fits_each_screen_and_can_be_read(
    page: Path, browser: Browser
) -> None:
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for screen in (PHONE, (390, 844), (800, 1200), DESKTOP):
        for scheme in schemes:
            browser.open(page, screen, scheme)
            text = re.sub(r"\s+", " ", browser.evaluate("return document.body.innerText"))
            for expected in SEEN:
                assert expected in text
            assert browser.evaluate(BROKEN_WORDS) == []
            assert browser.evaluate(OVERFLOWING) == []
            assert browser.evaluate(FAINT) == []
            assert browser.console_messages() == []
            assert browser.requested_urls() == [page.as_uri()]
