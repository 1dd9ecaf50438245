"""Fast parsing of plain envelopes: the iqs that devices send most.

These iqs contain a message or an item, or are short answers: `<received/>` or an empty result.

An envelope is plain if it is written in the form that serialisers use: no whitespace between tags
or around `=`, one kind of quotes, ASCII without references in the attributes of the iq and its
child, and no comment, CDATA section or processing instruction anywhere. The start tags of the iq
and its child, without the attributes' values, are its skeleton. A skeleton is checked once; later
envelopes with the same skeleton are split at the quotes. The body is parsed once, by one parser for
all streams, and its tree is kept as `Child.parsed`.

Bytes that are not a plain, valid envelope are left to `StreamParser`. An accepted envelope yields
the same stanza as `StreamParser` would.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element

from edge.xmpp.namespaces import CLIENT, PUBSUB, QOS_ALL, XML, clark
from edge.xmpp.stanza import MAX_PREFIXES, Child, Item, Stanza, StanzaBytes, StreamHeader
from edge.xmpp.tree_parser import TreeParser

MAX_ENVELOPE_BYTES: Final = 4096
"""Maximum bytes of an envelope: as many as a connection parses at once. Larger ones are left to
`StreamParser`."""
MAX_TAGS: Final = 128
"""Maximum start and end tags of an envelope, so that the tree of its body takes some 30 kB."""
MAX_SKELETONS: Final = 64
"""Maximum skeletons (see the module) to remember; all are forgotten when there are more. The iqs of
a client library have three."""
MAX_SKELETON_LENGTH: Final = 256
"""Maximum characters of a skeleton; an envelope with a longer one is left to `StreamParser`."""
_START: Final = b"<iq "
_END: Final = b"</iq>"
_END_BYTES: Final = len(_END)
_SLASH: Final = ord("/")
_MESSAGE_END: Final = len(b"</message>")
_REQUEST_END: Final = len(b"</pubsub>")

_IQ: Final = clark(CLIENT, "iq")
_MESSAGE: Final = clark(CLIENT, "message")
_REQUEST: Final = clark(PUBSUB, "pubsub")
_LANG: Final = clark(XML, "lang")
_XMLNS: Final = "xmlns"

_PUBSUB: Final = "pubsub"
_BODIES: Final = {
    "assured": "message",
    "acknowledged": "message",
    "deliver": "",
    "received": "",
    _PUBSUB: _PUBSUB,
}
"""The names of the child that an envelope's iq can have, each with the name of the element that is
parsed as the body ("": none). The body of a publish-subscribe request is the whole request."""

_INITIALS: Final = b"adpr"
"""The first letters of the names in `_BODIES`: a quick check that excludes most other iqs."""

_ATTRIBUTES: Final = r"((?: (?:[A-Za-z_][A-Za-z0-9_.-]*|xml:lang)=''){1,8})"
_EMPTY: Final = re.compile(rf"<iq{_ATTRIBUTES}/>")
_SKELETON: Final = re.compile(rf"<iq{_ATTRIBUTES}><({'|'.join(_BODIES)}){_ATTRIBUTES}(/?)>")

_ORDINARY: Final = bytes(byte for byte in range(0x20, 0x7F) if byte not in b"<=&!?")
"""Quotes, and all bytes that have no effect on how an envelope is parsed."""
_UNUSUAL: Final = bytes(byte for byte in range(256) if byte == 0x26 or not 0x20 <= byte < 0x7F)
"""The bytes that do not occur in the tags of the iq and its child in a plain envelope."""


class _Skeleton:
    """A form of envelope: the start tags of the iq and its child without the attributes' values.

    Attributes:
        names: the names of the iq's attributes, in order.
        child_names: the names of its child's attributes, in order.
        tokens: the number of parts into which the quotes divide the tags.
        declares: whether the iq declares a namespace.
        child: the possible names of its child in Clark notation, by the child's namespace.
        tail: the end tags of the body and of the elements around it; empty if there is no body.
    """

    __slots__ = ("child", "child_names", "declares", "names", "tail", "tokens")

    def __init__(
        self, names: list[str], child_names: list[str], child: dict[str, str], tail: bytes
    ) -> None:
        self.names: Final = names
        self.child_names: Final = child_names
        self.tokens: Final = 2 * (len(names) + len(child_names)) + 1
        self.declares: Final = _XMLNS in names
        self.child: Final = child
        self.tail: Final = tail


class EnvelopeParser:
    """A fast parser of frequent iqs in plain form (see the module), for one thread's streams."""

    __slots__ = ("_bodies", "_empty", "_skeletons")

    def __init__(self) -> None:
        self._empty: dict[tuple[str, ...], list[str]] = {}
        self._skeletons: dict[tuple[str, ...], _Skeleton] = {}
        self._bodies = TreeParser()

    def parse(
        self,
        data: bytes,
        header: StreamHeader,
        max_bytes: int,
        max_tags: int,
        max_attributes: int,
        items: list[Item],
    ) -> int:
        """Parse the plain envelopes at the beginning of `data`, and append their iqs to `items`.

        Args:
            data: bytes that follow a stream's header or another stanza.
            header: the stream's header; it declares `jabber:client` as the default namespace.
            max_bytes: maximum bytes of a stanza.
            max_tags: maximum start and end tags of a stanza.
            max_attributes: maximum attributes of an element.

        Returns:
            The number of bytes parsed.
        """
        begin, size = 0, len(data)
        while begin < size and data.startswith(_START, begin):
            end = data.find(b">", begin) + 1
            is_empty = data[end - 2] == _SLASH
            if not is_empty:
                end = data.find(_END, begin) + _END_BYTES
            length = end - begin
            if length < _END_BYTES or length > max_bytes or length > MAX_ENVELOPE_BYTES:
                break
            raw = data if length == size else data[begin:end]
            if is_empty:
                stanza = self._parse_empty(raw, header, max_attributes)
            else:
                stanza = self._parse(raw, header, max_tags, max_attributes)
            if stanza is None:
                break
            items.append(stanza)
            begin = end
        return begin

    def _parse_empty(self, raw: bytes, header: StreamHeader, max_attributes: int) -> Stanza | None:
        """Parse an iq without content, which begins with `_START`, and ends at the first `>`."""
        if _is_unusual(raw) or raw.count(b"<") > 1:
            return None
        text = raw.decode("ascii")
        tokens = text.split("'" if "'" in text else '"')
        key = tuple(tokens[::2])
        names = self._empty.get(key) or self._learn_empty(key)
        if names is None or len(tokens) != 2 * len(names) + 1 or len(names) > max_attributes:
            return None
        attrs = dict(zip(names, tokens[1::2]))  # noqa: B905 (the keyword costs too much here)
        if attrs.pop(_XMLNS, CLIENT) != CLIENT:
            return None
        return Stanza(_IQ, attrs, StanzaBytes(header, raw))

    def _learn_empty(self, parts: tuple[str, ...]) -> list[str] | None:
        """Check and remember the skeleton of an iq without content, given as the parts between the
        values; return the names of its attributes, or None if it is not plain."""
        text = "''".join(parts)
        match = _EMPTY.fullmatch(text)
        if match is None or len(text) > MAX_SKELETON_LENGTH:
            return None
        names = _names(match[1])
        if len({*names}) < len(names):
            return None
        if len(self._empty) >= MAX_SKELETONS:
            self._empty.clear()
        self._empty[parts] = names
        return names

    def _parse(
        self, raw: bytes, header: StreamHeader, max_tags: int, max_attributes: int
    ) -> Stanza | None:
        """Parse one envelope, which begins with `_START` and ends with `_END`."""
        second = raw.find(b"<", 1)
        third = raw.find(b"<", second + 1)
        if raw[second + 1] not in _INITIALS:
            return None
        marks = raw.translate(None, _ORDINARY)
        tags, attributes = marks.count(b"<"), marks.count(b"=")
        head = raw[:third]
        if tags > max_tags or tags > MAX_TAGS:
            return None
        if tags + attributes != len(marks) and (_is_unusual(head) or _has_markup(raw)):
            return None
        text = head.decode("ascii")
        tokens = text.split("'" if "'" in text else '"')
        key = tuple(tokens[::2])
        skeleton = self._skeletons.get(key) or self._learn(key)
        if skeleton is None or len(tokens) != skeleton.tokens:
            return None
        values = tokens[1::2]
        attrs = dict(zip(skeleton.names, values))  # noqa: B905 (the keyword costs too much here)
        if skeleton.declares and attrs.pop(_XMLNS) != CLIENT:
            return None
        del values[: len(skeleton.names)]
        child_attrs = dict(zip(skeleton.child_names, values))  # noqa: B905
        name = skeleton.child.get(child_attrs.pop(_XMLNS))
        if name is None:
            return None
        whole = StanzaBytes(header, raw)
        stanza = Stanza(_IQ, attrs, whole)
        child = Child(name, child_attrs, whole, second)
        stanza.children.append(child)
        if not self._add_content(child, raw, second, third, skeleton.tail):
            return None
        if attributes > max_attributes and _has_more_attributes(stanza, max_attributes):
            return None
        return stanza

    def _add_content(self, child: Child, raw: bytes, second: int, third: int, tail: bytes) -> bool:
        """Add the content after the child's start tag; return whether it is valid."""
        if not tail:
            child._stop = third
            return third == len(raw) - _END_BYTES
        if not raw.endswith(tail):
            return False
        stop = len(raw) - len(tail)
        if child.name == _REQUEST:
            return self._add_request(child, raw, second, third, stop)
        body = raw[third : stop + _MESSAGE_END]
        tree = self._bodies.parse(body)
        if tree is None or tree.tag != _MESSAGE:
            return False
        child._stop = stop + _MESSAGE_END
        message = _add(child, tree, third, stop)
        if not _may_use_prefix(raw, child._whole.header):
            message._raw = body
        return True

    def _add_request(self, child: Child, raw: bytes, second: int, third: int, stop: int) -> bool:
        """Add the element of a publish-subscribe request; return whether it is the only one."""
        tree = self._bodies.parse(raw[second : stop + _REQUEST_END])
        if tree is None or tree.tag != _REQUEST or len(tree) != 1 or tree.text or tree[0].tail:
            return False
        element = tree[0]
        if not element.tag.startswith("{"):
            return False
        child._stop = stop
        last = raw.rindex(b"<", third, stop)
        _add(child, element, third, last if raw.startswith(b"</", last) else stop)
        return True

    def _learn(self, parts: tuple[str, ...]) -> _Skeleton | None:
        """Check and remember a skeleton, given as the parts between the values; return None if it
        is not that of a plain envelope."""
        text = "''".join(parts)
        match = _SKELETON.fullmatch(text)
        if match is None or len(text) > MAX_SKELETON_LENGTH:
            return None
        names, child_names = _names(match[1]), _names(match[3])
        if len({*names}) < len(names) or len({*child_names}) < len(child_names):
            return None
        local, body, empty = match[2], _BODIES[match[2]], bool(match[4])
        if _XMLNS not in child_names or empty == bool(body):
            return None
        namespaces = (PUBSUB,) if local == _PUBSUB else QOS_ALL
        child = {namespace: clark(namespace, local) for namespace in namespaces}
        around = "" if body == local else f"</{local}>"
        tail = f"</{body}>{around}</iq>".encode() if body else b""
        if len(self._skeletons) >= MAX_SKELETONS:
            self._skeletons.clear()
        skeleton = self._skeletons[parts] = _Skeleton(names, child_names, child, tail)
        return skeleton


