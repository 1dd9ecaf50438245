from __future__ import annotations

import gc
import tracemalloc

import pytest

from edge.xmpp import xml_declaration
from edge.xmpp.errors import StreamError
from edge.xmpp.parser import StreamParser
from tests.helpers.parser_corpus import HEADER, feed_all, flat, run, splits

STREAM = HEADER.partition(b"\n")[2]  # without the XML declaration

RESTRICTED = {
    "comment": b"<!-- x --><presence/>",
    "comment in a stanza": b"<iq><!-- x --></iq>",
    "comment without end": b"<!--",
    "instruction": b"<?php x ?>",
    "instruction in a stanza": b"<iq><?x ?></iq>",
    "instruction without end": b"<iq><?",
    "second XML declaration": b"<?xml version='1.0'?><presence/>",
    "document type in the stream": b"<!DOCTYPE x>",
    "document type in a stanza": b"<iq><!DOCTYPE x></iq>",
    "unknown section": b"<iq><![INCLUDE[x]]></iq>",
    "section of another case": b"<iq><![cdata[x]]></iq>",
    "section that is cut short": b"<iq><![CDATA<x]]></iq>",
    "undefined entity": b"<iq>&nbsp;</iq>",
    "undefined entity in a value": b"<iq id='&x;'/>",
}
RESTRICTED_AT_FIRST = {
    "document type": b"<!DOCTYPE stream>" + STREAM,
    "internal entity": b"<?xml version='1.0'?><!DOCTYPE s [<!ENTITY a 'b'>]>" + STREAM,
    "external entity": b"<!DOCTYPE s [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>" + STREAM,
    "billion laughs": b"<!DOCTYPE s [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]>" + STREAM,
    "comment": b"<!-- x -->" + STREAM,
    "style sheet": b"<?xml-stylesheet href='x'?>" + STREAM,
    "instruction": b"<?x?>" + STREAM,
    "two declarations": b"<?xml version='1.0'?><?xml version='1.0'?>" + STREAM,
}
NOT_WELL_FORMED = {
    "wrong end": b"<a></b>",
    "no name": b"<>",
    "a quoted name": b"<'>'>",
    "value without quotes": b"<a b=c>",
    "attribute twice": b"<a b='' b=''>",
    "attribute twice by namespace": b"<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''>",
    "less in a value": b"<a b='<c>'>",
    "unbound prefix": b"<p:a/>",
    "unbound prefix of an attribute": b"<a p:b=''/>",
    "the prefix xmlns": b"<a xmlns:xmlns='u'/>",
    "the prefix xml, bound to another": b"<a xmlns:xml='u'/>",
    "a prefix undeclared": b"<a xmlns:p=''/>",
    "end of a section in text": b"<a>]]></a>",
    "NUL": b"<a>\x00</a>",
    "NUL in a name": b"<a\x00/>",
    "control character": b"<a>\x01</a>",
    "reference to NUL": b"<a>&#0;</a>",
    "reference to a surrogate": b"<a>&#xd800;</a>",
    "reference without end": b"<a>&amp</a>",
    "invalid UTF-8": b"<a>\xff</a>",
    "overlong UTF-8": b"<a>\xc0\x80</a>",
    "surrogate in UTF-8": b"<a>\xed\xa0\x80</a>",
    "U+FFFE": b"<a>\xef\xbf\xbe</a>",
    "reference to U+FFFE": b"<a>&#xFFFE;</a>",
    "reference to a control character": b"<a b='&#1;'/>",
    "reference beyond Unicode": b"<a>&#x110000;</a>",
    "reference that overflows": b"<a>&#99999999999999999999;</a>",
    "bare ampersand": b"<a>&</a>",
    "overlong UTF-8 of three bytes": b"<a>\xe0\x80\xaf</a>",
    "overlong UTF-8 in a value": b"<a b='\xc0\xbc'/>",
    "UTF-8 beyond Unicode": b"<a>\xf4\x90\x80\x80</a>",
    "UTF-8 cut by a tag": b"<a>\xe2\x82</a>",
    "namespace with our separator": b"<a xmlns='u}v'/>",
    "more after the end": b"</stream:stream><presence/>",
    "end of another stream": b"</x:stream>",
}
BAD_FORMAT = {
    "text": b"<presence/>text<presence/>",
    "text at the end": b"<presence/> text",
    "text before the end of the stream": b"text</stream:stream>",
    "text between tags in one piece": b"<presence/><presence/>x</stream:stream>",
    "section": b"<presence/><![CDATA[x]]>",
    "section of whitespace": b"<presence/><![CDATA[ ]]><presence/>",
    "reference": b"&#32;<presence/>",
    "stream within the stream": STREAM,
}
OTHER_ENCODINGS = {
    "UTF-16 LE": STREAM.decode().encode("utf-16-le"),
    "UTF-16 BE": STREAM.decode().encode("utf-16-be"),
    "UTF-16 with its mark": STREAM.decode().encode("utf-16"),
    "UTF-16 BE with its mark": b"\xfe\xff" + STREAM.decode().encode("utf-16-be"),
    "UTF-32": STREAM.decode().encode("utf-32-be"),
    "declared Latin-1": b"<?xml version='1.0' encoding='ISO-8859-1'?>" + STREAM,
    "declared UTF-16": b'<?xml version="1.0" encoding="UTF-16"?>' + STREAM,
    "declared ASCII": b"<?xml version='1.0' encoding='us-ascii' ?>" + STREAM,
}
NO_HEADER = {
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "byte order mark": b"\xef\xbb\xbf" + STREAM,
    "TLS": b"\x16\x03\x01\x02\x00",
    "declaration without version": b"<?xml encoding='UTF-8'?>" + STREAM,
    "declaration with a bad version": b"<?xml version='2.0'?>" + STREAM,
    "declaration with more": b"<?xml version='1.0' x='1'?>" + STREAM,
    "declaration without end": b"<?xml version='1.0'" + b" " * xml_declaration.MAX_DECLARATION,
    "unquoted end in the declaration": b"<?xml version='1.0'>" + STREAM,
    "end first": b"</stream:stream>",
    "unbound prefix": b"<stream:stream>",
}

