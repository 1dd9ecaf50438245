from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pytest

from edge.xmpp import names, parser
from edge.xmpp.errors import StreamError, UsageError
from edge.xmpp.namespaces import CLIENT, QOS, STREAMS, XML, clark
from edge.xmpp.parser import ParseError, StreamParser
from edge.xmpp.stanza import OversizedStanza, Stanza, StreamClose, StreamOpen, parse_fragment
from tests.helpers.parser_corpus import HEADER, feed_all, run, splits
from tests.helpers.parser_corpus import STREAMS as CORPUS

ROOT = Path(__file__).parents[3]
SYSTEM_PYTHON = Path("/usr/bin/python3")


def new_parser(**limits: Any) -> StreamParser:
    """Return a parser that has read a stream header."""
    stream_parser = StreamParser(**limits)
    assert len(stream_parser.feed(HEADER)) == 1
    return stream_parser


def only(items: list[Any]) -> Stanza:
    assert len(items) == 1
    assert isinstance(items[0], Stanza)
    return items[0]


@pytest.mark.parametrize("name", CORPUS)
def test_splits_make_no_difference(name: str) -> None:
    assert splits(HEADER + CORPUS[name]) == []


def test_splits_make_no_difference_under_the_system_python() -> None:
    if not SYSTEM_PYTHON.exists():
        pytest.skip("no system Python here")
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        check=True,
    )
    if version.stdout.strip() != "True":
        pytest.skip("the system's Python is older than 3.11")
    process = subprocess.run(
        [SYSTEM_PYTHON, "-S", "-m", "tests.helpers.parser_corpus"],  # -S: no installed packages
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (HEADER, (clark(STREAMS, "stream"),
                  {"to": "gw.example", "version": "1.0", clark(XML, "lang"): "en"}, CLIENT, True)),
        (b"<stream xmlns='http://etherx.jabber.org/streams' a=':'>",
         (clark(STREAMS, "stream"), {"a": ":"}, STREAMS, False)),
        (b"<stream>", ("stream", {}, "", False)),
    ],
)  # fmt: skip
def test_stream_headers(header: bytes, expected: tuple[object, ...]) -> None:
    assert run(header) == [("open", *expected)]


def test_the_envelope_is_two_levels_deep() -> None:
    stanza = only(new_parser().feed(CORPUS["assured"]))
    assert stanza.name == clark(CLIENT, "iq")
    assert stanza.attrs == {"id": "1", "type": "set", "to": "gw.example"}
    assert stanza.raw == CORPUS["assured"]
    assert stanza.size == len(CORPUS["assured"])
    payload = stanza.payload
    assert payload is stanza.children[0]
    assert payload.name == clark(QOS, "assured")
    assert payload.attrs == {"msgId": "9"}
    message = payload.children[0]
    assert message.name == clark(CLIENT, "message")
    assert message.children == []
    assert message.raw == CORPUS["assured"].split(b"'9'>")[1].split(b"</assured>")[0]
    assert message.tree()[0].get("id") == "T"


def test_text_that_looks_self_closing_is_unchanged() -> None:
    items = new_parser().feed(CORPUS["looks self-closing"])
    raws = [item.raw for item in items if isinstance(item, Stanza)]
    assert raws == [b"<a>/></a>", b"<b><c>/></c></b>", b"<d><e x='/'>/></e></d>"]
    inner = only(new_parser().feed(b"<d><e x='/'>/></e><f g='>'/></d>"))
    assert [child.raw for child in inner.children] == [b"<e x='/'>/></e>", b"<f g='>'/>"]


def test_whitespace_between_stanzas_is_dropped() -> None:
    stream_parser = new_parser(max_stanza_bytes=200)
    for _ in range(64):
        assert stream_parser.feed(b" \r\n\t" * 256) == []
        assert stream_parser.pending == 0
    assert only(stream_parser.feed(b"   <presence/>   ")).raw == b"<presence/>"
    assert stream_parser.pending == 0


def test_pending_counts_incomplete_bytes() -> None:
    stream_parser = new_parser()
    assert stream_parser.pending == 0
    stream_parser.feed(b" <iq><a/>")
    assert stream_parser.pending == len(b"<iq><a/>")
    stream_parser.feed(b"</i")
    assert stream_parser.pending == len(b"<iq><a/></i")
    assert only(stream_parser.feed(b"q>")).name == clark(CLIENT, "iq")
    assert stream_parser.pending == 0


