"""Configuration of a node: its options, with their defaults and permitted values.

The table `OPTIONS` defines each option once; forms are encoded and decoded with it. Source:
XEP-0060, sections 8.1 to 8.3 and 16.4.3; XEP-0254, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from edge.features.pubsub.rules.affiliation import AccessModel, PublishModel

MAX_GROUP_LENGTH: Final = 128
"""Maximum length of the name of a roster group in `roster_groups_allowed`, in characters."""

_SECONDS_PER_DAY: Final = 86_400


class InvalidOption(ValueError):
    """An option is unknown or has an invalid value; `name` is the option's name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name


class QueuePolicy(StrEnum):
    """Rule that chooses the member that gets the next item of a queue."""

    LEAST_LOADED = "least-loaded"
    HASH = "hash"
    STICKY = "sticky"


class NodeConfig(Struct, frozen=True, omit_defaults=True):
    """Configuration of a node.

    `queue_lock_timeout` and `item_expire` are in service seconds; items do not expire if
    `item_expire` is 0.
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
    itemreply: Literal["owner", "publisher", "none"] = "publisher"
    queueing: bool = False
    queue_lock_timeout: float = 60.0
    queue_max_deliveries: int = 5
    queue_policy: QueuePolicy = QueuePolicy.LEAST_LOADED


DEFAULT: Final = NodeConfig()


class ValueType(Enum):
    """Type of an option's value."""

    TEXT = "text"
    TEXTS = "list of texts"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    SECONDS = "number of seconds"
    CHOICE = "choice"


class Option(NamedTuple):
    """Definition of an option.

    `field` is the name in `NodeConfig`. `minimum` and `maximum` limit a number; `maximum` also
    limits the characters of a text and the number of texts in a list. If the `maximum` of a number
    is 0, `limits.items_per_node` is the maximum. `choices` are pairs of a value and its label.
    """

    field: str
    type: ValueType
    label: str
    minimum: int = 0
    maximum: int = 0
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The option's registered name, such as `pubsub#title` (XEP-0060, section 16.4.3)."""
        return f"pubsub#{self.field}"


_EXPIRE: Final = "item_expire"
_MAX: Final = "max"
"""Value in a form for the largest permitted number (XEP-0060, section 16.4.3); in the option
`item_expire` it means never."""

QUEUE_POLICIES: Final = (
    (QueuePolicy.LEAST_LOADED, "The subscriber with the fewest items"),
    (QueuePolicy.HASH, "One subscriber for each publisher, in order"),
    (QueuePolicy.STICKY, "One subscriber for all items while it is available"),
)
"""All policies, with labels."""

OPTIONS: Final = (
    Option("title", ValueType.TEXT, "Short name of the node", maximum=128),
    Option("description", ValueType.TEXT, "Description of the node", maximum=512),
    Option("type", ValueType.TEXT, "Namespace of the payloads", maximum=256),
    Option(
        "access_model",
        ValueType.CHOICE,
        "Who may subscribe and retrieve items",
        choices=(
            ("open", "Any trusted device"),
            ("whitelist", "Affiliated accounts"),
            ("presence", "Accounts subscribed to an owner's presence"),
            ("roster", "Accounts in the allowed groups of an owner's roster"),
        ),
    ),
    Option(
        "roster_groups_allowed",
        ValueType.TEXTS,
        "Roster groups allowed if the access model is roster",
        maximum=16,
    ),
    Option(
        "publish_model",
        ValueType.CHOICE,
        "Who may publish",
        choices=(
            ("publishers", "Owners and publishers"),
            ("subscribers", "Owners, publishers and subscribers"),
            ("open", "Any trusted device"),
        ),
    ),
    Option("persist_items", ValueType.BOOLEAN, "Store items"),
    Option(
        "max_items",
        ValueType.INTEGER,
        "Number of newest items to store; max means the largest number allowed",
        1,
    ),
    Option(
        _EXPIRE,
        ValueType.INTEGER,
        "Seconds after which an item expires; max means never",
        0,
        366 * _SECONDS_PER_DAY,
    ),
    Option(
        "send_last_published_item",
        ValueType.CHOICE,
        "When to send the last item",
        choices=(("never", "Never"), ("on_sub", "When somebody subscribes")),
    ),
    Option("deliver_notifications", ValueType.BOOLEAN, "Notify subscribers of new items"),
    Option("deliver_payloads", ValueType.BOOLEAN, "Include payloads in notifications"),
    Option("notify_config", ValueType.BOOLEAN, "Notify subscribers of configuration changes"),
    Option("notify_delete", ValueType.BOOLEAN, "Notify subscribers when the node is deleted"),
    Option("notify_retract", ValueType.BOOLEAN, "Notify subscribers when items are deleted"),
    Option(
        "notification_type",
        ValueType.CHOICE,
        "Message type of notifications",
        choices=(
            ("headline", "Headline: dropped if the subscriber is offline"),
            ("normal", "Normal: stored if the subscriber is offline"),
        ),
    ),
    Option(
        "itemreply",
        ValueType.CHOICE,
        "Account that is named as the publisher of items",
        choices=(
            ("owner", "The owner of the node"),
            ("publisher", "The publisher of the item"),
            ("none", "Nobody"),
        ),
    ),
    Option("queueing", ValueType.BOOLEAN, "Queue: each item goes to one subscriber"),
    Option(
        "queue_lock_timeout",
        ValueType.SECONDS,
        "Queue: seconds that a subscriber may hold an item",
        1,
        7 * _SECONDS_PER_DAY,
    ),
    Option(
        "queue_max_deliveries",
        ValueType.INTEGER,
        "Queue: deliveries after which an item becomes a dead letter",
        1,
        1000,
    ),
    Option(
        "queue_policy",
        ValueType.CHOICE,
        "Queue: how to choose the subscriber for an item",
        choices=QUEUE_POLICIES,
    ),
)
"""Definitions of all options; their defaults are in `NodeConfig`."""

