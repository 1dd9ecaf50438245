from __future__ import annotations

import hashlib
from base64 import b64encode
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.xmpp import capabilities
from edge.xmpp.capabilities import Caps, Info

INFO = "http://jabber.org/protocol/disco#info"
FEATURES = tuple(
    f"http://jabber.org/protocol/{name}" for name in ("disco#info", "disco#items", "muc", "caps")
)
SOFTWARE = (
    "<x xmlns='jabber:x:data' type='result'>"
    "<field var='FORM_TYPE' type='hidden'><value>urn:xmpp:dataforms:softwareinfo</value></field>"
    "<field var='ip_version' type='text-multi'><value>ipv6</value><value>ipv4</value></field>"
    "<field var='os'><value>Mac</value></field>"
    "<field var='os_version'><value>10.5.1</value></field>"
    "<field var='software'><value>Psi</value></field>"
    "<field var='software_version'><value>0.11</value></field></x>"
)


def query(*content: str, features: tuple[str, ...] = FEATURES) -> Element:
    listed = "".join(f"<feature var='{name}'/>" for name in features)
    return ElementTree.fromstring(f"<query xmlns='{INFO}'>{''.join(content)}{listed}</query>")  # noqa: S314


def text(*content: str, features: tuple[str, ...] = ("f",)) -> str | None:
    return capabilities.read(query(*content, features=features)).text


def form(type_: str, *fields: str, kind: str = " type='hidden'") -> str:
    typed = f"<field var='FORM_TYPE'{kind}><value>{type_}</value></field>"
    return f"<x xmlns='jabber:x:data'>{''.join(fields)}{typed}</x>"


def test_the_simple_example_of_the_specification() -> None:
    read = capabilities.read(query("<identity category='client' type='pc' name='Exodus 0.9.1'/>"))
    assert read.features == FEATURES
    assert read.text is not None
    assert read.text.startswith("client/pc//Exodus 0.9.1<http://jabber.org/protocol/caps<")
    ver = "QgayPKawpkPSDYmwT/WM94uAlu0="
    assert capabilities.verifies(read.text, Caps("sha-1", "n", ver))
    assert not capabilities.verifies(f"{read.text}x<", Caps("sha-1", "n", ver))


def test_the_complex_example_of_the_specification() -> None:
    read = capabilities.read(
        query(
            "<identity xml:lang='en' category='client' name='Psi 0.11' type='pc'/>",
            "<identity xml:lang='el' category='client' name='Ψ 0.11' type='pc'/>",
            SOFTWARE,
        )
    )
    assert read.text is not None
    ver = "q07IKJEyjvHSyhy//CH0CxmKi8w="
    assert capabilities.verifies(read.text, Caps("sha-1", "n", ver))


@pytest.mark.parametrize("name", [*capabilities.HASHES, "md5", "SHA-1", "sha1", "sha-3", ""])
def test_verification_uses_the_named_function(name: str) -> None:
    for function in (*capabilities.HASHES.values(), "md5"):
        ver = b64encode(hashlib.new(function, b"a<").digest()).decode()
        expected = capabilities.HASHES.get(name) == function
        assert capabilities.verifies("a<", Caps(name, "n", ver)) is expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "f<"),
        ("<identity category='b' type='t'/><identity category='a' type='u'/>", "a/u//<b/t//<f<"),
        ("<other xmlns='urn:x'/><feature xmlns='urn:x' var='no'/>", "f<"),
        (form("t", "<field var='b'><value>2</value><value>1</value></field>"), "f<t<b<1<2<"),
        (form("t", "<field var='b'/>", "<field var='a'><value/></field>"), "f<t<a<<b<"),
        (form("t", "<field type='fixed'><value>x</value></field>"), "f<t<<x<"),
        (form("u") + form("t"), "f<t<u<"),
        # forms without a valid type are left out, duplicates too
        (form("t", kind=" type='text-single'") * 2, "f<"),
        (form("t", kind="") * 2, "f<"),
        ("<x xmlns='jabber:x:data'><field var='a'><value>1</value></field></x>" * 2, "f<"),
        ("<x xmlns='jabber:x:data'><field var='FORM_TYPE' type='hidden'/></x>", "f<"),
        # the same type twice in one field is one type
        (
            "<x xmlns='jabber:x:data'><field var='FORM_TYPE' type='hidden'><value>t</value>"
            "<value>t</value></field></x>",
            "f<t<",
        ),
    ],
)
def test_hashed_text(content: str, expected: str) -> None:
    assert text(content) == expected


@pytest.mark.parametrize(
    "content",
    [
        "<identity category='c' type='t' name='n' xml:lang='en'/>" * 2,
        "<feature var='a'/><feature var='a'/>",
        "<feature/><feature/>",
        "<feature var='f'/>",
        form("t") + form("t", "<field var='a'/>"),
        "<x xmlns='jabber:x:data'><field var='FORM_TYPE' type='hidden'><value>t</value>"
        "<value>u</value></field></x>",
    ],
)
def test_an_ill_formed_answer_has_features_and_no_hash(content: str) -> None:
    read = capabilities.read(query(content, features=("f",)))
    assert read.text is None
    assert "f" in read.features


def test_an_oversized_answer_has_no_hash() -> None:
    most = tuple(f"f{number}" for number in range(capabilities.PARTS))
    assert text(features=most) is not None
    assert capabilities.read(query(features=(*most, "one more"))) == Info((*most, "one more"), None)


def test_answers_with_the_same_hash_have_the_same_parts() -> None:
    honest = text("<identity category='client' type='iot'/>", features=("a", "urn:xmpp:qos"))
    poisoned = text(
        "<identity category='client' type='iot'/>", form("urn:xmpp:qos"), features=("a",)
    )
    assert honest is not None
    assert honest == poisoned
    assert capabilities.parts(honest) == {"client/iot//", "a", "urn:xmpp:qos", ""}


@given(st.lists(st.text("abc</:", min_size=1, max_size=6), unique=True, max_size=6))
def test_all_features_are_among_the_parts(names: list[str]) -> None:
    features = tuple(name.replace("<", "&lt;") for name in names)
    read = capabilities.read(query(features=features))
    assert read.text is not None
    assert all(set(name.split("<")) <= capabilities.parts(read.text) for name in read.features)


@pytest.mark.parametrize("missing", ["hash", "node", "ver"])
def test_an_announcement_needs_all_attributes(missing: str) -> None:
    attrs = {"hash": "sha-1", "node": "urn:x", "ver": "v", "ext": "old"}
    assert capabilities.announced(attrs) == Caps("sha-1", "urn:x", "v")
    assert capabilities.announced({**attrs, missing: ""}) is None
    del attrs[missing]
    assert capabilities.announced(attrs) is None