def test_any_kind_of_buffer_is_copied() -> None:
    stream_parser = new_parser()
    shared = bytearray(b"<iq id='1'/><iq")
    assert only(stream_parser.feed(memoryview(shared))).attrs == {"id": "1"}
    shared[:] = b" id='2'/>......"
    assert only(stream_parser.feed(memoryview(shared)[:9])).attrs == {"id": "2"}
    assert only(stream_parser.feed(bytearray(b"<iq id='3'/>"))).attrs == {"id": "3"}


def test_end_of_a_stream() -> None:
    stream_parser = new_parser()
    items = stream_parser.feed(b"<presence/></stream:stream>")
    assert isinstance(items[1], StreamClose)
    assert stream_parser.feed(b" \n") == []
    with pytest.raises(StreamError) as error:
        stream_parser.feed(b"<presence/>")
    assert error.value.condition == "not-well-formed"


def test_a_self_closing_stream_opens_and_closes() -> None:
    stream_parser = StreamParser()
    opening, closing = stream_parser.feed(b"<s:stream xmlns:s='http://etherx.jabber.org/streams'/>")
    assert isinstance(opening, StreamOpen)
    assert isinstance(closing, StreamClose)
    assert stream_parser.pending == 0


def test_reset_begins_a_new_stream() -> None:
    stream_parser = new_parser(max_stanza_bytes=200)
    stream_parser.feed(b"<presence/><iq>")
    stream_parser.reset()
    assert stream_parser.pending == 0
    assert isinstance(stream_parser.feed(HEADER)[0], StreamOpen)
    assert only(stream_parser.feed(b"<presence/>")).name == clark(CLIENT, "presence")
    with pytest.raises(StreamError, match="policy-violation"):
        stream_parser.feed(b"<iq>" + b"x" * 200)


def test_reset_after_a_fault() -> None:
    stream_parser = new_parser()
    with pytest.raises(StreamError):
        stream_parser.feed(b"<a></b>")
    with pytest.raises(UsageError):
        stream_parser.feed(b"")
    stream_parser.close()
    assert stream_parser.pending == 0
    stream_parser.reset()
    assert isinstance(stream_parser.feed(HEADER)[0], StreamOpen)


def test_an_error_has_the_items_before_it() -> None:
    for fault in (b"<a></b>", b"<!-- -->", b"text"):
        with pytest.raises(ParseError) as error:
            new_parser().feed(b"<iq id='1'/><iq id='2'/>" + fault)
        stanzas = [item for item in error.value.items if isinstance(item, Stanza)]
        assert [stanza.attrs["id"] for stanza in stanzas] == ["1", "2"]


def test_a_closed_parser_is_freed_without_the_garbage_collector() -> None:
    stream_parser = StreamParser()
    count = sys.getrefcount(object())
    stream_parser.feed(HEADER)
    assert sys.getrefcount(stream_parser) > count + 1, "expat refers to it"
    stream_parser.close()
    with pytest.raises(UsageError):
        stream_parser.feed(b"<presence/>")
    assert sys.getrefcount(stream_parser) == count + 1, "nothing but the variable refers to it"


# Raw slices


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        # a prefix that a parent or the stream's header declares
        (b"<iq><q xmlns:p='u'><p:i/></q></iq>", b"<p:i xmlns:p='u'/>"),
        (b"<iq><q xmlns:p='u'><i p:k='v'/></q></iq>", b"<i xmlns:p='u' p:k='v'/>"),
        (b"<iq><q xmlns:p='u'><i\tp:k='v'/></q></iq>", b"<i xmlns:p='u'\tp:k='v'/>"),
        (b"<iq><q><stream:i/></q></iq>",
         b"<stream:i xmlns:stream='http://etherx.jabber.org/streams'/>"),
        (b"<iq xmlns:p='u'><q xmlns:p='v'><i><p:j>1</p:j>2</i></q></iq>",
         b"<i xmlns:p='v'><p:j>1</p:j>2</i>"),
        (b"<iq><q xmlns='u' xmlns:p='v'><p:a xmlns:p='w'/><p:i><j/></p:i></q></iq>",
         b"<p:a xmlns='u' xmlns:p='w'/>"),
        # a default namespace that the parent declares
        (b"<iq><q xmlns='u'><i/></q></iq>", b"<i xmlns='u'/>"),
        (b"<iq><q xmlns='u'><i a='xmlns='/></q></iq>", b"<i xmlns='u' a='xmlns='/>"),
        (b"<iq><q xmlns='u'><i >='' xmlns='v'</i></q></iq>", b"<i xmlns='u' >='' xmlns='v'</i>"),
        (b"<iq><q xmlns='u&amp;'><i>t</i></q></iq>", b"<i xmlns='u&amp;'>t</i>"),
        ("<iq><q xmlns='u'><\u00ef/></q></iq>".encode(), "<\u00ef xmlns='u'/>".encode()),
        (b"<iq><q xmlns=''><i a='b'/></q></iq>", b"<i xmlns='' a='b'/>"),
        # self-contained bytes are unchanged
        (b"<iq><q xmlns='u'><i  a='b' xmlns = 'u' /></q></iq>", b"<i  a='b' xmlns = 'u' />"),
        (b"<iq><p:q xmlns:p='u'><i  a = 'b'/></p:q></iq>", b"<i  a = 'b'/>"),
        (b"<iq><q xmlns:p='u'><i a='p:x'>up:y</i></q></iq>", b"<i a='p:x'>up:y</i>"),
        (b"<iq><q xml:lang='en'><i xml:lang = 'de'/></q></iq>", b"<i xml:lang = 'de'/>"),
    ],
)  # fmt: skip
def test_raw_is_self_contained(body: bytes, raw: bytes) -> None:
    element = only(new_parser().feed(body)).children[0].children[0]
    assert element.raw == raw
    assert parse_fragment(element.raw).tag == element.name


