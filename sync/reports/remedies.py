"""What to do about what both the report's pages and the alerts tell. Judges nothing."""

from __future__ import annotations

from typing import Final

SILENT: Final = (
    "See whether it has power and a link. At the gateway, `fieldpost status` and `fieldpost uplink "
    "status` say whether it runs and why it does not send. What it holds comes when it is back."
)

QUEUE_STUCK: Final = (
    "`fieldpost queue show` at the gateway says why each item waits and who its members are: see "
    "whether the workers run, and start one."
)

REFUSALS: Final = (
    "See what that device sends: too much, too large, or what it may not. If it is right, raise "
    "the limit; `fieldpost status` at the gateway says how each is used."
)

SENSOR_SILENT: Final = (
    "See whether the device has power and reaches its gateway: with `journalctl -u fieldpost` "
    "there, whether it logs in and is refused."
)
