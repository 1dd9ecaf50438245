"""Comparison of received stanzas with the examples of a specification.

A stanza may contain more than the example, but everything in the example, in its order. `{any}`
stands for any text or value of an attribute. The order of attributes and white space around text do
not count.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

ANY: Final = "{any}"


def read(xml: str) -> Element:
    return ElementTree.fromstring(f"<s xmlns='jabber:client'>{xml}</s>")[0]  # noqa: S314


def difference(expected: Element, got: Element) -> str:
    """Return what is expected and missing; an empty string if nothing is."""
    if expected.tag != got.tag:
        return f"{got.tag} in place of {expected.tag}"
    for name, value in expected.items():
        if name not in got.keys() or value not in (ANY, got.get(name)):  # noqa: SIM118
            return f"{got.tag} has {name}={got.get(name)!r}, not {value!r}"
    wanted, text = (expected.text or "").strip(), (got.text or "").strip()
    if wanted not in ("", ANY, text):
        return f"{got.tag} has the text {text!r}, not {wanted!r}"
    left = list(got)
    for child in expected:
        why = f"{got.tag} has no {child.tag}"
        while left:
            why = difference(child, left.pop(0)) or ""
            if not why:
                break
        if why:
            return f"in {got.tag}: {why}"
    return ""


def to_text(element: Element) -> str:
    return ElementTree.tostring(element, "unicode")
