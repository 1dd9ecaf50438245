"""The toy protocol (`tests.toy`) is added by its folder and by registration alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import edge
from tests import toy

FOLDER = Path(toy.__file__).parent
PROTOCOL = ("codec", "listener", "requests")
"""The modules of the protocol; the others run and test it."""

ALLOWED = re.compile(
    r"edge\.(content_types|errors|jid|topics)|edge\.config\.load|edge\.engine(\.\w+)*"
    r"|edge\.features\.\w+\.(rules|service)(\.\w+)*"
    r"|edge\.server\.(?!xmpp\b)\w+|tests\.toy\.\w+"
)
"""The packages that a protocol may import: core of transport, engine, rules and services."""


def imported(module: str) -> Iterator[str]:
    """Yield the modules of the project that a module of the toy imports."""
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [_module(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        yield from (name for name in found if name.startswith(("edge", "sync", "tests")))


def _module(package: str, name: str) -> str:
    """Return the module that `from package import name` imports."""
    is_package = find_spec(package).submodule_search_locations is not None  # type: ignore[union-attr]
    is_module = is_package and find_spec(f"{package}.{name}") is not None
    return f"{package}.{name}" if is_module else package


@pytest.mark.parametrize("module", PROTOCOL)
def test_the_toy_imports_what_a_protocol_may_import(module: str) -> None:
    assert [name for name in imported(module) if ALLOWED.fullmatch(name) is None] == []


def test_imports_are_found() -> None:
    assert {"edge.features.outbox.rules", "edge.engine.dispatch.hooks", "tests.toy.codec"} <= set(
        imported("requests")
    )


@pytest.mark.parametrize(
    "name",
    [
        "edge.features.outbox.store.outbox",
        "edge.features.pubsub.xmpp",
        "edge.routing.xmpp",
        "edge.server.xmpp.session",
        "edge.xmpp.stanza",
    ],
)
def test_other_imports_are_refused(name: str) -> None:
    assert ALLOWED.fullmatch(name) is None


def test_no_file_of_the_gateway_knows_the_toy() -> None:
    files = list(Path(edge.__file__).parent.rglob("*.py"))
    assert len(files) > 200
    knowing = [path for path in files if re.search(r"\btoy\b", path.read_text("utf-8").lower())]
    assert knowing == []
