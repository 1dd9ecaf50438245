"""The configuration as text: what `fieldpost init` writes, from the declarations in
`edge.config.options`.

`edge.config.load` reads and checks it.
"""

from __future__ import annotations

from typing import get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from edge.config.load import LAST_PORT, SECTIONS, parse_address


def render(domain: str, *listen: str) -> str:
    """Write out a configuration for `domain` with every option, its default and its reason.

    With `listen`, direct TLS listens on the same hosts, on the next port (on any free one for 0).
    """
    given: dict[str, dict[str, object]] = {"gateway": {"domain": domain}}
    if listen:
        beside = [str(a._replace(port=_beside(a.port))) for a in map(parse_address, listen)]
        given["xmpp"] = {"listen": _one_or_all(list(listen)), "listen_tls": _one_or_all(beside)}
    return "\n".join(_section(name, kind, given.get(name, {})) for name, kind in SECTIONS.items())


def _one_or_all(texts: list[str]) -> object:
    return texts[0] if len(texts) == 1 else texts


def _beside(port: int) -> int:
    return port + 1 if 0 < port < LAST_PORT else 0


def _section(name: str, kind: type[Struct], given: dict[str, object]) -> str:
    doc = (kind.__doc__ or "").strip()
    lines = [f"# {doc}", f"[{name}]"]
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        meta = hints[field.name].__metadata__[0]
        unit = f" ({meta.extra['unit']})" if meta.extra["unit"] else ""
        lines.append(f"# {meta.description}{unit}")
        value = given.get(field.name, default(field))
        lines.append(f"{field.name} = {written(value)}")
    return "\n".join(lines) + "\n"


def default(field: FieldInfo) -> object:
    """Return the default of an option; `NODEFAULT` where it has none."""
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def written(value: object) -> str:
    """Write a value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:_}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value)
