"""A gateway, a receiver and the ingest, with segments and tables in a bucket that fails at times.

The bucket refuses puts only: a gateway that starts while nothing answers keeps its segments.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from sync.storage.locations import open_storage
from tests.helpers.fleet import HOST
from tests.helpers.fleet_command import fleet_command
from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.object_store import BUCKET, FaultyProxy, download, environment
from tests.helpers.processes import free_port, start
from tests.helpers.stored_rows import stored_rows

URI = f"s3://{BUCKET}/fleet"
URIS = ("--landing", f"{URI}/landing", "--tables", f"{URI}/tables")


def test_each_event_of_a_gateway_is_once_in_the_tables_of_a_bucket(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, at = tmp_path / "fleet", f"{HOST}:{free_port()}"
    gateway = Gateway(tmp_path / "gateway")
    out = gateway.folder / "enrolment.json"
    added = fleet_command(
        *("gateway", "add", DOMAIN, "--dir", fleet, "--url", f"https://{at}", "--out", out)
    )
    assert added.returncode == 0, added.stderr
    gateway.configure(enrolment=out.name, segment_age=1, heartbeat=1)
    serve = ("fieldpost-fleet", "serve", "--dir", fleet, "--listen", at, *URIS)
    with FaultyProxy(s3, Random(1)).running() as proxy, monkeypatch.context() as patched:
        for name, value in environment(proxy.url).items():
            patched.setenv(name, value)
        proxy.kinds, proxy.only = ("503",), "PUT"
        for share in (0.0, 1.0, 0.0):
            proxy.share = 0.0
            with start(*serve, "--spool", "1000000", "--ingest-every", "1") as receiver:
                with gateway.run() as process:
                    proxy.share = share
                    assert process.terminate() == 0
                assert receiver.terminate() == 0
            spooled = list((fleet / "incoming" / "spool").rglob("*.seg"))
            assert bool(spooled) is bool(share)
    assert fleet_command("ingest", *URIS).returncode == 0
    sent = [(event["lane"], event["seq"], event["name"]) for event in gateway.events()]
    rows, segments = stored_rows(download(open_storage(URI), tmp_path / "copy"))
    assert Counter((row["lane"], row["seq"], row["name"]) for row in rows) == Counter(sent)
    assert {row["fate"] for row in segments} == {"accepted"}
