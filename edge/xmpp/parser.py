"""Bytes of a client's XMPP stream to stanzas, on expat, within bounds.

- What came is bounded before expat sees it: bytes are counted since the stanza began, and no more
  than the allowance is fed. Depth, elements and attributes are counted as they are met. expat
  itself, which never forgets a name, is replaced between two stanzas when it has read
  `REBUILD_BYTES`.
- Only complete tags are fed (`wire.scanner` says why), so the split of the input into pieces makes
  no difference.
- Whitespace between stanzas (keep-alive) is dropped as it comes; any other text there is refused.
- Comments, processing instructions, document types, entities other than the five and encodings
  other than UTF-8 are refused (RFC 6120, section 11).

It builds no trees, judges no addresses and knows no state but its own: `wire.negotiation` says what
may come when. The module needs the standard library alone.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from edge.xmpp.errors import StreamError, UsageError
from edge.xmpp.names import ATTRIBUTES, ELEMENTS, SEPARATOR, attribute_names, element_name
from edge.xmpp.namespaces import STREAMS, clark
from edge.xmpp.prelude import MAX_DECLARATION, declaration
from edge.xmpp.scanner import Scanner
from edge.xmpp.stanza import TAG, Bulky, Child, Header, Item, Stanza, StreamClose, StreamOpen, Whole

MAX_STANZA_BYTES = 10 * 1024
"""Bytes of one stanza before authentication; RFC 6120, section 13.12 wants at least 10,000."""
MAX_DEPTH = 64
"""Elements within each other, the stanza's own included; what is in use nests less than 20 deep."""
MAX_ELEMENTS = 2048
"""Elements in one stanza: a tree of so many costs some 0.5 MB, and 500 readings fit."""
MAX_ATTRIBUTES = 64
"""Attributes of one element; what is in use has less than 20."""
REBUILD_BYTES = 256 * 1024
"""Bytes after which expat is replaced: it keeps every name that it ever read. Costs 0.3 % of the
time to parse them."""

_STREAM = clark(STREAMS, "stream")
_LESS = ord("<")
_BLANK = re.compile(rb"[ \t\r\n]+")
_ERRORS = {
    expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY]: "restricted-xml",
}


