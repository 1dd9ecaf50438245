"""The verdict of a `count` run: compare the devices' outboxes with the gateway's event log.

A message is identified by (source, n): the device's full JID and its number in the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from firmware_sim.device.sender_rules import LIVE, State
from firmware_sim.scenarios.record import Key
from firmware_sim.scenarios.verdict import Verdict, row


def judge(planned: int, believed: Mapping[Key, State], logged: Iterable[Key] | None) -> Verdict:
    """Compare the states of messages in the devices' outboxes with the gateway's event log.

    The run is exact if exactly the `planned` messages were sent, delivered, and logged once.
    `logged` are the events of the run in the log, with repetitions; None if there is no log.
    """
    times = Counter(logged or ())
    keys = {state: [key for key, found in believed.items() if found is state] for state in State}
    done, doubt = keys[State.DONE], keys[State.IN_DOUBT]
    found = {
        "duplicate": [key for key, count in times.items() if count > 1],
        "missing": [] if logged is None else [key for key in done if key not in times],
        "unexpected": [k for k in times if believed.get(k, State.FAILED) is State.FAILED],
        "in doubt": doubt,
        "failed": keys[State.FAILED],
        "pending": [key for state in LIVE for key in keys[state]],
    }
    faults = {
        name: [f"{source} n={n}" for source, n in sorted(keys)]
        for name, keys in found.items()
        if keys
    }
    if planned != len(believed):
        faults["not as many sent as planned"] = [f"{len(believed)} of {planned}"]
    doubt_logged = sum(key in times for key in doubt)
    rows = (
        ("planned", planned, ""),
        ("sent", len(believed), "accepted by the devices' outboxes"),
        ("delivered", len(done), "according to the devices"),
        ("logged", None if logged is None else len(times), "distinct events in the gateway's log"),
        ("duplicates", times.total() - len(times), "logged more than once"),
        ("missing", len(found["missing"]), "delivered according to the devices, but not logged"),
        ("unexpected", len(found["unexpected"]), "logged, but failed or never sent"),
        ("in doubt", len(doubt), f"of which logged: {doubt_logged}"),
        ("failed", len(found["failed"]), "certainly not delivered"),
        ("pending", len(found["pending"]), "still in an outbox"),
    )
    numbers = {name.replace(" ", "_"): count for name, count, _ in rows}
    table = [row(name, "-" if count is None else count, note=note) for name, count, note in rows]
    more = {"in_doubt_logged": doubt_logged}
    return Verdict(numbers | more, table, faults, judged=logged is not None)
