"""The elements that publish-subscribe puts around what it carries (XEP-0060).

What a request or an event means is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping

from edge.xmpp import serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, PUBSUB_ERRORS, PUBSUB_EVENT, PUBSUB_OWNER


def payload(content: bytes, *, owner: bool = False) -> bytes:
    """Make the `<pubsub/>` of an answer; `owner` is of what an owner asks for."""
    return serialize.tag("pubsub", content=content, xmlns=PUBSUB_OWNER if owner else PUBSUB)


def event(content: bytes) -> bytes:
    """Make the `<event/>` of a notification (XEP-0060, section 7.1.2)."""
    return serialize.tag("event", content=content, xmlns=PUBSUB_EVENT)


def refusal(
    condition: str,
    specific: str = "",
    text: str = "",
    *,
    type: str | None = None,
    attrs: Mapping[str, str | None] | None = None,
    instead: bytes = b"",
) -> StanzaError:
    """Make the error of a refused request, which repeats it.

    Args:
        condition: of RFC 6120, section 8.3.3.
        specific: the condition of publish-subscribe (XEP-0060, section 16.4), as `closed-node`.
        text: for people.
        type: of the error, where it is not the usual one.
        attrs: of the specific condition, as the `feature` of `unsupported`.
        instead: what stands in the place of the request, as bytes of XML, where it is not the same.
    """
    application = serialize.tag(specific, attrs, xmlns=PUBSUB_ERRORS) if specific else b""
    return StanzaError(
        condition, text, type=type, application=application, echo=True, instead=instead
    )
