from __future__ import annotations

from xml.etree import ElementTree

import pytest

from edge.xmpp import forms, rsm
from edge.xmpp.errors import StanzaError
from edge.xmpp.namespaces import DATA_FORMS, RSM
from edge.xmpp.rsm import Page, Request

KIND = "http://jabber.org/protocol/pubsub#node_config"


def tree(xml: str | bytes) -> ElementTree.Element:
    return ElementTree.fromstring(xml)  # noqa: S314


def filled(fields: str, type: str = "submit") -> ElementTree.Element:
    return tree(f"<x xmlns='{DATA_FORMS}' type='{type}'>{fields}</x>")


def field(var: str, *values: str) -> str:
    content = "".join(f"<value>{value}</value>" for value in values)
    return f"<field var='{var}'>{content}</field>"


def test_a_form_has_all_parts_of_its_fields() -> None:
    xml = forms.write(
        "form",
        KIND,
        [
            forms.Field("a", "text-single", ("<1>",), required=True, label="What's that?"),
            forms.Field("b", "list-single", ("x",), options=(("x", "the first"), ("y", "other"))),
            forms.Field("c", "text-multi"),
        ],
    )
    assert xml.decode() == (
        f"<x xmlns='{DATA_FORMS}' type='form'>"
        f"<field var='FORM_TYPE' type='hidden'><value>{KIND}</value></field>"
        "<field var='a' type='text-single' label='What&apos;s that?'><required/>"
        "<value>&lt;1&gt;</value></field>"
        "<field var='b' type='list-single'><value>x</value>"
        "<option label='the first'><value>x</value></option>"
        "<option label='other'><value>y</value></option></field>"
        "<field var='c' type='text-multi'/></x>"
    )


def test_values_survive_a_round_trip() -> None:
    written = forms.write("submit", KIND, [forms.Field("a", "text-multi", ("1", "", "2"))])
    assert forms.read(tree(written), KIND) == {"a": ["1", "", "2"]}


def test_a_submitted_form_is_read() -> None:
    form = filled(field("a", "1") + field("b") + field("FORM_TYPE", KIND))
    assert forms.read(form, KIND) == forms.read(form) == {"a": ["1"], "b": []}
    assert forms.read(filled(field("a", "1")), KIND) == {"a": ["1"]}
    assert not forms.is_cancelled(form)


def test_a_form_may_be_cancelled() -> None:
    assert forms.is_cancelled(filled("", "cancel"))


@pytest.mark.parametrize(
    "form",
    [
        filled(field("a", "1"), "form"),
        filled("text" + field("a", "1")),
        filled("<field var='a'>1</field>"),
        filled("<field var='a'><value>1<b/></value></field>"),
        filled(f"<item>{field('a', '1')}</item>"),
        tree("<x type='submit'/>"),
        filled("<field><value>1</value></field>"),
        filled(field("a", "1") + field("a", "2")),
        filled(field("FORM_TYPE", "urn:other")),
    ],
)
def test_invalid_forms_are_refused(form: ElementTree.Element) -> None:
    with pytest.raises(StanzaError, match="bad-request"):
        forms.read(form, KIND)


# Result sets

IDS = ["a", "c", "e", "g", "i"]


def read_request(content: str) -> Request | None:
    return rsm.read(tree(f"<query><set xmlns='{RSM}'>{content}</set></query>"))


def test_a_query_without_a_page_request_gets_the_first_page() -> None:
    assert rsm.read(tree("<query/>")) is None
    assert rsm.page(None, IDS) == Page(IDS, 0, 5)
    assert rsm.page(None, IDS).whole
    many = [f"{number:04}" for number in range(rsm.PAGE + 1)]
    assert not rsm.page(None, many).whole


@pytest.mark.parametrize(
    ("content", "ids", "start"),
    [
        ("<max>2</max>", ["a", "c"], 0),
        ("<max>2</max><after>c</after>", ["e", "g"], 2),
        ("<max>2</max><after>b</after>", ["c", "e"], 1),
        ("<max>2</max><after>i</after>", [], 5),
        ("<max>2</max><before/>", ["g", "i"], 3),
        ("<max>2</max><before>e</before>", ["a", "c"], 0),
        ("<max>3</max><before>d</before>", ["a", "c"], 0),
        ("<max>2</max><index>1</index>", ["c", "e"], 1),
        ("<max>2</max><index>9</index>", [], 9),
        ("<max>0</max>", [], 0),
        ("<after>e</after>", ["g", "i"], 3),
        ("<max>999999</max>", IDS, 0),
    ],
)
def test_requested_pages(content: str, ids: list[str], start: int) -> None:
    assert rsm.page(read_request(content), IDS) == Page(ids, start, 5)


def test_the_size_of_a_page_is_limited() -> None:
    assert read_request("<max>500</max>") == read_request("") == Request(rsm.PAGE)


@pytest.mark.parametrize(
    "content",
    [
        "<max>-1</max>", "<max>many</max>", "<max/>", "<max>²</max>", "<index>9999999999</index>",
        "<after>a</after><before>c</before>", "<after>a</after><index>1</index>",
    ],
)  # fmt: skip
def test_invalid_page_requests_are_refused(content: str) -> None:
    with pytest.raises(StanzaError, match="bad-request"):
        read_request(content)


def test_a_page_describes_its_position() -> None:
    assert rsm.write(Page(["c", "<e>"], 1, 5)).decode() == (
        f"<set xmlns='{RSM}'><first index='1'>c</first><last>&lt;e&gt;</last><count>5</count></set>"
    )
    assert rsm.write(Page([], 0, 5)).decode() == f"<set xmlns='{RSM}'><count>5</count></set>"
