"""Parsing of an XMPP stream into stanzas with expat, within limits.

- The bytes of a stanza are limited before expat sees them. Depth, elements and attributes are
  counted as they occur. expat keeps every name that it reads; it is replaced between two stanzas
  after `REBUILD_BYTES`, and freed while the connection is idle (`release`).
- expat is fed only complete tags (see `scanner`), so the result does not depend on how the input is
  split.
- Whitespace between stanzas (keep-alive) is dropped; other text between stanzas is refused.
- Comments, processing instructions, document types, entities other than the predefined five and
  encodings other than UTF-8 are refused (RFC 6120, section 11).
- A stanza that `envelopes` accepts is not fed to expat.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from edge.xmpp.envelopes import EnvelopeParser
from edge.xmpp.errors import StreamError, UsageError
from edge.xmpp.names import ATTRIBUTES, ELEMENTS, SEPARATOR, attribute_names, element_name
from edge.xmpp.namespaces import CLIENT, STREAMS, clark
from edge.xmpp.scanner import Scanner
from edge.xmpp.stanza import (
    LANG,
    TAG,
    Child,
    Item,
    OversizedStanza,
    Stanza,
    StanzaBytes,
    StreamClose,
    StreamHeader,
    StreamOpen,
)
from edge.xmpp.xml_declaration import MAX_DECLARATION, declaration_length

MAX_STANZA_BYTES = 10 * 1024
"""Maximum bytes of a stanza before authentication; RFC 6120, section 13.12, requires 10,000."""
MAX_DEPTH = 64
"""Maximum nesting of elements, including the stanza itself; real stanzas nest less than 20 deep."""
MAX_ELEMENTS = 2048
"""Maximum elements in a stanza: their tree takes some 0.5 MB, and 500 readings fit."""
MAX_ATTRIBUTES = 64
"""Maximum attributes of an element; real elements have fewer than 20."""
REBUILD_BYTES = 256 * 1024
"""Bytes after which expat is replaced, because it keeps every name. Replacing it takes 0.3 % of the
parsing time."""

_STREAM = clark(STREAMS, "stream")
_LESS = ord("<")
_BLANK = re.compile(rb"[ \t\r\n]+")
_LANGUAGE = re.compile("[A-Za-z0-9-]{1,35}")
"""A language tag, of at most the length that RFC 5646, section 4.4.1, recommends to support. Other
values are ignored, because the language is added to stanzas."""
_AFTER_END = "data after the end of the stream"
_JUNK = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]
_UNDEFINED_ENTITY = expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY]

_NO_EXPAT = expat.ParserCreate()
"""Placeholder for the expat parser of a `StreamParser` that has freed its own."""
_NO_BYTES = StanzaBytes(StreamHeader(b"", ()))
_NO_STANZA = Stanza("", {}, _NO_BYTES)


class ParseError(StreamError):
    """A fault of the stream; `items` are those that the same call of `feed` completed before the
    fault."""

    def __init__(self, condition: str, text: str, items: list[Item]) -> None:
        super().__init__(condition, text)
        self.items = items


class StreamParser:
    """A parser for the successive streams of one connection.

    Args:
        max_stanza_bytes: maximum bytes of a stanza or of the stream's header; see `set_limit`.
        max_depth: maximum nesting of elements in a stanza.
        max_elements: maximum elements in a stanza.
        max_attributes: maximum attributes of an element.
        tolerant: return a stanza above `max_depth`, `max_elements` or `max_attributes` as
            `OversizedStanza`, instead of failing.
        envelopes: a faster parser of frequent iqs (`edge.xmpp.envelopes`), tried first if received
            bytes begin with a stanza.
    """

    __slots__ = (
        "_base", "_buffer", "_child", "_count", "_declarations", "_declared", "_depth",
        "_envelopes", "_excess", "_expat", "_failed", "_fed", "_grandchild", "_header",
        "_is_client", "_items", "_mark", "_max_attributes", "_max_bytes", "_max_elements",
        "_max_open", "_max_tags", "_origin", "_ready", "_rebuild_at", "_released", "_scanner",
        "_seen", "_stanza", "_tolerant", "_whole",
    )  # fmt: skip

    def __init__(
        self,
        max_stanza_bytes: int = MAX_STANZA_BYTES,
        max_depth: int = MAX_DEPTH,
        max_elements: int = MAX_ELEMENTS,
        max_attributes: int = MAX_ATTRIBUTES,
        *,
        tolerant: bool = False,
        envelopes: EnvelopeParser | None = None,
    ) -> None:
        self._envelopes = envelopes
        self._max_tags = min(max_elements, 2 * max_depth)
        self._max_bytes = max_stanza_bytes
        self._max_open = max_depth + 1  # with the stream itself
        self._max_elements = max_elements
        self._max_attributes = max_attributes
        self._tolerant = tolerant
        self._released = False  # expat is freed
        self._seen = -1  # end of the bytes that expat had read at the last check
        self.reset()

    def reset(self) -> None:
        """Prepare for a new stream, after TLS or authentication (RFC 6120, section 4.3.3).

        Pending bytes are discarded; see `pending`.
        """
        # Offsets are relative to `_buffer`, which begins with the first incomplete stanza.
        self._buffer: bytes | bytearray = b""
        self._fed = 0  # end of the bytes fed to expat
        self._base = 0  # expat's index of the buffer's first byte
        self._mark = 0  # beginning of the present stanza, or end of the last one
        self._depth = 0  # open elements
        self._count, self._excess = 0, ""  # elements in the stanza; the limit that it exceeds
        self._origin = 0  # expat's index of the stanza's first byte
        self._header = StreamHeader(b"", ())
        self._declarations: dict[str | None, str] = {}
        self._declared = False  # the XML declaration was received, or cannot come any more
        self._ready = False  # the header was received, and not the end
        self._is_client = False  # ready, and the header declares `jabber:client` as the default
        self._failed = False
        self._forget_stanza()
        self._scanner = Scanner()
        self._build()

    def close(self) -> None:
        """Free expat now: it refers to this parser, and otherwise waits for a garbage collection.

        A fault of the stream also closes the parser. Only `reset` makes the parser usable again.
        """
        if not self._failed:
            self._failed = True
            self._buffer = b""
            self._expat = _NO_EXPAT

    def release(self) -> None:
        """Free expat and the last stanza, unless a stanza is incomplete; input creates expat again.

        They take most of an idle connection's memory: about 12 kB, and the size of the stanza.
        """
        if (
            self._ready
            and self._depth == 1
            and not (self._failed or self._released or self._buffer)
        ):
            self._released = True
            self._expat = _NO_EXPAT
            self._forget_stanza()

    def release_if_idle(self) -> None:
        """Call `release` if expat has read nothing since the last call of this method."""
        position = self._base + self._fed
        if position == self._seen:
            self.release()
        self._seen = position

    def _forget_stanza(self) -> None:
        self._items: list[Item] = []
        self._whole, self._stanza = _NO_BYTES, _NO_STANZA
        self._child: Child = _NO_STANZA
        self._grandchild: Child = _NO_STANZA

    def set_limit(self, max_stanza_bytes: int) -> None:
        """Set the maximum bytes of a stanza, which is larger after authentication."""
        self._max_bytes = max_stanza_bytes

    @property
    def pending(self) -> int:
        """Number of received bytes that do not belong to a complete item yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Item]:
        """Parse the next bytes of the stream and return the items that are complete now.

        Raises:
            ParseError: the stream must end.
            UsageError: the stream has failed before.
        """
        if self._failed:
            raise UsageError("the stream has failed; reset the parser")
        items: list[Item] = []
        if self._buffer:
            self._buffer += data
        else:
            data = bytes(data)
            if self._is_client and self._envelopes is not None:
                parsed = self._envelopes.parse(
                    data,
                    self._header,
                    self._max_bytes,
                    self._max_tags,
                    self._max_attributes,
                    items,
                )
                if parsed == len(data):
                    return items
                data = data[parsed:]
            self._buffer = data
        self._items = items
        try:
            self._consume()
        except expat.ExpatError as error:
            self.close()
            undefined = error.code == _UNDEFINED_ENTITY
            condition = "restricted-xml" if undefined else "not-well-formed"
            text = _AFTER_END if error.code == _JUNK else expat.ErrorString(error.code)
            raise ParseError(condition, text, items) from error
        except StreamError as error:
            self.close()
            raise ParseError(error.condition, error.text, items) from error
        self._compact()
        return items

    def _consume(self) -> None:
        buffer = self._buffer
        size = len(buffer)
        while (fed := self._fed) < size:
            if self._depth < 2 and (buffer[fed] != _LESS or not self._ready):
                if not self._between():
                    return
                fed = self._fed
            end = self._mark + self._max_bytes
            cut = self._scanner.advance(buffer, fed, end if end < size else size)
            if cut == fed:
                if end <= size:
                    raise _limit_error("bytes in a stanza", self._max_bytes)
                return
            if self._released:
                self._build()
            self._expat.Parse(buffer[fed:cut] if fed or cut < size else buffer, False)
            self._fed = cut
            if self._depth < 2:
                self._settle(cut)

    def _between(self) -> bool:
        """Handle the bytes outside of stanzas; return whether parsing can continue."""
        buffer = self._buffer
        match = _BLANK.match(buffer, self._fed)
        if match is not None:
            self._skip(match.end() - self._fed)
        if self._fed == len(buffer):
            return False
        if self._ready:
            if buffer[self._fed] != _LESS:
                self._refuse_text()
            return True
        if self._header.raw:
            raise StreamError("not-well-formed", _AFTER_END)
        return self._before_header()

    def _refuse_text(self) -> None:
        """Refuse text between stanzas, with the error that expat has if it is not well-formed."""
        if self._released:
            self._build()
        self._expat.Parse(bytes(self._buffer[self._fed :]), False)
        raise StreamError("bad-format", "text between stanzas")

    def _skip(self, count: int) -> None:
        self._fed += count
        self._mark = self._fed
        self._base -= count

    def _before_header(self) -> bool:
        """Handle an XML declaration; return whether parsing can continue."""
        if not self._declared:
            head = bytes(self._buffer[self._fed : self._fed + MAX_DECLARATION])
            length = declaration_length(head)
            if length is None:
                return False
            self._declared = True
            if length:
                self._skip(length)
                return self._between()
        return True

    def _settle(self, cut: int) -> None:
        """Refuse CDATA between two stanzas, and replace expat if it has read enough."""
        if self._mark != cut:
            raise StreamError("bad-format", "text between stanzas")
        if self._base + cut > self._rebuild_at and self._ready:
            self._build()

    def _compact(self) -> None:
        done = self._mark
        if done == len(self._buffer):
            self._buffer = b""
        elif isinstance(self._buffer, bytearray):
            del self._buffer[:done]
        else:
            self._buffer = bytearray(memoryview(self._buffer)[done:])
        self._fed -= done
        self._base += done
        self._mark = 0

    def _build(self) -> None:
        """Create expat's parser, in the state after the stream's header if that was received."""
        header = self._header.raw
        parser = expat.ParserCreate("UTF-8", SEPARATOR)
        if header:
            parser.Parse(header, False)
        else:
            parser.StartNamespaceDeclHandler = self._declare
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        self._expat = parser
        self._released = False
        self._seen = -1
        self._base = len(header) - self._fed
        self._rebuild_at = len(header) + REBUILD_BYTES

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        self._declarations[prefix] = uri or ""

    def _start(self, name: str, attrs: dict[str, str]) -> None:
        depth = self._depth = self._depth + 1
        count = self._count = self._count + 1
        if (
            count > self._max_elements
            or depth > self._max_open
            or len(attrs) > self._max_attributes
        ):
            self._exceed_limit(attrs)
        if depth > 4 or (self._excess and depth > 2):
            return
        plain = ELEMENTS.get(name) or element_name(name)
        if attrs and not ATTRIBUTES.issuperset(attrs):
            attrs = attribute_names(attrs)
        at = self._expat.CurrentByteIndex
        if depth == 4:
            child = self._grandchild = Child(plain, attrs, self._whole, at - self._origin)
            self._child.children.append(child)
        elif depth == 3:
            child = self._child = Child(plain, attrs, self._whole, at - self._origin)
            self._stanza.children.append(child)
        elif depth == 2:
            self._begin(plain, attrs, at)
        else:
            self._open(plain, attrs, at)

    def _exceed_limit(self, attrs: dict[str, str]) -> None:
        if not self._excess:
            error = self._exceeded_limit(attrs)
            if not self._tolerant or self._depth == 1:
                raise error
            self._excess = error.text
            self._child = self._grandchild = Child("", {}, self._whole)  # `_end` sets its end

    def _exceeded_limit(self, attrs: dict[str, str]) -> StreamError:
        if len(attrs) > self._max_attributes:
            return _limit_error("attributes of an element", self._max_attributes)
        if self._depth > self._max_open:
            return _limit_error("levels in a stanza", self._max_open - 1)
        return _limit_error("elements in a stanza", self._max_elements)

    def _open(self, name: str, attrs: dict[str, str], at: int) -> None:
        self._expat.StartNamespaceDeclHandler = None
        match = TAG.match(self._buffer, at - self._base)
        raw = b"" if match is None else bytes(match[0])
        self._mark += len(raw)
        self._count = 0
        declared = self._declarations
        namespace = declared.pop(None, "")
        prefixes = tuple(f"{prefix}:".encode() for prefix in declared)
        lang = attrs.get(LANG, "")
        self._header = StreamHeader(raw, prefixes, lang if _LANGUAGE.fullmatch(lang) else "")
        self._ready = True
        self._is_client = namespace == CLIENT
        prefixed = b":" in raw.split(maxsplit=1)[0]
        self._items.append(StreamOpen(name, attrs, namespace, prefixed=prefixed))

    def _begin(self, name: str, attrs: dict[str, str], at: int) -> None:
        if name == _STREAM:
            raise StreamError("bad-format", "a stream within a stream")
        self._skip_whitespace(at - self._base)
        self._origin = at
        whole = self._whole = StanzaBytes(self._header)
        self._stanza = Stanza(name, attrs, whole)

    def _skip_whitespace(self, offset: int) -> None:
        """Refuse anything but whitespace between the last stanza and the next tag."""
        if offset != self._mark:
            if self._buffer[self._mark : offset].strip(b" \t\r\n"):
                raise StreamError("bad-format", "text between stanzas")
            self._mark = offset

    def _end(self, _name: str) -> None:
        depth = self._depth = self._depth - 1
        if depth > 3:
            return
        at = self._expat.CurrentByteIndex
        if depth == 3:
            self._grandchild._stop = at - self._origin
        elif depth == 2:
            self._child._stop = at - self._origin
        elif depth:
            buffer, start, stop = self._buffer, self._mark, at - self._base
            if buffer[stop - 2 : stop] != b"/>" or not TAG.fullmatch(buffer, start, stop):
                stop = buffer.index(b">", stop) + 1
            self._whole.raw = bytes(buffer[start:stop])
            self._mark = stop
            self._count = 0
            excess, self._excess = self._excess, ""
            self._items.append(OversizedStanza(self._stanza, excess) if excess else self._stanza)
        else:
            self._close(at - self._base)

    def _close(self, offset: int) -> None:
        self._skip_whitespace(offset)
        if not self._header.raw.endswith(b"/>"):
            self._mark = self._buffer.index(b">", offset) + 1
        self._ready = self._is_client = False
        self._items.append(StreamClose())


def _limit_error(what: str, limit: int) -> StreamError:
    return StreamError("policy-violation", f"more than {limit} {what}")
