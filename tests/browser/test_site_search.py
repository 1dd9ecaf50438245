"""The documentation's site in a browser: its search, and what its pages request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser.chromium import Browser, chromium
from tests.browser.chromium import missing as missing_browser
from tests.helpers.documentation_site import build_site, missing

LACKING = missing_browser() or missing()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "all is there")

FOUND = """
    const links = [...document.querySelectorAll("a.md-search-result__link")];
    return links.length && links.map(link => link.pathname);
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    handler = partial(Quiet, directory=build_site(tmp_path_factory.mktemp("site")))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile"), loopback=True) as started:
        yield started


def test_the_search_finds_a_page_without_another_host(browser: Browser, address: str) -> None:
    browser.open(f"{address}index.html?q=readmit")
    found = browser.wait_for(FOUND)
    assert "/docs/how-to/maintain-the-tables.html" in found
    urls = browser.requested_urls()
    assert f"{address}search/search_index.json" in urls
    assert all(url.startswith((address, "blob:", "data:")) for url in urls)
    assert browser.console_messages() == []


def test_pages_request_nothing_from_another_host(browser: Browser, address: str) -> None:
    for page in ("docs/tutorial.html", "docs/reference/state-machines.html"):
        browser.open(address + page)
        urls = browser.requested_urls()
        assert address + page in urls
        assert all(url.startswith((address, "data:")) for url in urls)
