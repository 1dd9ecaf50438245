"""What a publication must have, by how its node is configured, and what it may ask for its item.

The node's kind says whether it takes an item and a payload (XEP-0060, section 4.3): one that keeps
items, or sends payloads, takes an item, and one that does neither takes none. Who may publish is
decided in `rules.affiliation`, for how many there is room by the limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from edge.features.pubsub.rules.node import Config

ID_BYTES: Final = 256
"""The longest ItemID, in bytes: like a msgId; it stands in each notification."""

MOST_PRIORITY: Final = 1000
"""How far a priority may be above or below 0."""

LONGEST: Final = 366 * 86_400.0
"""The longest delay, or time to live, in seconds: a year."""


class Shape(NamedTuple):
    """What a publication has: items, payloads in the one item, and the namespace of the payload."""

    items: int
    payloads: int = 0
    namespace: str = ""


class Fault(Enum):
    """What is wrong with it, as XEP-0060, section 7.1.3 calls it: condition and what is told."""

    TOO_MANY = ("max-items-exceeded", "one item in a publication")
    ITEM_REQUIRED = ("item-required", "the node takes an item")
    ITEM_FORBIDDEN = ("item-forbidden", "the node keeps no items and sends none along")
    PAYLOAD_REQUIRED = ("payload-required", "the node keeps nothing: an item has a payload")
    TWO_PAYLOADS = ("invalid-payload", "an item has one payload")
    OTHER_TYPE = ("invalid-payload", "the payload is of another namespace than the node's type")


def fault(shape: Shape, config: Config) -> Fault | None:
    """Tell what is wrong with a publication to a node that is configured so."""
    if shape.items > 1:
        return Fault.TOO_MANY
    keeps = config.persist_items or config.queueing
    if not shape.items:
        return Fault.ITEM_REQUIRED if keeps or config.deliver_payloads else None
    if not keeps and not config.deliver_payloads:
        return Fault.ITEM_FORBIDDEN
    if shape.payloads > 1:
        return Fault.TWO_PAYLOADS
    if not shape.payloads:
        return None if keeps else Fault.PAYLOAD_REQUIRED
    return Fault.OTHER_TYPE if config.type not in ("", shape.namespace) else None


class Options(NamedTuple):
    """What a publication asks for its item in a queue: its `priority`, the highest first, and, in
    seconds of service, for how long it is held back and after how long it is not worth having."""

    priority: int = 0
    delay: float | None = None
    ttl: float | None = None


NO_OPTIONS: Final = Options()

PRIORITY: Final = "pubsub#queue_priority"
DELAY: Final = "pubsub#queue_delay"
TTL: Final = "pubsub#queue_ttl"


class BadOption(ValueError):
    """An option of an item cannot be as somebody wants it."""


def parted(values: Mapping[str, Sequence[str]]) -> tuple[Options, dict[str, Sequence[str]]]:
    """Part what is asked for the item from what the node is to be like.

    Args:
        values: the fields of the publication's options, by name.

    Returns:
        what is asked for the item, and the other fields.

    Raises:
        BadOption: something asked for the item is not a number, or out of bounds.
    """
    rest = dict(values)
    priority = _number(PRIORITY, rest.pop(PRIORITY, None), -MOST_PRIORITY, MOST_PRIORITY)
    delay = _number(DELAY, rest.pop(DELAY, None), 0, LONGEST)
    ttl = _number(TTL, rest.pop(TTL, None), 0, LONGEST)
    return Options(round(priority or 0), delay or None, ttl), rest


def _number(name: str, given: Sequence[str] | None, least: float, most: float) -> float | None:
    if given is None:
        return None
    try:
        value = float(given[0]) if len(given) == 1 else math.nan
    except ValueError:
        value = math.nan
    if not least <= value <= most or (name == PRIORITY and value % 1):
        raise BadOption(f"{name} is a number from {least:g} to {most:g}")
    return value
