from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge import credentials
from edge.engine.store.database import MessageBytes, Transaction
from edge.errors import ConfigError, SetupError, StoreFull
from edge.features.accounts.store import accounts
from edge.features.accounts.store import certificates as issued
from edge.features.custody import store as custody
from edge.features.outbox.store import outbox
from edge.features.outbox.store.outbox import OutgoingMessage
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import affiliations, items, nodes
from edge.features.queues.store import queue_items, queues
from edge.features.queues.store.queue_items import NewQueuedItem
from edge.ops.certificates import certificates, pki
from edge.ops.devices import device_status, devices
from sync.common import durable_files
from sync.common.durable_files import FolderBusyError
from tests.helpers import issued_certificates, waiting
from tests.helpers.folder import change, configure, fieldpost, query, system_events
from tests.helpers.gateway import Gateway

JID = "pump1@gw.example"


def run_sql(folder: Path, sql: str) -> None:
    change(folder, lambda tx: tx.run(sql))


def select(folder: Path, sql: str) -> list[tuple[object, ...]]:
    return query(folder, lambda tx: tx.rows(sql))


def provision(folder: Path, password: str | None = None) -> Path:
    """Add a device with a certificate; return the folder of its files."""
    place = devices.add(folder, "pump1", password, trusted=True, certificate=True).certificate
    assert place is not None
    return place


def owner(folder: Path, certificate: bytes) -> str | None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    fingerprint = x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256())
    return query(folder, lambda tx: issued.find_owner(tx, fingerprint))


def stored(folder: Path, name: str, mechanism: str = "SCRAM-SHA-256") -> credentials.Credentials:
    stored_credentials = query(folder, lambda tx: accounts.credentials(tx, name, mechanism))
    assert stored_credentials is not None
    return stored_credentials


def test_generated_password_is_not_stored(folder: Path) -> None:
    jid, password, place = devices.add(folder, "pump1", None, trusted=True)
    assert (jid, place) == (JID, None)
    assert password is not None
    for mechanism in credentials.MECHANISMS:
        assert credentials.verify(password, stored(folder, "pump1", mechanism))
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert password.encode() not in written


def test_name_is_unique(folder: Path) -> None:
    devices.add(folder, "pump1", "x", trusted=True)
    with pytest.raises(SetupError, match="exists"):
        devices.add(folder, "pump1", "y", trusted=True)
    assert credentials.verify("x", stored(folder, "pump1"))


@pytest.mark.parametrize("name", ["a", "pump-1", "p.1_x", "x" * 64, "0"])
def test_valid_name(folder: Path, name: str) -> None:
    assert devices.add(folder, name, "x", trusted=True)[0] == f"{name}@gw.example"


@pytest.mark.parametrize(
    "name", ["", "Pump", "-a", "a-", ".", "a@b", "a/b", "a b", "ä", "x" * 65, "a\n"]
)
def test_invalid_name_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(SetupError, match="device name"):
        devices.add(folder, name, "x", trusted=True)


@pytest.mark.parametrize("password", ["", "\x07", "x" * 2000])
def test_invalid_password_is_refused_in_one_line(folder: Path, password: str) -> None:
    with pytest.raises(SetupError, match=r"^[^\n]*password[^\n]*$"):
        devices.add(folder, "pump1", password, trusted=True)


def test_device_with_a_certificate_has_no_password(folder: Path) -> None:
    jid, password, place = devices.add(folder, "pump1", None, trusted=True, certificate=True)
    assert (jid, password, place) == (JID, None, folder / "devices" / "pump1")
    assert place is not None
    assert owner(folder, (place / "cert.pem").read_bytes()) == "pump1"
    (device,) = device_status.list_all(folder)
    assert (device.password, device.days, device.revoked) == (False, 364, None)


def test_validity_of_certificates_is_configurable(folder: Path) -> None:
    configure(folder, "xmpp", certificate_days=30)
    devices.add(folder, "pump1", None, trusted=True, certificate=True)
    assert [device.days for device in device_status.list_all(folder)] == [29]


def test_files_of_a_certificate_have_private_modes(folder: Path) -> None:
    place = provision(folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()}
    assert modes == {"cert.pem": 0o644, "key.pem": 0o600, "ca.pem": 0o644}
    assert [at.stat().st_mode & 0o777 for at in (place, place.parent)] == [0o700, 0o700]
    assert (place / "ca.pem").read_bytes() == pki.files(folder).ca.read_bytes()


