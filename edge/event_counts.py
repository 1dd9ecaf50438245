"""Count the gateway's own events for the metrics, under a bounded number of label values.

Refusals are counted when they are logged, so that frequent ones appear up to
`limits.refusal_window` later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from edge.engine.log.refusals import without_details
from edge.engine.store import message_counts
from edge.engine.store.events import NewEvent

MAX_LABELS: Final = 64
"""Maximum distinct values of a label; further ones are counted as `other`. The gateway has about
forty rules and a dozen reasons."""

OTHER: Final = "other"

LOGIN_REASONS: Final = (
    "unknown account",
    "wrong password",
    "account revoked",
    "account without password",
    "certificate expired",
    "certificate not valid yet",
    "certificate of another CA",
    "certificate revoked",
    "certificate unknown",
    "too many failed logins",
)
"""The usual reasons of failed log-ins."""

LOSSES: Final = ("evicted", "unwritten")
"""Names of the events that report the number of events lost: from a full backlog, or before they
were written."""

_LOGIN_RULES: Final = frozenset({"authentication", "authentication_limit"})
_DEAD: Final = ("dead", "in_doubt")


class EventCounts:
    """Counts of events since the start of the process.

    Those with few label values begin with zeros: Prometheus sees no increase in a time series that
    begins with 1.

    Attributes:
        refusals: refusals by rule.
        failed_logins: failed log-ins by reason.
        messages: messages from devices, by quality of service and outcome.
        dead_letters: messages that became dead letters, by quality of service and state.
        lost_events: events that were lost before the centre had them, by reason.
    """

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()
        self.failed_logins = Counter(dict.fromkeys(LOGIN_REASONS, 0))
        self.messages = Counter(dict.fromkeys(message_counts.OUTCOMES, 0))
        self.dead_letters = Counter(dict.fromkeys(product(("1", "2"), _DEAD), 0))
        self.lost_events = Counter(dict.fromkeys(LOSSES, 0))

    def add_messages(self, counts: Mapping[tuple[int, str], int]) -> None:
        """Add numbers of messages, by quality of service and outcome, after their commit."""
        for key, times in counts.items():
            self.messages[key] += times

    def add(self, events: Iterable[NewEvent]) -> None:
        """Count events after their commit."""
        for event in events:
            name = event.name or ""
            if event.kind == "limit":
                times = round(event.value or 1.0)
                _count(self.refusals, without_details(name), times)
                if name in _LOGIN_RULES:
                    _count(self.failed_logins, event.text or OTHER, times)
            elif event.kind == "message" and name in _DEAD:
                self.dead_letters[str(event.qos or 0), name] += 1
            elif event.kind == "uplink" and name in LOSSES:
                self.lost_events[name] += round(event.value or 0.0)


def _count(counter: Counter[str], label: str, times: int) -> None:
    label = label.replace("\\", "/").replace('"', "'").replace("\n", " ")
    if label not in counter and len(counter) >= MAX_LABELS:
        label = OTHER
    counter[label] += times
