"""Sessions of the toy on a gateway without sockets, for property tests."""

from __future__ import annotations

from typing import Final

from tests.helpers.store import Gateway
from tests.toy import requests
from tests.toy.codec import decode, encode

KEPT: Final = requests.DECLARED._replace(durable=3000.0)


def add_toy(gateway: Gateway) -> None:
    """Add the protocol to a gateway, whose sessions may then speak it."""
    context = gateway.router.context
    requests.register(context.hooks)
    gateway.routes[requests.PROTOCOL] = lambda line: requests.work(context, decode(line.encode()))


def bind(gateway: Gateway, full: str) -> bool:
    """Bind a session of the toy; return whether it found a state of earlier sessions."""
    gateway.bind(full, KEPT, requests.PROTOCOL)
    return gateway.is_resumed


def words(line: bytes) -> list[str]:
    """Return the words of a line that the gateway has sent."""
    return [word.decode() for word in decode(line.removesuffix(b"\n"))]


def line(*found: str | int) -> str:
    """Return the line of these words, without its end."""
    return encode(*found).decode().removesuffix("\n")
