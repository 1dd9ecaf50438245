"""The bounds of publish-subscribe: a part of the one table, `edge.config.limits`.

Nothing here does anything.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from edge.config.options import KIB, MIB, option


class PubsubLimits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The bounds of nodes, subscriptions, items and queues."""

    nodes: Annotated[int, option("Nodes of publish-subscribe.", "nodes", ge=1)] = 1000
    nodes_per_account: Annotated[
        int, option("Of those, created by one account.", "nodes", ge=1)
    ] = 200
    node_bytes: Annotated[
        int, option("The longest name of a node, or filter; of 32 levels at most.", "bytes", ge=16)
    ] = 256
    affiliations: Annotated[
        int, option("Accounts that a node knows by their affiliation.", "accounts", ge=1)
    ] = 200
    subscriptions: Annotated[
        int, option("Subscriptions to nodes and filters.", "subscriptions", ge=1)
    ] = 10_000
    subscriptions_per_account: Annotated[
        int, option("Of those, of one account.", "subscriptions", ge=1)
    ] = 100
    items: Annotated[int, option("Items that nodes keep, queues apart.", "items", ge=1)] = 50_000
    items_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=64 * KIB)] = 64 * MIB
    items_per_node: Annotated[
        int, option("Of those, of one node: what `max_items` may be at most.", "items", ge=1)
    ] = 10_000
    queue_items: Annotated[
        int,
        option(
            "Items that wait in queues, or are worked on, or dead; shares take no more than half.",
            "items",
            ge=2,
        ),
    ] = 200_000
    queue_bytes: Annotated[int, option("The bytes of those.", "bytes", ge=64 * KIB)] = 256 * MIB
    items_per_queue: Annotated[int, option("Of those, in one queue.", "items", ge=1)] = 100_000
    queue_bytes_per_queue: Annotated[int, option("The bytes of those.", "bytes", ge=64 * KIB)] = (
        128 * MIB
    )
    queue_requests: Annotated[
        int, option("Items that one member of a queue may work on at a time.", "items", ge=1)
    ] = 100
    notifications_per_account: Annotated[
        int,
        option(
            "Words of deleted and unlocked items that wait for an account's workers; beyond, the"
            " oldest is dropped and logged.",
            "messages",
            ge=8,
        ),
    ] = 256
    commands: Annotated[
        int,
        option(
            "Ad-hoc commands that one session has begun (XEP-0050); beyond, its oldest is over.",
            "commands",
            ge=1,
        ),
    ] = 4
    command_time: Annotated[
        float,
        option(
            "How long a command waits for its form; then it is over.", "seconds of service", gt=0
        ),
    ] = 600.0
