"""A headless Chromium for tests and screenshots, restricted to local files.

It uses Debian's packages `chromium` and `chromium-driver`, driven by selenium. There is no network
access: both programs are named explicitly, every host name is refused, and the browser is offline.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PROGRAMS: Final = ("chromium", "chromedriver")
"""The programs that `make browser-packages` installs."""

LOAD_S: Final = 20
"""Seconds within which a page must load: it takes less than one."""

PHONE: Final = (360, 740)
DESKTOP: Final = (1280, 900)
"""Width and height of a screen in CSS pixels."""

PAPER_PX: Final = 1032
"""Width of a printed page in CSS pixels: A4 in landscape, less the margins."""

Scheme = Literal["light", "dark"]


def missing() -> str:
    """Return why no browser can be started here; "" if one can."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"there is no {' and no '.join(lacking)} (make browser-packages)" if lacking else ""


class Browser:
    """A browser with one window. The console messages and requests of pages are collected."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver
        self._screen: tuple[int, int] = DESKTOP

    def open(
        self,
        page: Path | str,
        screen: tuple[int, int] = DESKTOP,
        scheme: Scheme = "light",
        media: str = "screen",
    ) -> None:
        """Open a file or an address with this screen and this colour scheme."""
        width, height = self._screen = screen
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        self._command("Emulation.setDeviceMetricsOverride", mobile=width < 600, **metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._command("Emulation.setEmulatedMedia", media=media, features=[feature])
        self._driver.get(page if isinstance(page, str) else page.as_uri())

    def evaluate(self, script: str, *arguments: object) -> Any:
        """Run a piece of JavaScript and return its value."""
        return self._driver.execute_script(script, *arguments)

    def wait_for(self, script: str) -> Any:
        """Run a piece of JavaScript until its value is true, and return it."""
        return WebDriverWait(self._driver, LOAD_S).until(lambda _: self.evaluate(script))

    def follow(self, link: str) -> None:
        """Click the first link of this text."""
        self._driver.find_element(By.LINK_TEXT, link).click()

    def accessible_nodes(self) -> list[dict[str, str]]:
        """Return the role and the name of each node that a screen reader finds on the page."""
        nodes = self._command("Accessibility.getFullAXTree")["nodes"]
        return [
            {key: str(node.get(key, {}).get("value", "")) for key in ("role", "name")}
            for node in nodes
            if not node["ignored"]
        ]

    def console_messages(self) -> list[str]:
        """Return the messages on the console since the last call."""
        return [str(entry["message"]) for entry in self._log("browser")]

    def requested_urls(self) -> list[str]:
        """Return the addresses that pages requested since the last call."""
        entries = [json.loads(entry["message"]) for entry in self._log("performance")]
        calls = [entry["message"] for entry in entries]
        sent = [each["params"] for each in calls if each["method"] == "Network.requestWillBeSent"]
        return [
            str(each["request"]["url"])
            for each in sent
            if each["documentURL"].startswith(("file:", "http:"))
        ]

    def pdf(self) -> bytes:
        """Print the page with its style for print."""
        self._command("Emulation.setEmulatedMedia", media="", features=[])
        sheet = self._command("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(sheet["data"])

    def picture(self, top: int = 0) -> bytes:
        """Take a picture (PNG) of a screenful of the page, from `top` pixels below its start."""
        width, height = self._screen
        picture = self._command(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=True,
            clip={"x": 0, "y": top, "width": width, "height": height, "scale": 1},
        )
        return base64.b64decode(picture["data"])

    def _log(self, name: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._driver.get_log(name)  # type: ignore[no-untyped-call]
        return entries

    def _command(self, name: str, **parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._driver.execute_cdp_cmd(name, parameters)
        return answer


@contextmanager
def chromium(profile: Path, *, loopback: bool = False) -> Iterator[Browser]:
    """Start a browser with its profile in a folder of its own, and end it.

    It reaches files alone or, with `loopback`, also the address 127.0.0.1.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless=new",
        f"--user-data-dir={profile}",
        "--host-resolver-rules=MAP * ~NOTFOUND" + (", EXCLUDE 127.0.0.1" if loopback else ""),
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
    ):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's refuses root, as which CI runs
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(LOAD_S)
        driver.execute_cdp_cmd("Network.enable", {})
        nothing = {
            "offline": not loopback,
            "latency": 0,
            "downloadThroughput": 0,
            "uploadThroughput": 0,
        }
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", nothing)
        yield Browser(driver)
    finally:
        driver.quit()
