"""Map the errors of publish-subscribe to stanza errors (XEP-0060, section 16.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.service.errors import AffiliationsRefused, PubsubError
from edge.features.pubsub.xmpp.affiliations import affiliations_element
from edge.xmpp import pubsub
from edge.xmpp.errors import StanzaError


class _Answer(NamedTuple):
    """Conditions of a stanza error.

    `condition` is defined by RFC 6120, `specific` by XEP-0060. If `type` is `None`, the error has
    the type that RFC 6120 recommends for the condition. `feature` is the unsupported feature.
    """

    condition: str
    specific: str = ""
    type: str | None = None
    feature: str = ""


_ANSWERS: Final[Mapping[Reason, _Answer]] = {
    Reason.FORBIDDEN: _Answer("forbidden"),
    Reason.NOT_ALLOWED_BY_RULE: _Answer("forbidden"),
    Reason.CLOSED_NODE: _Answer("not-allowed", "closed-node"),
    Reason.PRESENCE_SUBSCRIPTION_REQUIRED: _Answer(
        "not-authorized", "presence-subscription-required"
    ),
    Reason.NOT_IN_ROSTER_GROUP: _Answer("not-authorized", "not-in-roster-group"),
    Reason.NODE_REQUIRED: _Answer("bad-request", "nodeid-required"),
    Reason.NODE_NOT_FOUND: _Answer("item-not-found"),
    Reason.NODE_EXISTS: _Answer("conflict"),
    Reason.INVALID_NODE_NAME: _Answer("not-acceptable"),
    Reason.TOO_MANY_NODES: _Answer("resource-constraint", "max-nodes-exceeded"),
    Reason.INVALID_CONFIGURATION: _Answer("not-acceptable"),
    Reason.UNSUPPORTED_ACCESS_MODEL: _Answer("not-acceptable", "unsupported-access-model"),
    Reason.NOT_PERSISTENT: _Answer(
        "feature-not-implemented", "unsupported", feature="persistent-items"
    ),
    Reason.IS_QUEUE: _Answer("feature-not-implemented", "unsupported", feature="retrieve-items"),
    Reason.INVALID_AFFILIATION: _Answer("not-acceptable"),
    Reason.TOO_MANY_AFFILIATIONS: _Answer("resource-constraint"),
    Reason.PRECONDITION_NOT_MET: _Answer("conflict", "precondition-not-met"),
    Reason.TOO_MANY_ITEMS: _Answer("not-acceptable", "max-items-exceeded"),
    Reason.ITEM_REQUIRED: _Answer("bad-request", "item-required"),
    Reason.ITEM_FORBIDDEN: _Answer("bad-request", "item-forbidden"),
    Reason.PAYLOAD_REQUIRED: _Answer("bad-request", "payload-required"),
    Reason.INVALID_PAYLOAD: _Answer("bad-request", "invalid-payload"),
    Reason.UNREADABLE_PAYLOAD: _Answer("bad-request"),
    Reason.ITEM_NOT_FOUND: _Answer("item-not-found"),
    Reason.ITEM_EXISTS: _Answer("conflict"),
    Reason.LIMIT_EXCEEDED: _Answer("resource-constraint"),
    Reason.SHARES_DISABLED: _Answer("feature-not-implemented"),
    Reason.INVALID_FILTER: _Answer("bad-request"),
    Reason.INVALID_SUBSCRIBER: _Answer("bad-request", "invalid-jid"),
    Reason.NOT_SUBSCRIBED: _Answer("unexpected-request", "not-subscribed", type="cancel"),
    Reason.INVALID_SUBID: _Answer("not-acceptable", "invalid-subid"),
    Reason.INVALID_OPTIONS: _Answer("bad-request", "invalid-options"),
    Reason.CONFIGURATION_REQUIRED: _Answer("not-acceptable", "configuration-required"),
    Reason.POLICY_CONFLICT: _Answer("conflict"),
    Reason.TOO_MANY_SUBSCRIPTIONS: _Answer(
        "policy-violation", "too-many-subscriptions", type="wait"
    ),
    Reason.SUBSCRIPTION_NOT_ACCEPTABLE: _Answer("not-acceptable"),
}


def stanza_error(error: PubsubError, instead: bytes = b"") -> StanzaError:
    """Return the stanza error for a refused request.

    Args:
        instead: XML to include in the stanza error in place of the request.
    """
    condition, specific, type_, feature = _ANSWERS[error.reason]
    attrs = {"feature": feature} if feature else None
    return pubsub.refusal(condition, specific, error.text, type=type_, attrs=attrs, instead=instead)


def affiliations_refused(error: AffiliationsRefused) -> StanzaError:
    """Return the stanza error for a refused change of affiliations, with the present
    affiliations (section 8.9.2.4)."""
    return stanza_error(error, affiliations_element(error.node, error.current))
