"""The enrolment file: round trip, validation, secrecy."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sync.common.enrolment import (
    Enrolment,
    EnrolmentError,
    format_enrolment,
    is_centre_url,
    new_token,
    parse_enrolment,
    read_enrolment,
    write_enrolment,
)

TOKEN = "k" * 43
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nkkkk\n-----END PRIVATE KEY-----\n"
GOOD = Enrolment("gw.example", "https://centre.example:8443", TOKEN, CA)


def with_changes(**changes: Any) -> str:
    fields = json.loads(format_enrolment(GOOD)) | changes
    return json.dumps({key: value for key, value in fields.items() if value is not ...})


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "gw.json"
    write_enrolment(path, GOOD)
    assert read_enrolment(path) == GOOD
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other = replace(GOOD, token=new_token())
    write_enrolment(path, other)
    assert read_enrolment(path) == other
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("token", ["", TOKEN])
def test_certificate_with_and_without_token(tmp_path: Path, token: str) -> None:
    enrolment = replace(GOOD, token=token, certificate=CA, key=KEY)
    path = tmp_path / "gw.json"
    write_enrolment(path, enrolment)
    assert read_enrolment(path) == enrolment
    assert ("token" in json.loads(path.read_text())) is bool(token)
    assert "kkkk" not in repr(enrolment)


def test_file_without_certificate_is_unchanged() -> None:
    assert set(json.loads(format_enrolment(GOOD))) == {"version", "gateway", "url", "token", "ca"}


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gw.json"
    write_enrolment(path, GOOD)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_enrolment(path, replace(GOOD, token=new_token()))
    assert read_enrolment(path) == GOOD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        with_changes(more=1),
        with_changes(ca=...),
        with_changes(version=2),
        with_changes(version="1"),
        with_changes(gateway=5),
        with_changes(gateway="../gw"),
        with_changes(url="http://centre.example"),
        with_changes(url="https://user:secret@centre.example"),
        with_changes(token="k" * 42),
        with_changes(token="k" * 42 + "="),
        with_changes(token="k" * 43 + "\n"),
        with_changes(ca="none"),
        with_changes(ca=f"{CA}é"),
        with_changes(token=...),
        with_changes(token=""),
        with_changes(token=5, certificate=CA, key=KEY),
        with_changes(certificate=CA),
        with_changes(key=KEY),
        with_changes(certificate="none", key=KEY),
        with_changes(certificate=CA, key=CA),
        with_changes(certificate=CA, key=KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")),
    ],
)
def test_invalid_files_are_refused_without_quoting_them(text: str) -> None:
    with pytest.raises(EnrolmentError) as caught:
        parse_enrolment(text)
    assert "kkk" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_oversized_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "gw.json"
    write_enrolment(path, GOOD)
    with pytest.raises(EnrolmentError, match="larger"):
        write_enrolment(path, replace(GOOD, certificate=CA + "\0" * 14_000, key=KEY))
    assert read_enrolment(path) == GOOD
    assert list(tmp_path.iterdir()) == [path]


def test_oversized_binary_or_special_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gw.json"
    path.write_bytes(b" " * 65_537)
    with pytest.raises(EnrolmentError, match="larger"):
        read_enrolment(path)
    path.write_bytes(b"\xff")
    with pytest.raises(EnrolmentError, match="UTF-8"):
        read_enrolment(path)
    with pytest.raises(EnrolmentError, match="not a regular file"):
        read_enrolment(tmp_path)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://centre.example", True), ("https://centre.example:8443/", True),
        ("https://127.0.0.1:1", True), ("https://[::1]:8443", True), ("https://", False),
        ("https://a:0", False), ("https://a:99999", False), ("https://a:x", False),
        ("https://[::1", False), ("https://a/path", False), ("https://a?b", False),
        ("https://a#b", False), ("https://user@a", False), ("https://a\n.b", False),
        ("https://a b", False), ("ftp://a", False),
    ],
)  # fmt: skip
def test_centre_urls(url: str, good: bool) -> None:
    assert is_centre_url(url) is good