def test_a_prefixed_stanza_is_self_contained() -> None:
    header = HEADER.replace(b" xml:lang", b" xmlns:c='jabber:client' xml:lang")
    stream_parser = StreamParser()
    stream_parser.feed(header)
    stanza = only(stream_parser.feed(b"<c:iq c:x='1'><c:a/><c:b><c:c>t</c:c></c:b></c:iq>"))
    assert stanza.children[1].children[0].raw == b"<c:c xmlns:c='jabber:client'>t</c:c>"
    assert stanza.attrs == {clark(CLIENT, "x"): "1"}


def test_added_declarations_are_limited_by_the_stanza() -> None:
    uri = "u" * 10_000
    inner = "<p:a/><b/>" * 900
    stream_parser = new_parser(max_stanza_bytes=64 * 1024)
    stanza = only(stream_parser.feed(f"<iq xmlns:p='{uri}'><q>{inner}</q></iq>".encode()))
    raw = stanza.children[0].raw
    assert len(raw) < stanza.size + 50
    assert len(parse_fragment(raw)) == 1800


def test_many_prefixes_are_all_declared() -> None:
    names_ = [f"p{i}" for i in range(20)]
    declared = " ".join(f"xmlns:{name}='u:{name}'" for name in names_)
    body = "".join(f"<{name}:i/>" for name in names_)
    stanza = only(new_parser().feed(f"<iq {declared}><q>{body}</q></iq>".encode()))
    tags = [child.tag for child in parse_fragment(stanza.children[0].raw)]
    assert tags == [f"{{u:{name}}}i" for name in names_]


def test_another_default_namespace_is_declared() -> None:
    stream_parser = StreamParser()
    stream_parser.feed(HEADER.replace(b"jabber:client", b"jabber:server"))
    stanza = only(stream_parser.feed(b"<iq><q xmlns='u'/></iq>"))
    assert stanza.raw == b"<iq xmlns='jabber:server'><q xmlns='u'/></iq>"
    assert stanza.children[0].raw == b"<q xmlns='u'/>"


# Limits


def test_the_limit_of_bytes_is_exact() -> None:
    fits = b"<iq>" + b"x" * 91 + b"</iq>"
    one_by_one = [fits[i : i + 1] for i in range(100)]
    for pieces, count in (([fits], 1), (one_by_one, 1), ([b" " * 50, fits], 1), ([fits * 3], 3)):
        stream_parser = new_parser(max_stanza_bytes=200)
        stream_parser.set_limit(100)
        assert sum(len(stream_parser.feed(piece)) for piece in pieces) == count
        assert stream_parser.pending == 0
    too_much = b"<iq>" + b"x" * 92 + b"</iq>"
    for pieces in ([too_much], [too_much[:50], too_much[50:]], [fits + too_much]):
        stream_parser = new_parser(max_stanza_bytes=200)
        stream_parser.set_limit(100)
        with pytest.raises(StreamError, match="policy-violation"):
            feed_all(stream_parser, pieces)


def test_the_limit_of_bytes_applies_to_the_header() -> None:
    with pytest.raises(StreamError, match="policy-violation"):
        StreamParser(max_stanza_bytes=100).feed(HEADER)


