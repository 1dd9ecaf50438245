"""Reading and building of data forms (XEP-0004): fields with values, labels and options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import DATA_FORMS, clark
from edge.xmpp.stanza import has_text

X: Final = clark(DATA_FORMS, "x")
FORM_TYPE: Final = "FORM_TYPE"
"""The field that names the purpose of a form (XEP-0068)."""

_FIELD: Final = clark(DATA_FORMS, "field")
_VALUE: Final = clark(DATA_FORMS, "value")
_ITEM: Final = clark(DATA_FORMS, "item")


class Field(NamedTuple):
    """A field of a form.

    Attributes:
        type: its type (XEP-0004, section 3.3).
        label: its description for people.
        options: the values that may be chosen, each with its label.
    """

    var: str
    type: str
    values: Sequence[str] = ()
    required: bool = False
    label: str = ""
    options: Sequence[tuple[str, str]] = ()


def is_cancelled(tree: Element) -> bool:
    """Return whether a form was cancelled."""
    return tree.get("type") == "cancel"


def read(tree: Element, form_type: str | None = None) -> dict[str, list[str]]:
    """Return the values of a submitted form by field name, without `FORM_TYPE`.

    Args:
        form_type: the required value of `FORM_TYPE`, if the form has that field.

    Raises:
        StanzaError: `bad-request`: the form is not a submission, has another `FORM_TYPE`, has
            several items, has a field without a name or a duplicate field, or has data outside of
            the values of its fields.
    """
    if tree.tag != X or tree.get("type") != "submit":
        raise StanzaError("bad-request", "the form must be of type `submit`")
    if tree.find(_ITEM) is not None or has_text(tree):
        raise StanzaError("bad-request", "the form has data outside of its fields")
    found: dict[str, list[str]] = {}
    for field in tree.iterfind(_FIELD):
        var = field.get("var")
        if not var or var in found:
            raise StanzaError("bad-request", "each field must have a unique name")
        values = field.findall(_VALUE)
        if has_text(field) or any(len(value) for value in values):
            raise StanzaError("bad-request", f"the field {var} has data outside of its values")
        found[var] = [value.text or "" for value in values]
    named = found.pop(FORM_TYPE, None)
    if form_type is not None and named not in (None, [form_type]):
        raise StanzaError("bad-request", f"the form's {FORM_TYPE} must be {form_type}")
    return found


def write(type: str, form_type: str, fields: Iterable[Field], table: bytes = b"") -> bytes:
    """Build a form of a `type` (`form`, `result` or `submit`) with a `FORM_TYPE`; a result may have
    a `table` below its fields."""
    first = Field(FORM_TYPE, "hidden", (form_type,))
    content = b"".join(_field(field) for field in (first, *fields)) + table
    return serialize.tag("x", {"type": type}, content, xmlns=DATA_FORMS)


def table(columns: Sequence[Field], rows: Iterable[Sequence[str]]) -> bytes:
    """Build the rows of a result, each with a value for each column (XEP-0004, section 3.4)."""
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
