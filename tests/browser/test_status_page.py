"""The gateway's status page in a browser: words stay whole on a phone."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.browser.chromium import DESKTOP, PHONE, Scheme, chromium, missing
from tests.helpers.folder import configure
from tests.helpers.gateway import Gateway
from tests.helpers.processes import Process
from tests.helpers.xmpp import Client

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
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


def read_page(process: Process) -> str:
    host, port = process.host_port("web")
    with urllib.request.urlopen(f"http://{host}:{port}/", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


async def test_words_of_the_status_page_stay_whole(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway", "pump1", require_tls=False)
    configure(gateway.folder, "web", listen="127.0.0.1:0")
    with gateway.run() as process:
        async with await Client.connect(process.host_port("xmpp")[1]) as client:
            await client.element()
            await client.authenticate("SCRAM-SHA-256", "pump1", "wrong")
        process.wait_for_stderr("wrong password")
        text = read_page(process)
        assert process.terminate() == 0
    file = tmp_path / "page.html"
    file.write_text(text, "utf-8")
    schemes: tuple[Scheme, ...] = ("light", "dark")
    with chromium(tmp_path / "profile") as browser:
        for screen in (PHONE, (390, 844), DESKTOP):
            for scheme in schemes:
                browser.open(file, screen, scheme)
                assert "wrong password" in browser.evaluate("return document.body.innerText")
                assert browser.evaluate(BROKEN_WORDS) == []
                assert browser.evaluate(WIDER) == 0
