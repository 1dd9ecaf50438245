from __future__ import annotations

from pathlib import Path

import pytest

from edge.errors import ConfigError, SetupError
from edge.ops import device_status, devices
from tests.helpers.gateway import Gateway

JID = "pump1@users.example"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = {"component": "127.0.0.1:5347", "component_secret": "secret"}
    return Gateway(tmp_path / "gw", listen="", listen_tls="", **options).folder


def test_user_is_added_listed_revoked_and_removed(folder: Path) -> None:
    added = devices.add(folder, JID, None, trusted=True)
    assert (added.jid, added.password, added.certificate) == (JID, None, None)
    (listed,) = device_status.list_all(folder)
    assert (listed.name, listed.jid, listed.trusted, listed.password) == (JID, JID, True, False)
    with pytest.raises(SetupError, match="exists"):
        devices.add(folder, JID, None, trusted=True)
    devices.revoke(folder, JID)
    with pytest.raises(SetupError, match=f"`fieldpost device remove {JID}` deletes the revocation"):
        devices.add(folder, JID, None, trusted=True)
    devices.remove(folder, JID)
    assert device_status.list_all(folder) == []
    devices.add(folder, JID, None, trusted=False)


@pytest.mark.parametrize(
    "name", ["pump1", "@users.example", "Pump@users.example", "a@b@users.example", f"{JID}/fw"]
)
def test_invalid_bare_jid_is_refused(folder: Path, name: str) -> None:
    with pytest.raises((SetupError, ConfigError), match=r"must be 1 to 64|is not a domain name"):
        devices.add(folder, name, None, trusted=True)


def test_credentials_are_managed_by_the_server(folder: Path) -> None:
    for password, certificate in (("correct horse", False), (None, True)):
        with pytest.raises(SetupError, match="on its server"):
            devices.add(folder, JID, password, trusted=True, certificate=certificate)
    devices.add(folder, JID, None, trusted=True)
    with pytest.raises(SetupError, match="on its server"):
        devices.set_password(folder, JID, "correct horse")
    with pytest.raises(SetupError, match="on its server"):
        devices.renew(folder, JID)


def test_delivery_is_done_by_the_server(folder: Path) -> None:
    with pytest.raises(SetupError, match="its server delivers messages"):
        devices.add(folder, JID, None, trusted=True, downgrade=True)
    devices.add(folder, JID, None, trusted=True)
    with pytest.raises(SetupError, match="its server delivers messages"):
        devices.set_downgrade(folder, JID, True)
