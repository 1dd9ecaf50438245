"""The options of a subscription: the form that they are told by, and what each may be.

Which there are depends on what is subscribed to: a member of a queue node sets how many items it
takes at a time and nothing else, as XEP-0254 shows; a member of a share also its level, and the
first one its policy. Who may set them, and on which subscription, is `subscriptions`'. Source:
XEP-0060, sections 6.3 and 16.4.2; XEP-0254, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from edge.config.limits import Limits
from edge.features.pubsub.store.subscriptions import Subscription
from edge.features.queues.rules.assignment import Policy
from edge.xmpp import forms, pubsub
from edge.xmpp.errors import StanzaError
from edge.xmpp.forms import Field
from edge.xmpp.namespaces import PUBSUB, clark

FORM_TYPE: Final = f"{PUBSUB}#subscribe_options"

OPTIONS: Final = clark(PUBSUB, "options")

REQUESTS: Final = 10
"""The items that a member of a share takes at a time, if it does not say: as many as keep it busy
over the time that an acknowledgement takes, and few enough to be given to others."""

_DELIVER: Final = "pubsub#deliver"
_EXPIRE: Final = "pubsub#expire"
_LEVEL: Final = "pubsub#qos"
_REQUESTS: Final = "pubsub#queue_requests"
_POLICY: Final = "pubsub#queue_policy"
_SHORT: Final = {"queue_requests": _REQUESTS}
"""How XEP-0254 has it in some places."""

_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
_PRESENCE: Final = "presence"
_LEVELS: Final = (
    ("0", "a plain message"),
    ("1", "acknowledged: at least once"),
    ("2", "assured: exactly once"),
)
_POLICIES: Final = {
    Policy.LEAST_LOADED: "who has the least to do",
    Policy.HASH: "one for each publisher, which keeps their order",
    Policy.STICKY: "one for all, while it is there",
}


class Of(Enum):
    """What a subscription is of."""

    PLAIN = "a node, or a filter"
    QUEUE = "a queue node"
    SHARE = "a share"


_VARS: Final = {
    Of.PLAIN: (_DELIVER, _LEVEL, _EXPIRE),
    Of.QUEUE: (_REQUESTS,),
    Of.SHARE: (_REQUESTS, _LEVEL, _EXPIRE, _POLICY),
}

_FIXED: Final = {
    "pubsub#digest": ("0", "false"),
    "pubsub#include_body": ("0", "false"),
    "pubsub#subscription_type": ("items",),
}
_DELIVERS: Final = {_DELIVER: ("1", "true")}
_SAID: Final = {
    Of.PLAIN: _FIXED,
    Of.QUEUE: {**_FIXED, **_DELIVERS, _LEVEL: ("0",), _EXPIRE: ("", _PRESENCE)},
    Of.SHARE: {**_FIXED, **_DELIVERS},
}
"""What may be said of options that are as they are, so that usual forms are taken."""


class Settings(NamedTuple):
    """The options of a subscription, understood.

    `requests` is how many items a member of a queue takes at a time, `None` where that is not said;
    `presence` has it end with the session; `policy` is a share's, `None` where that is not said.
    """

    deliver: bool = True
    qos: int = 0
    presence: bool = False
    requests: int | None = None
    policy: Policy | None = None

    @property
    def kept(self) -> Mapping[str, str]:
        """What is kept of them beside the level, `requests` and `presence`."""
        return {} if self.deliver else {_DELIVER: "0"}


def delivers(subscription: Subscription) -> bool:
    """Tell whether a subscriber wants to be notified now."""
    return subscription.options.get(_DELIVER) != "0"


def of(subscription: Subscription) -> Of:
    """Tell what a subscription is of."""
    if subscription.queue is None:
        return Of.PLAIN
    return Of.QUEUE if subscription.share is None else Of.SHARE


def defaults(of: Of, limits: Limits) -> Settings:
    """Return the options of who sets none."""
    if of is Of.SHARE:
        return Settings(qos=1, requests=min(REQUESTS, limits.queue_requests))
    return Settings()


def settings(subscription: Subscription, policy: Policy | None = None) -> Settings:
    """Return the options of a subscription; `policy` is that of its share, if it has one."""
    presence, requests = subscription.presence, subscription.requests
    return Settings(delivers(subscription), subscription.qos, presence, requests, policy)


def values(tree: Element) -> dict[str, list[str]]:
    """Return what a form says, by the names of options; no form says nothing.

    `tree` is the `<options/>`. Raises `StanzaError` if it is not one form of options.
    """
    if not len(tree):
        return {}
    try:
        if len(tree) > 1:
            raise StanzaError("bad-request", "one form is needed")
        return {_SHORT.get(var, var): value for var, value in _form(tree[0]).items()}
    except StanzaError as error:
        raise pubsub.refusal("bad-request", "invalid-options", error.text) from error


def _form(tree: Element) -> dict[str, list[str]]:
    found = forms.read(tree, FORM_TYPE)
    if any(short in found and var in found for short, var in _SHORT.items()):
        raise StanzaError("bad-request", "an option is set once")
    return found


def changed(of: Of, old: Settings, values: Mapping[str, list[str]], limits: Limits) -> Settings:
    """Return options with some changed; raises `StanzaError`, `invalid-options`, if one is none or
    cannot be so."""
    new = old
    for var, given in values.items():
        text = given[0] if given else ""
        if len(given) > 1:
            raise _invalid(var, "it has one value")
        if var in _VARS[of]:
            new = _set(new, var, text, limits)
        elif text not in _SAID[of].get(var, ()):
            raise _invalid(var, f"there is no such option of {of.value}, or no such value")
    return new


def _set(old: Settings, var: str, text: str, limits: Limits) -> Settings:
    if var == _DELIVER:
        if text not in _FLAGS:
            raise _invalid(var, "it is 1 or 0")
        return old._replace(deliver=_FLAGS[text])
    if var == _LEVEL:
        if text not in dict(_LEVELS):
            raise _invalid(var, "it is 0, 1 or 2")
        return old._replace(qos=int(text))
    if var == _EXPIRE:
        if text not in ("", _PRESENCE):
            raise _invalid(var, f"it is `{_PRESENCE}`, or nothing: there is no lease in time")
        return old._replace(presence=bool(text))
    if var == _POLICY:
        if text not in {choice.value for choice in Policy}:
            raise _invalid(var, f"it is one of {', '.join(choice.value for choice in Policy)}")
        return old._replace(policy=Policy(text))
    most = limits.queue_requests
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise _invalid(var, f"it is a number from 1 to {most}")
    return old._replace(requests=int(text))


def _invalid(var: str, why: str) -> StanzaError:
    return pubsub.refusal("bad-request", "invalid-options", f"{var}: {why}")


def form(type: str, of: Of, settings: Settings) -> bytes:
    """Write options: as a `form` to fill in, or as a `result`."""
    return forms.write(type, FORM_TYPE, _fields(of, settings, plain=type == "result"))


def _fields(of: Of, settings: Settings, *, plain: bool) -> Iterator[Field]:
    for field in map(_FIELDS.__getitem__, _VARS[of]):
        given = _text(field.var, settings)
        required = field.var == _REQUESTS and of is Of.QUEUE and not plain
        choices = () if plain else field.options
        found = () if given is None else (given,)
        yield field._replace(values=found, required=required, options=choices)


def _text(var: str, settings: Settings) -> str | None:
    if var == _DELIVER:
        return "1" if settings.deliver else "0"
    if var == _LEVEL:
        return str(settings.qos)
    if var == _EXPIRE:
        return _PRESENCE if settings.presence else ""
    if var == _POLICY:
        return (settings.policy or Policy.LEAST_LOADED).value
    return None if settings.requests is None else str(settings.requests)


_FIELDS: Final = {
    field.var: field
    for field in (
        Field(_DELIVER, "boolean", label="Notify"),
        Field(_LEVEL, "list-single", label="How to notify", options=_LEVELS),
        Field(
            _EXPIRE,
            "list-single",
            label="When the subscription ends",
            options=(("", "when it is ended"), (_PRESENCE, "with the session")),
        ),
        Field(_REQUESTS, "text-single", label="Items to work on at a time"),
        Field(
            _POLICY,
            "list-single",
            label="Whom an item goes to",
            options=tuple((choice.value, text) for choice, text in _POLICIES.items()),
        ),
    )
}
