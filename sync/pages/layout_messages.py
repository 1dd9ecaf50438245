"""The tables on messages: how fast they went, which came twice, which wait, which went nowhere."""

from __future__ import annotations

from typing import Final

from sync.pages import text as words
from sync.pages.column import (
    Column,
    Layout,
    alarm,
    flag,
    length,
    number,
    prose,
    state,
    text,
    time,
)

DELIVERY: Final = Layout(
    "delivery",
    "Delivery",
    "From taking a message into custody to its delivery, by level. Percentiles are exact (nearest "
    "rank: a latency that occurred). Plain and acknowledged messages are delivered as they come.",
    (
        text("gateway", "Gateway"),
        Column("qos", "Level", words.level),
        number("events", "Events"),
        *(number(f"{name}_ms", name, words.milliseconds) for name in ("p50", "p95", "p99", "max")),
    ),
)

LAG: Final = Layout(
    "lag",
    "Upstream lag",
    "From the event to the arrival of its segment here: sealing, waiting and the link. It compares "
    "two clocks, so what was written while a gateway's clock was not synchronised stands apart.",
    (
        text("gateway", "Gateway"),
        Column("clock", "Gateway's clock", words.synchronised),
        number("events", "Events"),
        *(length(f"{name}_s", name) for name in ("p50", "p95", "p99", "max")),
    ),
)

DUPLICATES: Final = Layout(
    "duplicates",
    "Duplicates",
    "What came again and was recognised: messages that a device offered to its gateway, segments "
    "that a gateway sent here. Many of them tell of a bad link.",
    (
        text("gateway", "Gateway"),
        text("what", "What"),
        prose("source", "From"),
        number("times", "Times"),
        time("since", "First"),
        time("until", "Last"),
    ),
    "Nothing came again.",
)

QUEUES: Final = Layout(
    "queues",
    "Queues",
    "What waits, as told last, and what happened in all the time. A queue is stuck when items are "
    "due and none was delivered for long; dead items are those that no worker could take.",
    (
        text("gateway", "Gateway"),
        prose("queue", "Queue"),
        state("state", "State"),
        time("since", "Stuck since"),
        number("depth", "Depth"),
        number("ready", "Ready"),
        number("locked", "Locked"),
        number("delayed", "Delayed"),
        alarm("dead", "Dead"),
        length("oldest_s", "Oldest"),
        number("members", "Members"),
        number("depth_max", "Deepest"),
        number("delivered", "Delivered"),
        number("redelivered", "Redelivered"),
        number("timeouts", "Time-outs"),
        number("dead_items", "Died"),
        number("purged", "Purged"),
        number("unlocked", "Unlocked"),
        number("requeued", "Requeued"),
        number("stuck", "Times stuck"),
        number("recovered", "Recovered"),
        length("longest_stuck_s", "Stuck longest for"),
        time("last_told", "Last told"),
    ),
    "No gateway told of a queue.",
)

REFUSALS: Final = Layout(
    "refusals",
    "Refusals",
    "What limits refused, by who asked and by the rule that refused it. A surge is a day with far "
    "more of them than is usual.",
    (
        prose("source", "Source"),
        text("rule", "Rule"),
        flag("surge", "Surge"),
        number("times", "Times"),
        number("latest", "Latest day"),
        number("usual", "Usual day", words.decimal),
        time("since", "First"),
        time("until", "Last"),
        number("gateways", "Gateways"),
        prose("which", "Which"),
    ),
    "No limit refused anything.",
)

NOTICES: Final = Layout(
    "notices",
    "Messages lost and refusals",
    "What the gateways told of messages that went nowhere (dead, expired, evicted), and of what "
    "their limits refused, by the rule.",
    (
        text("gateway", "Gateway"),
        text("kind", "Kind"),
        text("name", "Name"),
        number("times", "Times"),
        time("since", "First"),
        time("until", "Last"),
    ),
    "No message was lost, and nothing was refused.",
)
