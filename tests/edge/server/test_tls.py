"""The files of the gateway's certificates."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from edge.errors import SetupError
from edge.server import tls
from edge.server.tls import EXPIRED, NOT_VALID_YET, PeerCertificate, TlsContexts
from tests.helpers.pki import issue_server


def test_dates_of_a_certificate() -> None:
    certificate = PeerCertificate(b"", "1", 1_000, 2_000)
    faults = [certificate.fault(now) for now in (999, 1_000, 2_000, 2_001)]
    assert faults == [NOT_VALID_YET, "", "", EXPIRED]


@pytest.mark.parametrize(
    ("name", "other", "problem"),
    [
        ("server.pem", None, "server.pem cannot be read: No such file or directory"),
        ("server.key", None, "server.key cannot be read: No such file or directory"),
        ("ca.pem", None, "ca.pem cannot be read: No such file or directory"),
        ("server.key", "ca.key", "server.key is not the key of .*server.pem"),
        ("server.pem", "crl.pem", "server.pem and .*server.key cannot be used: "),
        ("server.key", "ca.pem", "server.pem and .*server.key cannot be used: "),
        ("ca.pem", "ca.key", "ca.pem cannot be used: "),
        ("crl.pem", "ca.key", "crl.pem cannot be used: "),
    ],
)
def test_error_names_the_file(folder: Path, name: str, other: str | None, problem: str) -> None:
    TlsContexts(folder, "gw.example", pytest.fail)
    (folder / "pki" / name).unlink()
    if other is not None:
        shutil.copy(folder / "pki" / other, folder / "pki" / name)
    with pytest.raises(SetupError) as error:
        TlsContexts(folder, "gw.example", pytest.fail)
    assert re.search(problem, str(error.value))
    assert "_ssl.c" not in str(error.value)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem", "crl.pem"])
def test_folder_in_place_of_a_file_is_reported(folder: Path, name: str) -> None:
    (folder / "pki" / name).unlink()
    (folder / "pki" / name).mkdir()
    with pytest.raises(SetupError, match=f"{name} cannot be read: it is a folder"):
        TlsContexts(folder, "gw.example", pytest.fail)


def test_a_certificate_that_devices_refuse_does_not_replace_the_one_in_use(folder: Path) -> None:
    changes: list[None] = []
    contexts = TlsContexts(folder, "gw.example", lambda: changes.append(None))
    first = contexts.get()
    for domain, days in (("gw.example", -1), ("gw.example", 60), ("other.example", 1)):
        issue_server(folder, domain, days)
        for _ in range(2):
            assert contexts.get() is first
        assert contexts.error is not None
        assert "; the certificate in use stays: " in contexts.error
        with pytest.raises(SetupError, match=r"server\.pem"):
            contexts.load()
    assert len(changes) == 3
    issue_server(folder, "gw.example", 1)
    assert contexts.get() is not first
    assert contexts.error is None


def test_refused_files_are_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was behind makes a certificate seem not valid yet."""
    contexts = TlsContexts(folder, "gw.example", lambda: None)
    first = contexts.get()
    issue_server(folder, "gw.example", 60)
    monkeypatch.setattr(tls, "RETRY_TIME", 0.0)
    assert contexts.get() is first
    later = time.time() + 31 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert contexts.get() is not first


def test_an_expired_certificate_is_used_at_the_start_until_it_is_renewed(folder: Path) -> None:
    issue_server(folder, "gw.example", -1)
    assert TlsContexts(folder, "gw.example", pytest.fail).error is None


def test_revocation_list_is_optional(folder: Path) -> None:
    (folder / "pki" / "crl.pem").unlink()
    TlsContexts(folder, "gw.example", pytest.fail)
