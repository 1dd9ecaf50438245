"""The layout's rules that import-linter's contracts do not express, type imports included."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grimp
import pytest

from edge.engine.dispatch import hooks
from edge.engine.dispatch.hooks import Hooks

ROOT = Path(__file__).parents[2]

PURE_MODULES = {
    "edge.engine.rules.quota",
    "edge.engine.rules.access",
    "edge.engine.dispatch.item_attributes",
    "edge.topics",
}
"""Modules of pure functions that rules of features may use."""

SQL = re.compile(
    r"\b(SELECT\s.*\bFROM|INSERT\s.*\bINTO|UPDATE\s\S+\sSET|DELETE\sFROM|CREATE\sTABLE)\b|PRAGMA ",
    re.DOTALL,
)


PROTOCOLS = ("xmpp", "mqtt")
"""The protocols, by the names of their parts of features."""


class Part(NamedTuple):
    """The feature and the part of it that a module is in: `rules`, `store`, or a protocol, say."""

    feature: str
    name: str


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("edge", "sync", "firmware_sim", cache_dir=None)


def imports() -> Iterator[tuple[str, str]]:
    for module in sorted(graph().modules):
        for imported in sorted(graph().find_modules_directly_imported_by(module)):
            yield module, imported


def part_of(module: str) -> Part | None:
    names = module.split(".")
    if names[:2] != ["edge", "features"] or len(names) < 4:
        return None
    return Part(names[2], names[3])


def is_allowed(module: str, imported: str) -> bool:
    importer, part = part_of(module), part_of(imported)
    if importer is None:
        return True
    if part is not None:
        foreign = importer.feature != part.feature
        if foreign and part.name in (*PROTOCOLS, "store"):
            return False
        if importer.name == "rules":
            return part.name == "rules"
        return part.name not in PROTOCOLS or importer.name == part.name
    if importer.name == "rules":
        return not imported.startswith("edge.") or imported in PURE_MODULES
    foreign_protocols = [name for name in PROTOCOLS if name != importer.name]
    return not imported.startswith(
        tuple(f"edge.{part}{name}" for name in foreign_protocols for part in ("", "routing."))
    )


def test_features_import_services_of_others_and_xml_only_in_xmpp() -> None:
    assert [f"{a} -> {b}" for a, b in imports() if not is_allowed(a, b)] == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("edge.features.pubsub.service.nodes", "edge.features.queues.store.queues"),
        ("edge.features.pubsub.xmpp", "edge.features.queues.xmpp"),
        ("edge.features.custody.service", "edge.xmpp.serialize"),
        ("edge.features.outbox.destination", "edge.xmpp.stanza"),
        ("edge.features.outbox.service", "edge.routing.xmpp.answers"),
        ("edge.features.custody.service", "edge.mqtt.codec"),
        ("edge.features.custody.mqtt", "edge.xmpp.serialize"),
        ("edge.features.custody.xmpp", "edge.routing.mqtt.answers"),
        ("edge.features.custody.mqtt", "edge.features.custody.xmpp"),
        ("edge.features.custody.store", "edge.features.custody.xmpp"),
        ("edge.features.custody.rules", "edge.engine.store.database"),
        ("edge.features.custody.rules", "edge.features.custody.store"),
    ],
)
def test_a_forbidden_import_is_found(module: str, imported: str) -> None:
    assert not is_allowed(module, imported)


OF_PROTOCOLS = {
    *("XmppHooks", "MqttHooks", "encoders", "error_mappings", "exports", "message_ids"),
    *("operator_messages", "readers"),
    *("on_unacknowledged_messages", "on_overflow", "on_rejected_message"),
}
"""The hooks that the module of a protocol registers; all others are for the other modules of a
feature."""


def registered(register: Callable[[Hooks], None]) -> set[str]:
    """Return the names of the hooks and of the other registries to which a function adds."""
    empty, filled = vars(Hooks()), Hooks()
    register(filled)
    changed = {name for name, value in vars(filled).items() if value != empty[name]}
    others = {registry.__name__ for registry in filled._registries}
    return (changed | others) - {"_events", "_registries"}


def test_modules_of_protocols_register_only_what_is_of_the_protocol() -> None:
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for module in hooks._feature_modules(frozenset()):
        part = part_of(module.__name__)
        for name in ("register", "register_for_accounts"):
            if part is not None and hasattr(module, name):
                found[part.name in PROTOCOLS] |= registered(getattr(module, name))
    assert found[True] <= OF_PROTOCOLS
    assert not found[False] & OF_PROTOCOLS
    assert {"images", "on_timer", "on_acknowledged", "destinations"} <= found[False]


def cycles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Return the modules that remain when modules without imports are removed again and again."""
    edges = {module: set(imported) for module, imported in edges.items()}
    while leaves := [module for module, imported in edges.items() if not imported]:
        for leaf in leaves:
            del edges[leaf]
        for imported in edges.values():
            imported.difference_update(leaves)
    return [{module, *imported} for module, imported in sorted(edges.items())]