def test_failed_commit_leaves_no_certificate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(issued, "add", full)
    with pytest.raises(StoreFull):
        devices.add(folder, "pump1", None, trusted=True, certificate=True)
    assert list((folder / "devices").iterdir()) == []
    assert device_status.list_all(folder) == []


def test_missing_ca_key_adds_no_device(folder: Path) -> None:
    pki.files(folder).ca_key.unlink()
    with pytest.raises(SetupError, match=r"ca\.key cannot be read"):
        devices.add(folder, "pump1", None, trusted=True, certificate=True)
    assert device_status.list_all(folder) == []


def test_renewal_keeps_the_old_certificate_valid(folder: Path) -> None:
    place = provision(folder)
    old, old_key = ((place / name).read_bytes() for name in ("cert.pem", "key.pem"))
    assert devices.renew(folder, "pump1") == (place, 0, False)
    assert (place / "key.pem").read_bytes() != old_key
    for certificate in (old, (place / "cert.pem").read_bytes()):
        assert owner(folder, certificate) == "pump1"
    assert [path.name for path in place.parent.iterdir()] == ["pump1"]


@pytest.mark.parametrize("name", ["/", "../pki", "", "missing"])
def test_renewal_for_another_name_touches_no_file(folder: Path, name: str) -> None:
    leftover = folder / ".pki.0"
    leftover.mkdir()
    with pytest.raises(SetupError):
        devices.renew(folder, name)
    assert leftover.exists()


def test_renewal_can_revoke_old_certificates(folder: Path) -> None:
    place = provision(folder)
    old, crl = (place / "cert.pem").read_bytes(), pki.files(folder).crl.read_bytes()
    assert devices.renew(folder, "pump1", revoke_old=True) == (place, 1, False)
    assert owner(folder, old) is None
    assert owner(folder, (place / "cert.pem").read_bytes()) == "pump1"
    assert pki.files(folder).crl.read_bytes() != crl


def test_certificate_can_be_added_to_a_password(folder: Path) -> None:
    devices.add(folder, "pump1", "secret", trusted=True)
    place = devices.renew(folder, "pump1").folder
    assert owner(folder, (place / "cert.pem").read_bytes()) == "pump1"
    assert credentials.verify("secret", stored(folder, "pump1"))


def test_certificates_of_a_device_are_limited(folder: Path) -> None:
    devices.add(folder, "pump1", None, trusted=True)
    for _ in range(issued.MAX_VALID):
        devices.renew(folder, "pump1")
    before = (certificates.device_folder(folder, "pump1") / "cert.pem").read_bytes()
    with pytest.raises(SetupError, match="has 8 certificates already"):
        devices.renew(folder, "pump1")
    assert (certificates.device_folder(folder, "pump1") / "cert.pem").read_bytes() == before
    assert devices.renew(folder, "pump1", revoke_old=True).revoked == issued.MAX_VALID


def test_missing_revocation_list_is_created(folder: Path) -> None:
    pki.files(folder).crl.unlink()
    devices.add(folder, "pump1", None, trusted=True, certificate=True)
    assert pki.files(folder).crl.exists()


def test_revocation_covers_password_and_certificates(folder: Path) -> None:
    place = provision(folder, "secret")
    devices.renew(folder, "pump1")
    assert devices.revoke(folder, "pump1") == 2
    assert owner(folder, (place / "cert.pem").read_bytes()) is None
    assert query(folder, lambda tx: accounts.credentials(tx, "pump1", "SCRAM-SHA-256")) is None
    assert not query(folder, lambda tx: accounts.is_active(tx, "pump1"))
    (device,) = device_status.list_all(folder)
    assert device.revoked is not None
    assert (device.password, device.not_after, device.days) == (False, None, None)
    (event,) = system_events(folder)
    assert (event.source, event.name, event.level) == (JID, "revoked", "Warning")


def test_revoking_twice_changes_nothing(folder: Path) -> None:
    devices.add(folder, "pump1", "secret", trusted=True)
    assert devices.revoke(folder, "pump1") == 0
    before = device_status.list_all(folder)
    assert devices.revoke(folder, "pump1") == 0
    assert device_status.list_all(folder) == before
    assert len(system_events(folder)) == 1


def test_new_password_restores_a_device_without_its_certificates(folder: Path) -> None:
    place = provision(folder, "old")
    devices.revoke(folder, "pump1")
    assert devices.set_password(folder, "pump1", "new") == (None, True)
    assert credentials.verify("new", stored(folder, "pump1"))
    assert owner(folder, (place / "cert.pem").read_bytes()) is None
    assert [row.name for row in system_events(folder)] == ["revoked", "restored"]


