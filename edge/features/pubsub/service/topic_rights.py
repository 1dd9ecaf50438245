"""Check the rights by topic of `[[access]]`; without a rule, nothing is refused here.

The rights of each address are kept in memory (`Transaction.cache`). A reload that changes the rules
runs `on_external_change`, which drops them.
"""

from __future__ import annotations

from typing import Final

from edge.engine.dispatch.hooks import Context, Hooks
from edge.engine.log import refusals
from edge.engine.rules.access import Sender, may_manage_nodes
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules import topic_rights as rules
from edge.features.pubsub.rules.reasons import Reason
from edge.features.pubsub.rules.topic_rights import Right, TopicRights, TopicRule
from edge.features.pubsub.service import queueing
from edge.features.pubsub.service.errors import PubsubError
from edge.features.pubsub.store import recipients

REFUSED: Final = "access"
"""Name of the refusal of a request that no rule allows."""

CACHED: Final = 1024
"""Maximum number of addresses whose rights are cached; a full cache is emptied."""

_CACHE: Final = "topic rights"


def rights(context: Context, tx: Transaction, jid: str) -> TopicRights:
    """Return the rights of a bare or full JID; a bare JID has no client identifier."""
    cached: dict[str, TopicRights] = tx.cache.setdefault(_CACHE, {})
    found = cached.get(jid)
    if found is None:
        bare, _, client = jid.partition("/")
        topic_rules = (TopicRule(one.device, one.publish, one.subscribe) for one in context.access)
        found = rules.rights(topic_rules, bare.partition("@")[0], client)
        if len(cached) >= CACHED:
            cached.clear()
        cached[jid] = found
    return found


def is_allowed(context: Context, tx: Transaction, jid: str, right: Right, topic: str) -> bool:
    """Return whether the rules allow a right at a topic, or at all topics of a filter, to a JID."""
    return not context.access or rights(context, tx, jid).grant(right, topic) is not None


def check(context: Context, tx: Transaction, sender: Sender, right: Right, topic: str) -> None:
    """Check that the rules allow a right at a topic, or at all topics of a filter, to a sender. The
    operator needs no rule.

    Raises:
        PubsubError: no rule allows it; the refusal is not logged yet.
    """
    if is_allowed(context, tx, sender.full, right, topic) or may_manage_nodes(sender):
        return
    rule = rights(context, tx, sender.full).rule
    text = (
        f"the rule access[{rule}] does not allow {sender.account} to {right.value} to {topic}"
        if rule
        else f"no rule in [[access]] is for {sender.account}: it may not {right.value} to {topic}"
    )
    raise PubsubError(Reason.NOT_ALLOWED_BY_RULE, text, REFUSED)


def require(context: Context, tx: Transaction, sender: Sender, right: Right, topic: str) -> None:
    """Do the same as `check`, and log a refusal."""
    try:
        check(context, tx, sender, right, topic)
    except PubsubError:
        refusals.log(context, tx, sender, REFUSED)
        raise


def on_external_change(context: Context, tx: Transaction) -> None:
    """Check all rights again: the rules may have changed."""
    tx.cache.pop(_CACHE, None)
    recipients.forget(tx)
    queueing.of(context).release_all_withheld(context, tx)


def register_for_accounts(hooks: Hooks) -> None:
    """Register the hooks of this module with the engine."""
    hooks.on_external_change.append(on_external_change)
