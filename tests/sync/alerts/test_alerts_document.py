"""What `docs/alerts.md` says of kinds, thresholds and bounds is what the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

from sync.alerts import (
    incidents,
    json_lines,
    monitor,
    persistence,
    silence,
    state,
    webhook,
)
from sync.alerts.batch_reader import HISTORY_DAYS
from sync.alerts.incidents import Alert
from sync.alerts.verdict import REMEDIES, Kind, Subject
from sync.cli.commands import alerts
from sync.common.backoff import Backoff
from sync.reports import thresholds

TEXT = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text("utf-8")
TOLD = " ".join(TEXT.split())


def test_every_kind_and_field_is_told_of_and_no_other() -> None:
    first = TEXT.index("| kind |"), TEXT.index("The thresholds are")
    kinds = re.findall(r"^\| `(\w+)` \|", TEXT[slice(*first)], re.MULTILINE)
    assert set(kinds) == set(get_args(Kind)) == set(REMEDIES)
    table = TEXT[TEXT.index("| field |") : TEXT.index("What flaps")]
    rows = [line.split("|")[1] for line in table.splitlines()[2:] if "|" in line]
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(Alert.__struct_fields__)
    [example] = re.findall(r"```json\n(.*)\n```", TEXT)
    assert list(json.loads(example)) == list(Alert.__struct_fields__)
    assert json.loads(example)["id"] == incidents.alert_id(
        Subject("queue_stuck", "gw-003.example", "jobs/pumps"), 1_772_461_439_980
    )


def test_thresholds_and_bounds_are_as_told() -> None:
    hour = 3_600_000
    assert (hour, 24 * hour) == (incidents.REPEAT_MS, incidents.MAX_REPEAT_MS)
    assert (48 * hour, 720 * hour) == (incidents.CALM_MS, incidents.FORGET_MS)
    assert hour == incidents.HOLD_MS
    assert (
        webhook.MAX_REJECTIONS,
        monitor.MAX_FAILURES,
        json_lines.ROTATED_FILES,
        HISTORY_DAYS,
    ) == (5, 20, 4, 8)
    assert (Backoff().least, Backoff().most) == (1.0, 900.0)
    for words in (
        f"nothing arrived for {thresholds.SILENCE_S:.0f} s, or {thresholds.PATIENCE} times",
        f"none was delivered for {thresholds.STUCK_S / 60:.0f} minutes",
        f"at least {thresholds.SURGE_LEAST} refusals",
        f"more than {thresholds.SURGE:.0f} times those of the worst hour",
        f"nothing for {thresholds.TIMES:.0f} times its median interval, {thresholds.FLOOR_S:.0f} s",
        f"in the landing for more than {silence.INGEST_BEHIND_S:.0f} s",
        f"A gateway that is new has {silence.NEW_GATEWAY_TIMEOUT_S:,.0f} s until five intervals",
        f"held up for more than {thresholds.LATE_S:.0f} s",
        f"every {monitor.INTERVAL_S:.0f} seconds",
        f"at {json_lines.MAX_FILE_BYTES // 2**20} MiB renamed",
        f"within {webhook.TIMEOUT_S:.0f} s",
        f"Up to {persistence.MAX_WEBHOOK_QUEUE:,} alerts wait",
        f"at most {state.MAX_SENSORS:,} sensors, {state.MAX_QUEUES} queues and "
        f"{state.MAX_RULES} rules",
        f"and {state.MAX_GATEWAYS:,} gateways",
    ):
        assert words in TOLD, words
    assert (thresholds.SEALINGS, thresholds.INTERVALS) == (5, 5)


def test_every_option_and_variable_is_told_of() -> None:
    for option in alerts.command.params:
        assert f"{option.opts[0]}" in TEXT
    assert alerts.URL_VARIABLE in TEXT
    assert alerts.TOKEN_VARIABLE in TEXT
