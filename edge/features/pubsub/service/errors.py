"""Errors that the operations of publish-subscribe raise."""

from __future__ import annotations

from collections.abc import Mapping

from edge.errors import ServiceError
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.reasons import Reason


class PubsubError(ServiceError[Reason]):
    """Publish-subscribe refuses a request; nothing has changed."""

    def __init__(self, reason: Reason, text: str = "") -> None:
        super().__init__(reason, text or reason.value)


class AffiliationsRefused(PubsubError):
    """A change of affiliations is refused.

    Attributes:
        current: the affiliations of the accounts in the request, which have not changed.
    """

    def __init__(self, text: str, node: str, current: Mapping[str, Affiliation]) -> None:
        super().__init__(Reason.INVALID_AFFILIATION, text)
        self.node = node
        self.current = current
