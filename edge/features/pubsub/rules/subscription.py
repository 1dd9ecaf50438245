"""Options of a subscription, with their permitted values, for each kind of subscription.

A member of a queue node sets only how many items it processes at a time (XEP-0254, section 4.1). A
member of a share also sets its quality of service and whether the subscription ends with its
session; the first member sets the share's policy. Source: XEP-0060, sections 6.3 and 16.4.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from edge.features.pubsub.rules.node_config import QueuePolicy

DEFAULT_REQUESTS: Final = 10
"""Default of the option `REQUESTS` for a member of a share: the maximum number of items that are
assigned to it at a time. This is enough to keep the member busy while an acknowledgement is in
transit, and leaves items for other members."""

DELIVER: Final = "pubsub#deliver"
EXPIRE: Final = "pubsub#expire"
QOS: Final = "pubsub#qos"
REQUESTS: Final = "pubsub#queue_requests"
POLICY: Final = "pubsub#queue_policy"

PRESENCE: Final = "presence"
"""Value of the option `EXPIRE` with which a subscription ends when its session ends."""

_BOOLEANS: Final = {"1": True, "true": True, "0": False, "false": False}
_LEVELS: Final = ("0", "1", "2")
_POLICIES: Final = list(QueuePolicy)


class SubscriptionKind(Enum):
    """Kind of a subscription; the value describes its target."""

    PLAIN = "a node or a filter"
    QUEUE = "a queue node"
    SHARE = "a share"


class SubscriptionEnd(Enum):
    """Reasons for the end of a subscription."""

    UNSUBSCRIBED = "its subscriber ended it"
    OWNER = "an owner of the node ended it"
    UNAUTHORIZED = "its subscriber may no longer subscribe"
    UNAVAILABLE = "its session became unavailable"
    SESSION_ENDED = "its session ended"
    NOT_RETURNED = "its session did not return after a restart"


OPTIONS: Final = {
    SubscriptionKind.PLAIN: (DELIVER, QOS, EXPIRE),
    SubscriptionKind.QUEUE: (REQUESTS,),
    SubscriptionKind.SHARE: (REQUESTS, QOS, EXPIRE, POLICY),
}
"""Options that a subscriber can set, by kind of subscription."""

_FIXED: Final = {
    "pubsub#digest": ("0", "false"),
    "pubsub#include_body": ("0", "false"),
    "pubsub#subscription_type": ("items",),
}
_DELIVERS: Final = {DELIVER: ("1", "true")}
_FIXED_BY_KIND: Final = {
    SubscriptionKind.PLAIN: _FIXED,
    SubscriptionKind.QUEUE: {**_FIXED, **_DELIVERS, QOS: ("0",), EXPIRE: ("", PRESENCE)},
    SubscriptionKind.SHARE: {**_FIXED, **_DELIVERS},
}
"""By kind of subscription, the options that cannot be changed. A request may contain them only with
these values, which clients send."""


class InvalidSubscriptionOption(ValueError):
    """An option of a subscription is unknown or has an invalid value."""


class RetainHandling(IntEnum):
    """The requests to subscribe that get the kept items of the nodes."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2

    def sends_items(self, *, is_new: bool) -> bool:
        """Return whether a request gets the kept items; `is_new` is whether it subscribes."""
        return self is RetainHandling.ALWAYS or (is_new and self is RetainHandling.IF_NEW)


class DeliveryOptions(NamedTuple):
    """Options of a subscription that XMPP does not have (MQTT 5.0, section 3.8.3.1).

    `no_local` is whether the subscriber does not get what itself has published, and
    `retain_as_published` whether a delivery says that the publication asked to retain the item.
    `only_items` is whether the subscriber gets published items and no other notifications, such as
    those of deleted items, and at first all retained ones (`service.retained`). `identifier` is the
    number by which deliveries name the subscription, 0 for none. The defaults apply to XMPP.
    """

    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.IF_NEW
    only_items: bool = False
    identifier: int = 0


DEFAULT_DELIVERY: Final = DeliveryOptions()


class SubscriptionOptions(NamedTuple):
    """Options of a subscription.

    `deliver` is whether notifications are sent. `qos` is that of notifications or a share's items.
    If `presence` is true, the subscription ends with the subscriber's session. `requests` is the
    maximum number of items that a member of a queue or share is assigned at a time, `None` if not
    set. `policy` is the share's policy, the same for all its members, `None` if not set.
    """

    deliver: bool = True
    qos: int = 0
    presence: bool = False
    requests: int | None = None
    policy: QueuePolicy | None = None
    delivery: DeliveryOptions = DEFAULT_DELIVERY


DEFAULT: Final = SubscriptionOptions()


def default_options(kind: SubscriptionKind, max_requests: int) -> SubscriptionOptions:
    """Return the default options of a kind of subscription; `max_requests` limits `requests`."""
    if kind is SubscriptionKind.SHARE:
        return SubscriptionOptions(qos=1, requests=min(DEFAULT_REQUESTS, max_requests))
    return DEFAULT


def apply_options(
    kind: SubscriptionKind,
    old: SubscriptionOptions,
    values: Mapping[str, Sequence[str]],
    max_requests: int,
) -> SubscriptionOptions:
    """Return a copy of `old` in which the options in `values` are changed.

    Args:
        values: the values of the options to change, by registered name (`pubsub#...`).
        max_requests: the upper bound of `REQUESTS`.

    Raises:
        InvalidSubscriptionOption: an option does not exist or has an invalid value.
    """
    new = old
    for name, texts in values.items():
        text = texts[0] if texts else ""
        if len(texts) > 1:
            raise InvalidSubscriptionOption(f"{name} must have one value")
        if name in OPTIONS[kind]:
            new = _set(new, name, text, max_requests)
        elif text not in _FIXED_BY_KIND[kind].get(name, ()):
            fixed = name in _FIXED_BY_KIND[kind]
            problem = "cannot have this value" if fixed else "does not exist"
            raise InvalidSubscriptionOption(f"{name} {problem} in a subscription to {kind.value}")
    return new


def _set(old: SubscriptionOptions, name: str, text: str, max_requests: int) -> SubscriptionOptions:
    if name == DELIVER:
        if text not in _BOOLEANS:
            raise InvalidSubscriptionOption(f"{name} must be 1 or 0")
        return old._replace(deliver=_BOOLEANS[text])
    if name == QOS:
        if text not in _LEVELS:
            raise InvalidSubscriptionOption(f"{name} must be 0, 1 or 2")
        return old._replace(qos=int(text))
    if name == EXPIRE:
        if text not in ("", PRESENCE):
            text = f"{name} must be {PRESENCE} or empty; times are not supported"
            raise InvalidSubscriptionOption(text)
        return old._replace(presence=bool(text))
    if name == POLICY:
        if text not in _POLICIES:
            raise InvalidSubscriptionOption(f"{name} must be one of {', '.join(_POLICIES)}")
        return old._replace(policy=QueuePolicy(text))
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not (is_number and 1 <= int(text) <= max_requests):
        raise InvalidSubscriptionOption(f"{name} must be a whole number from 1 to {max_requests}")
    return old._replace(requests=int(text))


def format_option(options: SubscriptionOptions, name: str) -> str | None:
    """Return the value of an option as text; `None` if it is not set."""
    if name == DELIVER:
        return "1" if options.deliver else "0"
    if name == QOS:
        return str(options.qos)
    if name == EXPIRE:
        return PRESENCE if options.presence else ""
    if name == POLICY:
        return options.policy or QueuePolicy.LEAST_LOADED
    return None if options.requests is None else str(options.requests)
