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
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from xml.parsers import expat

from edge.wire.errors import FragmentError
from edge.wire.namespaces import CLIENT
from edge.wire.serialize import attribute, element

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_FRAGMENT_BYTES = 1024 * 1024
"""Bytes that `parse_fragment` takes: above any stanza that a listener may be set to accept."""

TAG = re.compile(rb"""<[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""")
"""One tag, complete. That it is well-formed is for expat to say."""

_CLIENT_PREFIX = f"{{{CLIENT}}}"
_ENVELOPE = b"<e xmlns='" + CLIENT.encode() + b"'>%b</e>"
_NAME = re.compile(rb"<([^\s/>]+)")
_DECLARES_DEFAULT = re.compile(
    rb"""<[^\s/>]+(?:\s+(?!xmlns[\s=])[^\s=]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s+xmlns\s*="""
)
_DECLARED_PREFIX = re.compile(rb"xmlns:([^\s=]+)")


class Header(NamedTuple):
    """What stanzas take from the stream's header: its bytes, and marks of what depends on it.

    An element in which one of the marks occurs may use a prefix that the header declares.
    """

    raw: bytes
    marks: tuple[bytes, ...]


class Whole:
    """The bytes of a stanza, shared by the elements in it."""

    __slots__ = ("header", "raw")

    def __init__(self, header: Header) -> None:
        self.header = header
        self.raw = b""


class Child:
    """An element in a stanza: `name` (Clark), `attrs`, `children` (none below a grandchild)."""

    __slots__ = ("_start", "_stop", "_whole", "attrs", "children", "name")

    def __init__(self, name: str, attrs: dict[str, str], whole: Whole, start: int = 0) -> None:
        self.name = name
        self.attrs = attrs
        self.children: list[Child] = []
        self._whole = whole
        self._start = start  # where it begins, in bytes from the stanza's beginning
        self._stop = 0  # where expat saw its end: after `<a/>`, but at the beginning of `</a>`

    @property
    def raw(self) -> bytes:
        """The whole element as bytes that stand alone (see the module's text)."""
        whole, stop = self._whole.raw, self._stop
        if whole[stop - 2 : stop] != b"/>" or not TAG.fullmatch(whole, self._start, stop):
            stop = whole.index(b">", stop) + 1
        return self._standalone(whole[self._start : stop])

    def tree(self) -> Element:
        """Parse the whole element; for paths that are not hot."""
        return parse_fragment(self.raw)

    def _standalone(self, raw: bytes) -> bytes:
        """Return the element's bytes so that they need nothing declared outside of them."""
        whole = self._whole
        for mark in whole.header.marks:
            if mark in raw:
                return _rewrite(whole, self._start)
        if b"xmlns:" in whole.raw:
            for prefix in _DECLARED_PREFIX.findall(whole.raw):
                if prefix + b":" in raw:
                    return _rewrite(whole, self._start)
        if self.name.startswith(_CLIENT_PREFIX) or _DECLARES_DEFAULT.match(raw):
            return raw
        namespace, _, local = self.name.rpartition("}")
        after = 1 + len(local.encode())
        return raw[:after] + attribute("xmlns", namespace[1:]) + raw[after:]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.attrs!r})"


class Stanza(Child):
    """A first-level child of the stream: `iq`, `message`, `presence`, or one of negotiation.

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
        return len(self._whole.raw)

    @property
    def raw(self) -> bytes:
        """The whole stanza as bytes that stand alone (see the module's text)."""
        return self._standalone(self._whole.raw)


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


def _rewrite(whole: Whole, start: int) -> bytes:
    """Write an element anew that may use what is declared outside of it: the one that begins at
    `start`."""
    from xml.etree import ElementTree

    head = whole.header.raw
    document = head + whole.raw
    begins: list[int] = []
    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler = lambda _name, _attrs: begins.append(parser.CurrentByteIndex)
    parser.Parse(document, False)
    name = _NAME.match(head)
    end = b"</%b>" % name[1] if name is not None else b""
    tree = ElementTree.fromstring(document + end)  # noqa: S314 (accepted before)
    ordinal = begins.index(len(head) + start)
    return element(next(islice(tree.iter(), ordinal, None)))