def test_new_certificate_restores_a_device_without_its_password(folder: Path) -> None:
    devices.add(folder, "pump1", "old", trusted=True)
    devices.revoke(folder, "pump1")
    place, _, restored = devices.renew(folder, "pump1")
    assert restored
    assert owner(folder, (place / "cert.pem").read_bytes()) == "pump1"
    assert query(folder, lambda tx: accounts.credentials(tx, "pump1", "SCRAM-SHA-256")) is None


def test_revocation_holds_without_a_revocation_list(folder: Path) -> None:
    place = provision(folder)
    pki.files(folder).ca_key.unlink()
    error = r"pump1@gw\.example is revoked, but .*crl\.pem could not be"
    with pytest.raises(SetupError, match=error):
        devices.revoke(folder, "pump1")
    assert owner(folder, (place / "cert.pem").read_bytes()) is None


def test_invalid_password_changes_nothing(folder: Path) -> None:
    devices.add(folder, "pump1", "old", trusted=True)
    with pytest.raises(SetupError, match="password"):
        devices.set_password(folder, "pump1", "\x07")
    assert credentials.verify("old", stored(folder, "pump1"))


@pytest.mark.parametrize(
    "operation",
    [devices.renew, devices.revoke, devices.remove,
     lambda folder, name: devices.set_password(folder, name, "x"),
     lambda folder, name: devices.set_downgrade(folder, name, True)],
)  # fmt: skip
def test_missing_device_is_reported(folder: Path, operation: Callable[[Path, str], object]) -> None:
    with pytest.raises(SetupError, match="device 'pump1' does not exist"):
        operation(folder, "pump1")
    assert not certificates.device_folder(folder, "pump1").exists()


def test_removal_keeps_only_revoked_certificates(folder: Path) -> None:
    place = provision(folder)
    certificate = (place / "cert.pem").read_bytes()
    change(folder, lambda tx: waiting.store(tx, "a@gw.example", "pump1"))
    assert devices.remove(folder, "pump1") == (1, 0, 0)
    assert device_status.list_all(folder) == []
    assert owner(folder, certificate) is None
    assert not place.exists()
    (certificate_row,) = query(folder, issued_certificates.list_all)
    assert (certificate_row.name, certificate_row.revoked is None) == ("pump1", False)
    (event,) = system_events(folder)
    assert (event.source, event.name, event.value, event.unit) == (JID, "removed", 1.0, "messages")


def test_reused_name_is_in_no_roster(folder: Path) -> None:
    for name in ("pump1", "panel"):
        devices.add(folder, name, None, trusted=True)
    run_sql(
        folder,
        "INSERT INTO roster (account, jid, listed, subscription, ask, approved)"
        " SELECT id, 'pump1@gw.example', 1, 'both', 0, 0 FROM accounts WHERE name = 'panel'",
    )
    devices.remove(folder, "pump1")
    listed = "SELECT jid FROM roster WHERE listed = 1 OR subscription <> 'none'"
    assert select(folder, listed) == [(JID,)]
    devices.add(folder, "pump1", None, trusted=True)
    assert select(folder, listed) == []


def leave_behind(tx: Transaction) -> None:
    """Let the pump own and publish what outlives its account."""
    valve = "valve@gw.example"
    for name, other in (("mine", Affiliation.MEMBER), ("ours", Affiliation.OWNER)):
        created = nodes.add(tx, name, JID, NodeConfig())
        affiliations.put(tx, created.id, JID, Affiliation.OWNER)
        affiliations.put(tx, created.id, valve, other)
    theirs = nodes.add(tx, "theirs", valve, NodeConfig())
    affiliations.put(tx, theirs.id, valve, Affiliation.OWNER)
    affiliations.put(tx, theirs.id, JID, Affiliation.PUBLISHER)
    items.put(tx, theirs.id, "x", f"{JID}/fw", b"<x/>", 10)
    work = nodes.add(tx, "work", valve, NodeConfig(queueing=True))
    queue = queues.add_for_node(tx, work.id, "least-loaded", 60, 5)
    queue_items.enqueue(tx, queue, NewQueuedItem("work", "job", f"{JID}/fw", b"<x/>"))
    tx.run("INSERT INTO queue_receivers SELECT id, ? FROM queue_items", (f"{JID}/fw",))
    custody.hold(tx, JID, f"{JID}/fw", "m1", "gw.example", b"", b"", 10, None)
    custody.hold(tx, valve, f"{valve}/v", "m2", JID, b"", b"", 10, "pump1")
    custody.hold(tx, JID, f"{JID}/fw", "m3", "gw.example", b"", b"", 10, None)
    held = custody.find(tx, JID, f"{JID}/fw", "m3")
    assert held is not None
    custody.release(tx, held, 256)
    outbox.add(tx, "valve", OutgoingMessage(JID, f"{JID}/fw", "m4", 2, MessageBytes(b""), 10))


