"""The errors that the centre reports to its operator."""

from __future__ import annotations


class FleetError(Exception):
    """The centre cannot do what was requested; the text says why in one line, and what to do."""


class LeaseError(FleetError):
    """Another process is changing the tables; retry in a moment."""
