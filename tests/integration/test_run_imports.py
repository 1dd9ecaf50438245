"""What a gateway with a minimal configuration imports. Each module costs memory for as long as it
runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.processes import start
from tests.helpers.xmpp import log_in

NOT_IMPORTED: Final = {
    "_strptime": "nothing",
    "aiohttp": "the uplink and the status page",
    "click": "commands other than run",
    "cryptography": "signing certificates",
    "edge.cli": "commands other than run",
    "edge.server.component": "a component",
    "edge.uplink.uploads": "an uplink",
    "edge.web": "the status page",
    "email": "an uplink",
    "http": "an uplink",
    "importlib.resources": "nothing",
    "prometheus_client": "the status page",
    "shutil": "commands other than run",
    "slixmpp": "a component, and addresses that are not ASCII",
    "sync.uplink.http_client": "an uplink",
    "sync.uplink.uploader": "an uplink",
    "tempfile": "nothing",
    "urllib.request": "an uplink",
    "zipfile": "nothing",
}
"""Packages and modules that a gateway without an uplink and without a status page does not need,
and what needs them."""

_IMPORTED: Final = re.compile(r"import time:[ \d]+\|[ \d]+\|\s*([\w.]+)")


async def test_an_idle_gateway_imports_only_what_is_configured(tmp_path: Path) -> None:
    """A device logs in by TLS, so that what the first session needs counts as well."""
    gateway = Gateway(tmp_path / "gateway", "cam1")
    with start(
        *("fieldpost", "run", "--dir", gateway.folder), env={"PYTHONPROFILEIMPORTTIME": "1"}
    ) as process:
        async with await log_in(port_of(process), gateway.ca, "cam1", PASSWORD):
            imported = set(_IMPORTED.findall(process.stderr))
        assert process.terminate() == 0
    assert {"edge.app", "asyncio", "edge.server.session"} <= imported
    found = {
        f"{name} (for {use})"
        for name, use in NOT_IMPORTED.items()
        if name in imported or any(other.startswith(f"{name}.") for other in imported)
    }
    assert not found
