"""Advice that both the report's pages and the alerts give."""

from __future__ import annotations

from typing import Final

SILENT: Final = (
    "Check the gateway's power and network link. At the gateway, `fieldpost status` shows whether "
    "it runs, and `fieldpost uplink status` shows why it does not send. It keeps its events and "
    "sends them when it reaches the centre again."
)

QUEUE_STUCK: Final = (
    "Check whether the workers run, and start one. `fieldpost queue show` at the gateway lists the "
    "queue's workers and why each item waits."
)

REFUSALS: Final = (
    "Check what the device sends: too much, too large, or something that it must not send. If the "
    "device is right, raise the limit; `fieldpost status` at the gateway shows how far each limit "
    "is used."
)

SENSOR_SILENT: Final = (
    "Check whether the device has power and reaches its gateway: `journalctl -u fieldpost` at the "
    "gateway shows whether it logs in and whether it is refused."
)
