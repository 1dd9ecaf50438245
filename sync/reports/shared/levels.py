"""The levels of log events (XEP-0337, section 4, "type")."""

from __future__ import annotations

from typing import Final

ERROR_LEVELS: Final = ("Error", "Critical", "Alert", "Emergency")
"""The levels of events that count as errors."""

LEVELS: Final = ("Debug", "Informational", "Notice", "Warning", *ERROR_LEVELS)
"""All levels, from the least to the most severe."""
