from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from edge.config import load
from edge.engine.store import database, meta
from edge.errors import ConfigError, SetupError, StoreFull
from edge.ops import current_time, setup
from edge.ops.certificates import der, pki
from edge.ops.checks import folder as folder_checks
from edge.ops.devices import devices
from sync.segment import is_epoch
from tests.helpers.folder import query


def test_new_folder_is_complete(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"fieldpost.db", "fieldpost.toml", "pki"}
    assert load.load(folder).gateway.domain == "gw.example"
    assert is_epoch(query(folder, meta.epoch))
    assert len(query(folder, lambda tx: meta.read_bytes(tx, meta.DECOY))) == 32


def test_keys_are_private_and_match_the_certificates(folder: Path) -> None:
    files = pki.files(folder)
    assert folder.stat().st_mode & 0o077 == 0
    for key in (files.ca_key, files.server_key):
        assert key.stat().st_mode & 0o777 == 0o600
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.ca)
    (authority,) = context.get_ca_certs()
    assert authority["subject"] == ((("commonName", "Fieldpost CA of gw.example"),),)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.server, files.server_key)


def test_a_clock_that_is_decades_behind_makes_certificates_that_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = current_time.now()._replace(wall=1_000_000_000_000)  # 2001
    now, folder = current_time.now().wall, tmp_path / "gw"
    with monkeypatch.context() as patch:
        patch.setattr(current_time, "now", lambda: wrong)
        setup.init(folder, "gw.example")
        with pytest.raises(SetupError, match="the clock shows 2001-09-09, which is wrong"):
            devices.add(folder, "pump1", None, trusted=True, certificate=True)
    files = pki.files(folder)
    for path in (files.ca, files.server):
        found = der.read(path)
        assert found.begins < now < found.ends
    assert list(folder_checks.revocation_list(folder, now, [])) == []


@pytest.mark.parametrize("exists", [False, True])
def test_missing_or_empty_folder_is_filled(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "deep" / "gw"
    if exists:
        folder.mkdir(parents=True)
    setup.init(folder, "gw.example", "[::]:5222")
    assert load.load(folder).listen == (("::", 5222),)


def test_existing_folder_is_not_changed(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(SetupError, match="exists and is not empty"):
        setup.init(folder, "gw.example")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", str(tmp_path)):
        with pytest.raises(SetupError, match="run this from another folder"):
            setup.init(Path(name), "gw.example")
    setup.init(Path("gw"), "gw.example")
    assert load.load(tmp_path / "gw").gateway.domain == "gw.example"


@pytest.mark.parametrize(("domain", "listen"), [("GW", ()), ("gw.example", ("nowhere",))])
def test_invalid_option_creates_nothing(
    tmp_path: Path, domain: str, listen: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError):
        setup.init(tmp_path / "gw", domain, *listen)
    assert list(tmp_path.iterdir()) == []


def test_failed_init_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(database, "create", full)
    with pytest.raises(StoreFull, match="no room"):
        setup.init(tmp_path / "gw", "gw.example")
    assert list(tmp_path.iterdir()) == []
