"""A gateway without MQTT imports nothing of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from edge import app
from edge.config.limits import Limits
from edge.engine.dispatch.hooks import new_context
new_context("gw.example", Limits(), without={without})
print([name for name in sys.modules if name.startswith("edge") and "mqtt" in name.split(".")])
"""


@pytest.mark.parametrize(("without", "is_imported"), [(("mqtt",), False), ((), True)])
def test_a_gateway_imports_mqtt_only_if_it_serves_it(
    without: tuple[str, ...], is_imported: bool
) -> None:
    program = PROGRAM.format(without=without)
    found = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert (found.strip() != "[]") is is_imported
