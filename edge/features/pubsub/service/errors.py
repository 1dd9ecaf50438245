"""Errors that the operations of publish-subscribe raise."""

from __future__ import annotations

from collections.abc import Mapping

from edge.errors import ServiceError
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.reasons import Reason


class PubsubError(ServiceError[Reason]):
    """A publish-subscribe request is refused; no node, item or subscription has changed."""

    def __init__(self, reason: Reason, text: str = "", rule: str | None = None) -> None:
        super().__init__(reason, text or reason.value, rule)


class AffiliationsRefused(PubsubError):
    """A change of affiliations is refused.

    Attributes:
        node: the name of the node.
        current: the present affiliations of the accounts in the request, by bare JID.
    """

    def __init__(self, text: str, node: str, current: Mapping[str, Affiliation]) -> None:
        super().__init__(Reason.INVALID_AFFILIATION, text)
        self.node = node
        self.current = current