def test_no_more_than_the_limit_is_fed_to_expat(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    real = expat.ParserCreate

    class Recorder:
        """A proxy of expat that records the size of its input."""

        def __init__(self, *args: Any) -> None:
            self.__dict__["inner"] = real(*args)

        def Parse(self, data: bytes, final: bool) -> int:
            fed.append(len(data))
            return int(self.__dict__["inner"].Parse(data, final))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["inner"], name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self.__dict__["inner"], name, value)

    monkeypatch.setattr(expat, "ParserCreate", Recorder)
    stream_parser = new_parser(max_stanza_bytes=1000)
    fed.clear()
    with pytest.raises(StreamError, match="policy-violation"):
        stream_parser.feed(b"<a>" * 1_000_000)
    assert sum(fed) <= 1000


@pytest.mark.parametrize(
    ("limits", "fits", "too_much"),
    [
        ({"max_depth": 3}, b"<a><b><c/></b></a>", b"<a><b><c><d/></c></b></a>"),
        ({"max_depth": 1}, b"<a/>", b"<a><b/></a>"),
        ({"max_depth": 9}, b"<a>" * 9 + b"</a>" * 9, b"<a>" * 10 + b"</a>" * 10),
        ({"max_elements": 3}, b"<a><b/><c/></a>", b"<a><b/><c/><d/></a>"),
        ({"max_elements": 6}, b"<a><b><c><d><e/><f/></d></c></b></a>",
         b"<a>" + b"<b/>" * 6 + b"</a>"),
        ({"max_attributes": 3}, b"<a b='' c='' d=''/>", b"<a b='' c='' d='' e=''/>"),
    ],
)  # fmt: skip
def test_limits_of_depth_elements_and_attributes(
    limits: dict[str, int], fits: bytes, too_much: bytes
) -> None:
    stream_parser = new_parser(**limits)
    for _ in range(3):
        only(stream_parser.feed(fits))
    with pytest.raises(ParseError, match="policy-violation") as error:
        stream_parser.feed(fits + too_much)
    assert len(error.value.items) == 1


def has_expat(stream_parser: StreamParser) -> bool:
    return stream_parser._expat is not parser._NO_EXPAT


def test_an_idle_parser_keeps_neither_expat_nor_the_last_stanza() -> None:
    stream_parser = new_parser()
    stanza = only(stream_parser.feed(b"<presence><status>at home</status></presence>"))
    stream_parser.release_if_idle()
    assert has_expat(stream_parser)  # it was used since it was built
    stream_parser.release_if_idle()
    assert not has_expat(stream_parser)
    assert not any(held is stanza for held in gc.get_referents(stream_parser))
    assert only(stream_parser.feed(b"<iq type='get'/>")).attrs == {"type": "get"}
    stream_parser.release_if_idle()
    assert only(stream_parser.feed(b"<iq type='set'/>")).attrs == {"type": "set"}
    stream_parser.release_if_idle()
    assert has_expat(stream_parser)


def test_expat_is_not_built_for_whitespace() -> None:
    stream_parser = new_parser()
    stream_parser.release()
    assert stream_parser.feed(b" ") == []
    assert not has_expat(stream_parser)
    assert only(stream_parser.feed(b"\n<presence/>")).raw == b"<presence/>"


@pytest.mark.parametrize("data", [b"<presence>", b"<presence", b"<", b"<presence/><iq"])
def test_an_incomplete_stanza_is_not_released(data: bytes) -> None:
    stream_parser = new_parser()
    stream_parser.feed(data)
    stream_parser.release()
    assert has_expat(stream_parser)


def test_a_released_parser_can_be_closed_and_reset() -> None:
    stream_parser = new_parser()
    stream_parser.release()
    stream_parser.close()
    with pytest.raises(UsageError):
        stream_parser.feed(b"<presence/>")
    stream_parser.reset()
    assert len(stream_parser.feed(HEADER + b"<presence/>")) == 2
    stream_parser.release()
    stream_parser.reset()
    assert len(stream_parser.feed(HEADER + b"<presence/>")) == 2


