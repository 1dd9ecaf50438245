"""What can go wrong in a device, as types: one root, and one class per thing a caller can act on.

It does not hold the errors of a peer: those are outcomes of a message, kept in the outbox.
"""

from __future__ import annotations


class FirmwareError(Exception):
    """The root of all errors that this package raises on purpose."""


class MessageRefused(FirmwareError, ValueError):
    """The message cannot be sent as it is: not XML, not a `<message/>`, or too large."""


class OutboxError(FirmwareError):
    """The outbox is another device's, in use, newer, damaged, or its disk failed."""


class OutboxFull(FirmwareError):
    """The outbox is at its limit of messages or bytes; nothing was taken into it."""


class InboxError(FirmwareError):
    """The inbox is another device's, in use, newer, damaged, or its disk failed."""


class NotSent(FirmwareError):
    """A message of level 0 was not sent and is not kept: no session, or the link is behind."""


class DeviceStopped(FirmwareError):
    """The device is not running, so it can neither send nor wait."""


class ConnectionFailed(FirmwareError):
    """No session came of this attempt to connect; the text says why."""


class GatewayCommandFailed(FirmwareError):
    """The gateway's own command, asked for its events, failed; the text says why."""


class RequestRefused(FirmwareError):
    """The service refused a request; `condition` is the name of its error (RFC 6120, 8.3.3)."""

    def __init__(self, condition: str, text: str = "") -> None:
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition = condition


class Unanswered(FirmwareError):
    """A request got no answer: it may have been done or not."""


class CannotDo(FirmwareError):
    """A worker's own word that it cannot do an item: another shall have it."""


class JobsError(FirmwareError):
    """The file of a worker is another's, in use, newer, damaged, or its disk failed."""


class ScenarioFailed(FirmwareError):
    """A scenario could not be played to its end; the text says why."""
