"""The rules and the dashboard in deploy/monitoring, beside the metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers import promtool

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "monitoring"
RULES: Final = FOLDER / "fieldpost.rules.yml"
DASHBOARD: Final[dict[str, Any]] = json.loads(
    (FOLDER / "fieldpost.dashboard.json").read_text("utf-8")
)
GUIDE: Final = (ROOT / "docs" / "how-to" / "monitor.md").read_text("utf-8")
METRICS: Final = {
    name: dict(re.findall(r"`(\w+)`(?:: ([\w, ]+))?", labels))
    for name, labels in re.findall(
        r"^\| `(fieldpost_\w+)` \| \w+ \| (.*?) \|",
        (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8"),
        re.MULTILINE,
    )
}
"""The labels of each metric that the gateway and the receiver have, and the values of those with
few; the page is generated from their output."""

ALERTS: Final = dict(
    re.findall(r"- alert: (\w+)\n(.+?)(?=\n\n|\Z)", RULES.read_text("utf-8"), re.DOTALL)
)
"""The text of each alert."""

PANELS: Final[list[dict[str, Any]]] = [
    panel for panel in DASHBOARD["panels"] if panel["type"] != "row"
]
EXPRESSIONS: Final[list[str]] = [
    target["expr"].replace("$__rate_interval", "5m")
    for panel in PANELS
    for target in panel["targets"]
]

STEP_MINUTES: Final = 5
HOURS: Final = 8
SAMPLES: Final = HOURS * 60 // STEP_MINUTES
GATEWAY: Final = 'instance="gw1",job="fieldpost"'
DAY: Final = 86_400
NEW: Final = 6
"""Number of the last samples that `lately` changes: 25 minutes."""


def steady(value: float) -> str:
    return f"{value}x{SAMPLES}"


def rising(step: float, begin: float = 0) -> str:
    return f"{begin}{step:+}x{SAMPLES}"


def lately(before: float, after: float, samples: int = NEW) -> str:
    """Return a series whose last samples have another value."""
    return f"{before}x{SAMPLES - samples} {after}x{samples - 1}"


WELL: Final = {
    f"up{{{GATEWAY}}}": steady(1),
    'up{instance="centre",job="fieldpost-centre"}': steady(1),
    'health{state="failing"}': steady(0),
    'health{state="degraded"}': steady(0),
    "uptime_seconds": rising(300),
    "time_seconds": rising(300),
    "clock_synchronised": steady(1),
    'front_restarts_total{front="1"}': steady(1),
    'front_restarts_total{front="2"}': steady(0),
    'sessions{protocol="mqtt"}': steady(3),
    'limit_used{limit="sessions"}': steady(79),
    'limit_allowed{limit="sessions"}': steady(100),
    'limit_used{limit="recent_bytes"}': steady(100),
    'limit_allowed{limit="recent_bytes"}': steady(100),
    'limit_used{limit="backlog_bytes"}': steady(10),
    'limit_allowed{limit="backlog_bytes"}': steady(1000),
    'limit_allowed{limit="database_reserve"}': steady(64),
    "disk_free_bytes": steady(200),
    'commit_duration_seconds_bucket{le="0.5"}': rising(100),
    'commit_duration_seconds_bucket{le="5.0"}': rising(100),
    'commit_duration_seconds_bucket{le="+Inf"}': rising(100),
    "uplink_configured": steady(1),
    'backlog_segments{lane="system"}': steady(1),
    "uplink_last_upload_timestamp_seconds": rising(300),
    "uplink_lag_seconds": steady(299),
    'events_lost_total{reason="evicted"}': steady(0),
    "queue_oldest_item_age_seconds": steady(60),
    'queue_items{state="dead"}': steady(2),
    'messages_dead_lettered_total{qos="1"}': steady(4),
    'failed_logins_total{reason="wrong password"}': rising(1),
    'refusals_total{rule="nodes"}': rising(1),
    'certificate_expiry_timestamp_seconds{certificate="server"}': steady(40 * DAY),
    "centre_disk_free_bytes": steady(1e9),
    "centre_spooled_bytes": steady(0),
    "centre_certificate_expiry_timestamp_seconds": steady(40 * DAY),
}
"""The metrics of a gateway and a receiver that work well; the names without `fieldpost_`."""

UPLOAD: Final = "uplink_last_upload_timestamp_seconds"
SEGMENTS: Final = 'backlog_segments{lane="system"}'
BACKLOG: Final = 'limit_used{limit="backlog_bytes"}'
CASES: Final[dict[str, tuple[dict[str, str | None], set[str]]]] = {
    "all is well": ({}, set()),
    "down": ({f"up{{{GATEWAY}}}": lately(1, 0)}, {"Down"}),
    "failing": ({'health{state="failing"}': lately(0, 1)}, {"Failing"}),
    "one restart": ({"uptime_seconds": f"0+300x{SAMPLES - 4} 0+300x3"}, set()),
    "restarts": ({"uptime_seconds": f"0+300x{SAMPLES - 4} 9 6 3 1"}, {"Restarts"}),
    "degraded": ({'health{state="degraded"}': lately(0, 1)}, {"Degraded"}),
    "one front ends": ({'front_restarts_total{front="1"}': lately(1, 2)}, set()),
    "fronts end": (
        {f'front_restarts_total{{front="{each}"}}': lately(0, 2) for each in (1, 2)},
        {"FrontRestarts"},
    ),
    "limit": ({'limit_used{limit="sessions"}': lately(0, 81)}, {"LimitNear"}),
    "disk near its reserve": ({"disk_free_bytes": lately(130, 127)}, {"DiskFills"}),
    "disk fills": ({"disk_free_bytes": rising(-10, 2000)}, {"DiskFills"}),
    "slow commits": (
        {'commit_duration_seconds_bucket{le="0.5"}': rising(90)},
        {"CommitsSlow"},
    ),
    "upload stops": ({UPLOAD: steady(9)}, {"UplinkStopped"}),
    "no upload ever": ({UPLOAD: None}, {"UplinkStopped"}),
    "nothing to upload": ({UPLOAD: steady(0), SEGMENTS: steady(0)}, set()),
    "no uplink": (
        {"uplink_configured": steady(0), UPLOAD: None, "uplink_lag_seconds": rising(300)},
        set(),
    ),
    "upload is slow": ({"uplink_lag_seconds": lately(3600, 3601)}, {"UplinkLags"}),
    "backlog fills": ({BACKLOG: rising(4, 150)}, {"BacklogFills"}),
    "backlog that begins": ({BACKLOG: rising(4, 100)}, set()),
    "events lost": ({'events_lost_total{reason="evicted"}': lately(0, 9)}, {"EventsLost"}),
    "queue stuck": ({"queue_oldest_item_age_seconds": lately(1, 1801)}, {"QueueStuck"}),
    "dead letter": ({'messages_dead_lettered_total{qos="1"}': lately(4, 5)}, {"DeadLetters"}),
    "dead item": ({'queue_items{state="dead"}': lately(2, 3)}, {"DeadLetters"}),
    "sessions gone": ({'sessions{protocol="mqtt"}': lately(3, 0, 7)}, {"NoSessions"}),
    "no devices yet": ({'sessions{protocol="mqtt"}': steady(0)}, set()),
    "guesses": (
        {'failed_logins_total{reason="wrong password"}': lately(0, 30, 1)},
        {"FailedLogins"},
    ),
    "refusals": ({'refusals_total{rule="nodes"}': rising(5)}, {"Refusals"}),
    "certificate": (
        {'certificate_expiry_timestamp_seconds{certificate="server"}': steady(14 * DAY)},
        {"CertificateExpires"},
    ),
    "certificate today": (
        {'certificate_expiry_timestamp_seconds{certificate="server"}': steady(DAY)},
        {"CertificateExpires", "CertificateExpired"},
    ),
    "clock ahead": ({"time_seconds": rising(300, 61)}, {"ClockWrong"}),
    "clock free": ({"clock_synchronised": steady(0)}, {"ClockUnsynchronised"}),
    "centre down": (
        {'up{instance="centre",job="fieldpost-centre"}': lately(1, 0)},
        {"CentreDown"},
    ),
    "centre spools": ({"centre_spooled_bytes": lately(0, 9)}, {"CentreSpools"}),
    "centre fills": ({"centre_disk_free_bytes": rising(-1e6, 2e8)}, {"CentreDiskFills"}),
    "receiver's certificate": (
        {"centre_certificate_expiry_timestamp_seconds": steady(14 * DAY)},
        {"CentreCertificateExpires"},
    ),
}
"""The metrics that differ from `WELL`, and the alerts that fire, without `Fieldpost`."""


def selector(name: str) -> str:
    if name.startswith("up{"):
        return name
    base, brace, labels = name.partition("{")
    own = labels.rstrip("}") + "," if brace else ""
    return f"fieldpost_{base}{{{own}{GATEWAY}}}"


def rule_test(different: dict[str, str | None], fire: set[str]) -> dict[str, object]:
    samples = [{"labels": f'{{alertname="Fieldpost{each}"}}', "value": 1} for each in sorted(fire)]
    return {
        "interval": f"{STEP_MINUTES}m",
        "input_series": [
            {"series": selector(name), "values": values}
            for name, values in (WELL | different).items()
            if values is not None
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{HOURS}h",
                "exp_samples": samples,
            }
        ],
    }


def test_promtool_accepts_the_rules() -> None:
    promtool.run("check", "rules", RULES)


def test_promtool_fires_each_alert_when_it_should(tmp_path: Path) -> None:
    fired = set().union(*(fire for _, fire in CASES.values()))
    assert {f"Fieldpost{each}" for each in fired} == set(ALERTS)
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_MINUTES}m",
        "tests": [{"name": name, **rule_test(*case)} for name, case in CASES.items()],
    }
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(tests), "utf-8")
    promtool.run("test", "rules", path)


def test_promtool_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(EXPRESSIONS)]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")
    promtool.run("check", "rules", path)


@pytest.mark.parametrize("text", [*ALERTS.values(), *EXPRESSIONS])
def test_metrics_and_their_labels_exist(text: str) -> None:
    assert re.search(r"fieldpost_|up\{", text)
    for name, labels in re.findall(r"(fieldpost_\w+)(?:\{([^}]*)\})?", text):
        known = METRICS[name.removesuffix("_bucket")]
        for label, value in re.findall(r'(\w+)!?=~?"([^"]*)"', labels):
            if label not in {"instance", "job"}:  # Prometheus adds them
                assert label in known, f"{name} has no label {label}"
                assert value in known[label].split(", ") or not known[label]


def test_limits_that_are_named_exist() -> None:
    named = re.findall(r'limit!?=~?"([a-z_|]+)"', RULES.read_text("utf-8") + str(EXPRESSIONS))
    options = (ROOT / "docs" / "reference" / "options.md").read_text("utf-8")
    assert named
    for name in "|".join(named).split("|"):
        assert f"`{name}`" in options


def test_each_alert_says_how_urgent_it_is_and_what_to_do() -> None:
    headings = re.findall(r"^### (Fieldpost\w+)$", GUIDE, re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)
    for name, text in ALERTS.items():
        assert re.search(r"labels: \{severity: (page|ticket)\}", text), name
        assert re.search(r'summary: ".+\.?"', text), name
        assert f"runbook_url: docs/how-to/monitor.md#{name.lower()}" in text


def test_the_dashboard_can_be_imported() -> None:
    """Grafana's JSON model: https://grafana.com/docs/grafana/latest/dashboards/json-models/."""
    assert re.fullmatch(r"[a-z-]{1,40}", DASHBOARD["uid"])
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 36
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        assert panel["description"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert 'job=~"$job",instance=~"$instance"' in target["expr"]
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(DASHBOARD)))
    assert used == set(variables)


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path and the value of each leaf of a JSON value."""
    if value and isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, f"{path}/{key}")
    else:
        yield f"{path}: {value!r}"


def test_the_dashboard_has_only_fields_of_grafanas_model() -> None:
    """The model drops other fields, such as misspelled options of a panel."""
    plugins, encoder, model = (
        pytest.importorskip(f"grafana_foundation_sdk.{name}", reason="`make venv` installs it")
        for name in ("cog.plugins", "cog.encoder", "models.dashboard")
    )
    plugins.register_default_plugins()
    kept = json.loads(encoder.JSONEncoder().encode(model.Dashboard.from_json(DASHBOARD)))
    lost = set(leaves(DASHBOARD)) - set(leaves(kept))
    (of_the_data_source,) = lost
    assert of_the_data_source.startswith("/annotations/list/0/titleFormat: ")


def test_no_two_panels_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_every_metric_of_the_gateway_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = set(re.findall(r"fieldpost_\w+", str(EXPRESSIONS) + RULES.read_text("utf-8")))
    shown |= {name.removesuffix("_bucket") for name in shown}
    assert {name for name in METRICS if "_centre_" not in name} - shown == set()
