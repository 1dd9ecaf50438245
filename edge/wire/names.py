"""Names as expat reports them, brought into Clark notation.

With namespaces and prefixes on, expat reports `local`, `namespace}local` or
`namespace}local}prefix`; the separator is ours, and no namespace that expat accepts contains it.
Names that have no prefix are remembered, for all parsers of the process together, so that a look-up
is all that an element costs: `ELEMENTS` maps them, `ATTRIBUTES` holds those of attributes, which
need no change. Both are bounded, and emptied when they are full: what comes next costs a little
more, and is right.
"""

from __future__ import annotations

from edge.wire.namespaces import XML

SEPARATOR = "}"
MAX_KNOWN = 1024
"""Names remembered, of each kind; all specifications in use here together have less."""
MAX_KNOWN_LENGTH = 128
"""Characters of a name that is remembered: some 0.2 MB at most."""

ELEMENTS: dict[str, str] = {}
ATTRIBUTES: set[str] = set()

_XML = XML + SEPARATOR


def element_name(name: str) -> tuple[str, bool]:
    """Bring an element's name into Clark notation, and tell whether it had a prefix."""
    parts = name.split(SEPARATOR)
    if len(parts) == 3:
        return f"{{{parts[0]}}}{parts[1]}", True
    plain = name if len(parts) == 1 else "{" + name
    if len(name) <= MAX_KNOWN_LENGTH:
        if len(ELEMENTS) >= MAX_KNOWN:
            ELEMENTS.clear()
        ELEMENTS[name] = plain
    return plain, False


def attribute_names(attrs: dict[str, str]) -> tuple[dict[str, str], bool]:
    """Bring attributes' names into Clark notation, and tell whether one had a prefix other than
    `xml`."""
    plain: dict[str, str] = {}
    prefixed = False
    for name, value in attrs.items():
        if SEPARATOR in name:
            namespace, local, _ = name.split(SEPARATOR)
            plain[f"{{{namespace}}}{local}"] = value
            prefixed |= not name.startswith(_XML)
        else:
            _remember(name)
            plain[name] = value
    return plain, prefixed


def _remember(name: str) -> None:
    if len(name) <= MAX_KNOWN_LENGTH:
        if len(ATTRIBUTES) >= MAX_KNOWN:
            ATTRIBUTES.clear()
        ATTRIBUTES.add(name)
