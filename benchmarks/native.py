"""Compile the benchmarks' C sources on demand into the checkout's folder for scratch data."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / ".benchmarks"

LOAD: Final = ("peers_load.c", "-lssl", "-lcrypto")
"""The load generator for exchanges: its source and libraries."""

PASS_BYTES: Final = ("pass_bytes.c",)
"""The program that passes bytes on between peers and a server."""

SLOW_FSYNC: Final = ("slow_fsync.c", "-shared", "-fPIC", "-ldl")
"""The library that delays fsync: its source and options."""


class BuildError(Exception):
    """A C source cannot be compiled."""


def build(source: str, *options: str) -> Path:
    """Return the program or library made from a source beside this file; raises `BuildError`."""
    path = Path(__file__).with_name(source)
    digest = hashlib.sha256(path.read_bytes() + repr(options).encode()).hexdigest()[:12]
    program = FOLDER / f"{path.stem}-{digest}"
    if program.exists():
        return program
    if shutil.which("gcc") is None:
        raise BuildError("gcc is missing; install it with make interop-packages")
    FOLDER.mkdir(exist_ok=True)
    new = program.with_suffix(f".{os.getpid()}")
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-o", str(new), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(
            f"gcc cannot compile {path}; make interop-packages installs what it needs:"
            f"\n{done.stderr[-2000:]}"
        )
    new.replace(program)
    return program
