"""Each right, for every affiliation and every model."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from edge.features.pubsub.rules import affiliation as rules
from edge.features.pubsub.rules.affiliation import AccessModel, Affiliation, PublishModel

OWNER, PUBLISHER, PUBLISH_ONLY, MEMBER, NONE, OUTCAST = Affiliation

ADMITTED = [("open", False), ("open", True), ("presence", True), ("roster", True)]
"""Access models, each with `in_roster`, that admit accounts without an affiliation."""


@pytest.mark.parametrize("affiliation", Affiliation)
def test_who_may_subscribe_and_discover(affiliation: Affiliation) -> None:
    for model, in_roster in product(get_args(AccessModel), (False, True)):
        expected = affiliation in (OWNER, PUBLISHER, MEMBER)
        if affiliation is NONE:
            expected = (model, in_roster) in ADMITTED
        assert rules.may_subscribe(affiliation, model, in_roster=in_roster) is expected
        discovers = expected or affiliation is PUBLISH_ONLY
        assert rules.may_discover(affiliation, model, in_roster=in_roster) is discovers


@pytest.mark.parametrize("affiliation", Affiliation)
def test_who_may_publish(affiliation: Affiliation) -> None:
    for model, subscribed in product(get_args(PublishModel), (False, True)):
        expected = affiliation in (OWNER, PUBLISHER, PUBLISH_ONLY)
        if affiliation in (MEMBER, NONE):
            expected = model == "open" or (model == "subscribers" and subscribed)
        assert rules.may_publish(affiliation, model, subscribed=subscribed) is expected


@pytest.mark.parametrize("affiliation", Affiliation)
def test_who_may_delete_items_and_configure(affiliation: Affiliation) -> None:
    assert rules.may_delete_item(affiliation, own=False) is (affiliation is OWNER)
    assert rules.may_delete_item(affiliation, own=True) is (affiliation is not OUTCAST)
    assert rules.may_configure(affiliation) is (affiliation is OWNER)
