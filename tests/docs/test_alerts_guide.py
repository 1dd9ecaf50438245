"""docs/how-to/alerts.md lists the kinds, fields, options and thresholds that the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

from sync.alerts import incidents, json_lines, monitor, persistence, rules, state, webhook
from sync.alerts.incidents import Alert
from sync.alerts.rules import REMEDIES, Kind, Subject
from sync.alerts.sources import HISTORY_DAYS
from sync.cli.commands import alerts
from sync.reports.shared import thresholds

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "alerts.md").read_text("utf-8")


def test_kinds_and_fields_are_documented() -> None:
    first = TEXT.index("| kind |"), TEXT.index("The thresholds are")
    kinds = re.findall(r"^\| `(\w+)` \|", TEXT[slice(*first)], re.MULTILINE)
    assert set(kinds) == set(get_args(Kind)) == set(REMEDIES)
    table = TEXT[TEXT.index("| field |") : TEXT.index("A subject that keeps changing")]
    rows = [line.split("|")[1] for line in table.splitlines()[2:] if "|" in line]
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(Alert.__struct_fields__)
    [example] = re.findall(r"```json\n(.*)\n```", TEXT)
    assert list(json.loads(example)) == list(Alert.__struct_fields__)
    assert json.loads(example)["id"] == incidents.alert_id(
        Subject("queue_stuck", "gw-003.example", "jobs/pumps"), 1_772_461_439_980
    )


def test_documented_thresholds_equal_those_of_the_code() -> None:
    table = TEXT[TEXT.index("| threshold |") :].split("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \|", table, re.MULTILINE)
    assert {name: float(value) for name, value in rows} == {
        "silence of a gateway, seconds": thresholds.SILENCE_S,
        "silence of a gateway, in its usual intervals": thresholds.MISSED_INTERVALS,
        "grace period of a new gateway, seconds": rules.NEW_GATEWAY_TIMEOUT_S,
        "queue without a delivery, seconds": thresholds.STUCK_S,
        "refusals in two hours, at least": thresholds.SURGE_MIN,
        "refusals, in those of the worst usual hour": thresholds.SURGE_FACTOR,
        "silence of a sensor, seconds": thresholds.MIN_SILENCE_S,
        "silence of a sensor, in its median intervals": thresholds.SILENT_INTERVALS,
        "segment waiting for the ingest, seconds": rules.INGEST_BEHIND_S,
        "delay after which data counts as late, seconds": thresholds.BACKLOG_S,
        "intervals that must be known first": thresholds.MIN_INTERVALS,
        "interval between checks, seconds": monitor.INTERVAL_S,
        "first repetition of an alert, seconds": incidents.REPEAT_MS / 1000,
        "last repetition of an alert, seconds": incidents.MAX_REPEAT_MS / 1000,
        "stable time that ends repetitions, seconds": incidents.CALM_MS / 1000,
        "silence after which a subject is forgotten, seconds": incidents.FORGET_MS / 1000,
        "webhook timeout, seconds": webhook.TIMEOUT_S,
        "rejections after which an alert is dropped": webhook.MAX_REJECTIONS,
        "alerts waiting for the webhook": persistence.MAX_WEBHOOK_QUEUE,
        "failed checks before it exits": monitor.MAX_FAILURES,
        "size of the output file, MiB": json_lines.MAX_FILE_BYTES // 2**20,
        "output files kept": json_lines.ROTATED_FILES,
        "days of history learnt at the start": HISTORY_DAYS,
        "sensors of a gateway": state.MAX_SENSORS,
        "queues of a gateway": state.MAX_QUEUES,
        "limits of a gateway": state.MAX_LIMITS,
        "gateways": state.MAX_GATEWAYS,
    }


def test_options_and_variables_are_documented() -> None:
    options = [option.opts[0] for option in alerts.command.params]
    for name in (*options, alerts.URL_VARIABLE, alerts.TOKEN_VARIABLE):
        assert name in TEXT
