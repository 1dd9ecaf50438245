"""HTTP, as far as a status page needs it: one GET or HEAD, without a body, and its answer.

The gateway has a library for its uplink; its server's half takes 13 MB of memory, for what stands
here. There is no keep-alive, no range, no chunk, no encoding: what asks for one is answered without
it, and what brings a body is refused. Pure: no socket. Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NamedTuple

HEAD_BYTES: Final = 8192
"""The longest head of a request: browsers send a tenth of it."""

END: Final = b"\r\n\r\n"
"""What ends a head."""

_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,255}) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\x80-\xff\t]*)")

_SAID: Final = {
    421: "this gateway does not know itself by that host name: ask for it by its IP address, or"
    " add the name to `names` in [web] of fieldpost.toml",
}
"""What stands in place of a status's own name."""

_ALWAYS: Final = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


class Request(NamedTuple):
    """What is asked for; `path` is without its query, `host` empty unless there is just one."""

    method: str
    path: str
    host: str


class Answer(NamedTuple):
    """What is answered: `kind` is the media type."""

    status: int
    kind: str
    body: bytes


class Refused(Exception):
    """A request that is none of those that are answered here; `status` says why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def plain(status: int) -> Answer:
    """Answer with a status and one line: its name, or what to do about it."""
    text = _SAID.get(status, HTTPStatus(status).phrase)
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def parse(head: bytes) -> Request:
    """Read the head of a request, without its end; raises `Refused`."""
    line, *fields = head.split(b"\r\n")
    found = _LINE.fullmatch(line)
    if found is None:
        raise Refused(400)
    method, target = found[1].decode(), found[2].decode()
    if method not in ("GET", "HEAD"):
        raise Refused(405)
    hosts = [value for name, value in map(_field, fields) if name == b"host"]
    host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
    return Request(method, target.partition("?")[0], host)


def _field(field: bytes) -> tuple[bytes, bytes]:
    """Return the name, in lower case, and the value; raises `Refused` for what brings a body."""
    found = _FIELD.fullmatch(field)
    if found is None:
        raise Refused(400)
    name, value = found[1].lower(), found[2].strip()
    if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
        raise Refused(413)
    return name, value


def written(answer: Answer, *, head_only: bool = False) -> bytes:
    """Write an answer; to a HEAD without its body."""
    fields = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **_ALWAYS}
    if answer.status == 405:
        fields["Allow"] = "GET, HEAD"
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    head = "\r\n".join(lines).encode("ascii") + END
    return head if head_only else head + answer.body
