"""Parse one GET or HEAD request and format its response (RFC 9110, RFC 9112).

This module replaces aiohttp's server, which costs 13 MB of memory. Keep-alive, ranges, chunks and
content encodings are not supported; a request with a body is refused. Pure: no I/O.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NamedTuple

MAX_HEAD_BYTES: Final = 8192
"""Maximum bytes of a request's head. Browsers send a tenth of this."""

END: Final = b"\r\n\r\n"
"""The bytes that end the head of a request."""

_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,255}) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\x80-\xff\t]*)")

_STATUS_TEXTS: Final = {
    421: "unknown host name: use the IP address of the gateway, or add the name to `names` in [web]"
    " of fieldpost.toml",
}
"""Response bodies for statuses whose standard phrase does not say what to do."""

_FIXED_FIELDS: Final = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


class Request(NamedTuple):
    """A request: `path` without its query; `host` is empty unless there is exactly one `Host`
    field."""

    method: str
    path: str
    host: str


class Response(NamedTuple):
    """A response."""

    status: int
    media_type: str
    body: bytes


class RequestError(Exception):
    """An invalid or unsupported request; `status` is the HTTP status of the response."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def status_response(status: int) -> Response:
    """Return a response with this status; its body is one line that describes the status."""
    text = _STATUS_TEXTS.get(status, HTTPStatus(status).phrase)
    return Response(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def parse(head: bytes) -> Request:
    """Parse the head of a request, without the bytes that end it; raises `RequestError`."""
    line, *fields = head.split(b"\r\n")
    found = _LINE.fullmatch(line)
    if found is None:
        raise RequestError(400)
    method, target = found[1].decode(), found[2].decode()
    if method not in ("GET", "HEAD"):
        raise RequestError(405)
    hosts = [value for name, value in map(_field, fields) if name == b"host"]
    host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
    return Request(method, target.partition("?")[0], host)


def _field(field: bytes) -> tuple[bytes, bytes]:
    """Parse a field into its lower-case name and its value.

    Raises `RequestError` if the field is invalid or announces a body.
    """
    found = _FIELD.fullmatch(field)
    if found is None:
        raise RequestError(400)
    name, value = found[1].lower(), found[2].strip()
    if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
        raise RequestError(413)
    return name, value


def serialize(response: Response, *, head_only: bool = False) -> bytes:
    """Return the bytes of a response; for a HEAD request, leave out the body."""
    fields = {
        "Content-Type": response.media_type,
        "Content-Length": str(len(response.body)),
        **_FIXED_FIELDS,
    }
    if response.status == 405:
        fields["Allow"] = "GET, HEAD"
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    head = "\r\n".join(lines).encode("ascii") + END
    return head if head_only else head + response.body
