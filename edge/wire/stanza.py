"""What the parser yields: the opening of a stream, stanzas, and its close.

A stanza has its envelope parsed, two levels deep (children and grandchildren: name, attributes, raw
bytes); what lies deeper stays raw until somebody asks for `tree()`. Names stand in Clark notation,
and so do attributes that have a namespace; all others have their plain name.

A raw slice stands alone: parsed where `jabber:client` is the default namespace and no prefix is
declared, it gives the same tree. Where the bytes that came are not so, because they use a prefix or
a default namespace that is declared outside of them, `raw` gives an equivalent that is.

Nothing here decides what a stanza means, and nothing checks addresses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edge.wire.errors import FragmentError
from edge.wire.namespaces import CLIENT
from edge.wire.serialize import attribute, element

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_FRAGMENT_BYTES = 1024 * 1024
"""Bytes of a stored fragment that `parse_fragment` takes: above any stanza that a listener may be
set to accept."""

_CLIENT_PREFIX = f"{{{CLIENT}}}"
_DECLARES_DEFAULT = re.compile(
    rb"""<[^\s/>]+(?:\s+(?!xmlns[\s=])[^\s=]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s+xmlns\s*="""
)
_ENVELOPE = b"<e xmlns='" + CLIENT.encode() + b"'>%b</e>"
_NAME = re.compile(rb"<([^\s/>]+)")


class _Source(NamedTuple):
    """Where an element stands that uses prefixes: enough to read it again in its context."""

    header: bytes
    stanza: bytes
    path: tuple[int, ...]


class Child:
    """An element inside a stanza: `name` (Clark), `attrs`, `children` (of a grandchild: always
    empty)."""

    __slots__ = ("_raw", "_source", "_start", "attrs", "children", "name")

    def __init__(self, name: str, attrs: dict[str, str], start: int = 0) -> None:
        self.name = name
        self.attrs = attrs
        self.children: list[Child] = []
        self._start = start  # where it begins, in bytes from the stanza's beginning
        self._raw = b""
        self._source: _Source | None = None

    @property
    def raw(self) -> bytes:
        """The whole element as bytes that stand alone (see the module's text)."""
        if self._source is not None:
            return _reserialise(self._source)
        return _standalone(self.name, self._raw)

    def tree(self) -> Element:
        """Parse the whole element; for paths that are not hot."""
        return parse_fragment(self.raw)

    def _mark(self, header: bytes, stanza: bytes, path: tuple[int, ...], uses: list[int]) -> None:
        end = self._start + len(self._raw)
        if any(self._start <= use < end for use in uses):
            self._source = _Source(header, stanza, path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.attrs!r})"


class Stanza(Child):
    """A first-level child of the stream: `iq`, `message`, `presence`, or an element of negotiation.

    `attrs` holds `to`, `from`, `id`, `type` and `{http://www.w3.org/XML/1998/namespace}lang` as
    they came, unchecked.
    """

    __slots__ = ()

    @property
    def payload(self) -> Child | None:
        """The first child, or None: what an iq asks for (RFC 6120, section 8.2.3)."""
        return self.children[0] if self.children else None

    @property
    def size(self) -> int:
        """Bytes that the stanza had on the wire."""
        return len(self._raw)

    def _locate(self, header: bytes, uses: list[int]) -> None:
        """Mark the elements that need their context, given where in the stanza prefixes are used."""
        self._source = _Source(header, self._raw, ())
        for i, child in enumerate(self.children):
            child._mark(header, self._raw, (i,), uses)
            for j, inner in enumerate(child.children):
                inner._mark(header, self._raw, (i, j), uses)


class StreamOpen:
    """The stream's header: `name` (Clark), `attrs`, and `namespace`, the default one that it
    declares (or "")."""

    __slots__ = ("attrs", "name", "namespace", "prefixed")

    def __init__(self, name: str, attrs: dict[str, str], namespace: str, *, prefixed: bool) -> None:
        self.name = name
        self.attrs = attrs
        self.namespace = namespace
        self.prefixed = prefixed

    def __repr__(self) -> str:
        return f"StreamOpen({self.name!r}, {self.attrs!r}, {self.namespace!r})"


class StreamClose:
    """The peer closed its stream: nothing may follow."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "StreamClose()"


Item: TypeAlias = StreamOpen | Stanza | StreamClose
"""What `StreamParser.feed` yields."""


def parse_fragment(raw: bytes, max_bytes: int = MAX_FRAGMENT_BYTES) -> Element:
    """Parse one element that the parser accepted before, and that was stored since.

    Args:
        raw: the bytes of exactly one element, as `raw` of a stanza or child gives them.
        max_bytes: refuse more than that.

    Raises:
        FragmentError: it is too large, not well-formed, or not exactly one element.
    """
    from xml.etree import ElementTree  # imported late: cold paths alone build trees

    if len(raw) > max_bytes:
        raise FragmentError(f"{len(raw)} bytes, at most {max_bytes} are accepted")
    try:
        envelope = ElementTree.fromstring(_ENVELOPE % raw)  # noqa: S314 (no doctype can stand here)
    except ElementTree.ParseError as error:
        raise FragmentError(str(error)) from error
    if len(envelope) != 1 or envelope.text or envelope[0].tail:
        raise FragmentError("not exactly one element")
    return envelope[0]


def _standalone(name: str, raw: bytes) -> bytes:
    """Declare the default namespace of an element, if it took that from outside."""
    if name.startswith(_CLIENT_PREFIX) or _DECLARES_DEFAULT.match(raw):
        return raw
    namespace, _, local = name.rpartition("}")
    after = 1 + len(local.encode())
    return raw[:after] + attribute("xmlns", namespace[1:]) + raw[after:]


def _reserialise(source: _Source) -> bytes:
    """Write an element anew that uses prefixes declared outside of it."""
    from xml.etree import ElementTree

    name = _NAME.match(source.header)
    end = b"</%b>" % name[1] if name is not None else b""
    found = ElementTree.fromstring(source.header + source.stanza + end)[0]  # noqa: S314
    for index in source.path:
        found = found[index]
    return element(found)
