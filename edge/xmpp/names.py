"""Conversion of expat's names to Clark notation.

With namespaces on, expat reports `local` or `namespace}local`; no namespace that expat accepts
contains the separator `}`. Names are cached for all parsers of the process, so that an element
costs one look-up: `ELEMENTS` maps expat's names to Clark notation, `ATTRIBUTES` holds the
attributes without a namespace, which need no conversion. Both caches are cleared when they are
full.
"""

from __future__ import annotations

SEPARATOR = "}"
MAX_KNOWN = 1024
"""Maximum entries of `ELEMENTS` and of `ATTRIBUTES`; the implemented specifications together have
fewer names."""
MAX_KNOWN_LENGTH = 128
"""Maximum characters of a cached name, so that the caches take at most some 0.2 MB."""

ELEMENTS: dict[str, str] = {}
ATTRIBUTES: set[str] = set()


def element_name(name: str) -> str:
    """Convert an element's name to Clark notation and cache it."""
    plain = "{" + name if SEPARATOR in name else name
    if len(name) <= MAX_KNOWN_LENGTH:
        if len(ELEMENTS) >= MAX_KNOWN:
            ELEMENTS.clear()
        ELEMENTS[name] = plain
    return plain


def attribute_names(attrs: dict[str, str]) -> dict[str, str]:
    """Convert attributes' names to Clark notation; cache names without a namespace."""
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
