"""Sessions of the toy on a gateway without sockets, for property tests."""

from __future__ import annotations

from tests.helpers.store import Gateway
from tests.toy import requests
from tests.toy.codec import decode, encode


def add_toy(gateway: Gateway) -> None:
    """Add the protocol to a gateway, whose sessions may then speak it."""
    context = gateway.router.context
    requests.register(context.hooks)
    gateway.routes[requests.PROTOCOL] = lambda line: requests.work(context, decode(line.encode()))


def bind(gateway: Gateway, full: str, seconds: float) -> None:
    """Bind a session of the toy, whose state is kept for so many seconds."""
    gateway.bind(full, requests.DECLARED._replace(durable=seconds), requests.PROTOCOL)


def words(line: bytes) -> list[str]:
    """Return the words of a line that the gateway has sent."""
    return [word.decode() for word in decode(line.removesuffix(b"\n"))]


def line(*found: str | int) -> str:
    """Return the line of these words, without its end."""
    return encode(*found).decode().removesuffix("\n")
