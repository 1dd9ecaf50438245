"""Hypothesis's strategies for the values of MQTT's fields and properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from edge.mqtt.packets import Property

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), max_size=20)
BYTES = st.binary(max_size=40)
IDS = st.integers(1, 65535)
FLAGS = st.integers(0, 1)
QOS = st.integers(0, 2)
TWO_BYTES = st.integers(0, 65535)
FOUR_BYTES = st.integers(0, 2**32 - 1)
VALUES: dict[Property, st.SearchStrategy[Any]] = {
    Property.PAYLOAD_FORMAT: FLAGS,
    Property.MESSAGE_EXPIRY: FOUR_BYTES,
    Property.CONTENT_TYPE: TEXTS,
    Property.RESPONSE_TOPIC: TOPICS,
    Property.CORRELATION_DATA: BYTES,
    Property.SUBSCRIPTION_ID: st.tuples(st.integers(1, 268_435_455)),
    Property.SESSION_EXPIRY: FOUR_BYTES,
    Property.ASSIGNED_CLIENT_ID: TEXTS,
    Property.SERVER_KEEP_ALIVE: TWO_BYTES,
    Property.AUTHENTICATION_METHOD: TEXTS,
    Property.AUTHENTICATION_DATA: BYTES,
    Property.REQUEST_PROBLEM_INFORMATION: FLAGS,
    Property.WILL_DELAY: FOUR_BYTES,
    Property.REQUEST_RESPONSE_INFORMATION: FLAGS,
    Property.RESPONSE_INFORMATION: TEXTS,
    Property.SERVER_REFERENCE: TEXTS,
    Property.REASON_STRING: TEXTS,
    Property.RECEIVE_MAXIMUM: IDS,
    Property.TOPIC_ALIAS_MAXIMUM: TWO_BYTES,
    Property.TOPIC_ALIAS: IDS,
    Property.MAXIMUM_QOS: FLAGS,
    Property.RETAIN_AVAILABLE: FLAGS,
    Property.USER: st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3).map(tuple),
    Property.MAXIMUM_PACKET_SIZE: st.integers(1, 2**32 - 1),
    Property.WILDCARD_SUBSCRIPTIONS: FLAGS,
    Property.SUBSCRIPTION_IDS: FLAGS,
    Property.SHARED_SUBSCRIPTIONS: FLAGS,
}
"""Values that a property may have in any packet."""
