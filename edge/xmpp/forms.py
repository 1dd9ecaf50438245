"""Data forms (XEP-0004), as far as options go: fields with values, labels and choices.

What a field means is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import DATA_FORMS, clark

X: Final = clark(DATA_FORMS, "x")
FORM_TYPE: Final = "FORM_TYPE"
"""The field that names what a form is for (XEP-0068)."""

_FIELD: Final = clark(DATA_FORMS, "field")
_VALUE: Final = clark(DATA_FORMS, "value")


class Field(NamedTuple):
    """A field of a form: its name, its type (XEP-0004, section 3.3), and its values as texts.

    `options` are the values that may be chosen, and what each means.
    """

    var: str
    type: str
    values: Sequence[str] = ()
    required: bool = False
    label: str = ""
    options: Sequence[tuple[str, str]] = ()


def is_cancelled(tree: Element) -> bool:
    """Tell whether somebody has thought better of filling in a form."""
    return tree.get("type") == "cancel"


def read(tree: Element, form_type: str | None = None) -> dict[str, list[str]]:
    """Return the values of a form that was filled in, by the names of its fields; without the one
    that names what it is for.

    Args:
        tree: the form.
        form_type: what it must be for, if it says so at all.

    Raises:
        StanzaError: `bad-request`: it is none, is for something else, or has a field without a
            name or twice.
    """
    if tree.tag != X or tree.get("type") != "submit":
        raise StanzaError("bad-request", "a form of type `submit` is needed")
    found: dict[str, list[str]] = {}
    for field in tree.iterfind(_FIELD):
        var = field.get("var")
        if not var or var in found:
            raise StanzaError("bad-request", "a field has a name of its own")
        found[var] = [value.text or "" for value in field.iterfind(_VALUE)]
    named = found.pop(FORM_TYPE, None)
    if form_type is not None and named not in (None, [form_type]):
        raise StanzaError("bad-request", f"a form of {form_type} is needed")
    return found


def write(type: str, form_type: str, fields: Iterable[Field], table: bytes = b"") -> bytes:
    """Make a form of a `type` (`form`, `result` or `submit`) for what `form_type` names; a result
    may have a `table` below its fields."""
    first = Field(FORM_TYPE, "hidden", (form_type,))
    content = b"".join(_field(field) for field in (first, *fields)) + table
    return serialize.tag("x", {"type": type}, content, xmlns=DATA_FORMS)


def table(columns: Sequence[Field], rows: Iterable[Sequence[str]]) -> bytes:
    """Make the rows of a result, each with a value for each column (XEP-0004, section 3.4)."""
    content = serialize.tag("reported", content=b"".join(_field(column) for column in columns))
    for row in rows:
        cells = (
            serialize.tag("field", {"var": column.var}, _value(value))
            for column, value in zip(columns, row, strict=True)
        )
        content += serialize.tag("item", content=b"".join(cells))
    return content


def _field(field: Field) -> bytes:
    attrs = {"var": field.var, "type": field.type, "label": field.label or None}
    content = b"<required/>" if field.required else b""
    content += b"".join(_value(value) for value in field.values)
    for value, label in field.options:
        content += serialize.tag("option", {"label": label}, _value(value))
    return serialize.tag("field", attrs, content)


def _value(text: str) -> bytes:
    return serialize.tag("value", content=serialize.escape(text))
