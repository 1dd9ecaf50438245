"""Options of each kind of subscription and the values that they accept."""

from __future__ import annotations

import pytest

from edge.features.pubsub.rules import subscription as rules
from edge.features.pubsub.rules.node_config import QUEUE_POLICIES, QueuePolicy
from edge.features.pubsub.rules.subscription import SubscriptionKind, SubscriptionOptions

MAX_REQUESTS = 100
PLAIN, QUEUE, SHARE = SubscriptionKind


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (PLAIN, {rules.DELIVER: ["false"]}, SubscriptionOptions(deliver=False)),
        (PLAIN, {rules.DELIVER: ["1"]}, rules.DEFAULT),
        (PLAIN, {rules.QOS: ["2"]}, SubscriptionOptions(qos=2)),
        (PLAIN, {rules.EXPIRE: ["presence"]}, SubscriptionOptions(presence=True)),
        (PLAIN, {rules.EXPIRE: []}, rules.DEFAULT),
        (QUEUE, {rules.REQUESTS: ["100"]}, SubscriptionOptions(requests=100)),
        (SHARE, {rules.REQUESTS: ["1"]}, SubscriptionOptions(requests=1)),
        (SHARE, {rules.QOS: ["2"]}, SubscriptionOptions(qos=2)),
        (SHARE, {rules.EXPIRE: ["presence"]}, SubscriptionOptions(presence=True)),
        (SHARE, {rules.POLICY: ["hash"]}, SubscriptionOptions(policy=QueuePolicy.HASH)),
    ],
)
def test_valid_options(
    kind: SubscriptionKind, values: dict[str, list[str]], expected: SubscriptionOptions
) -> None:
    found = rules.apply_options(kind, rules.DEFAULT, values, MAX_REQUESTS)
    assert found == expected
    formatted = {name: [rules.format_option(found, name) or ""] for name in values}
    assert rules.apply_options(kind, found, formatted, MAX_REQUESTS) == expected


@pytest.mark.parametrize(
    ("kind", "name", "texts"),
    [
        (PLAIN, rules.DELIVER, ["maybe"]),
        (PLAIN, rules.QOS, ["3"]),
        (PLAIN, rules.QOS, [""]),
        (PLAIN, rules.QOS, ["1", "2"]),
        (PLAIN, rules.EXPIRE, ["2026-01-01T00:00:00Z"]),
        (PLAIN, rules.REQUESTS, ["5"]),
        (PLAIN, rules.POLICY, ["hash"]),
        (PLAIN, "pubsub#include_body", ["1"]),
        (PLAIN, "pubsub#digest", ["true"]),
        (PLAIN, "pubsub#subscription_type", ["nodes"]),
        (PLAIN, "pubsub#other", ["x"]),
        (QUEUE, rules.QOS, ["1"]),
        (QUEUE, rules.DELIVER, ["0"]),
        (QUEUE, rules.POLICY, ["hash"]),
        (SHARE, rules.DELIVER, ["0"]),
        (SHARE, rules.POLICY, ["first"]),
        *((kind, rules.REQUESTS, [text]) for kind in (QUEUE, SHARE) for text in ("0", "101", "x")),
    ],
)
def test_invalid_options(kind: SubscriptionKind, name: str, texts: list[str]) -> None:
    with pytest.raises(rules.InvalidSubscriptionOption, match=name):
        rules.apply_options(kind, rules.DEFAULT, {name: texts}, MAX_REQUESTS)


@pytest.mark.parametrize("kind", SubscriptionKind)
def test_options_of_usual_clients_are_accepted(kind: SubscriptionKind) -> None:
    values = {
        "pubsub#include_body": ["false"],
        "pubsub#digest": ["0"],
        "pubsub#subscription_type": ["items"],
        rules.DELIVER: ["1"],
        rules.QOS: ["0"],
        rules.EXPIRE: [""],
    }
    assert rules.apply_options(kind, rules.DEFAULT, values, MAX_REQUESTS) == rules.DEFAULT


def test_the_policies_are_those_of_queues() -> None:
    assert [value for value, _label in QUEUE_POLICIES] == [policy.value for policy in QueuePolicy]


def test_default_options() -> None:
    assert rules.default_options(PLAIN, 5) == rules.default_options(QUEUE, 5) == rules.DEFAULT
    assert rules.default_options(SHARE, 5) == SubscriptionOptions(qos=1, requests=5)
    assert rules.default_options(SHARE, MAX_REQUESTS).requests == rules.DEFAULT_REQUESTS
