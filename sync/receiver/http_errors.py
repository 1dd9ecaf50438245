"""A request that the receiver answers with an error, and how that error is written in HTTP.

Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web


class HttpError(Exception):
    """A request that is answered with an error: `reason` for programs, `text` for people.

    `retry_after` is in seconds; `more` are further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        text: str,
        retry_after: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(reason, text)
        self.status = status
        self.reason = reason
        self.text = text
        self.retry_after = retry_after
        self.more = dict(more or {})

    def response(self) -> web.Response:
        """The answer: a JSON object, and when to come back."""
        told = {"error": self.text, "reason": self.reason}
        answer = web.json_response(told, status=self.status, headers=self.more)
        if self.retry_after is not None:
            answer.headers["Retry-After"] = str(self.retry_after)
        if self.status == web.HTTPUnauthorized.status_code:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
