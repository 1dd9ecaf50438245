"""Encode and decode the forms of node configurations and subscription options (XEP-0060, section
16.4)."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from edge.features.pubsub.rules import subscription as rules
from edge.features.pubsub.rules.node_config import (
    QUEUE_POLICIES,
    NodeConfig,
    ValueType,
    option_values,
)
from edge.features.pubsub.rules.subscription import SubscriptionKind, SubscriptionOptions
from edge.xmpp import forms, pubsub
from edge.xmpp.errors import StanzaError
from edge.xmpp.forms import Field
from edge.xmpp.namespaces import PUBSUB
from edge.xmpp.stanza import Child

NODE_CONFIG: Final = f"{PUBSUB}#node_config"
SUBSCRIBE_OPTIONS: Final = f"{PUBSUB}#subscribe_options"

_FIELD_TYPES: Final = {
    ValueType.TEXT: "text-single",
    ValueType.TEXTS: "text-multi",
    ValueType.BOOLEAN: "boolean",
    ValueType.INTEGER: "text-single",
    ValueType.SECONDS: "text-single",
    ValueType.CHOICE: "list-single",
}

_QUEUEING: Final = "{urn:xmpp:pubsub:queueing:0}queueing"
"""Name that XEP-0254 uses for the option `pubsub#queueing`; both names are accepted."""

_QUEUE_REQUESTS: Final = "queue_requests"
"""Name that XEP-0254 uses for the option `pubsub#queue_requests`; both are accepted."""


# Node configuration


def node_config_form(config: NodeConfig, type: str = "form") -> bytes:
    """Encode a configuration as a form of type `form` or `result`."""
    fields = (
        Field(option.name, _FIELD_TYPES[option.type], values, False, option.label, option.choices)
        for option, values in option_values(config)
    )
    return forms.write(type, NODE_CONFIG, fields)


def read_configure(configure: Child) -> dict[str, list[str]] | None:
    """Return the options in a `<configure/>`, by registered name (`pubsub#...`); empty if it has no
    form, `None` if the form is cancelled.

    Raises:
        StanzaError: the element contains something other than one submitted or cancelled form.
    """
    tree = configure.tree()
    if not len(tree):
        return {}
    if len(tree) != 1:
        raise pubsub.refusal("bad-request", text="exactly one form is expected")
    if forms.is_cancelled(tree[0]):
        return None
    return read_node_options(tree[0], NODE_CONFIG)


def read_node_options(form: Element, form_type: str) -> dict[str, list[str]]:
    """Return the options in a submitted form with the given `FORM_TYPE`, by registered name
    (`pubsub#...`); raises `StanzaError`."""
    values = forms.read(form, form_type)
    _rename(values, _QUEUEING, "pubsub#queueing")
    return values


def _rename(values: dict[str, list[str]], name: str, registered: str) -> None:
    """Change the name of an option to its registered name; refuse both names in one form."""
    if name in values and registered in values:
        text = f"{registered} and {name} are the same option; set only one"
        raise StanzaError("bad-request", text)
    if name in values:
        values[registered] = values.pop(name)


# Subscription options

_LEVELS: Final = (
    ("0", "Plain message"),
    ("1", "Acknowledged: at least once"),
    ("2", "Assured: exactly once"),
)
_FIELDS: Final = {
    field.var: field
    for field in (
        Field(rules.DELIVER, "boolean", label="Send notifications"),
        Field(rules.QOS, "list-single", label="Quality of service", options=_LEVELS),
        Field(
            rules.EXPIRE,
            "list-single",
            label="End of the subscription",
            options=(("", "Only when you unsubscribe"), (rules.PRESENCE, "When your session ends")),
        ),
        Field(rules.REQUESTS, "text-single", label="Number of items to process at a time"),
        Field(
            rules.POLICY,
            "list-single",
            label="How to choose the subscriber for an item",
            options=QUEUE_POLICIES,
        ),
    )
}


def subscription_form(type: str, kind: SubscriptionKind, options: SubscriptionOptions) -> bytes:
    """Encode the options of a subscription as a form of type `form` or `result`."""
    fields = []
    for name in rules.OPTIONS[kind]:
        value = rules.format_option(options, name)
        field = _FIELDS[name]._replace(values=() if value is None else (value,))
        if type == "result":
            field = field._replace(options=())
        elif kind is SubscriptionKind.QUEUE:
            field = field._replace(required=True)
        fields.append(field)
    return forms.write(type, SUBSCRIBE_OPTIONS, fields)


def read_subscription_options(options: Element) -> dict[str, list[str]]:
    """Return the options in an `<options/>`, by registered name (`pubsub#...`); empty if it has no
    form.

    Raises:
        StanzaError: the element contains something other than one submitted form.
    """
    if not len(options):
        return {}
    try:
        if len(options) > 1:
            raise StanzaError("bad-request", "exactly one form is expected")
        values = forms.read(options[0], SUBSCRIBE_OPTIONS)
        _rename(values, _QUEUE_REQUESTS, rules.REQUESTS)
        return values
    except StanzaError as error:
        raise pubsub.refusal("bad-request", "invalid-options", error.text) from error
