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
    """

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()
        self.failed_logins: Counter[str] = Counter()
        self.messages = Counter(dict.fromkeys(message_counts.OUTCOMES, 0))
        self.dead_letters = Counter(dict.fromkeys(product(("1", "2"), _DEAD), 0))

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


def _count(counter: Counter[str], label: str, times: int) -> None:
    label = label.replace("\\", "/").replace('"', "'").replace("\n", " ")
    if label not in counter and len(counter) >= MAX_LABELS:
        label = OTHER
    counter[label] += times
