"""The API for firmware in Python: a device that sends and receives with quality of service."""

from firmware_sim.device.device import Device

__all__ = ["Device"]
