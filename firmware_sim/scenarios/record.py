"""The files of a run in its folder: an outbox for each device and, for `count`, its settings.

With these files, an interrupted `count` run can continue, and a verdict can be made later.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from firmware_sim.device.errors import FirmwareError
from firmware_sim.device.limits import OutboxLimits
from firmware_sim.device.outbox import Outbox, OutboxRecord
from firmware_sim.device.sender_rules import State

EVENT: Final = "Counted"
"""The XEP-0337 event id of each event that a run sends."""

Key = tuple[str, int]
"""A message of a run: its sender's full JID, and its number among this sender's messages."""

_FILE: Final = "run.json"
_VERSION: Final = 1


class RunMismatch(FirmwareError, ValueError):
    """The folder contains no readable run, or one that does not match the arguments."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run: its id (the events' tag `run`), its devices, and the number of messages of each."""

    run: str
    domain: str
    devices: tuple[str, ...]
    messages: int

    @classmethod
    def begin(cls, state: Path, domain: str, devices: tuple[str, ...], messages: int) -> Self:
        """Begin a run in a folder, or continue the run that is in the folder.

        Raises RunMismatch if the run in the folder has another domain, devices or number of
        messages.
        """
        state.mkdir(parents=True, exist_ok=True)
        if not (state / _FILE).exists():
            record = cls(secrets.token_hex(8), domain, devices, messages)
            text = json.dumps({"version": _VERSION, **asdict(record)}, indent=1)
            (state / _FILE).write_text(text + "\n")
            return record
        record = cls.load(state)
        if (record.domain, record.devices, record.messages) != (domain, devices, messages):
            text = f"{state} contains a different run (domain, devices or messages)"
            raise RunMismatch(f"{text}; give a new folder")
        return record

    @classmethod
    def load(cls, state: Path) -> Self:
        """Read the record of the run in a folder.

        Raises RunMismatch if the folder contains no run, or its record cannot be read.
        """
        try:
            row = json.loads((state / _FILE).read_text())
            if row.pop("version") != _VERSION:
                text = f"{state / _FILE} is of another version of fieldpost-sim"
                raise RunMismatch(f"{text}; use that version, or give a new folder")
            return cls(**{**row, "devices": tuple(row["devices"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunMismatch(f"{state} contains no run: {error}") from error

    @property
    def planned(self) -> int:
        """Number of messages that all devices of the run send."""
        return len(self.devices) * self.messages

    @property
    def limits(self) -> OutboxLimits:
        """Outbox limits that are high enough to remember every message of the run."""
        return remember(self.messages)

    def jid(self, device: str) -> str:
        """Return a device's full JID."""
        return jid(device, self.domain)

    def believed(self, state: Path) -> dict[Key, State]:
        """Return the state of each message, by source and number, from the devices' outboxes.

        Raises OutboxError if an outbox cannot be read, or its device is still running.
        """
        return believed(state, map(self.jid, self.devices))


def jid(device: str, domain: str) -> str:
    """Return a device's full JID."""
    return f"{device}@{domain}/fw"


def outbox(folder: Path, jid: str) -> Path:
    """Return the path of a device's outbox."""
    return folder / f"{jid.partition('@')[0]}.outbox"


def inbox(folder: Path, jid: str) -> Path:
    """Return the path of a device's inbox."""
    return outbox(folder, jid).with_suffix(".inbox")


def remember(messages: int) -> OutboxLimits:
    """Return outbox limits that are high enough to remember so many messages."""
    return OutboxLimits(keep_done=max(messages, 1), keep_failed=max(messages, 1))


def sent(folder: Path, jid: str) -> list[OutboxRecord]:
    """Return all messages of a stopped device's outbox; none if there is no outbox.

    Raises OutboxError if the outbox cannot be read, or its device is still running.
    """
    path = outbox(folder, jid)
    if not path.exists():
        return []
    with Outbox.open(path, jid) as opened:
        return list(opened.records(*State))


def believed(folder: Path, jids: Iterable[str]) -> dict[Key, State]:
    """Return the state of each message in the outboxes of devices (see `sent`)."""
    return {(jid, int(each.label)): each.state for jid in jids for each in sent(folder, jid)}
