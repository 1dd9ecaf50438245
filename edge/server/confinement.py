"""Take from this process what it does not need: files, connections of its own, and privileges.

Linux's Landlock (kernel 5.13 and later; landlock(7)) needs no rights and no library: three system
calls, which this module makes. What was opened before stays open.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_NO_NEW_PRIVS: Final = 38

# The numbers are the same on all processors.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446

_VERSION: Final = 1  # a flag of _CREATE_RULESET
_PATH_BENEATH: Final = 1  # a type of _ADD_RULE

_READ: Final = 1 << 2 | 1 << 3
"""The rights to read files and to list folders."""

_FILES: Final = ((1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1)
"""All rights on files that the versions 1, 2 and 3 of Landlock know; later ones know these, too."""

_TCP: Final = 1 << 0 | 1 << 1
"""The rights to bind and to connect, which version 4 and later know."""

_TCP_VERSION: Final = 4

_SCOPES: Final = 1 << 0 | 1 << 1
"""To connect to abstract Unix sockets and to send signals, only among what is confined itself,
which version 6 and later know."""

_SCOPES_VERSION: Final = 6

_OOM_STEP: Final = 200
"""Thousandths of the available memory by which a process is counted as larger than it is."""

_OOM_MOST: Final = 1000

LIBRARIES: Final = ("/usr", "/lib", "/lib64", "/etc/ssl")
"""Folders that Python and OpenSSL read when they load modules and certificates."""


def end_with_parent(signal: int) -> None:
    """Let the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0)


def set_name(name: str) -> None:
    """Set the name, of at most 15 bytes, that ps(1) and top(1) show for this process."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def end_before_parent() -> None:
    """Let the kernel end this process, and not its parent, if memory runs out."""
    path = Path("/proc/self/oom_score_adj")
    with suppress(OSError):  # no /proc
        path.write_text(str(min(int(path.read_text("ascii")) + _OOM_STEP, _OOM_MOST)), "ascii")


def confine() -> bool:
    """Let this process and its threads gain no privileges, start no process or thread, open no
    files but those of Python, for reading alone, begin no TCP connection, and signal no other
    process.

    A process of root can still start processes. Sockets in the file system can be connected to.

    Returns whether files are closed to it: older kernels, and those without Landlock, cannot do it.
    With Landlock before version 4, TCP connections can be begun, and before 6, signals sent.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    rights = struct.pack("=Q", _FILES[min(version, len(_FILES)) - 1])
    if version >= _TCP_VERSION:
        rights += struct.pack("=Q", _TCP)
    if version >= _SCOPES_VERSION:
        rights += struct.pack("=Q", _SCOPES)
    rules = libc.syscall(_CREATE_RULESET, rights, ctypes.c_size_t(len(rights)), 0)
    if rules < 0:
        return False
    try:
        python = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2])
        for folder in {*map(Path, LIBRARIES), *python}:
            _allow_reading(libc, rules, folder)
        return bool(libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow_reading(libc: ctypes.CDLL, rules: int, folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it cannot be read either
    try:
        libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", _READ, descriptor), 0)
    finally:
        os.close(descriptor)
