"""The exceptions of the firmware library."""

from __future__ import annotations


class FirmwareError(Exception):
    """Base class of all errors that this library and the simulator raise."""


class MessageRefused(FirmwareError, ValueError):
    """The message cannot be sent: it is not XML, not a `<message/>`, or too large."""


class OutboxError(FirmwareError):
    """The outbox is damaged, locked, of another device or a newer version, or its disk failed."""


class OutboxFull(FirmwareError):
    """The outbox is at its limit of messages or bytes; the message was not stored."""


class InboxError(FirmwareError):
    """The inbox is damaged, locked, of another device or a newer version, or its disk failed."""


class NotSent(FirmwareError):
    """A message of level 0 was dropped: there is no session, or the write buffer is full."""


class DeviceStopped(FirmwareError):
    """The device or worker is not running."""


class ConnectionFailed(FirmwareError):
    """An attempt to connect failed; the text gives the reason."""


class RequestRefused(FirmwareError):
    """A service refused a request; `condition` is the defined condition (RFC 6120, 8.3.3)."""

    def __init__(self, condition: str, text: str = "") -> None:
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition = condition


class NoAnswer(FirmwareError):
    """A request got no answer, so it is unknown whether it was carried out."""


class CannotDo(FirmwareError):
    """Raised by a worker's function `work` to return an item to the queue for another worker."""


class JobsError(FirmwareError):
    """A worker's file is damaged, locked, another worker's or too new, or its disk failed."""