def _add(child: Child, tree: Element, start: int, stop: int) -> Child:
    element = Child(tree.tag, tree.attrib, child._whole, start)
    element._stop = stop
    element.parsed = tree
    child.children.append(element)
    return element


def _names(attributes: str) -> list[str]:
    names = attributes.replace("=''", "").split()
    return [_LANG if name == "xml:lang" else name for name in names]


def _may_use_prefix(raw: bytes, header: StreamHeader) -> bool:
    """Return whether an envelope's elements can depend on a prefix declared around them."""
    if raw.find(b"xmlns:") >= 0 or len(header.prefixes) > MAX_PREFIXES:
        return True
    for prefix in header.prefixes:  # noqa: SIM110 (a generator costs as much again)
        if raw.find(prefix) >= 0:
            return True
    return False


def _is_unusual(head: bytes) -> bool:
    """Return whether tags have references, control characters or characters other than ASCII."""
    return len(head.translate(None, _UNUSUAL)) != len(head)


def _has_markup(data: bytes) -> bool:
    return b"<!" in data or b"<?" in data


def _has_more_attributes(stanza: Stanza, limit: int) -> bool:
    child = stanza.children[0]
    if len(stanza.attrs) > limit or len(child.attrs) > limit:
        return True
    return any(
        len(element.attrib) > limit
        for message in child.children
        if message.parsed is not None
        for element in message.parsed.iter()
    )