def test_expat_is_replaced_between_stanzas() -> None:
    stream_parser = new_parser()
    stream_parser.set_limit(64 * 1024)
    name = "n" * 1000
    first = stream_parser._expat
    for i in range(2 * parser.REBUILD_BYTES // len(name)):
        stanza = only(stream_parser.feed(f" <{name}{i} xmlns:p='u{i}'><p:q/></{name}{i}>".encode()))
        assert stanza.name == clark(CLIENT, f"{name}{i}")
        assert stanza.children[0].raw == f"<p:q xmlns:p='u{i}'/>".encode()
    assert stream_parser._expat is not first
    assert isinstance(stream_parser.feed(b"</stream:stream>")[0], StreamClose)


def test_expat_is_replaced_within_one_feed() -> None:
    stream_parser = new_parser()
    stream_parser.set_limit(2 * parser.REBUILD_BYTES)
    stanza = b"<iq id='%06d'><q xmlns='u'>" + b"x" * 40_000 + b"</q></iq>"
    items = stream_parser.feed(b"".join(stanza % i for i in range(30)))
    ids = [item.attrs["id"] for item in items if isinstance(item, Stanza)]
    assert ids == [f"{i:06d}" for i in range(30)]


def test_cached_names_are_limited() -> None:
    stream_parser = new_parser()
    for i in range(3 * names.MAX_KNOWN):
        only(stream_parser.feed(f"<known{i} attribute{i}=''/>".encode()))
        assert len(names.ELEMENTS) <= names.MAX_KNOWN
        assert len(names.ATTRIBUTES) <= names.MAX_KNOWN
    long_name = "l" * (names.MAX_KNOWN_LENGTH + 1)
    stanza = only(stream_parser.feed(f"<{long_name} {long_name}=''/>".encode()))
    assert stanza.attrs == {long_name: ""}
    assert all(len(name) <= names.MAX_KNOWN_LENGTH for name in names.ELEMENTS)
    assert all(len(name) <= names.MAX_KNOWN_LENGTH for name in names.ATTRIBUTES)


def test_scanning_takes_linear_time_for_any_pieces() -> None:
    hostile = {
        "unterminated tag": b"<a " + b"b" * 60_000,
        "unterminated value": b"<a b='" + b">" * 60_000,
        "unterminated text": b"<a>" + b"x" * 60_000,
        "unterminated CDATA": b"<a><![CDATA[" + b"]" * 60_000,
        "many tags": b"<a>" + b"<b c='>'/>" * 2000,
    }
    for name, data in hostile.items():
        for size in (1, 7, 1000):
            stream_parser = new_parser()
            stream_parser.set_limit(64 * 1024)
            before = stream_parser._scanner.scanned
            for at in range(0, len(data), size):
                assert stream_parser.feed(data[at : at + size]) == []
            scanned = stream_parser._scanner.scanned - before
            assert scanned <= 12 * len(data), (name, size)


# Tolerant parsers

ATTRIBUTES = b"".join(b" a%d=''" % number for number in range(10))
OVERSIZED = {
    "elements": (b"<message id='m'>%b</message>" % (b"<x/>" * 20), "elements"),
    "elements in a child": (
        b"<message id='m'><y>%b</y><z/></message>" % (b"<x><w/></x>" * 9),
        "elements",
    ),
    "levels": (b"<message id='m'>%b%b</message>" % (b"<x>" * 9, b"</x>" * 9), "levels"),
    "its own attributes": (b"<message id='m'%b><x><y/></x></message>" % ATTRIBUTES, "attributes"),
    "a child's attributes": (
        b"<message id='m'><x%b><y/></x><x><y/></x></message>" % ATTRIBUTES,
        "attributes",
    ),
    "a grandchild's": (b"<message id='m'><x><y%b/></x></message>" % ATTRIBUTES, "attributes"),
    "no children": (b"<message id='m'%b/>" % ATTRIBUTES, "attributes"),
}


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize(("oversized", "limit"), OVERSIZED.values(), ids=OVERSIZED)
def test_an_oversized_stanza_leaves_its_neighbours_intact(
    oversized: bytes, limit: str, size: int
) -> None:
    stream_parser = StreamParser(4096, 6, 12, 8, tolerant=True)
    neighbour = b"<iq id='n'><a xmlns='urn:a'><b>1</b></a></iq>"
    data = HEADER + neighbour + oversized + neighbour
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    _, before, returned, after = feed_all(stream_parser, pieces)
    assert isinstance(returned, OversizedStanza)
    assert limit in returned.text
    assert (returned.name, returned.attrs["id"]) == (clark(CLIENT, "message"), "m")
    assert (returned.children, returned.size) == ([], len(oversized))
    for stanza in (before, after):
        assert type(stanza) is Stanza
        assert stanza.raw == neighbour
        assert stanza.children[0].raw == neighbour[neighbour.index(b"<a") : -5]
        assert stanza.children[0].children[0].tree().text == "1"


def test_a_tolerant_parser_limits_bytes_and_the_header() -> None:
    stream_parser = new_parser(tolerant=True)
    with pytest.raises(StreamError, match="more than 10240 bytes"):
        stream_parser.feed(b"<message>%b</message>" % (b"x" * 11_000))
    with pytest.raises(StreamError, match="attributes"):
        StreamParser(max_attributes=8, tolerant=True).feed(HEADER[:-1] + ATTRIBUTES + b">")
