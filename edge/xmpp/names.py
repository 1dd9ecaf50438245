"""Names as expat reports them, brought into Clark notation.

With namespaces on, expat reports `local` or `namespace}local`; the separator is ours, and no
namespace that expat accepts contains it. Names are remembered, for all parsers of the process
together, so that a look-up is all that an element costs: `ELEMENTS` maps them, `ATTRIBUTES` holds
those of attributes without a namespace, which need no change. Both are bounded, and emptied when
they are full: what comes next costs a little more, and is right.
"""

from __future__ import annotations

SEPARATOR = "}"
MAX_KNOWN = 1024
"""Names remembered, of each kind; all specifications in use here together have less."""
MAX_KNOWN_LENGTH = 128
"""Characters of a name that is remembered: some 0.2 MB at most."""

ELEMENTS: dict[str, str] = {}
ATTRIBUTES: set[str] = set()


def element_name(name: str) -> str:
    """Bring an element's name into Clark notation, and remember it."""
    plain = "{" + name if SEPARATOR in name else name
    if len(name) <= MAX_KNOWN_LENGTH:
        if len(ELEMENTS) >= MAX_KNOWN:
            ELEMENTS.clear()
        ELEMENTS[name] = plain
    return plain


def attribute_names(attrs: dict[str, str]) -> dict[str, str]:
    """Bring attributes' names into Clark notation, and remember those that need no change."""
    plain: dict[str, str] = {}
    for name, value in attrs.items():
        if SEPARATOR in name:
            plain["{" + name] = value
        else:
            plain[name] = value
            if len(name) <= MAX_KNOWN_LENGTH:
                if len(ATTRIBUTES) >= MAX_KNOWN:
                    ATTRIBUTES.clear()
                ATTRIBUTES.add(name)
    return plain
