"""Comparing what came with what a specification shows: all that is shown is there, in its order.

More may be there: an example shows what matters to it. `{any}` stands for any value of an attribute
or any text; neither the order of attributes nor white space around text counts.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

ANY: Final = "{any}"


def read(xml: str) -> Element:
    """Read a stanza as it stands in a client's stream."""
    return ElementTree.fromstring(f"<s xmlns='jabber:client'>{xml}</s>")[0]  # noqa: S314


def lacking(shown: Element, got: Element) -> str:
    """Tell what is shown and is not there; nothing if all is."""
    if shown.tag != got.tag:
        return f"{got.tag} in place of {shown.tag}"
    for name, value in shown.items():
        if name not in got.keys() or value not in (ANY, got.get(name)):  # noqa: SIM118
            return f"{got.tag} has {name}={got.get(name)!r}, not {value!r}"
    wanted, text = (shown.text or "").strip(), (got.text or "").strip()
    if wanted not in ("", ANY, text):
        return f"{got.tag} has the text {text!r}, not {wanted!r}"
    left = list(got)
    for child in shown:
        why = f"{got.tag} has no {child.tag}"
        while left:
            why = lacking(child, left.pop(0)) or ""
            if not why:
                break
        if why:
            return f"in {got.tag}: {why}"
    return ""


def tell(element: Element) -> str:
    """Write an element for a person who wonders."""
    return ElementTree.tostring(element, "unicode")
