"""The error answers of the receiver's HTTP API."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web


class HttpError(Exception):
    """A request that is answered with an error: `reason` for programs, `text` for people.

    `retry_after` is in seconds; `headers` are further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        text: str,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(reason, text)
        self.status = status
        self.reason = reason
        self.text = text
        self.retry_after = retry_after
        self.headers = dict(headers or {})

    def response(self) -> web.Response:
        """Return the answer: a JSON object with `error` and `reason`, and `Retry-After` if set."""
        body = {"error": self.text, "reason": self.reason}
        answer = web.json_response(body, status=self.status, headers=self.headers)
        if self.retry_after is not None:
            answer.headers["Retry-After"] = str(self.retry_after)
        if self.status == web.HTTPUnauthorized.status_code:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
