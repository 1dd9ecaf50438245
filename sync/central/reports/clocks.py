"""Report 8, clocks: how far each gateway's is off, how fast it runs, how often it is set."""

from __future__ import annotations

from typing import Final

from sync.central.reports.columns import FLAG, NUMBER, REAL, TEXT, TIME, columns

SCHEMA: Final = columns(
    gateway=TEXT,
    state=TEXT,
    skew_s=REAL,
    drift_ppm=REAL,
    gain_ppm=REAL,
    steps=NUMBER,
    odd_steps=NUMBER,
    step_sum_s=REAL,
    step_max_s=REAL,
    last_step=TIME,
    synchronised=FLAG,
    unsynchronised_share=REAL,
    unsynchronised_s=REAL,
    worst_day_s=REAL,
)
"""A gateway's clock. `state`, the first that holds: `stepping`, `unsynchronised`, `skewed`,
`drifting`, `ok`.

`skew_s`: seconds that it is ahead of the centre's, at least, where positive; that it is behind, at
most, where negative, since what the link took is in it. `drift_ppm`: parts per million by which it
ran faster than the gateway's service seconds, `gain_ppm` than the centre's clock; null where too
little is known. `steps`: how often it was set, by `step_sum_s` seconds altogether (absolute) and by
`step_max_s` at most (with its sign), the last time at `last_step`; `odd_steps`: those that did not
come with its being synchronised. `synchronised`: at its last heartbeat; `unsynchronised_share` of
the heartbeats, `unsynchronised_s` seconds of them, `worst_day_s` those of the day with most."""
