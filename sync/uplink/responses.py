"""Convert the centre's HTTP responses to outcomes of an upload."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from sync.common.text import printable

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_REASON: Final = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_SECONDS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAX_TEXT: Final = 200  # characters of the centre's text that a notice repeats
_TRANSFER_REASONS: Final = ("cut", "range", "request", "sha256")
"""The centre's reasons to refuse a transfer, not the segment itself: a retry may succeed."""


class Acknowledgement(NamedTuple):
    """The centre has stored the segment with this digest; `new` is false for a duplicate."""

    digest: bytes
    new: bool


class Conflict(NamedTuple):
    """The centre has a different segment with this name."""

    text: str


class Rejection(NamedTuple):
    """The centre will never accept this segment; `reason` is its keyword."""

    reason: str
    text: str


class AccessDenial(NamedTuple):
    """The centre does not accept the gateway's credentials, or not for this segment."""

    text: str


class TemporaryFailure(NamedTuple):
    """The attempt failed and will be repeated; `after` is the centre's `Retry-After` in seconds."""

    text: str
    after: float | None = None


Outcome = Acknowledgement | Conflict | Rejection | AccessDenial | TemporaryFailure


class Response(NamedTuple):
    """The relevant parts of an HTTP response; `body` is the beginning of its body.

    `digest` and `offset` are the headers X-Fieldpost-Digest and X-Fieldpost-Offset.
    """

    status: int
    retry_after: str | None
    date: str | None
    body: bytes
    digest: str | None = None
    offset: str | None = None


def put_outcome(response: Response) -> Outcome:
    """Return the outcome of a PUT.

    A segment is given up (`Rejection`, `Conflict`) only if the body is the centre's JSON object
    with a reason: a proxy can answer 400 to every request, which is a temporary failure.
    """
    status = response.status
    body = parse_json_object(response.body)
    if status in (200, 201):
        return _acknowledgement(body, new=status == 201)
    reason = body.get("reason")
    if status in (400, 409, 413) and isinstance(reason, str) and _REASON.fullmatch(reason):
        text = f"{status} {reason}: {one_line(body.get('error'))}"
        if status == 409:
            return Conflict(text)
        if reason not in _TRANSFER_REASONS:
            return Rejection(reason, text)
        return TemporaryFailure(text)
    return failure_outcome(response)


def failure_outcome(response: Response) -> AccessDenial | TemporaryFailure:
    """Return the outcome of an error response that does not concern a particular segment."""
    text = f"{response.status}: {one_line(parse_json_object(response.body).get('error'))}"
    if response.status in (401, 403):
        return AccessDenial(text)
    return TemporaryFailure(text, parse_retry_after(response.retry_after, response.date))


def _acknowledgement(body: dict[str, Any], new: bool) -> Outcome:
    digest = body.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        return TemporaryFailure("the centre's acknowledgement has no valid digest")
    return Acknowledgement(bytes.fromhex(digest), new)


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def one_line(text: Any) -> str:
    """Return the centre's text as one printable line of at most `_MAX_TEXT` characters."""
    if not isinstance(text, str):
        return "no reason given"
    return printable(" ".join(text.split()))[:_MAX_TEXT]


def parse_retry_after(value: str | None, date: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, None if it is invalid (RFC 9110, 10.2.3).

    A time is compared with the response's own `Date`, because the gateway's clock may be wrong.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    if date is None:
        return None
    from email.utils import parsedate_to_datetime  # a gateway without an uplink has no use for it

    try:
        pause = parsedate_to_datetime(value) - parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, pause.total_seconds())
