"""Write `fieldpost.toml`: every option with its meaning, unit and default."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import FieldInfo

from edge.config.load import ARRAYS, LAST_PORT, SECTIONS, parse_address
from edge.config.options import SET_THESE, TUNE_THESE, Rule, Section

_WIDTH: Final = 100

_INTRODUCTION: Final = f"""\
# Configuration of a Fieldpost gateway. `fieldpost config check` reports mistakes and lists the
# changed options; `fieldpost reload` applies them to the running gateway, except for those that
# need a restart.
#
# The options under "{SET_THESE}" depend on your site. The defaults of those under
# "{TUNE_THESE}" suit most sites. Change the limits only with a reason. Rules, at the end, can be
# added any number of times; the first one that matches applies.
#
# "Seconds of service" do not depend on the wall clock: they count while the gateway
# runs, and while it is off if that time can be determined.
"""


def render(domain: str, *listen: str) -> str:
    """Return the text of `fieldpost.toml` for `domain`; every other option has its default, and
    there are the initial rules (`Rule.is_initial`).

    If `listen` has addresses, they replace the default. Direct TLS then listens on the same hosts,
    on the next port (for port 0, on any free port).
    """
    values: dict[str, dict[str, object]] = {"gateway": {"domain": domain}}
    if listen:
        beside = [str(a._replace(port=_port_for_tls(a.port))) for a in map(parse_address, listen)]
        values["xmpp"] = {"listen": _one_or_all(list(listen)), "listen_tls": _one_or_all(beside)}
    sections = (_section(name, kind, values.get(name, {})) for name, kind in SECTIONS.items())
    return "\n\n".join([_INTRODUCTION, *sections, *map(_array, ARRAYS.values(), ARRAYS)])


def default(field: FieldInfo) -> object:
    """Return the default of an option; `NODEFAULT` if it has none."""
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


@cache
def reasons(kind: type[Section]) -> dict[str, str]:
    """Return the reason of each option of a section by its name: the docstring, as one line.

    Python does not keep these docstrings, so they are read from the source.
    """
    found = {}
    (section,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(section, ast.ClassDef)  # noqa: S101
    for option, reason in pairwise(section.body):
        match option, reason:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
    return found


def to_toml(value: object) -> str:
    """Format a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:_}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {to_toml(value[key])}" for key in value) + "}"
    return str(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else to_toml(name)


def _one_or_all(texts: list[str]) -> object:
    return texts[0] if len(texts) == 1 else texts


def _port_for_tls(port: int) -> int:
    return port + 1 if 0 < port < LAST_PORT else 0


def _section(name: str, kind: type[Section], values: dict[str, object]) -> str:
    lines = [_comment(kind.__doc__ or ""), f"[{name}]"]
    texts = reasons(kind)
    for field in msgspec.structs.fields(kind):
        if field.name in kind.headings:
            lines.append(f"\n# ---- {kind.headings[field.name]} ----")
        meta = field.type.__metadata__[0]
        lines.append("\n" + _comment(f"{texts[field.name]} {_unit_and_default(field, meta)}"))
        lines.append(f"{field.name} = {to_toml(values.get(field.name, default(field)))}")
    return "\n".join(lines) + "\n"


def _array(kind: type[Rule], name: str) -> str:
    """Return the comments that explain an array of tables, with an example or initial rule."""
    texts = reasons(kind)
    lines = [_comment(" ".join((kind.__doc__ or "").split()))]
    for field in msgspec.structs.fields(kind):
        meta = field.type.__metadata__[0]
        text = f"{field.name}: {texts[field.name]} {_unit_and_default(field, meta)}"
        lines.append("#\n" + _comment(text))
    mark = "" if kind.is_initial else "# "
    lines += [mark.strip(), f"{mark}[[{name}]]"]
    lines += [f"{mark}{option} = {to_toml(value)}" for option, value in kind.example.items()]
    return "\n".join(lines) + "\n"


def _unit_and_default(field: FieldInfo, meta: msgspec.Meta) -> str:
    value = default(field)
    unit = (meta.extra or {})["unit"]
    parts = [f"Unit: {unit}."] if unit else []
    if (meta.extra or {})["restart"]:
        parts.append("A change needs a restart.")
    parts.append("Required." if value is msgspec.NODEFAULT else f"Default: {to_toml(value)}.")
    return " ".join(parts)


def _comment(text: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
