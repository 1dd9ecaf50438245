"""Operation of `fieldpost access check`: whether a device may publish or subscribe to a topic.

The rules are those of the file; a running gateway has them after a reload.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from edge.config import load
from edge.engine.dispatch.hooks import Context, new_context
from edge.engine.rules.access import Sender, may_use_services
from edge.engine.store.database import Transaction
from edge.errors import SetupError
from edge.features.accounts.store import accounts
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.topic_rights import Right
from edge.features.pubsub.service import access, nodes, queries, subscriptions, topic_rights
from edge.features.pubsub.service.errors import PubsubError
from edge.ops.transactions import reading

_NO_SESSION = -1


class Verdict(NamedTuple):
    """Whether a device may do something, and by what: a rule, an affiliation, or a model."""

    allowed: bool
    reason: str


def check(folder: Path, device: str, right: Right, topic: str, client: str = "") -> Verdict:
    """Return whether a device may publish to a topic, or subscribe to a topic, filter or share.

    Args:
        client: the client identifier; if empty, filters with `%c` allow nothing.

    Raises:
        SetupError: there is no such device.
    """
    settings = load.load(folder)
    domain, bare = settings.gateway.domain, f"{device}@{settings.gateway.domain}"
    context = new_context(
        domain, settings.limits, settings.xmpp, settings.pubsub, access=settings.access
    )
    with reading(folder) as tx:
        account = accounts.find(tx, device)
        if account is None:
            raise SetupError(f"there is no device {device}; see `fieldpost device list`")
        full, is_revoked = f"{bare}/{client}" if client else bare, account.revoked is not None
        sender = Sender(
            full, bare, device, not is_revoked, account.trusted, _NO_SESSION, is_revoked
        )
        if not may_use_services(sender):
            return Verdict(False, f"{device} is {'revoked' if is_revoked else 'not trusted'}")
        try:
            topic = _checked(context, right, topic)
            topic_rights.check(context, tx, sender, right, topic)
            by_node = _check_node(context, tx, sender, right, topic)
        except PubsubError as error:
            if error.rule == topic_rights.REFUSED:
                return Verdict(False, error.text)
            return Verdict(False, f"its request gets the error: {error.text}")
        return Verdict(True, f"{_by_rule(context, tx, sender, right, topic)}; {by_node}")


def _checked(context: Context, right: Right, topic: str) -> str:
    """Return a topic, or the filter to which a subscription refers; raises `PubsubError`."""
    if right is Right.PUBLISH:
        nodes.check_name(context, topic)
        return topic
    target = subscriptions.parse_target(context, topic)
    return target.filter or target.text


def _by_rule(context: Context, tx: Transaction, sender: Sender, right: Right, topic: str) -> str:
    if not context.access:
        return "there are no rules in [[access]]"
    rights = topic_rights.rights(context, tx, sender.full)
    return f'access[{rights.rule}] allows it by "{rights.grant(right, topic)}"'


def _check_node(context: Context, tx: Transaction, sender: Sender, right: Right, topic: str) -> str:
    """Return what the node says, if it exists; raises `PubsubError` if it refuses."""
    node = queries.find_node(tx, topic)
    if node is None:
        if right is Right.SUBSCRIBE:
            return "each node is checked when it has an item"
        if nodes.auto_created(context, sender, topic) is None:
            raise PubsubError(Reason.NODE_NOT_FOUND)
        return "the first publication creates the node"
    affiliation, config = access.affiliation_of(tx, node, sender.bare), node.config
    if right is Right.PUBLISH:
        access.check_publish(tx, node, sender)
        model = f"publish_model {config.publish_model}"
    else:
        access.get_readable_node(context, tx, sender, topic)
        model = f"access_model {config.access_model}"
    return f"the node allows it (affiliation {affiliation}, {model})"