_BY_NAME: Final = {option.name: option for option in OPTIONS}
_BOOLEANS: Final = {"1": True, "true": True, "0": False, "false": False}
_NO: Final = (["0"], ["false"])
_YES: Final = (["1"], ["true"])
_EMPTY: Final[tuple[list[str], ...]] = ([], [""])

FIXED_OPTIONS: Final[Mapping[str, tuple[list[str], ...]]] = {
    "pubsub#node_type": (["leaf"],),
    "pubsub#subscribe": _YES,
    "pubsub#notify_sub": _NO,
    "pubsub#presence_based_delivery": _NO,
    "pubsub#purge_offline": _NO,
    "pubsub#body_xslt": _EMPTY,
    "pubsub#dataform_xslt": _EMPTY,
}
"""Options of XEP-0060 that cannot be changed, with the values that are accepted in forms."""


def apply_options(
    old: NodeConfig, values: Mapping[str, Sequence[str]], max_items: int
) -> NodeConfig:
    """Return a copy of `old` in which the options in `values` are changed.

    Args:
        values: the values of the options to change, by registered name (`pubsub#...`).
        max_items: the upper bound of `pubsub#max_items`.

    Raises:
        InvalidOption: an option is unknown or has an invalid value.
    """
    changes: dict[str, object] = {}
    for name, texts in values.items():
        if list(texts) in FIXED_OPTIONS.get(name, ()):
            continue
        option = _BY_NAME.get(name)
        if option is None:
            fixed = name in FIXED_OPTIONS
            raise InvalidOption(name, "cannot have this value" if fixed else "is unknown")
        changes[option.field] = _parse(option, texts, max_items)
    return replace(old, **changes)


def option_values(config: NodeConfig) -> Iterator[tuple[Option, list[str]]]:
    """Yield each option with its values as texts, as XMPP data forms (XEP-0004) require them."""
    for option in OPTIONS:
        yield option, _format(option, getattr(config, option.field))


def _format(option: Option, value: Any) -> list[str]:
    if option.type is ValueType.TEXTS:
        return list(value)
    if option.type is ValueType.BOOLEAN:
        return ["1" if value else "0"]
    if option.field == _EXPIRE and value == 0:
        return [_MAX]
    return [str(value).removesuffix(".0")]


def _parse(option: Option, texts: Sequence[str], max_items: int) -> object:
    if option.type is ValueType.TEXTS:
        if len(texts) > option.maximum or any(len(text) > MAX_GROUP_LENGTH for text in texts):
            raise InvalidOption(
                option.name,
                f"must have at most {option.maximum} values, each of at most "
                f"{MAX_GROUP_LENGTH} characters",
            )
        return tuple(texts)
    if not texts and option.type is ValueType.TEXT:
        return ""
    if len(texts) != 1:
        raise InvalidOption(option.name, "must have one value")
    if option.type in (ValueType.INTEGER, ValueType.SECONDS):
        return _parse_number(option, texts[0], option.maximum or max_items)
    return _parse_text(option, texts[0])


def _parse_text(option: Option, text: str) -> object:
    if option.type is ValueType.TEXT:
        if len(text) > option.maximum:
            raise InvalidOption(option.name, f"must have at most {option.maximum} characters")
        return text
    if option.type is ValueType.BOOLEAN:
        choices: Mapping[str, object] = _BOOLEANS
    else:
        choices = {value: value for value, _label in option.choices}
    if text not in choices:
        raise InvalidOption(option.name, f"must be one of {', '.join(choices)}")
    return choices[text]


def _parse_number(option: Option, text: str, maximum: int) -> float:
    if text == _MAX and (option.field == _EXPIRE or not option.maximum):
        return 0 if option.maximum else maximum
    kind = "a number" if option.type is ValueType.SECONDS else "a whole number"
    try:
        value = float(text) if option.type is ValueType.SECONDS else int(text)
    except ValueError:
        raise InvalidOption(option.name, f"must be {kind}") from None
    if not option.minimum <= value <= maximum:
        raise InvalidOption(option.name, f"must be {kind} from {option.minimum} to {maximum}")
    return value
