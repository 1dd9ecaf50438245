"""Publications that become items, and publications again."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import content_types
from edge.config.limits import Limits
from edge.engine.dispatch.hooks import Context, new_context
from edge.mqtt.packets import Properties, Property, Publish
from edge.routing.mqtt import publications

NOW: Final = 1000.5
TEXTS: Final = st.text(max_size=8)
VALUES: Final[dict[Property, st.SearchStrategy[Any]]] = {
    Property.PAYLOAD_FORMAT: st.integers(0, 1),
    Property.CONTENT_TYPE: st.one_of(TEXTS, st.just(content_types.UNKNOWN)),
    Property.RESPONSE_TOPIC: TEXTS,
    Property.CORRELATION_DATA: st.binary(max_size=8),
    Property.USER: st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3).map(tuple),
}


@cache
def context() -> Context:
    return new_context("gw.example", Limits())


def published(
    payload: bytes, properties: Properties, expires: float | None = None, retain: bool = False
) -> Publish:
    """Return the publication of the item that a publication has become."""
    found = publications.attributes(1, retain, properties)
    return publications.publication(
        context(),
        "t",
        payload,
        found.content_type,
        found.properties,
        expires,
        lambda: NOW,
        retain=retain,
    )


@given(
    payload=st.binary(max_size=8),
    properties=st.fixed_dictionaries({}, optional=VALUES),
    retain=st.booleans(),
)
def test_a_publication_comes_back_unchanged(
    payload: bytes, properties: dict[Property, Any], retain: bool
) -> None:
    """Source: MQTT 5.0, section 3.3.2.3."""
    found = published(payload, properties, retain=retain)
    assert found == Publish("t", payload, 0, retain, properties=properties)


@pytest.mark.parametrize(("expires", "left"), [(1010.5, 10), (1000.6, 1), (1000.5, 0), (1.0, 0)])
def test_the_rest_of_the_expiry_is_sent(expires: float, left: int) -> None:
    found = published(b"a", {Property.MESSAGE_EXPIRY: 60}, expires)
    assert found.properties == {Property.MESSAGE_EXPIRY: left}


def test_the_expiry_of_a_publication_is_that_of_the_item() -> None:
    assert publications.attributes(2, True, {Property.MESSAGE_EXPIRY: 60}).expiry == 60
