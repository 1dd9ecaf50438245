"""A running gateway is backed up and restored elsewhere."""

from __future__ import annotations

from pathlib import Path

from edge.ops.data import backup
from edge.ops.devices import devices
from tests.helpers.gateway import PASSWORD, Gateway, port_of
from tests.helpers.xmpp import log_in, log_message


async def test_restored_gateway_begins_a_new_epoch(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gw", "pump")
    backup_folder = tmp_path / "gw.backup"
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "pump", PASSWORD) as client:
            assert await client.assured("m1", log_message(1)) == "received"
            manifest = backup.write(gateway.folder, backup_folder)
            assert await client.deliver("m1") == "delivered"
    before = list(gateway.events())
    backup.restore(backup_folder, tmp_path / "restored")
    devices.add(tmp_path / "restored", "valve", PASSWORD, trusted=True)
    gateway.folder = tmp_path / "restored"
    with gateway.run() as process:
        async with await log_in(port_of(process), gateway.ca, "pump", PASSWORD) as client:
            assert await client.deliver("m1") == "delivered", (
                "the message was in custody at the time of the backup"
            )
        process.terminate()
    after = list(gateway.events())
    assert {event["epoch"] for event in before} == {manifest.epoch}
    old = [event for event in after if event["epoch"] == manifest.epoch]
    assert [event["seq"] for event in old if event["lane"] == "system"] == [1]
    new = [event for event in after if event["epoch"] != manifest.epoch]
    assert {event["epoch"] for event in new} == {max(event["epoch"] for event in after)}
    system = [event for event in new if event["lane"] == "system"]
    names = [event["name"] for event in system if event["kind"] != "session"]
    assert names == ["epoch", "start", "stop"]
    assert [event["seq"] for event in system] == list(range(1, len(system) + 1))
    assert system[0]["tags"] == {"reason": "restored", "before": manifest.epoch}
    assert [event["seq"] for event in new if event["lane"] == "logs"] == [1]
    with gateway.run() as process:
        port_of(process)
        process.terminate()
    names = [event["name"] for event in gateway.events("system")]
    assert names.count("epoch") == 1, "the mark of the copy is removed"
