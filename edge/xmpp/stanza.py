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
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from xml.etree.ElementTree import Element
from xml.parsers import expat

from edge.xmpp.errors import FragmentError, UsageError
from edge.xmpp.names import SEPARATOR
from edge.xmpp.namespaces import CLIENT
from edge.xmpp.serialize import attribute

MAX_FRAGMENT_BYTES = 4 * 1024 * 1024
"""Bytes that `parse_fragment` takes: four times the largest stanza that can be configured, since an
element may take along as many declarations as stood around it."""

MAX_PREFIXES = 8
"""Prefixes that are looked for in an element one by one; what is in use has one or two."""

TAG = re.compile(rb"""<[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""")
"""One tag, complete. That it is well-formed is for expat to say."""

_CLIENT_PREFIX = f"{{{CLIENT}}}"
_ENVELOPE = b"<e xmlns='" + CLIENT.encode() + b"'>%b</e>"
_NAME = re.compile(rb"<[^\s/>]+")
_ATTRIBUTE = re.compile(rb"""(?<!\s)\s+([^\s=<>/]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_DECLARES_DEFAULT = re.compile(
    rb"""<[^\s/>]+(?:\s+(?!xmlns[\s=])[^\s=<>/]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s+xmlns\s*="""
)
_DECLARED = re.compile(rb"(?<=xmlns:)[^\s=]+")


class Header(NamedTuple):
    """What stanzas take from the stream's header: its bytes, and the prefixes that it declares.

    Each prefix ends with its colon, here and below.
    """

    raw: bytes
    prefixes: tuple[bytes, ...]


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
        """The whole element as bytes that stand alone (see the module's text).

        Each call makes them anew: at the cost of a copy mostly, of parsing the whole stanza where
        the element uses a prefix.
        """
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
        prefixes = whole.header.prefixes
        if b"xmlns:" in whole.raw:
            prefixes += tuple(prefix + b":" for prefix in _DECLARED.findall(whole.raw))
        used = _used(raw, prefixes)
        if not used and (self.name.startswith(_CLIENT_PREFIX) or _DECLARES_DEFAULT.match(raw)):
            return raw
        return _declare(raw, _scope(whole, self._start), used)

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


class Bulky(Stanza):
    """A stanza that has too much of something, as `text` says: its first tag, and no children."""

    __slots__ = ("text",)

    def __init__(self, stanza: Stanza, text: str) -> None:
        super().__init__(stanza.name, stanza.attrs, stanza._whole)
        self.text = text


class StreamOpen:
    """The stream's header.

    `name` is in Clark notation and `prefixed` tells whether it had a prefix; `namespace` is the
    default namespace that the header declares, or "".
    """

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


def stamped(stanza: Stanza | bytes, from_: str, to: str | None = None) -> bytes:
    """Return a stanza's bytes with another sender (RFC 6120, section 8.1.2.1), else as they came.

    Args:
        stanza: a stanza, or its bytes as `raw` gives them.
        from_: the JID that it is from, whatever it says.
        to: the JID that it is for; None leaves that as it is.
    """
    replaced = (b"from",) if to is None else (b"from", b"to")
    name, rest = _without(stanza, replaced)
    return b"%b%b%b%b" % (name, attribute("from", from_), attribute("to", to), rest)


def stamper(stanza: Stanza | bytes, from_: str) -> Callable[[str], bytes]:
    """Return what stamps a stanza as `stamped` does, for one address after another: it is read
    once."""
    name, rest = _without(stanza, (b"from", b"to"))
    start = name + attribute("from", from_)
    return lambda to: b"%b%b%b" % (start, attribute("to", to), rest)


def _without(stanza: Stanza | bytes, attributes: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """Return the beginning of a stanza up to its name, and the rest without some attributes."""
    raw = stanza if isinstance(stanza, bytes) else stanza.raw
    first, name = TAG.match(raw), _NAME.match(raw)
    if first is None or name is None:
        raise UsageError("no stanza")
    kept = _ATTRIBUTE.sub(
        lambda match: b"" if match[1] in attributes else match[0], raw[name.end() : first.end()]
    )
    return name[0], kept + raw[first.end() :]


def stamped_with(stanza: Stanza | bytes, from_: str, extra: bytes, to: str | None = None) -> bytes:
    """Return a stanza's bytes as `stamped` does, with a child more, at the end: `extra`, which must
    stand alone, such as the stamp of a delay."""
    raw = stamped(stanza, from_, to)
    name, first = _NAME.match(raw), TAG.fullmatch(raw)
    if name is not None and first is not None:  # it was empty
        return b"%b>%b</%b>" % (raw[:-2], extra, name[0][1:])
    end = raw.rindex(b"</")
    return b"%b%b%b" % (raw[:end], extra, raw[end:])


def anywhere(element: Child) -> bytes:
    """Return an element's bytes so that they give the same tree wherever they are put: also where
    another namespace than `jabber:client` is the default."""
    raw = element.raw
    if _DECLARES_DEFAULT.match(raw):
        return raw
    match = _NAME.match(raw)
    after = 0 if match is None else match.end()
    return b"%b%b%b" % (raw[:after], attribute("xmlns", CLIENT), raw[after:])


def _used(raw: bytes, prefixes: Sequence[bytes]) -> Sequence[bytes]:
    """Choose the prefixes that names in an element may have.

    Text that looks like a name only costs a needless declaration. Where there are many prefixes,
    all are taken to be used.
    """
    if len(prefixes) > MAX_PREFIXES:
        return prefixes
    return [
        prefix
        for prefix in prefixes
        if prefix in raw and re.search(rb"[<\s/]" + re.escape(prefix), raw)
    ]


def _scope(whole: Whole, start: int) -> dict[str, str]:
    """Return what is declared around the element that begins at `start`, and not by itself.

    The key is the prefix, "" for the default namespace.
    """
    at = len(whole.header.raw) + start
    parser = expat.ParserCreate("UTF-8", SEPARATOR)
    declared: dict[str, list[str]] = {"": [""]}
    own: list[str] = []
    found: dict[str, str] = {}

    def declare(prefix: str | None, uri: str | None) -> None:
        declared.setdefault(prefix or "", []).append(uri or "")
        own.append(prefix or "")

    def undeclare(prefix: str | None) -> None:
        declared[prefix or ""].pop()

    def begin(_name: str, _attrs: dict[str, str]) -> None:
        if parser.CurrentByteIndex == at:
            found.update(
                {key: uris[-1] for key, uris in declared.items() if key not in own and uris}
            )
            parser.StartElementHandler = None
            parser.StartNamespaceDeclHandler = parser.EndNamespaceDeclHandler = None
        own.clear()

    parser.StartNamespaceDeclHandler = declare
    parser.EndNamespaceDeclHandler = undeclare
    parser.StartElementHandler = begin
    parser.Parse(whole.header.raw + whole.raw, False)
    return found


def _declare(raw: bytes, scope: dict[str, str], used: Sequence[bytes]) -> bytes:
    """Put declarations into an element's first tag: of the prefixes used, and of the default."""
    match = _NAME.match(raw)
    after = 0 if match is None else match.end()
    namespace = scope.pop("", CLIENT)
    declarations = [attribute("xmlns", namespace)] if namespace != CLIENT else []
    for prefix, uri in scope.items():
        if f"{prefix}:".encode() in used:
            declarations.append(attribute(f"xmlns:{prefix}", uri))
    return b"%b%b%b" % (raw[:after], b"".join(declarations), raw[after:])
