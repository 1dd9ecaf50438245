"""The exception of the simulator."""

from __future__ import annotations

from firmware_sim.device.errors import FirmwareError


class SimulationFailed(FirmwareError):
    """A `fieldpost` command, its gateway, or the simulation itself failed; the text says why."""