class StreamParser:
    """Parses one stream after the other of one connection.

    Args:
        max_stanza_bytes: bytes of one stanza, or of the stream's header; see `limit`.
        max_depth: elements within each other in a stanza.
        max_elements: elements in a stanza.
        max_attributes: attributes of an element.
        tolerant: yield a stanza with too much of the latter three as `Bulky`; the stream goes on.
    """

    __slots__ = (
        "_base", "_buffer", "_child", "_count", "_declarations", "_declared", "_depth", "_excess",
        "_expat", "_failed", "_fed", "_grandchild", "_header", "_items", "_mark", "_max_attributes",
        "_max_bytes", "_max_elements", "_max_open", "_origin", "_ready", "_rebuild_at", "_scanner",
        "_stanza", "_tolerant", "_whole",
    )  # fmt: skip

    def __init__(
        self,
        max_stanza_bytes: int = MAX_STANZA_BYTES,
        max_depth: int = MAX_DEPTH,
        max_elements: int = MAX_ELEMENTS,
        max_attributes: int = MAX_ATTRIBUTES,
        *,
        tolerant: bool = False,
    ) -> None:
        self._max_bytes = max_stanza_bytes
        self._max_open = max_depth + 1  # with the stream itself
        self._max_elements = max_elements
        self._max_attributes = max_attributes
        self._tolerant = tolerant
        self.reset()

    def reset(self) -> None:
        """Expect a new stream, after TLS or authentication (RFC 6120, section 4.3.3).

        Bytes that are still held are forgotten: look at `pending` first.
        """
        # Indices count in `_buffer`, which begins with the first stanza that is not complete.
        self._buffer: bytes | bytearray = b""
        self._fed = 0  # what lies before has been fed to expat
        self._base = 0  # expat's own index of the buffer's first byte
        self._mark = 0  # where the stanza began, or the last one ended
        self._depth = 0  # elements that are open
        self._count, self._excess = 0, ""  # elements in the stanza; what it has too much of
        self._origin = 0  # expat's own index of the stanza's first byte
        self._header = Header(b"", ())
        self._declarations: dict[str | None, str] = {}
        self._declared = False  # what may come before the header has come
        self._ready = False  # the header has come, and not the end
        self._failed = False
        self._items: list[Item] = []
        self._whole = Whole(self._header)
        self._stanza = Stanza("", {}, self._whole)
        self._child: Child = self._stanza
        self._grandchild: Child = self._stanza
        self._scanner = Scanner()
        self._build()

    def close(self) -> None:
        """Free what expat holds, at once: it refers back to this parser.

        After a fault that is done already. After either, only `reset` brings the parser back.
        """
        if not self._failed:
            self._failed = True
            self._buffer = b""
            del self._expat

    def limit(self, max_stanza_bytes: int) -> None:
        """Set how many bytes a stanza may have: more once the peer is authenticated."""
        self._max_bytes = max_stanza_bytes

    @property
    def pending(self) -> int:
        """Bytes that came and belong to nothing complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Item]:
        """Take what came, and return what is complete now.

        Args:
            data: bytes of the stream, in order, split anyhow.

        Raises:
            StreamError: the stream cannot go on; its `items` are what was complete before the
                fault.
            UsageError: the stream has failed before.
        """
        if self._failed:
            raise UsageError("the stream has failed: reset the parser, or drop it")
        if self._buffer:
            self._buffer += data
        else:
            self._buffer = bytes(data)
        items = self._items = []
        try:
            self._consume()
        except expat.ExpatError as error:
            self.close()
            condition = _ERRORS.get(error.code, "not-well-formed")
            raise StreamError(condition, expat.ErrorString(error.code), items) from error
        except StreamError as error:
            self.close()
            error.items = items
            raise
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
                    raise _excess("bytes in a stanza", self._max_bytes)
                return
            self._expat.Parse(buffer[fed:cut] if fed or cut < size else buffer, False)
            self._fed = cut
            if self._depth < 2:
                self._settle(cut)

    def _between(self) -> bool:
        """Look at what comes where no stanza is open; False if it has to wait for more."""
        buffer = self._buffer
        match = _BLANK.match(buffer, self._fed)
        if match is not None:
            self._skip(match.end() - self._fed)
        if self._fed == len(buffer):
            return False
        if self._ready:
            if buffer[self._fed] != _LESS:
                raise StreamError("bad-format", "text between stanzas")
            return True
        if self._header.raw:
            raise StreamError("not-well-formed", "data after the end of the stream")
        return self._prelude()

    def _skip(self, count: int) -> None:
        """Pass over bytes that expat need not see."""
        self._fed += count
        self._mark = self._fed
        self._base -= count

    def _prelude(self) -> bool:
        """Look at what comes before the stream's header; False if it has to wait for more."""
        if not self._declared:
            length = declaration(bytes(self._buffer[self._fed : self._fed + MAX_DECLARATION]))
            if length is None:
                return False
            self._declared = True
            if length:
                self._skip(length)
                return self._between()
        return True

    def _settle(self, cut: int) -> None:
        """Between two stanzas: refuse CDATA there, and replace expat if it has read much."""
        if self._mark != cut:
            raise StreamError("bad-format", "text between stanzas")
        if self._base + cut > self._rebuild_at and self._ready:
            self._build()

    def _compact(self) -> None:
        """Forget what is complete."""
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
        """Make expat's parser; if the stream is open, in the state after its header."""
        header = self._header.raw
        parser = expat.ParserCreate("UTF-8", SEPARATOR)
        if header:
            parser.Parse(header, False)
        else:
            parser.StartNamespaceDeclHandler = self._declare
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        self._expat = parser
        self._base = len(header) - self._fed
        self._rebuild_at = len(header) + REBUILD_BYTES

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        """Note what the stream's header declares."""
        self._declarations[prefix] = uri or ""

    def _start(self, name: str, attrs: dict[str, str]) -> None:
        depth = self._depth = self._depth + 1
        count = self._count = self._count + 1
        if (
            count > self._max_elements
            or depth > self._max_open
            or len(attrs) > self._max_attributes
        ):
            self._exceed(attrs)
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

    def _exceed(self, attrs: dict[str, str]) -> None:
        if not self._excess:
            error = self._too_much(attrs)
            if not self._tolerant or self._depth == 1:
                raise error
            self._excess = error.text
            self._child = self._grandchild = Child("", {}, self._whole)  # for `_end` to close

    def _too_much(self, attrs: dict[str, str]) -> StreamError:
        """Say which limit an element exceeds."""
        if len(attrs) > self._max_attributes:
            return _excess("attributes of an element", self._max_attributes)
        if self._depth > self._max_open:
            return _excess("levels in a stanza", self._max_open - 1)
        return _excess("elements in a stanza", self._max_elements)

    def _open(self, name: str, attrs: dict[str, str], at: int) -> None:
        self._expat.StartNamespaceDeclHandler = None
        match = TAG.match(self._buffer, at - self._base)
        raw = b"" if match is None else bytes(match[0])
        self._mark += len(raw)
        self._count = 0
        declared = self._declarations
        namespace = declared.pop(None, "")
        self._header = Header(raw, tuple(f"{prefix}:".encode() for prefix in declared))
        self._ready = True
        prefixed = b":" in raw.split(maxsplit=1)[0]
        self._items.append(StreamOpen(name, attrs, namespace, prefixed=prefixed))

    def _begin(self, name: str, attrs: dict[str, str], at: int) -> None:
        if name == _STREAM:
            raise StreamError("bad-format", "a stream within a stream")
        self._reach(at - self._base)
        self._origin = at
        whole = self._whole = Whole(self._header)
        self._stanza = Stanza(name, attrs, whole)

    def _reach(self, offset: int) -> None:
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
            self._items.append(Bulky(self._stanza, excess) if excess else self._stanza)
        else:
            self._close(at - self._base)

    def _close(self, offset: int) -> None:
        self._reach(offset)
        if not self._header.raw.endswith(b"/>"):
            self._mark = self._buffer.index(b">", offset) + 1
        self._ready = False
        self._items.append(StreamClose())


def _excess(what: str, limit: int) -> StreamError:
    return StreamError("policy-violation", f"more than {limit} {what}")
