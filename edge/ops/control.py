"""The control socket of a running gateway, as a command beside it sees it.

`DIR/control.sock` is its owner's alone. One line asks, one line of JSON answers: what the process
alone knows. Answering is `net.control`'s; what the database knows is read from it and not asked
here.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from edge.errors import SetupError
from edge.features.queues.store.overview import Attendance

T = TypeVar("T")

SOCKET: Final = "control.sock"

STATUS: Final = b"status"
"""The request for a `Running`."""

MEMBERS: Final = b"members"
"""With the number of a queue after a space, the request for a `There`."""

PATIENCE: Final = 5.0
"""Seconds that a gateway has to answer; it takes milliseconds."""

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""The longest answer: that to `MEMBERS` names a thousand sessions at most, each of 3 KiB at most;
mostly 50 bytes. That to `STATUS` has some 4 KiB."""

_READ: Final = 64 * 1024


class Running(Struct, frozen=True, kw_only=True):
    """What a running gateway tells of itself.

    `service` are the service seconds that it has reached, `uptime` the seconds since its start,
    `boot` the kernel's id of the boot. `used` and `limits` are by the name of the option: how much
    is used of what the process alone knows, and what it was started with.
    """

    version: str
    boot: str
    service: float
    uptime: float
    synchronised: bool
    used: dict[str, int]
    limits: dict[str, int | float]


class There(Struct, frozen=True, kw_only=True):
    """By which sessions the members of a queue are there, at which service second."""

    service: float
    attending: list[Attendance]


@contextmanager
def reachable(folder: Path) -> Iterator[str]:
    """Give a path of the socket that is short, whatever the folder's is: at most 107 bytes fit.

    It is good inside of the block. Raises `OSError` if there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def ask(folder: Path, patience: float = PATIENCE) -> Running | None:
    """Ask the gateway of `folder` how it is; `None` if none is running there.

    Raises `SetupError` if it does not answer within `patience` seconds, or may not be asked.
    """
    return _asked(folder, STATUS, Running, patience)


def members(folder: Path, queue: int, patience: float = PATIENCE) -> There | None:
    """Ask the gateway of `folder` who is there of a queue, by its number; as `ask` does."""
    return _asked(folder, b"%b %d" % (MEMBERS, queue), There, patience)


def _asked(folder: Path, request: bytes, type: type[T], patience: float) -> T | None:
    place = folder / SOCKET
    try:
        with reachable(folder) as path, socket.socket(socket.AF_UNIX) as asking:
            line = _exchange(asking, path, request, time.monotonic() + patience)
    except (FileNotFoundError, ConnectionRefusedError):  # never started; killed
        return None
    except (BrokenPipeError, ConnectionResetError):  # it has too many callers
        line = b""
    except TimeoutError:
        raise SetupError(f"{place}: the gateway has not answered for {patience:g} s") from None
    except OSError as error:
        raise SetupError(f"{place} cannot be asked: {error.strerror or error}") from None
    try:
        return msgspec.json.decode(line, type=type)
    except msgspec.DecodeError:
        raise SetupError(f"{place}: the gateway is busy, or of another version") from None


def _exchange(asking: socket.socket, path: str, request: bytes, deadline: float) -> bytes:
    asking.settimeout(max(deadline - time.monotonic(), 0.001))
    asking.connect(path)
    asking.sendall(request + b"\n")
    answer = bytearray()
    while not answer.endswith(b"\n") and len(answer) <= ANSWER_BYTES:
        asking.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = asking.recv(_READ)
        if not chunk:
            break
        answer += chunk
    return bytes(answer)
