"""The XML of SASL2 (XEP-0388) with Bind 2 (XEP-0386): reading of requests, building of answers.

A request names all that follows authentication: resume a session, or bind a resource and enable
stream management. Tasks after authentication and upgrades of hashes are not offered. Unknown
children of a request are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from edge import sasl
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import BIND2, SASL2, SM, clark
from edge.xmpp.serialize import escape, tag
from edge.xmpp.stanza import Child, Stanza
from edge.xmpp.stream import management, requests
from edge.xmpp.stream.management import EnableRequest, ResumeRequest

T = TypeVar("T")

_INITIAL = clark(SASL2, "initial-response")
_AGENT = clark(SASL2, "user-agent")
_BIND = clark(BIND2, "bind")
_TAG = clark(BIND2, "tag")


class Request(NamedTuple):
    """The contents of `<authenticate/>`.

    Attributes:
        initial: the mechanism's first message, decoded, or None.
        agent: the id of the client's installation, or "".
        bind: whether to bind a resource by Bind 2.
        label: the tag for that resource, or "".
        enable: the request to enable stream management, or the error in it.
        resume: the request to resume a session, or the error in it.
    """

    initial: bytes | None
    agent: str
    bind: bool
    label: str
    enable: EnableRequest | StanzaError | None
    resume: ResumeRequest | StanzaError | None


def read(item: Stanza) -> Request:
    """Read `<authenticate/>` (XEP-0388, section 2.3).

    Raises:
        SaslFailure: `incorrect-encoding`, `malformed-request`, or `invalid-mechanism` if the
            request asks for an upgrade, because none is offered.
    """
    if "upgrade" in item.attrs:
        raise sasl.SaslFailure("invalid-mechanism")
    inline = {child.name: child for child in item.children}
    initial, agent, bind = (inline.get(name) for name in (_INITIAL, _AGENT, _BIND))
    within = {} if bind is None else {child.name: child for child in bind.children}
    label = within.get(_TAG)
    return Request(
        None if initial is None else requests.sasl_message(initial) or b"",
        "" if agent is None else agent.attrs.get("id", ""),
        bind is not None,
        "" if label is None else (label.tree().text or "").strip(),
        _read(management.read_enable, within.get(management.ENABLE)),
        _read(management.read_resume, inline.get(management.RESUME)),
    )


def _read(reader: Callable[[Child], T], item: Child | None) -> T | StanzaError | None:
    if item is None:
        return None
    try:
        return reader(item)
    except StanzaError as error:
        return error


# Building of answers


def feature(mechanisms: Iterable[str]) -> bytes:
    """Build the stream feature, with inline binding and resumption; empty without mechanisms
    (XEP-0388, section 2.1)."""
    names = b"".join(tag("mechanism", content=escape(name)) for name in mechanisms)
    if not names:
        return b""
    within = tag("inline", content=tag("feature", {"var": SM}))
    inline = tag("bind", content=within, xmlns=BIND2) + tag("sm", xmlns=SM)
    return tag("authentication", content=names + tag("inline", content=inline), xmlns=SASL2)


def success(verifier: bytes, identity: str, inline: bytes = b"") -> bytes:
    """Build the answer to a successful authentication (XEP-0388, section 2.6.1).

    Args:
        verifier: the mechanism's final message, or empty.
        identity: the full JID if a resource is bound, else the bare JID.
        inline: the results of the inline requests, as bytes of XML.
    """
    content = b""
    if verifier:
        content = tag("additional-data", content=sasl.encode(verifier))
    content += tag("authorization-identifier", content=escape(identity))
    return tag("success", content=content + inline, xmlns=SASL2)


def bound(content: bytes) -> bytes:
    """Build the result of binding a resource. `content` has the answers to the requests that the
    client put into `<bind/>`, such as `<enabled/>` for `<enable/>`."""
    return tag("bound", content=content, xmlns=BIND2)
