"""What became of an offer: the centre's answer in HTTP, judged.

Pure: an answer is a status, some headers and the beginning of a body. What never reached the
centre, or came back from something else in between, is `Later` as well: it is tried again.
"""

from __future__ import annotations

import json
import re
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from sync.common.text import printable

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WORD: Final = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_SECONDS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAX_TEXT: Final = 200  # characters of the centre's words that a notice repeats
_ON_THE_WAY: Final = ("cut", "range", "request", "sha256")
"""The centre's reasons that tell of the journey, not of the segment: it may do better next time."""


class Acknowledgement(NamedTuple):
    """The centre holds a segment of this digest; `new` if it did not before."""

    digest: bytes
    new: bool


class Conflict(NamedTuple):
    """The centre holds other bytes under this segment's name."""

    text: str


class Rejection(NamedTuple):
    """The centre will never take this segment: `reason` is its word for why."""

    reason: str
    text: str


class AccessDenial(NamedTuple):
    """The centre does not accept our token, or not for this segment."""

    text: str


class TemporaryFailure(NamedTuple):
    """It did not work this time; `after` is the seconds that the centre asked us to wait."""

    text: str
    after: float | None = None


Outcome = Acknowledgement | Conflict | Rejection | AccessDenial | TemporaryFailure


class Response(NamedTuple):
    """An HTTP answer, as far as it matters; `body` is its beginning.

    `digest` and `offset` are the headers X-Fieldpost-Digest and X-Fieldpost-Offset.
    """

    status: int
    retry_after: str | None
    date: str | None
    body: bytes
    digest: str | None = None
    offset: str | None = None


def put_outcome(answer: Response) -> Outcome:
    """Say what an answer means for the segment.

    A segment is given up on the centre's own word alone, a JSON object with its reason: a proxy's
    error page may say 400 to everything, and takes no segment away.
    """
    status = answer.status
    told = parse_json_object(answer.body)
    if status in (200, 201):
        return _landed(told, new=status == 201)
    reason = told.get("reason")
    if status in (400, 409, 413) and isinstance(reason, str) and _WORD.fullmatch(reason):
        text = f"{status} {reason}: {one_line(told.get('error'))}"
        if status == 409:
            return Conflict(text)
        if reason not in _ON_THE_WAY:
            return Rejection(reason, text)
        return TemporaryFailure(text)
    return failure_outcome(answer)


def failure_outcome(answer: Response) -> AccessDenial | TemporaryFailure:
    """Say what an answer means that is about us, or about this moment, and about no segment."""
    text = f"{answer.status}: {one_line(parse_json_object(answer.body).get('error'))}"
    if answer.status in (401, 403):
        return AccessDenial(text)
    return TemporaryFailure(text, parse_retry_after(answer.retry_after, answer.date))


def _landed(told: dict[str, Any], new: bool) -> Outcome:
    digest = told.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        return TemporaryFailure("the centre acknowledged without saying which digest")
    return Acknowledgement(bytes.fromhex(digest), new)


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; anything else is an empty one."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def one_line(text: Any) -> str:
    """Make a stranger's words fit for one line of a notice."""
    if not isinstance(text, str):
        return "no reason given"
    return printable(" ".join(text.split()))[:_MAX_TEXT]


def parse_retry_after(value: str | None, date: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, None if it says nothing (RFC 9110, 10.2.3).

    A moment is compared with the answer's own `Date`: the gateway's clock may be wrong.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    if date is None:
        return None
    try:
        return max(
            0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(date)).total_seconds()
        )
    except (ValueError, TypeError, OverflowError):
        return None
