"""Write a simulated fleet to a folder: segments, with arrival times as mtimes, and `truth.json`.

The layout below `segments/` is that of the centre's landing. Names of repeated,
contradicting and damaged files have a word before `.seg`: `again`, `copy`, or the kind of damage.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from firmware_sim.errors import SimulationFailed
from firmware_sim.fleet.settings import FleetSettings
from firmware_sim.fleet.shipping import Delivery
from firmware_sim.fleet.simulate import Fleet

SEGMENTS: Final = "segments"
TRUTH: Final = "truth.json"


def _write(root: Path, delivery: Delivery) -> None:
    path = root / delivery.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(delivery.data)
    nanoseconds = delivery.arrived * 1_000_000
    os.utime(path, ns=(nanoseconds, nanoseconds))


def write_fleet(settings: FleetSettings, folder: Path) -> dict[str, Any]:
    """Simulate a fleet, write it to `folder`, and return the content of `truth.json`.

    Raises `SimulationFailed` if the folder is not empty, and `OSError` if a file cannot be
    written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        msg = f"{folder} is not empty; choose a new folder"
        raise SimulationFailed(msg)
    fleet = Fleet(settings)
    fleet.simulate(partial(_write, folder / SEGMENTS))
    truth = fleet.truth()
    (folder / TRUTH).write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n")
    return truth