CASES = [
    *(("restricted-xml", name, HEADER + data) for name, data in RESTRICTED.items()),
    *(("restricted-xml", name, data) for name, data in RESTRICTED_AT_FIRST.items()),
    *(("not-well-formed", name, HEADER + data) for name, data in NOT_WELL_FORMED.items()),
    *(("bad-format", name, HEADER + data) for name, data in BAD_FORMAT.items()),
    *(("unsupported-encoding", name, data) for name, data in OTHER_ENCODINGS.items()),
    *(("not-well-formed", name, data) for name, data in NO_HEADER.items()),
]


@pytest.mark.parametrize(
    ("condition", "data"),
    [pytest.param(condition, data, id=f"{condition}: {name}") for condition, name, data in CASES],
)
def test_faults_are_found_for_every_split(condition: str, data: bytes) -> None:
    assert run(data)[-1] == (condition,)
    assert splits(data) == []


@pytest.mark.parametrize("prefix", [b"<!-", b"<!D", b"<![I", b"<?", b"<![CDATA<"])
def test_forbidden_markup_is_refused_at_its_first_bytes(prefix: bytes) -> None:
    assert run(HEADER, b"<iq>", prefix)[-1] == ("restricted-xml",)
    assert run(HEADER, b"<iq>", prefix[:-1])[-1][0] == "open"


@pytest.mark.parametrize(
    "declaration",
    [
        b"",
        b"<?xml version='1.0'?>",
        b'<?xml version="1.0" encoding="utf-8"?>',
        b"\n <?xml version = '1.1' encoding = 'UTF-8' standalone='yes' ?>\n",
        b" ",
    ],
)
def test_valid_xml_declarations(declaration: bytes) -> None:
    data = declaration + STREAM
    for at in range(len(data)):
        assert [item[0] for item in run(data[:at], data[at:])] == ["open"]


def test_nested_elements_use_memory_of_the_limit_only() -> None:
    data = b"<a>" * 200_000
    pieces = [data[at : at + 32 * 1024] for at in range(0, len(data), 32 * 1024)]

    def parse_refused(limit: int) -> StreamParser:
        parser = StreamParser()
        parser.feed(HEADER)
        parser.set_limit(limit)
        with pytest.raises(StreamError) as error:
            feed_all(parser, pieces)
        assert flat(error.value) == ("policy-violation",)
        return parser

    for limit in (10 * 1024, 64 * 1024):
        parse_refused(limit)  # warm up, so that one-time allocations do not count
        gc.collect()
        tracemalloc.start()
        parser = parse_refused(limit)
        peak = tracemalloc.get_traced_memory()[1]
        gc.collect()
        retained = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del parser  # while it exists, it must not keep refused data
        assert peak < 200 * limit  # expat's memory for nested elements
        assert retained < 64 * 1024


def test_an_unterminated_tag_is_refused_at_the_limit() -> None:
    parser = StreamParser()
    parser.feed(HEADER)
    parser.feed(b"<iq ")
    for size in range(4, 10 * 1024 - 1):
        assert parser.pending == size
        parser.feed(b"a")
    with pytest.raises(StreamError, match="policy-violation"):
        parser.feed(b"a")


def test_forbidden_marks_are_allowed_in_text() -> None:
    body = b"<iq id='a!b?c'><b>&lt;!-- Hello? Yes! --&gt;</b><![CDATA[<!--<?x?>-->]]></iq>"
    assert [item[0] for item in run(HEADER + body)] == ["open", "{jabber:client}iq"]
