"""The programs of docs/how-to/integrate-firmware.md, run as its readers run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.helpers.gateway import PASSWORD

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "integrate-firmware.md"
WAIT_S = 60.0


def run_example(part: str, folder: Path, *words: object) -> list[str]:
    """Run the first program that contains a text, with these arguments; return its output."""
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    (folder / "example.py").write_text(next(p for p in programs if part in p), "utf-8")
    result = subprocess.run(
        [sys.executable, str(folder / "example.py"), *map(str, words)],
        input=f"{PASSWORD}\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
