"""What can go wrong at the centre and is told to its operator in one line.

Errors of segments are `sync.segment.SegmentError`; they are the sender's, not the centre's.
"""

from __future__ import annotations


class FleetError(Exception):
    """The centre cannot do what it was asked; the text says why in one line, and what helps."""


class LeaseError(FleetError):
    """Another process is changing the tables; it may be done in a moment."""
