"""Chance from a seed: a source for each purpose, so that none disturbs another."""

from __future__ import annotations

import random


def chance(seed: int, *purpose: str | int) -> random.Random:
    """Give the source for one purpose: the same seed and words give the same numbers."""
    words = "/".join(str(word) for word in (seed, *purpose))
    return random.Random(words)  # noqa: S311 - seeded chance is repeatable, and no secret
