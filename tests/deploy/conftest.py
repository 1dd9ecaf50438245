"""The wheels that the tests install."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.wheel import DEVICE, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gateway's wheel. That of the firmware library, which it needs, lies beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    build(folder, DEVICE)
    return build(folder)


@pytest.fixture(scope="session")
def device_wheel(wheel: Path) -> Path:
    [found] = wheel.parent.glob("fieldpost_device-*.whl")
    return found
