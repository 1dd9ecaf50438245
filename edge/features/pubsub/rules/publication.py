"""Checks of a publication against its node's configuration, and options of a queued item.

A publication must have an item if the node stores items or sends payloads to subscribers, and must
have none otherwise (XEP-0060, section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from edge.engine.dispatch import item_attributes
from edge.engine.dispatch.item_attributes import NO_ATTRIBUTES, ItemAttributes
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.rules.reasons import Reason

MAX_ITEM_ID_BYTES: Final = 256
"""Maximum length of an ItemID, in bytes; limited because each notification contains the ItemID."""

MAX_PRIORITY: Final = 1000
"""Highest priority of an item; the lowest is `-MAX_PRIORITY`."""

MAX_SECONDS: Final = 366 * 86_400.0
"""Longest delay or time to live of an item, in seconds: 366 days."""


class PublicationShape(NamedTuple):
    """Numbers of items and of payloads in a publication, and the namespace of the payload."""

    items: int
    payloads: int = 0
    namespace: str = ""


class Fault(NamedTuple):
    """Reason why a node refuses a publication; `text` explains it, or is empty if the value of
    `reason` is explanation enough."""

    reason: Reason
    text: str = ""


_TWO_PAYLOADS: Final = Fault(Reason.INVALID_PAYLOAD, "an item must have at most one payload")
_WRONG_NAMESPACE: Final = Fault(
    Reason.INVALID_PAYLOAD, "the payload's namespace differs from the node's pubsub#type"
)


def find_fault(
    shape: PublicationShape, config: NodeConfig, attributes: ItemAttributes = NO_ATTRIBUTES
) -> Fault | None:
    """Return why a node's configuration or a limit forbids a publication (XEP-0060, section 7.1.3);
    `None` if the publication is allowed."""
    if attributes is not NO_ATTRIBUTES and (text := item_attributes.find_fault(attributes)):
        return Fault(Reason.LIMIT_EXCEEDED, text)
    if shape.items > 1:
        return Fault(Reason.TOO_MANY_ITEMS)
    stores = config.persist_items or config.queueing
    if not shape.items:
        return Fault(Reason.ITEM_REQUIRED) if stores or config.deliver_payloads else None
    if not stores and not config.deliver_payloads:
        return Fault(Reason.ITEM_FORBIDDEN)
    if shape.payloads > 1:
        return _TWO_PAYLOADS
    if not shape.payloads:
        return None if stores else Fault(Reason.PAYLOAD_REQUIRED)
    return _WRONG_NAMESPACE if config.type not in ("", shape.namespace) else None


class ItemOptions(NamedTuple):
    """Options of an item in a queue.

    `priority`: items with the highest value are assigned first. `delay`: service seconds from the
    publication until the item can be assigned. `ttl`: service seconds from the publication until
    the item expires.
    """

    priority: int = 0
    delay: float | None = None
    ttl: float | None = None


DEFAULT_OPTIONS: Final = ItemOptions()

PRIORITY: Final = "pubsub#queue_priority"
DELAY: Final = "pubsub#queue_delay"
TTL: Final = "pubsub#queue_ttl"


class InvalidItemOption(ValueError):
    """An option of an item has an invalid value."""


def split_options(
    values: Mapping[str, Sequence[str]],
) -> tuple[ItemOptions, dict[str, Sequence[str]]]:
    """Split publish options into options of the item and preconditions on the node.

    Args:
        values: the publish options (XEP-0060, section 7.1.5), by registered name (`pubsub#...`).

    Returns:
        The options of the item, and the preconditions by registered name.

    Raises:
        InvalidItemOption: an option of the item is not a number or is out of range.
    """
    rest = dict(values)
    priority = _number(PRIORITY, rest.pop(PRIORITY, None), -MAX_PRIORITY, MAX_PRIORITY)
    delay = _number(DELAY, rest.pop(DELAY, None), 0, MAX_SECONDS)
    ttl = _number(TTL, rest.pop(TTL, None), 0, MAX_SECONDS)
    return ItemOptions(round(priority or 0), delay or None, ttl), rest


def _number(
    name: str, values: Sequence[str] | None, minimum: float, maximum: float
) -> float | None:
    if values is None:
        return None
    try:
        value = float(values[0]) if len(values) == 1 else math.nan
    except ValueError:
        value = math.nan
    if not minimum <= value <= maximum or (name == PRIORITY and value % 1):
        kind = "a whole number" if name == PRIORITY else "a number"
        raise InvalidItemOption(f"{name} must be {kind} from {minimum:g} to {maximum:g}")
    return value
