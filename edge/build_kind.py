"""Describe the installed package: compiled or pure Python (decision 38)."""

from __future__ import annotations

import platform
from importlib.util import find_spec

from edge import __version__


def build_kind() -> str:
    """Return "compiled" if mypyc has compiled modules of the package, else "pure"."""
    spec = find_spec("edge.xmpp.parser")
    is_source = spec is None or spec.origin is None or spec.origin.endswith(".py")
    return "pure" if is_source else "compiled"


def describe() -> str:
    """Return the package's version, whether it is compiled or pure, and Python's, for people."""
    return f"{__version__} ({build_kind()}, Python {platform.python_version()})"