def rights(folder: Path, bare: str) -> dict[str, object]:
    """Return what a bare JID has: affiliations, and the numbers of nodes, items and messages."""

    def read(tx: Transaction) -> dict[str, object]:
        bare_of = "coalesce(author, substr(publisher, 1, instr(publisher, '/') - 1))"
        counts = {
            "nodes": "SELECT count(*) FROM nodes WHERE owner = ?",
            "items": f"SELECT count(*) FROM items WHERE {bare_of} = ?",  # noqa: S608 - of constants
            "queued": f"SELECT count(*) FROM queue_items WHERE {bare_of} = ?",  # noqa: S608 - of constants
            "received": "SELECT count(*) FROM queue_receivers WHERE jid = ? || '/fw'",
            "custody": "SELECT count(*) FROM custody WHERE source = ?",
            "to": "SELECT count(*) FROM held WHERE destination = ?",
            "released": "SELECT count(*) FROM released_latest WHERE source = ?",
            "outbox": "SELECT count(*) FROM outbox WHERE source = ?",
        }
        found = {name: tx.row(sql, (bare,))[0] for name, sql in counts.items()}
        named = {name: value.value for _, name, value in affiliations.of_jid(tx, bare)}
        return {name: value for name, value in found.items() if value} | {"affiliations": named}

    return query(folder, read)


NOTHING: dict[str, object] = {"affiliations": {}}


@pytest.fixture
def shared(folder: Path) -> Path:
    """A folder in which the pump, beside a valve, owns and has published what outlives it."""
    for name in ("pump1", "valve"):
        devices.add(folder, name, None, trusted=True)
    change(folder, leave_behind)
    return folder


def test_a_device_of_a_reused_name_inherits_nothing(shared: Path) -> None:
    assert devices.find_orphans(shared, "pump1") == (["mine"], 1, 1)
    devices.remove(shared, "pump1")
    assert rights(shared, JID) == NOTHING | {"to": 1}
    devices.add(shared, "pump1", None, trusted=True)
    assert rights(shared, JID) == NOTHING
    assert rights(shared, "gw.example") == {
        "nodes": 2, "items": 1, "queued": 1, "affiliations": {"mine": "owner"}
    }  # fmt: skip
    assert select(shared, "SELECT msg_id, reason FROM dead ORDER BY id") == [
        ("m1", "its sender was removed"),
        ("m2", "its recipient was removed"),
    ]
    assert select(shared, "SELECT sender FROM outbox") == [(f"{JID}/fw",)]


def test_what_an_older_version_left_behind_is_not_inherited(shared: Path) -> None:
    change(shared, lambda tx: accounts.remove(tx, "pump1"))
    assert rights(shared, JID)["items"] == 1
    devices.add(shared, "pump1", None, trusted=True)
    assert rights(shared, JID) == NOTHING


def test_a_removed_device_can_give_what_it_has_to_another(shared: Path) -> None:
    devices.remove(shared, "pump1", heir="valve")
    assert rights(shared, "valve@gw.example") == {
        "nodes": 4, "items": 1, "queued": 1, "custody": 1,
        "affiliations": dict.fromkeys(("mine", "ours", "theirs"), "owner"),
    }  # fmt: skip
    devices.remove(shared, "valve")
    assert rights(shared, "gw.example")["items"] == 1


@pytest.mark.parametrize("heir", ["pump1", "lamp"])
def test_the_rights_of_a_removed_device_go_to_another_existing_one(shared: Path, heir: str) -> None:
    with pytest.raises(SetupError, match=f"'{heir}' is not another device that can log in"):
        devices.remove(shared, "pump1", heir=heir)
    assert rights(shared, JID)["items"] == 1


def test_the_items_of_a_removed_device_can_be_deleted(shared: Path) -> None:
    change(shared, lambda tx: tx.run("DELETE FROM nodes WHERE name = 'mine'"))
    devices.remove(shared, "pump1", purge=True)
    assert rights(shared, "gw.example") == NOTHING | {"nodes": 1}
    assert select(shared, "SELECT count(*) FROM items") == [(0,)]
    assert select(shared, "SELECT count(*) FROM queue_items") == [(0,)]


