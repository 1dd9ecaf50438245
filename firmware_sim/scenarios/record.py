"""The record of a run in its folder: its settings, and an outbox for each device.

An interrupted run continues from it, and a verdict can be made later.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox
from firmware_sim.device.sender_rules import State
from firmware_sim.errors import FirmwareError

if TYPE_CHECKING:
    from firmware_sim.scenarios.count_verdict import Key

EVENT: Final = "Counted"
"""The id of each event that a run logs."""

RESOURCE: Final = "fw"
_FILE: Final = "run.json"
_VERSION: Final = 1


class RunMismatch(FirmwareError):
    """The folder contains another run, or none."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run: its id (a tag of each event), its devices, and how many messages each sends."""

    run: str
    domain: str
    devices: tuple[str, ...]
    messages: int

    @classmethod
    def begin(cls, state: Path, domain: str, devices: tuple[str, ...], messages: int) -> Self:
        """Begin a run in a folder, or continue the one in it.

        Raises:
            RunMismatch: it contains a run of other devices or another number of messages.
        """
        state.mkdir(parents=True, exist_ok=True)
        if not (state / _FILE).exists():
            record = cls(secrets.token_hex(8), domain, devices, messages)
            text = json.dumps({"version": _VERSION, **asdict(record)}, indent=1)
            (state / _FILE).write_text(text + "\n")
            return record
        record = cls.load(state)
        if (record.domain, record.devices, record.messages) != (domain, devices, messages):
            raise RunMismatch(f"{state} holds another run; give a new folder")
        return record

    @classmethod
    def load(cls, state: Path) -> Self:
        """Read the run of a folder.

        Raises:
            RunMismatch: there is none, or it cannot be read.
        """
        try:
            row = json.loads((state / _FILE).read_text())
            if row.pop("version") != _VERSION:
                raise RunMismatch(f"{state / _FILE} is of another version")
            return cls(**{**row, "devices": tuple(row["devices"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunMismatch(f"{state} holds no run: {error}") from error

    @property
    def planned(self) -> int:
        """Number of messages that the run sends."""
        return len(self.devices) * self.messages

    @property
    def limits(self) -> OutboxLimits:
        """Limits under which each outbox remembers every message of the run."""
        most = max(self.messages, 1)
        return OutboxLimits(keep_done=most, keep_failed=most)

    def jid(self, device: str) -> str:
        """Return a device's full JID."""
        return f"{device}@{self.domain}/{RESOURCE}"

    def outbox(self, state: Path, device: str) -> Path:
        """Return the file of a device's outbox."""
        return state / f"{device}.outbox"

    def believed(self, state: Path) -> dict[Key, State]:
        """Read from all outboxes what the devices believe of their messages.

        Raises:
            OutboxError: one cannot be read, or its device is still running.
        """
        found: dict[Key, State] = {}
        for device in self.devices:
            path, jid = self.outbox(state, device), self.jid(device)
            if not path.exists():
                continue
            with Outbox.open(path, jid, self.limits) as outbox:
                for record in outbox.records(*State):
                    found[jid, int(record.label)] = record.state
        return found
