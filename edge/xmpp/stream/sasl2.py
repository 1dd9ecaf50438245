"""The XML of SASL2 (XEP-0388) with Bind 2 (XEP-0386): a client's request read, our answers made.

One request names all that is to be done once the client is known: resume a session, or bind a
resource and turn on stream management for it. Which of that is done, and when, is told by
`wire.negotiation`; the mechanisms are `wire.sasl`'s. Tasks after authentication and upgrades of
hashes are not offered. Children of a request that are not known here are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import BIND2, SASL, SASL2, SM, clark
from edge.xmpp.serialize import escape, tag
from edge.xmpp.stanza import Child, Stanza
from edge.xmpp.stream import management, sasl
from edge.xmpp.stream.management import EnableRequest, ResumeRequest

T = TypeVar("T")

_INITIAL = clark(SASL2, "initial-response")
_AGENT = clark(SASL2, "user-agent")
_BIND = clark(BIND2, "bind")
_TAG = clark(BIND2, "tag")


class Request(NamedTuple):
    """What `<authenticate/>` asks for.

    `initial` is the mechanism's first message, decoded, or None; `agent` the id of the client's
    installation, or "". `bind` and `label`, its tag, are Bind 2's. `enable` and `resume` are stream
    management's, or what is wrong with them.
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
        SaslFailure: `incorrect-encoding`, `malformed-request`, or `invalid-mechanism` where an
            upgrade is asked for, since none is offered.
    """
    if "upgrade" in item.attrs:
        raise sasl.SaslFailure("invalid-mechanism")
    inline = {child.name: child for child in item.children}
    initial, agent, bind = (inline.get(name) for name in (_INITIAL, _AGENT, _BIND))
    within = {} if bind is None else {child.name: child for child in bind.children}
    label = within.get(_TAG)
    return Request(
        None if initial is None else message(initial),
        "" if agent is None else agent.attrs.get("id", ""),
        bind is not None,
        "" if label is None else (label.tree().text or "").strip(),
        _asked(management.read_enable, within.get(management.ENABLE)),
        _asked(management.read_resume, inline.get(management.RESUME)),
    )


def message(item: Child) -> bytes:
    """Return the message that an element carries; without text it is empty (section 2.2).

    Raises:
        SaslFailure: `malformed-request` or `incorrect-encoding`.
    """
    tree = item.tree()
    if len(tree):
        raise sasl.SaslFailure("malformed-request")
    return sasl.decode(tree.text) if tree.text else b""


def _asked(reader: Callable[[Child], T], item: Child | None) -> T | StanzaError | None:
    if item is None:
        return None
    try:
        return reader(item)
    except StanzaError as error:
        return error


# Elements made


def feature(mechanisms: Iterable[str]) -> bytes:
    """Offer authentication by these mechanisms, binding and resumption with it; nothing if there
    are none (XEP-0388, section 2.1)."""
    names = b"".join(tag("mechanism", content=escape(name)) for name in mechanisms)
    if not names:
        return b""
    within = tag("inline", content=tag("feature", {"var": SM}))
    inline = tag("bind", content=within, xmlns=BIND2) + tag("sm", xmlns=SM)
    return tag("authentication", content=names + tag("inline", content=inline), xmlns=SASL2)


def challenge(encoded: bytes = b"") -> bytes:
    """Make a challenge from base64; an empty one asks for the mechanism's first message."""
    return tag("challenge", content=encoded, xmlns=SASL2)


def failure(condition: str) -> bytes:
    """Tell a failure by its condition, and no more."""
    return tag("failure", content=tag(condition, xmlns=SASL), xmlns=SASL2)


def success(verifier: bytes, identity: str, inline: bytes = b"") -> bytes:
    """Tell success (XEP-0388, section 2.6.1).

    Args:
        verifier: the mechanism's last words, or nothing.
        identity: the full JID if a resource is bound, else the bare one.
        inline: what came of that which was asked for with it.
    """
    content = b""
    if verifier:
        content = tag("additional-data", content=sasl.encode(verifier))
    content += tag("authorization-identifier", content=escape(identity))
    return tag("success", content=content + inline, xmlns=SASL2)


def bound(content: bytes) -> bytes:
    """Tell that a resource is bound, and what came of that which was asked for with it."""
    return tag("bound", content=content, xmlns=BIND2)
