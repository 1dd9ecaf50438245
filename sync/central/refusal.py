"""A request that the receiver answers with an error, and how that error is written in HTTP.

Decides nothing.
"""

from __future__ import annotations

from aiohttp import web


class Refusal(Exception):
    """A request that is answered with an error: `reason` for programs, `text` for people."""

    def __init__(self, status: int, reason: str, text: str, retry_after: int | None = None) -> None:
        super().__init__(reason, text)
        self.status = status
        self.reason = reason
        self.text = text
        self.retry_after = retry_after

    def response(self) -> web.Response:
        """The answer: a JSON object, and when to come back."""
        answer = web.json_response({"error": self.text, "reason": self.reason}, status=self.status)
        if self.retry_after is not None:
            answer.headers["Retry-After"] = str(self.retry_after)
        if self.status == web.HTTPUnauthorized.status_code:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