def test_no_module_imports_itself_through_others() -> None:
    edges: dict[str, set[str]] = {module: set() for module in graph().modules}
    for module, imported in imports():
        edges[module].add(imported)
    assert cycles(edges) == []
    assert cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}) != []


def strings(path: Path) -> Iterator[str]:
    """Yield the strings in a module that are not docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text


def test_sql_is_in_the_engine_and_in_stores() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "edge").rglob("*.py")
        if any(map(SQL.search, strings(path)))
    }
    allowed = re.compile(r"edge/engine/\w+/\w+\.py|edge/features/\w+/(tables|store(/\w+)?)\.py")
    assert {path for path in found if not allowed.fullmatch(path)} == set()
    assert "edge/features/custody/store.py" in found


ENGINE_TABLES = {
    *("event_batches", "lanes", "lane_counters", "meta", "refusals", "sqlite_sequence", "wear"),
    *("durable_sessions", "folded", "fullness", "in_flight", "sessions"),
    "accounts",  # whether a session's account is provisioned and trusted
}
"""The tables that the engine's statements may name; all others belong to features."""

TABLE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+(?:main\.|temp\.)?([a-z]\w+)")


def test_engine_and_configuration_name_no_feature() -> None:
    modules = [
        path for part in ("engine", "config") for path in (ROOT / "edge" / part).rglob("*.py")
    ]
    found = {path.name: list(strings(path)) for path in modules}
    named = {table for texts in found.values() for text in texts for table in TABLE.findall(text)}
    assert named - {"pragma_database_list"} == ENGINE_TABLES
    loading = {name for name, texts in found.items() if any("edge.features" in t for t in texts)}
    assert loading == {"hooks.py", "tables.py"}, "these load what the features register and declare"


def compile_hook() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook: dict[str, Any] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    return hook


def test_every_mypyc_pattern_matches_modules() -> None:
    hook = compile_hook()
    assert not hook["enable-by-default"]
    assert all(list(ROOT.glob(pattern)) for pattern in hook["modules"])
    assert "edge/xmpp/parser.py" in hook["modules"], "`build_kind` looks for it"


NOT_NATIVE = {"Enum", "IntEnum", "NamedTuple", "Protocol", "StrEnum", "Struct"}
"""Bases of classes that mypyc leaves as they are in Python."""


def bases(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's bases, without their parameters."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {ast.unparse(base) for base in plain}


def compiled_modules() -> set[Path]:
    return {path for pattern in compile_hook()["modules"] for path in ROOT.glob(pattern)}


def test_no_two_subclasses_of_a_compiled_class_have_the_same_name() -> None:
    """mypyc sorts subclasses by their names, so that the order of equal ones differs by build."""
    named = Counter(
        (base.rpartition(".")[2], node.name)
        for path in compiled_modules()
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        for base in bases(node)
    )
    assert ("Image", "OutboxImage") in named
    assert [each for each, times in named.items() if times > 1] == []


def test_subclasses_of_compiled_classes_are_compiled() -> None:
    """mypyc refuses at run time that an interpreted class inherits from a compiled one."""
    compiled = compiled_modules()
    native = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), node.name)
        for path in compiled
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not bases(node) & NOT_NATIVE
    }
    assert ("edge.server.session", "Session") in native
    interpreted = []
    for path in sorted(set((ROOT / "edge").rglob("*.py")) - compiled):
        tree = ast.parse(path.read_text("utf-8"))
        imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        interpreted += [
            f"{path.relative_to(ROOT)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            if any(imported.get(base) in native for base in bases(node))
        ]
    assert interpreted == []
