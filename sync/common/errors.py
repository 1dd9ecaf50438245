"""The errors that the centre reports to its operator."""

from __future__ import annotations


class FleetError(Exception):
    """A command of the centre failed; the text gives the reason, and what to do, in one line."""


class LeaseError(FleetError):
    """Another process is changing the tables; retry in a few seconds."""