def test_only_a_running_gateway_deletes_the_nodes_of_a_removed_device(shared: Path) -> None:
    with pytest.raises(SetupError, match="is not running"):
        devices.remove(shared, "pump1", purge=True)
    assert rights(shared, JID)["nodes"] == 2


def test_removal_succeeds_without_a_revocation_list(folder: Path) -> None:
    place = provision(folder)
    certificate = (place / "cert.pem").read_bytes()
    pki.files(folder).ca_key.unlink()
    with pytest.raises(SetupError, match="is removed, but"):
        devices.remove(folder, "pump1")
    assert not place.exists()
    assert device_status.list_all(folder) == []
    assert owner(folder, certificate) is None


def test_events_have_the_saved_service_time(folder: Path) -> None:
    devices.add(folder, "pump1", "x", trusted=True)
    run_sql(folder, "INSERT INTO meta VALUES ('service', 1234.5)")
    devices.revoke(folder, "pump1")
    assert select(folder, "SELECT since FROM event_batches") == [(1234.5,)]


def test_busy_folder_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_files, "LOCK_WAIT", 0.0)
    (folder / "devices").mkdir()
    with (
        durable_files.staged_folder(folder / "devices" / "other", {}),
        pytest.raises(FolderBusyError, match="another command has been busy"),
    ):
        devices.add(folder, "pump1", None, trusted=True, certificate=True)
    assert device_status.list_all(folder) == []


def test_downgrade_can_be_set_and_changed(folder: Path) -> None:
    devices.add(folder, "pump1", None, trusted=True, downgrade=True)
    devices.add(folder, "pump2", None, trusted=True)
    assert not devices.set_downgrade(folder, "pump1", True)
    assert devices.set_downgrade(folder, "pump1", False)
    assert devices.set_downgrade(folder, "pump2", True)
    logged = [(event.source, event.name, event.level) for event in system_events(folder)]
    assert logged == [
        (JID, "downgrade_off", "Notice"),
        ("pump2@gw.example", "downgrade_on", "Notice"),
    ]


USER = "pump1@users.example"


@pytest.fixture
def component(tmp_path: Path) -> Path:
    options = {"component": "127.0.0.1:5347", "component_secret": "secret"}
    return Gateway(tmp_path / "gw", listen="", listen_tls="", **options).folder


def test_user_is_added_listed_revoked_and_removed(component: Path) -> None:
    added = devices.add(component, USER, None, trusted=True)
    assert (added.jid, added.password, added.certificate) == (USER, None, None)
    (listed,) = device_status.list_all(component)
    assert "by its server" in fieldpost(component, "device", "list").output
    assert (listed.name, listed.jid, listed.trusted, listed.password) == (USER, USER, True, False)
    with pytest.raises(SetupError, match="exists"):
        devices.add(component, USER, None, trusted=True)
    devices.revoke(component, USER)
    with pytest.raises(
        SetupError, match=f"`fieldpost device remove {USER}` deletes the revocation"
    ):
        devices.add(component, USER, None, trusted=True)
    devices.remove(component, USER)
    assert device_status.list_all(component) == []
    devices.add(component, USER, None, trusted=False)


@pytest.mark.parametrize(
    "name", ["pump1", "@users.example", "Pump@users.example", "a@b@users.example", f"{USER}/fw"]
)
def test_invalid_bare_jid_is_refused(component: Path, name: str) -> None:
    with pytest.raises((SetupError, ConfigError), match=r"must be 1 to 64|is not a domain name"):
        devices.add(component, name, None, trusted=True)


def test_credentials_are_refused_for_users_of_another_server(component: Path) -> None:
    for password, certificate in (("correct horse", False), (None, True)):
        with pytest.raises(SetupError, match="on its server"):
            devices.add(component, USER, password, trusted=True, certificate=certificate)
    devices.add(component, USER, None, trusted=True)
    with pytest.raises(SetupError, match="on its server"):
        devices.set_password(component, USER, "correct horse")
    with pytest.raises(SetupError, match="on its server"):
        devices.renew(component, USER)


def test_downgrade_is_refused_for_users_of_another_server(component: Path) -> None:
    with pytest.raises(SetupError, match="its server delivers messages"):
        devices.add(component, USER, None, trusted=True, downgrade=True)
    devices.add(component, USER, None, trusted=True)
    with pytest.raises(SetupError, match="its server delivers messages"):
        devices.set_downgrade(component, USER, True)
