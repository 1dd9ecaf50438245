"""The items of a stream, as the parser yields them: its header, stanzas and its end.

A stanza is parsed two levels deep (children and grandchildren: name, attributes, raw bytes); deeper
levels stay raw until `tree()` is called. Names of elements are in Clark notation, and so are
attributes that have a namespace.

`raw` is self-contained: parsed with `jabber:client` as the default namespace and no prefix
declared, it yields the same tree. If the received bytes depend on a declaration outside of them,
`raw` has that declaration added.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from edge.xmpp.errors import FragmentError, UsageError
from edge.xmpp.names import SEPARATOR
from edge.xmpp.namespaces import CLIENT, XML, clark
from edge.xmpp.serialize import attribute
from edge.xmpp.tree_parser import TreeParser

MAX_FRAGMENT_BYTES = 4 * 1024 * 1024
"""Maximum bytes for `parse_fragment`: four times the largest stanza that can be configured, because
the declarations around an element may be added to it."""

_MAX_SMALL_BYTES = 4096
"""Maximum bytes of an element that `parse_fragment` parses with a parser that it reuses."""

MAX_PREFIXES = 8
"""An element is searched for the namespace prefixes declared around it if there are at most this
many; otherwise it counts as using all of them. Real stanzas have one or two."""

TAG = re.compile(rb"""<[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""")
"""A complete tag; expat checks that it is well-formed."""

LANG = clark(XML, "lang")

STANZA_NAMES = frozenset(clark(CLIENT, name) for name in ("iq", "message", "presence"))
"""The elements that are stanzas (RFC 6120, section 8)."""

_threads = threading.local()
_CLIENT_PREFIX = f"{{{CLIENT}}}"
_ENVELOPE = b"<e xmlns='" + CLIENT.encode() + b"'>%b</e>"
_NAME = re.compile(rb"<[^\s/>]+")
_ATTRIBUTE = re.compile(rb"""(?<!\s)\s+([^\s=<>/]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_DECLARES_DEFAULT = re.compile(
    rb"""<[^\s/>]+(?:\s+(?!xmlns[\s=])[^\s=<>/]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s+xmlns\s*="""
)
_DECLARED = re.compile(rb"(?<=xmlns:)[^\s=]+")


class StreamHeader(NamedTuple):
    """The bytes of the stream's header and the prefixes that it declares, each with its colon.

    `lang` is the language of the stream, "" if the header gives none.
    """

    raw: bytes
    prefixes: tuple[bytes, ...]
    lang: str = ""


class StanzaBytes:
    """The bytes of a stanza, shared by the elements in it.

    Attributes:
        acknowledged: as in `Stanza`.
        is_parsed: whether this process has parsed them. If another one did, what is passed on to
            others is checked (`check_element`).
    """

    __slots__ = ("acknowledged", "header", "is_parsed", "raw")

    def __init__(self, header: StreamHeader, raw: bytes = b"", *, is_parsed: bool = True) -> None:
        self.header = header
        self.raw = raw
        self.acknowledged = False
        self.is_parsed = is_parsed


class Child:
    """A stanza or an element in it; `name` is in Clark notation.

    Attributes:
        children: the child elements; left empty in grandchildren of the stanza.
        parsed: the element's tree, if it was built when the stanza was received; not to be changed.
    """

    __slots__ = ("_raw", "_start", "_stop", "_whole", "attrs", "children", "name", "parsed")

    def __init__(
        self, name: str, attrs: dict[str, str], whole: StanzaBytes, start: int = 0
    ) -> None:
        self.name = name
        self.attrs = attrs
        self.children: list[Child] = []
        self.parsed: Element | None = None
        self._raw = b""  # the result of `raw`, if it was known from the beginning
        self._whole = whole
        self._start = start  # offset in the stanza's bytes
        self._stop = 0  # offset of its end as expat reports it: after `<a/>`, but before `</a>`

    @property
    def raw(self) -> bytes:
        """The element as self-contained bytes.

        Each call costs a copy, and parses the whole stanza again if the element uses a prefix.
        """
        return self._raw or self._checked(self._standalone())

    def raw_with_language(self, lang: str) -> bytes:
        """Return the bytes as in `raw`, with this language if the element gives none."""
        if not lang or LANG in self.attrs:
            return self.raw
        return self._checked(_add_language(self._raw or self._standalone(), lang))

    def has_other_content(self) -> bool:
        """Return whether the element contains anything but white space and its `children`.

        In a grandchild of the stanza, any content counts, because its children are not listed.
        """
        whole = self._whole.raw
        stop = self._stop or whole.rfind(b"</")  # a stanza ends where its bytes end
        if whole.find(b">", self._start, stop) == stop - 1:
            return False  # most often: only the start tag comes before the end
        match = TAG.match(whole, self._start)
        at = self._start if match is None else match.end()
        for child in self.children:
            if at < child._start and whole[at : child._start].strip():
                return True
            at = child._end()
        return at < stop and bool(whole[at:stop].strip())  # the end may be -1

    def tree(self) -> Element:
        """Parse the whole element and return its tree; not for hot paths."""
        return parse_fragment(self.raw)

    def _end(self) -> int:
        whole, stop = self._whole.raw, self._stop
        if not whole.endswith(b"/>", 0, stop) or not TAG.fullmatch(whole, self._start, stop):
            stop = whole.index(b">", stop) + 1
        return stop

    def _checked(self, raw: bytes) -> bytes:
        """Return bytes that are to be passed on. If another process has parsed them, they are
        checked: they may even have an attribute that `attrs` lacks."""
        if not self._whole.is_parsed:
            check_element(raw)
        return raw

    def _standalone(self) -> bytes:
        """Return the element's bytes with the declarations that they depend on."""
        return self._with_declarations(self._whole.raw[self._start : self._end()])

    def _with_declarations(self, raw: bytes) -> bytes:
        whole = self._whole
        prefixes = whole.header.prefixes
        if b"xmlns:" in whole.raw:
            prefixes += tuple(prefix + b":" for prefix in _DECLARED.findall(whole.raw))
        used = _used(raw, prefixes)
        if not used and (self.name.startswith(_CLIENT_PREFIX) or _DECLARES_DEFAULT.match(raw)):
            return raw
        return _declare(raw, _scope(whole, self._start), used)


class Stanza(Child):
    """A first-level child of the stream: a stanza, or an element of negotiation.

    `attrs` holds `to`, `from`, `id`, `type` and `{http://www.w3.org/XML/1998/namespace}lang` as
    they were received, unchecked.
    """

    __slots__ = ()

    @property
    def acknowledged(self) -> bool:
        """Whether the stanza's sender is told when it was handled (XEP-0198)."""
        return self._whole.acknowledged

    @acknowledged.setter
    def acknowledged(self, acknowledged: bool) -> None:
        self._whole.acknowledged = acknowledged

    @property
    def payload(self) -> Child | None:
        """The first child, or None; an iq has one (RFC 6120, section 8.2.3)."""
        return self.children[0] if self.children else None

    @property
    def size(self) -> int:
        """Bytes of the stanza as received."""
        return len(self._whole.raw)

    @property
    def with_stream_language(self) -> bytes:
        """The bytes as in `raw`, with the stream's language if the stanza gives none.

        What goes to another stream needs it, because that has a language of its own (RFC 6120,
        section 8.1.5).
        """
        return self.raw_with_language(self._whole.header.lang)

    def _standalone(self) -> bytes:
        return self._with_declarations(self._whole.raw)

    @property
    def lang(self) -> str:
        """The language of the stanza or, if it gives none, of the stream; "" if there is none."""
        return self.attrs.get(LANG) or self._whole.header.lang


class OversizedStanza(Stanza):
    """The start tag of a stanza that exceeds one of the parser's limits; `text` names the limit."""

    __slots__ = ("text",)

    def __init__(self, stanza: Stanza, text: str) -> None:
        super().__init__(stanza.name, stanza.attrs, stanza._whole)
        self.text = text


class StreamOpen:
    """The stream's header.

    Attributes:
        name: in Clark notation.
        namespace: the default namespace that the header declares, or "".
        prefixed: whether the name had a prefix.
    """

    __slots__ = ("attrs", "name", "namespace", "prefixed")

    def __init__(self, name: str, attrs: dict[str, str], namespace: str, *, prefixed: bool) -> None:
        self.name = name
        self.attrs = attrs
        self.namespace = namespace
        self.prefixed = prefixed


class StreamClose:
    """The end of the peer's stream."""

    __slots__ = ()


Item: TypeAlias = StreamOpen | Stanza | StreamClose
"""The items that `StreamParser.feed` returns."""


def parse_fragment(raw: bytes) -> Element:
    """Parse an element that the parser accepted earlier and that was stored.

    Args:
        raw: the bytes of exactly one element, as `raw` of a stanza or child returns them.

    Raises:
        FragmentError: `raw` is too large, not well-formed, or not exactly one element.
    """
    if len(raw) > MAX_FRAGMENT_BYTES:
        raise FragmentError(f"{len(raw)} bytes, at most {MAX_FRAGMENT_BYTES} are accepted")
    if len(raw) <= _MAX_SMALL_BYTES:
        tree = _tree_parser().parse(raw)
        if tree is not None:
            return tree
    try:
        envelope = ElementTree.fromstring(_ENVELOPE % raw)  # noqa: S314 (no doctype can stand here)
    except ElementTree.ParseError as error:
        raise FragmentError(str(error)) from error
    if len(envelope) != 1 or envelope.text or envelope[0].tail:
        raise FragmentError("not exactly one element")
    return envelope[0]


def check_element(raw: bytes) -> None:
    """Raise `FragmentError` unless bytes are exactly one element that may stand in a stream (RFC
    6120, section 11.1)."""
    parser = expat.ParserCreate("UTF-8", SEPARATOR)
    parser.CommentHandler = parser.ProcessingInstructionHandler = _refuse
    parser.StartDoctypeDeclHandler = parser.XmlDeclHandler = _refuse
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        raise FragmentError(str(error)) from error


def _refuse(*_details: object) -> None:
    raise FragmentError("comments, instructions and declarations are not allowed in a stream")


def id_of(raw: bytes) -> str | None:
    """Return the id of a stanza; bytes that cannot be parsed have none."""
    try:
        return parse_fragment(raw).get("id")
    except FragmentError:
        return None


def has_text(tree: Element) -> bool:
    """Return whether an element has text other than white space beside its children."""
    if tree.text and not tree.text.isspace():
        return True
    for child in tree:  # noqa: SIM110 (a generator costs as much again)
        if child.tail and not child.tail.isspace():
            return True
    return False


def _tree_parser() -> TreeParser:
    parser: TreeParser | None = getattr(_threads, "tree_parser", None)
    if parser is None:
        parser = _threads.tree_parser = TreeParser(CLIENT)
    return parser


def _add_language(raw: bytes, lang: str) -> bytes:
    """Return the bytes of an element that has no language with this one."""
    match = _NAME.match(raw)
    after = 0 if match is None else match.end()
    return b"%b%b%b" % (raw[:after], _language(lang), raw[after:])


@lru_cache(maxsize=16)
def _language(lang: str) -> bytes:
    return attribute("xml:lang", lang)


def stamped(stanza: Stanza | bytes, from_: str, to: str | None = None) -> bytes:
    """Return a stanza's bytes with `from` replaced (RFC 6120, section 8.1.2.1).

    Args:
        stanza: a stanza, or its bytes as `raw` returns them.
        to: the recipient's JID; None leaves `to` unchanged.
    """
    replaced = (b"from",) if to is None else (b"from", b"to")
    name, rest = _without(stanza, replaced)
    return b"%b%b%b%b" % (name, attribute("from", from_), attribute("to", to), rest)


def stamper(stanza: Stanza | bytes, from_: str) -> Callable[[str], bytes]:
    """Return a function that takes a recipient's JID and returns the stanza's bytes, as `stamped`
    does; the stanza is scanned once for all recipients."""
    name, rest = _without(stanza, (b"from", b"to"))
    start = name + attribute("from", from_)
    return lambda to: b"%b%b%b" % (start, attribute("to", to), rest)


def _without(stanza: Stanza | bytes, attributes: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """Split a stanza after its name, and remove some attributes from the rest."""
    raw = stanza if isinstance(stanza, bytes) else stanza.raw
    if (plain := _split_plain(raw, attributes)) is not None:
        return plain
    first, name = TAG.match(raw), _NAME.match(raw)
    if first is None or name is None:
        raise UsageError("not a stanza")
    kept = _ATTRIBUTE.sub(
        lambda match: b"" if match[1] in attributes else match[0], raw[name.end() : first.end()]
    )
    return name[0], kept + raw[first.end() :]


def _split_plain(raw: bytes, absent: tuple[bytes, ...]) -> tuple[bytes, bytes] | None:
    """Split a stanza after its name, if its start tag obviously lacks these attributes.

    With one kind of quotes, the first `>` ends the start tag if the quotes before it are pairs.
    """
    head, name = raw[: raw.find(b">")], _NAME.match(raw)
    if name is None or b'"' in head or head.count(b"'") % 2:
        return None
    for attribute_name in absent:
        if attribute_name in head:
            return None
    return name[0], raw[name.end() :]


def stamped_with(stanza: Stanza | bytes, from_: str, extra: bytes, to: str | None = None) -> bytes:
    """Return a stanza's bytes as `stamped` does, with `extra` as its last child: the bytes of an
    element that declares its namespaces."""
    raw = stamped(stanza, from_, to)
    name, first = _NAME.match(raw), TAG.fullmatch(raw)
    if name is not None and first is not None:  # it was empty
        return b"%b>%b</%b>" % (raw[:-2], extra, name[0][1:])
    end = raw.rindex(b"</")
    return b"%b%b%b" % (raw[:end], extra, raw[end:])


def with_namespace(element: Child) -> bytes:
    """Return an element's bytes with its default namespace declared, so that they yield the same
    tree under any default namespace."""
    raw = element.raw
    if _DECLARES_DEFAULT.match(raw):
        return raw
    match = _NAME.match(raw)
    after = 0 if match is None else match.end()
    return b"%b%b%b" % (raw[:after], attribute("xmlns", CLIENT), raw[after:])


def _used(raw: bytes, prefixes: Sequence[bytes]) -> Sequence[bytes]:
    """Return those of the prefixes that an element uses or seems to use.

    Text that looks like a prefixed name only causes a needless declaration. If there are more than
    `MAX_PREFIXES`, all count as used.
    """
    if len(prefixes) > MAX_PREFIXES:
        return prefixes
    return [
        prefix
        for prefix in prefixes
        if prefix in raw and re.search(rb"[<\s/]" + re.escape(prefix), raw)
    ]


def _scope(whole: StanzaBytes, start: int) -> dict[str, str]:
    """Return the namespaces, by prefix ("" for the default), that are declared around the element
    that begins at `start`, without those that it declares itself."""
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
    """Add the declarations of the used prefixes and of the default namespace to an element."""
    match = _NAME.match(raw)
    after = 0 if match is None else match.end()
    namespace = scope.pop("", CLIENT)
    declarations = [attribute("xmlns", namespace)] if namespace != CLIENT else []
    for prefix, uri in scope.items():
        if f"{prefix}:".encode() in used:
            declarations.append(attribute(f"xmlns:{prefix}", uri))
    return b"%b%b%b" % (raw[:after], b"".join(declarations), raw[after:])
