"""Nodes: how they may be named, and how they are configured.

One table, `FIELDS`, says of each option what it is called in a form, which values it takes, and
what a person is told of it; forms are written and read by it. What a form looks like in XML is not
known here, nor what a node has. Source: XEP-0060, sections 8.1 to 8.3 and 16.4.3; XEP-0254, 4.1.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from edge.features.pubsub.rules.affiliation import AccessModel, PublishModel

MOST_LEVELS: Final = 32
"""Levels of a name, or a filter: what a person can still read; matching takes a step for each."""

MOST_LETTERS: Final = 128
"""Characters of each of several texts, as names of groups are."""

RESERVED: Final = "$share"
"""What no name begins with: it begins what stands for a share (MQTT-234)."""

_QUEUEING: Final = "{urn:xmpp:pubsub:queueing:0}queueing"
"""How XEP-0254 may write `pubsub#queueing`."""


class Unacceptable(ValueError):
    """An option cannot be as somebody wants it; `var` is its name in the form."""

    def __init__(self, var: str, why: str) -> None:
        super().__init__(f"{var}: {why}" if var else why)
        self.var = var


class Config(Struct, frozen=True, omit_defaults=True):
    """How a node is configured.

    `queue_lock_timeout` and `item_expire` are in seconds of service; `item_expire` is 0 where items
    do not expire.
    """

    title: str = ""
    description: str = ""
    type: str = ""
    access_model: AccessModel = "open"
    roster_groups_allowed: tuple[str, ...] = ()
    publish_model: PublishModel = "publishers"
    persist_items: bool = True
    max_items: int = 20
    item_expire: int = 0
    send_last_published_item: Literal["never", "on_sub"] = "on_sub"
    deliver_notifications: bool = True
    deliver_payloads: bool = True
    notify_config: bool = False
    notify_delete: bool = True
    notify_retract: bool = True
    notification_type: Literal["headline", "normal"] = "headline"
    queueing: bool = False
    queue_lock_timeout: float = 60.0
    queue_max_deliveries: int = 5
    queue_policy: Literal["least-loaded", "hash", "sticky"] = "least-loaded"


class Kind(Enum):
    """What kind of value an option has."""

    TEXT = "a text"
    TEXTS = "texts"
    FLAG = "1 or 0"
    NUMBER = "an integer"
    SECONDS = "a number of seconds"
    CHOICE = "one of several words"


_FORM_TYPES: Final = {
    Kind.TEXT: "text-single",
    Kind.TEXTS: "text-multi",
    Kind.FLAG: "boolean",
    Kind.NUMBER: "text-single",
    Kind.SECONDS: "text-single",
    Kind.CHOICE: "list-single",
}
"""The type of field that an option is in a form (XEP-0004, section 3.3)."""


class Field(NamedTuple):
    """An option: its name in `Config` and in forms, what it takes, and what a person is told.

    `least` and `most` bound a number, and `most` the characters of a text, or how many texts there
    are; where `most` is 0, the gateway's limits bound it. `options` are the choices and what each
    means.
    """

    name: str
    kind: Kind
    label: str
    least: int = 0
    most: int = 0
    options: tuple[tuple[str, str], ...] = ()

    @property
    def var(self) -> str:
        """Its name in a form."""
        return f"pubsub#{self.name}"

    @property
    def form_type(self) -> str:
        """Its type in a form."""
        return _FORM_TYPES[self.kind]


DAY: Final = 86_400

_EXPIRE: Final = "item_expire"
_MAX: Final = "max"
"""The most of a number that there can be (XEP-0060, section 16.4.3)."""

FIELDS: Final = (
    Field("title", Kind.TEXT, "A short name for people", most=128),
    Field("description", Kind.TEXT, "What the node is for", most=512),
    Field("type", Kind.TEXT, "The namespace of the payloads", most=256),
    Field(
        "access_model",
        Kind.CHOICE,
        "Who may subscribe and retrieve items",
        options=(
            ("open", "any trusted device"),
            ("whitelist", "those that are affiliated"),
            ("presence", "those that see an owner's presence"),
            ("roster", "those in certain groups of an owner's roster"),
        ),
    ),
    Field(
        "roster_groups_allowed", Kind.TEXTS, "The groups that may, for the model `roster`", most=16
    ),
    Field(
        "publish_model",
        Kind.CHOICE,
        "Who may publish",
        options=(
            ("publishers", "owners and publishers"),
            ("subscribers", "subscribers too"),
            ("open", "any trusted device"),
        ),
    ),
    Field("persist_items", Kind.FLAG, "Keep items"),
    Field("max_items", Kind.NUMBER, "How many items to keep, the newest; `max` for the most", 1),
    Field(
        "item_expire",
        Kind.NUMBER,
        "Seconds after which an item expires; `max` for never",
        0,
        366 * DAY,
    ),
    Field(
        "send_last_published_item",
        Kind.CHOICE,
        "When to send the last item",
        options=(("never", "never"), ("on_sub", "when somebody subscribes")),
    ),
    Field("deliver_notifications", Kind.FLAG, "Notify subscribers of items"),
    Field("deliver_payloads", Kind.FLAG, "Send the payload along"),
    Field("notify_config", Kind.FLAG, "Notify subscribers of a new configuration"),
    Field("notify_delete", Kind.FLAG, "Notify subscribers when the node is deleted"),
    Field("notify_retract", Kind.FLAG, "Notify subscribers when items are deleted"),
    Field(
        "notification_type",
        Kind.CHOICE,
        "The type of the messages that notify",
        options=(("headline", "lost on who is away"), ("normal", "kept for who is away")),
    ),
    Field("queueing", Kind.FLAG, "A queue: each item goes to one subscriber"),
    Field(
        "queue_lock_timeout",
        Kind.SECONDS,
        "Queue: seconds that a subscriber has for an item",
        1,
        7 * DAY,
    ),
    Field(
        "queue_max_deliveries",
        Kind.NUMBER,
        "Queue: how often an item is given out before it is dead",
        1,
        1000,
    ),
    Field(
        "queue_policy",
        Kind.CHOICE,
        "Queue: whom an item goes to",
        options=(
            ("least-loaded", "who has the least to do"),
            ("hash", "one for each publisher, which keeps their order"),
            ("sticky", "one for all, while it is there"),
        ),
    ),
)
"""Each option; its default is that of `Config`."""

_BY_VAR: Final = {field.var: field for field in FIELDS}
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
_NO: Final = (["0"], ["false"])
_YES: Final = (["1"], ["true"])
_NOTHING: Final[tuple[list[str], ...]] = ([], [""])

FIXED: Final[Mapping[str, tuple[list[str], ...]]] = {
    "pubsub#node_type": (["leaf"],),
    "pubsub#subscribe": _YES,
    "pubsub#notify_sub": _NO,
    "pubsub#presence_based_delivery": _NO,
    "pubsub#purge_offline": _NO,
    "pubsub#body_xslt": _NOTHING,
    "pubsub#dataform_xslt": _NOTHING,
}
"""Options of XEP-0060 that can be as they are and not otherwise: clients write them into forms of
their own making."""


def misnamed(name: str, most_bytes: int) -> str:
    """Tell why a node cannot be named so: nothing where it can.

    A name is a topic: `/` parts its levels (MQTT 3.1.1, section 4.7), and no wildcard is in it.
    """
    if not name:
        return "a name is not empty"
    if len(name.encode()) > most_bytes:
        return f"a name has at most {most_bytes} bytes"
    if name.count("/") >= MOST_LEVELS:
        return f"a name has at most {MOST_LEVELS} levels"
    if any(wildcard in name for wildcard in "+#"):
        return "`+` and `#` are for filters"
    if name.startswith(RESERVED):
        return f"what begins with {RESERVED} is a share"
    if any(unicodedata.category(character) in ("Cc", "Cs", "Cn") for character in name):
        return "a name has no control characters"
    return ""


def configured(old: Config, values: Mapping[str, Sequence[str]], most_items: int) -> Config:
    """Return a configuration with some options changed.

    Args:
        old: the configuration before.
        values: of the options that are set, by their names in a form.
        most_items: what `max_items` may be at most.

    Raises:
        Unacceptable: there is no such option, or it cannot be so.
    """
    changes: dict[str, object] = {}
    for var, given in values.items():
        name = "pubsub#queueing" if var == _QUEUEING else var
        if list(given) in FIXED.get(name, ()):
            continue
        field = _BY_VAR.get(name)
        if field is None:
            raise Unacceptable(
                var, "that cannot be" if name in FIXED else "there is no such option"
            )
        changes[field.name] = _value(field, given, most_items)
    return replace(old, **changes)


def written(config: Config) -> Iterator[tuple[Field, list[str]]]:
    """Tell the values of all options, as they stand in a form."""
    for field in FIELDS:
        yield field, _texts(field, getattr(config, field.name))


def _texts(field: Field, value: Any) -> list[str]:
    if field.kind is Kind.TEXTS:
        return list(value)
    if field.kind is Kind.FLAG:
        return ["1" if value else "0"]
    if field.name == _EXPIRE and value == 0:
        return [_MAX]
    return [str(value).removesuffix(".0")]


def _value(field: Field, given: Sequence[str], most_items: int) -> object:
    if field.kind is Kind.TEXTS:
        if len(given) > field.most or any(len(text) > MOST_LETTERS for text in given):
            raise Unacceptable(field.var, f"{field.most} at most, of {MOST_LETTERS} characters")
        return tuple(given)
    if not given and field.kind is Kind.TEXT:
        return ""
    if len(given) != 1:
        raise Unacceptable(field.var, "it takes one value")
    if field.kind in (Kind.NUMBER, Kind.SECONDS):
        return _number(field, given[0], field.most or most_items)
    return _single(field, given[0])


def _single(field: Field, text: str) -> object:
    if field.kind is Kind.TEXT:
        if len(text) > field.most:
            raise Unacceptable(field.var, f"{field.most} characters at most")
        return text
    choices = _FLAGS if field.kind is Kind.FLAG else {name: name for name, _ in field.options}
    if text not in choices:
        raise Unacceptable(field.var, f"it is one of {', '.join(choices)}")
    return choices[text]


def _number(field: Field, text: str, most: int) -> float:
    if text == _MAX and (field.name == _EXPIRE or not field.most):
        return 0 if field.most else most
    try:
        value = float(text) if field.kind is Kind.SECONDS else int(text)
    except ValueError:
        raise Unacceptable(field.var, "it is a number") from None
    if not field.least <= value <= most:
        raise Unacceptable(field.var, f"it is a number from {field.least} to {most}")
    return value
