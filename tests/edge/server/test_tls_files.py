"""Errors for missing or wrong certificate files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from edge.errors import SetupError
from edge.server.tls import TlsContexts


@pytest.mark.parametrize(
    ("name", "other", "told"),
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
def test_error_names_the_file(folder: Path, name: str, other: str | None, told: str) -> None:
    TlsContexts(folder, pytest.fail)
    (folder / "pki" / name).unlink()
    if other is not None:
        shutil.copy(folder / "pki" / other, folder / "pki" / name)
    with pytest.raises(SetupError) as error:
        TlsContexts(folder, pytest.fail)
    assert re.search(told, str(error.value))
    assert "_ssl.c" not in str(error.value)


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem", "crl.pem"])
def test_folder_in_place_of_a_file_is_reported(folder: Path, name: str) -> None:
    (folder / "pki" / name).unlink()
    (folder / "pki" / name).mkdir()
    with pytest.raises(SetupError, match=f"{name} cannot be read: it is a folder"):
        TlsContexts(folder, pytest.fail)


def test_revocation_list_is_optional(folder: Path) -> None:
    (folder / "pki" / "crl.pem").unlink()
    TlsContexts(folder, pytest.fail)
