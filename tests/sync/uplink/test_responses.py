"""Outcomes of the centre's responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.uplink.responses import (
    AccessDenial,
    Acknowledgement,
    Conflict,
    Outcome,
    Rejection,
    Response,
    TemporaryFailure,
    parse_retry_after,
    put_outcome,
)

DIGEST = bytes(range(32))
NOW = "Sat, 21 Nov 2026 10:00:00 GMT"


def answer(status: int, body: Any = None, retry_after: str | None = None) -> Outcome:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return put_outcome(Response(status, retry_after, NOW, raw))


def refusal(reason: Any) -> dict[str, Any]:
    return {"error": "why", "reason": reason}


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (201, {"digest": DIGEST.hex()}, Acknowledgement(DIGEST, True)),
        (200, {"digest": DIGEST.hex(), "more": 1}, Acknowledgement(DIGEST, False)),
        (409, refusal("conflict"), Conflict("409 conflict: why")),
        (400, refusal("checksum"), Rejection("checksum", "400 checksum: why")),
        (400, refusal("name"), Rejection("name", "400 name: why")),
        (413, refusal("size"), Rejection("size", "413 size: why")),
        (400, {"reason": "body"}, Rejection("body", "400 body: no reason given")),
        (400, refusal("sha256"), TemporaryFailure("400 sha256: why")),
        (400, refusal("cut"), TemporaryFailure("400 cut: why")),
        (400, refusal("request"), TemporaryFailure("400 request: why")),
        (401, refusal("token"), AccessDenial("401: why")),
        (403, b"", AccessDenial("403: no reason given")),
        (404, refusal("name"), TemporaryFailure("404: why")),
        (408, None, TemporaryFailure("408: no reason given")),
        (411, refusal("length"), TemporaryFailure("411: why")),
        (500, b"<html>", TemporaryFailure("500: no reason given")),
        (302, b"", TemporaryFailure("302: no reason given")),
        (204, b"", TemporaryFailure("204: no reason given")),
    ],
)
def test_status_to_outcome(status: int, body: Any, outcome: Outcome) -> None:
    assert answer(status, body) == outcome


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"\xff", b"[" * 4_000, {"digest": 5}, {"digest": "00"}]
)
def test_acknowledgement_needs_a_digest(body: Any) -> None:
    for status in (200, 201):
        outcome = answer(status, body)
        assert isinstance(outcome, TemporaryFailure)
        assert "no valid digest" in outcome.text


@pytest.mark.parametrize("status", [400, 409, 413])
@pytest.mark.parametrize("reason", [None, 5, "", "Two words", "x" * 33, "ünicode"])
def test_a_segment_is_rejected_only_with_a_valid_reason(status: int, reason: Any) -> None:
    assert isinstance(answer(status, refusal(reason)), TemporaryFailure)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 507])
def test_retry_after_in_outcomes(status: int) -> None:
    assert answer(status, None, "30") == TemporaryFailure(f"{status}: no reason given", 30.0)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        (None, NOW, None), ("0", None, 0.0), (" 120 ", None, 120.0),
        ("999999999", None, 999_999_999.0), ("9999999999", NOW, None), ("-1", NOW, None),
        ("1.5", NOW, None), ("\u0663", NOW, None), ("Sat, 21 Nov 2026 10:02:00 GMT", NOW, 120.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", NOW, 0.0), ("Sat, 21 Nov 2026 10:02:00 GMT", None, None),
        ("Sat, 21 Nov 2026 10:02:00 GMT", "yesterday", None),
        ("Sat, 21 Nov 2026 10:02:00", NOW, None), ("Sat, 99 Nov 2026 10:02:00 GMT", NOW, None),
        ("", NOW, None),
    ],
)  # fmt: skip
def test_retry_after_in_seconds_or_as_a_date(
    value: str | None, date: str | None, seconds: float | None
) -> None:
    assert parse_retry_after(value, date) == seconds


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_retry_after_header_is_accepted(value: str, date: str) -> None:
    seconds = parse_retry_after(value, date)
    assert seconds is None or seconds >= 0


@given(st.integers(100, 599), st.binary(max_size=60))
def test_any_response_has_an_outcome(status: int, body: bytes) -> None:
    assert not isinstance(put_outcome(Response(status, None, None, body)), Acknowledgement)


def test_foreign_text_is_shortened_and_printable() -> None:
    outcome = answer(500, {"error": "a\r\nb\x1b[2J" + "x" * 1_000})
    assert isinstance(outcome, TemporaryFailure)
    assert outcome.text.startswith(r"500: a b\x1b[2Jxx")
    assert len(outcome.text) < 250
    assert outcome.text.isprintable()
