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


def difference(expected: Element, actual: Element) -> str:
    """Describe the first difference; return an empty string if there is none."""
    if expected.tag != actual.tag:
        return f"{actual.tag} in place of {expected.tag}"
    for name, value in expected.items():
        if name not in actual.keys() or value not in (ANY, actual.get(name)):  # noqa: SIM118
            return f"{actual.tag} has {name}={actual.get(name)!r}, not {value!r}"
    expected_text, text = (expected.text or "").strip(), (actual.text or "").strip()
    if expected_text not in ("", ANY, text):
        return f"{actual.tag} has the text {text!r}, not {expected_text!r}"
    remaining = list(actual)
    for child in expected:
        reason = f"{actual.tag} has no {child.tag}"
        while remaining:
            reason = difference(child, remaining.pop(0)) or ""
            if not reason:
                break
        if reason:
            return f"in {actual.tag}: {reason}"
    return ""


def to_text(element: Element) -> str:
    return ElementTree.tostring(element, "unicode")
