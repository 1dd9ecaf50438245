"""Random generators from a seed, one for each purpose."""

from __future__ import annotations

import random


def generator(seed: int, *purpose: str | int) -> random.Random:
    """Return the generator for one purpose: the same seed and words give the same numbers."""
    words = "/".join(str(word) for word in (seed, *purpose))
    return random.Random(words)  # noqa: S311 - seeded chance is repeatable, and no secret
