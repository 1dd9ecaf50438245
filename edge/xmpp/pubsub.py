"""Building of publish-subscribe elements and errors (XEP-0060)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from edge.xmpp import containers, serialize
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import PUBSUB, PUBSUB_ERRORS, PUBSUB_EVENT, PUBSUB_OWNER, SHIM


def payload(content: bytes, *, owner: bool = False) -> bytes:
    """Build the `<pubsub/>` of an answer, in the owner's namespace if `owner`."""
    return serialize.tag("pubsub", content=content, xmlns=PUBSUB_OWNER if owner else PUBSUB)


def event(content: bytes) -> bytes:
    """Build the `<event/>` of a notification (XEP-0060, section 7.1.2)."""
    return serialize.tag("event", content=content, xmlns=PUBSUB_EVENT)


def item(id: str, payload: bytes, publisher: str | None, content_type: str = "") -> bytes:
    """Build an item; `publisher` is the JID of its publisher, or None to omit it (XEP-0060, section
    7.1.2.3). A payload with a content type, which is no XML, is put into an element."""
    content = containers.element(payload, content_type)
    return serialize.tag("item", {"id": id, "publisher": publisher}, content)


def items_event(node: str, content: bytes) -> bytes:
    """Build the `<event/>` of items of a node."""
    before, after = _around("event", PUBSUB_EVENT, "items", node)
    return before + content + after if content else event(serialize.tag("items", {"node": node}))


def publish_result(node: str, content: bytes) -> bytes:
    """Build the `<pubsub/>` that answers a publication to a node."""
    before, after = _around("pubsub", PUBSUB, "publish", node)
    if content:
        return before + content + after
    return payload(serialize.tag("publish", {"node": node}))


@lru_cache(maxsize=256)
def _around(outer: str, xmlns: str, name: str, node: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the content of an element `name` within `outer`."""
    inner = serialize.tag(name, {"node": node}, b"\0")
    before, _mark, after = serialize.tag(outer, content=inner, xmlns=xmlns).partition(b"\0")
    return before, after


def subid_header(subid: str) -> bytes:
    """Build the header that names a notification's subscription (XEP-0131; XEP-0060, 12.17)."""
    header = serialize.tag("header", {"name": "SubID"}, serialize.escape(subid))
    return serialize.tag("headers", content=header, xmlns=SHIM)


def refusal(
    condition: str,
    specific: str = "",
    text: str = "",
    *,
    type: str | None = None,
    attrs: Mapping[str, str | None] | None = None,
    instead: bytes = b"",
) -> StanzaError:
    """Build the error of a refused request; the error repeats the request.

    Args:
        specific: a publish-subscribe condition, such as `closed-node` (XEP-0060, section 16.4).
        type: the error type, if not the one recommended for the condition.
        attrs: attributes of the specific condition, such as the `feature` of `unsupported`.
        instead: bytes of XML to repeat in place of the request.
    """
    application = serialize.tag(specific, attrs, xmlns=PUBSUB_ERRORS) if specific else b""
    return StanzaError(
        condition, text, type=type, application=application, echo=True, instead=instead
    )
