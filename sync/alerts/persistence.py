"""Store the alerts' state between runs, in `alerts/` below the tables.

There are two files, each replaced atomically: the fleet's state, and the journal of alerts. The
state is saved first. If the process dies before the journal is saved, the next process evaluates
the same state again. An object store has no lock. There, of two processes, the one that is later to
save a changed journal fails before it sends the alerts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec

from sync.alerts.incidents import Alert, Incident
from sync.alerts.state import FleetState
from sync.common.errors import FleetError, LeaseError
from sync.storage.storage import Storage

VERSION: Final = 1
"""Version of both files. A state of another version is discarded, and the tables are read again; a
journal of another version is an error."""

FOLDER: Final = "alerts"
"""The folder of the files, below the folder of the tables."""

_STATE: Final = "seen.json"
_JOURNAL: Final = "told.json"

MAX_WEBHOOK_QUEUE: Final = 1_000
"""Maximum number of alerts that wait for the webhook. If more wait, the oldest are discarded and
counted."""

MAX_OUTPUT_QUEUE: Final = 10_000
"""Maximum number of alerts that wait to be written to the output: one round can raise an alert for
each gateway, and more. If more wait, the oldest are discarded and counted."""


class _StateFile(msgspec.Struct, rename={"state": "seen"}):
    version: int
    state: FleetState


class AlertJournal(
    msgspec.Struct,
    rename={  # the names in the state file
        "incidents": "stretches",
        "output_queue": "lines",
        "webhook_queue": "posts",
    },
):
    """The incidents, and the alerts that wait for output and webhook, oldest first.

    `dropped` counts the alerts that were discarded because a queue was full.
    """

    version: int = VERSION
    incidents: list[Incident] = []
    output_queue: list[Alert] = []
    webhook_queue: list[Alert] = []
    dropped: int = 0

    def enqueue(self, alerts: list[Alert], *, webhook: bool) -> int:
        """Queue alerts for output and, if `webhook`, for sending; return how many were dropped."""
        dropped = _push(self.output_queue, alerts, MAX_OUTPUT_QUEUE)
        if webhook:
            dropped += _push(self.webhook_queue, alerts, MAX_WEBHOOK_QUEUE)
        self.dropped += dropped
        return dropped


def _push(queue: list[Alert], alerts: list[Alert], limit: int) -> int:
    queue += alerts
    excess = max(0, len(queue) - limit)
    del queue[:excess]
    return excess


class StateStore:
    """State and journal, two files in the storage `folder`. Methods raise OSError if it fails."""

    def __init__(self, folder: Storage) -> None:
        self._folder = folder
        self._contents: list[bytes] = []
        """The journal as this process has read it or may have written it."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, on a local disk. Raises LeaseError if another process holds it."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._folder.lease())
            except LeaseError as error:
                raise self._busy() from error
            yield

    def load_state(self) -> FleetState | None:
        """Load the fleet's state; return None if it must be read from the tables again."""
        try:
            file = msgspec.json.decode(self._folder.read(_STATE), type=_StateFile)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return file.state if file.version == VERSION else None

    def save_state(self, state: FleetState) -> None:
        """Save the fleet's state durably."""
        self._folder.replace(_STATE, msgspec.json.encode(_StateFile(VERSION, state)))

    def load_journal(self) -> AlertJournal:
        """Load the journal. Raises FleetError when it cannot be read."""
        try:
            data = self._folder.read(_JOURNAL)
        except FileNotFoundError:
            return AlertJournal()
        self._contents = [data]
        try:
            journal = msgspec.json.decode(data, type=AlertJournal)
        except msgspec.DecodeError as error:
            reason = str(error)
        else:
            if journal.version == VERSION:
                return journal
            reason = f"it has version {journal.version}, not {VERSION}"
        raise FleetError(
            f"{self._folder.uri(_JOURNAL)} cannot be read: {reason}. If you delete it, active "
            "alerts are sent again with the same ids"
        )

    def save_journal(self, journal: AlertJournal) -> None:
        """Save the journal durably. Raises LeaseError if another process has changed it."""
        data = msgspec.json.encode(journal)
        self._contents.append(data)  # also a call that fails may have written it
        try:
            self._folder.replace(_JOURNAL, data, self._contents)
        except FileExistsError as error:
            raise self._busy() from error
        self._contents = [data]

    def _busy(self) -> LeaseError:
        return LeaseError(
            f"another `fieldpost-fleet alerts` already runs with the state in {self._folder.uri()}"
        )
