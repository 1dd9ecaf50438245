"""The tables on gateways themselves: whether they ran, what came, their clocks, versions, disks."""

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
    state,
    text,
    time,
)

AVAILABILITY: Final = Layout(
    "availability",
    "Availability",
    "Running is told by heartbeats, once the backlog came in; reachable by what arrives here. "
    "More than 2.5 times its interval without a heartbeat is an outage, unless the gateway stopped "
    "cleanly or the events of that time are missing (then it is unknown); longer without an "
    "arrival than usual is a silence. Nothing is said of the time after the last heartbeat.",
    (
        text("gateway", "Gateway"),
        state("state", "State"),
        number("running_share", "Running", words.share),
        number("reachable_share", "Reachable", words.share),
        time("last_seen", "Last seen"),
        alarm("outages", "Outages"),
        length("running_s", "Ran for"),
        length("outage_s", "Out for"),
        length("stopped_s", "Stopped for"),
        length("unknown_s", "Unknown for"),
        length("longest_gap_s", "Longest gap"),
        number("restarts", "Restarts"),
        alarm("unclean_restarts", "Unclean"),
        number("silences", "Silences"),
        length("longest_silence_s", "Longest silence"),
        length("silent_after_s", "Silent after"),
        time("last_arrival", "Last arrival"),
        time("first_seen", "First seen"),
        number("clock_steps", "Clock set"),
    ),
)

OUTAGES: Final = Layout(
    "outages",
    "Outages",
    "Each time without a sign of life, latest first: from the last sign before to the first after, "
    "by the gateway's clock. It restarted, began a new epoch, or went on without a start.",
    (
        text("gateway", "Gateway"),
        time("begin", "From"),
        time("end", "To"),
        length("seconds", "Length"),
        Column("ended", "Ended", words.spaced),
    ),
    "No outage is known.",
)

COMPLETENESS: Final = Layout(
    "completeness",
    "Completeness",
    "Every event has a number, from 1, without a gap. Missing = expected - received; what the "
    "gateway said it dropped is declared; the rest is unexplained, and must be zero. An epoch is "
    "closed by a clean stop, open while it may go on, torn when a later one began without that. "
    "Repeated counts segments that came again and were left out.",
    (
        text("gateway", "Gateway"),
        text("epoch", "Epoch"),
        text("lane", "Lane"),
        state("state", "State"),
        number("expected", "Expected"),
        number("received", "Received"),
        number("missing", "Missing"),
        number("declared", "Declared"),
        alarm("unexplained", "Unexplained"),
        alarm("duplicates", "Duplicates"),
        alarm("forks", "Forks"),
        alarm("chain_breaks", "Chain breaks"),
        number("repeated_segments", "Repeated"),
        number("first_seq", "First"),
        number("last_seq", "Last"),
        time("since", "Since"),
    ),
)

CLOCKS: Final = Layout(
    "clocks",
    "Clocks",
    "How far a gateway's clock is ahead of the centre's (at least) or behind it (at most: what the "
    "link took is in it), how much faster than true it runs, and how often it was set. An odd step "
    "is one that did not come with the clock's being synchronised.",
    (
        text("gateway", "Gateway"),
        state("state", "State"),
        number("skew_s", "Ahead by", words.signed),
        number("drift_ppm", "Drift", words.ppm),
        number("gain_ppm", "Gain on the centre", words.ppm),
        number("steps", "Steps"),
        alarm("odd_steps", "Odd steps"),
        length("step_sum_s", "Steps, in all"),
        number("step_max_s", "Largest step", words.signed),
        time("last_step", "Last step"),
        Column("synchronised", "Now", words.synchronised),
        number("unsynchronised_share", "Unsynchronised", words.share),
        length("unsynchronised_s", "Unsynchronised for"),
        length("worst_day_s", "On the worst day"),
    ),
)

VERSIONS: Final = Layout(
    "versions",
    "Versions",
    "Which versions of Fieldpost run, and whether one errs more than the one that was seen first "
    "before it, on the gateways that ran both. Careful: too little was seen for a judgement.",
    (
        text("version", "Version"),
        number("current", "Run it now"),
        number("gateways", "Ever ran it"),
        flag("worse", "Errs more"),
        flag("caution", "Careful"),
        number("per_thousand", "Errors in 1,000 events", words.decimal),
        number("per_day", "Errors a day", words.decimal),
        text("before", "Compared with"),
        number("compared", "Ran both"),
        number("higher", "More errors on"),
        number("ratio", "Times as many", words.decimal),
        number("events", "Events"),
        number("errors", "Errors"),
        number("gateway_days", "Days of a gateway", words.decimal),
        time("first_seen", "First seen"),
        time("last_seen", "Last seen"),
    ),
)

GROWTH: Final = Layout(
    "growth",
    "Growth",
    "What gateways ship in a day and keep on their disks, and in how many days that will reach its "
    "cap: the forecast, and the interval that it lies in.",
    (
        text("gateway", "Gateway"),
        state("state", "State"),
        number("days_left", "Full in", words.days),
        number("days_low", "at the earliest", words.days),
        number("days_high", "at the latest", words.days),
        number("disk_used", "Disk used", words.size),
        number("cap", "Cap", words.size),
        text("cap_from", "Cap told by"),
        number("trend_day", "Grows a day by", words.size),
        number("trend_low", "at least", words.size),
        number("trend_high", "at most", words.size),
        number("shipped_day", "Shipped a day", words.size),
        number("events_day", "Events a day"),
        number("days", "Days seen"),
        alarm("evicted", "Given up"),
        time("last_evicted", "Last given up"),
    ),
)
