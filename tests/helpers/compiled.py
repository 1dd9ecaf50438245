"""Skip tests that replace functions or constants of compiled modules (`make test-compiled`).

Compiled modules call their own functions and use their own constants directly, and their objects
take no further attributes, so replacing them has no effect or is refused.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from edge.build_kind import build_kind


def skip_patches() -> None:
    """Make `MonkeyPatch.setattr` skip the test if its target is compiled."""
    if build_kind() == "pure":
        return
    replace = pytest.MonkeyPatch.setattr

    def replace_or_skip(
        self: pytest.MonkeyPatch, target: object, *args: Any, **kwargs: Any
    ) -> None:
        module = target if isinstance(target, ModuleType) else sys.modules.get(_module(target))
        if module is not None and str(getattr(module, "__file__", None)).endswith(".so"):
            pytest.skip("the target is compiled")
        replace(self, target, *args, **kwargs)

    pytest.MonkeyPatch.setattr = replace_or_skip  # type: ignore[method-assign]


def _module(target: object) -> str:
    if isinstance(target, str):
        return target.rpartition(".")[0]
    return target.__module__ if isinstance(target, type) else type(target).__module__
