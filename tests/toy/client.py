"""A client of the toy protocol over a socket."""

from __future__ import annotations

import asyncio
from typing import Final, Self

from tests.helpers.gateway import DOMAIN, PASSWORD
from tests.helpers.processes import Process
from tests.toy.codec import decode, encode

WAIT_S: Final = 10.0

SERVICE: Final = f"pubsub.{DOMAIN}"


class ToyClient:
    """A connection. As a context manager it is closed at the end.

    `held` are the messages at level 2 that it has received and that were not released.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_resumed = False
        self.held: dict[str, list[str]] = {}

    @classmethod
    async def connect(cls, at: tuple[str, int] | Process) -> Self:
        """Connect to an address, or to a process that listens for the toy."""
        return cls(*await asyncio.open_connection(*_address(at)))

    @classmethod
    async def begin(
        cls, at: tuple[str, int] | Process, name: str, client: str = "toy", seconds: int = 0
    ) -> Self:
        """Connect and begin a session, whose state is kept for so many seconds."""
        found = await cls.connect(at)
        state = await found.log_in(name, PASSWORD, client, seconds)
        assert state[:2] == ["welcome", f"{name}@{DOMAIN}/{client}"], state
        found.is_resumed = state[2] == "resumed"
        return found

    async def log_in(self, name: str, password: str, client: str, seconds: int = 0) -> list[str]:
        self.send("login", name, password, client, seconds)
        return await self.line()

    def send(self, *words: str | bytes | int) -> None:
        self.writer.write(encode(*words))

    async def line(self) -> list[str]:
        """Return the words of the next line; none at the end."""
        line = await asyncio.wait_for(self.reader.readline(), WAIT_S)
        return [word.decode() for word in decode(line.removesuffix(b"\n"))] if line else []

    async def ask(self, *words: str | bytes | int) -> list[str]:
        """Send a line and return the next one."""
        self.send(*words)
        return await self.line()

    async def publish(self, id: int, to: str, content_type: str, payload: str | bytes) -> None:
        """Publish at level 2, by both steps."""
        assert await self.ask("publish", id, 2, to, content_type, payload) == ["received", f"{id}"]
        assert await self.ask("release", id) == ["completed", f"{id}"]

    async def take(self) -> list[str]:
        """Take a message by the steps of its level; return its level, sender, content type and
        payload."""
        while True:
            name, id, *message = await self.line()
            if name == "release":
                self.send("completed", id)
                return self.held.pop(id)
            assert name == "publish"
            if message[0] == "2":
                self.held[id] = message
                self.send("received", id)
                continue
            if message[0] == "1":
                self.send("acknowledged", id)
            return message

    async def sync(self) -> None:
        """Wait until the gateway has handled all lines."""
        assert (await self.ask("unsubscribe", "none"))[:2] == ["refused", "unsubscribe"]

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


def _address(at: tuple[str, int] | Process) -> tuple[str, int]:
    return at.host_port("toy") if isinstance(at, Process) else at
