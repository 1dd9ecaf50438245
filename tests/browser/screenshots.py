"""Create the screenshots of the report in docs/images, always of the same sample fleet.

Run by `make screenshots`. Each image has few colours, and so few bytes.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from PIL import Image

from sync.pages.files import write_report
from sync.storage.local import LocalStorage
from tests.browser.chromium import DESKTOP, PHONE, Browser, Scheme, chromium, missing
from tests.helpers.sample_findings import sample

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"

COLOURS: Final = 128
"""Colours of an image: a page has a dozen, and letters have blended edges."""

GATEWAY: Final = "gateways/gw-005.example.html"


class Picture(NamedTuple):
    """A screenshot: the page, the first element, the screen, and the colour scheme."""

    name: str
    page: str
    begin: str
    screen: tuple[int, int]
    scheme: Scheme


PICTURES: Final = (
    Picture("report-desktop-light", "index.html", "header", DESKTOP, "light"),
    Picture("report-desktop-dark", "index.html", "#gateways", DESKTOP, "dark"),
    Picture("report-phone-light", "index.html", "header", PHONE, "light"),
    Picture("report-phone-dark", "index.html", ".overview", PHONE, "dark"),
    Picture("gateway-desktop-light", GATEWAY, "#facts", DESKTOP, "light"),
    Picture("gateway-phone-dark", GATEWAY, "#queues", PHONE, "dark"),
)


def main() -> int:
    """Create all screenshots; exit status 1 if there is no browser."""
    if missing():
        sys.stderr.write(f"{missing()}\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        write_report(sample(12), LocalStorage(report))
        with chromium(Path(folder) / "profile") as browser:
            for picture in PICTURES:
                _make(browser, report, picture)
    return 0


def _make(browser: Browser, report: Path, picture: Picture) -> None:
    browser.open(report / picture.page, picture.screen, picture.scheme)
    begin = browser.evaluate(
        "return document.querySelector(arguments[0]).getBoundingClientRect().top", picture.begin
    )
    screenshot = Image.open(io.BytesIO(browser.picture(max(int(begin) - 8, 0))))
    reduced = screenshot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    target = FOLDER / f"{picture.name}.png"
    reduced.save(target, optimize=True)
    sys.stdout.write(f"{target.name} {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    sys.exit(main())
